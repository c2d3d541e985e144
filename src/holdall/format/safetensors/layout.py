"""The safetensors container: the length of the header, the JSON header, and the data.

======================= ===========================================================================================
``HEADER``              N, the length of the JSON that follows
N bytes                 ``{"__metadata__": {text: text}, NAME: {"dtype", "shape", "data_offsets": [BEGIN, END]}, ...}``,
                        padded with spaces; offsets count from the end of the header
the rest                the tensors, without holes between them and without shared bytes
======================= ===========================================================================================
"""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import U64, Layout

__all__ = ["CAP", "DTYPES", "FIELDS", "HEADER", "INDEX_SUFFIX", "METADATA", "ORDER", "WORD_OF"]

HEADER: Final = Layout("header", length=U64)

METADATA: Final = "__metadata__"
FIELDS: Final = ("dtype", "shape", "data_offsets")

INDEX_SUFFIX: Final = ".safetensors.index.json"  # its file maps tensors to the files of a sharded model

CAP: Final = 100_000_000  # bytes of header; the format's own library refuses more

# Every dtype, by rising alignment: the format's own library lays tensors out from the end of this list to its
# beginning, and by name among equals.
DTYPES: Final = {
    "BOOL": "bool",
    "F4": "f4_e2m1",
    "F6_E2M3": "f6_e2m3",
    "F6_E3M2": "f6_e3m2",
    "U8": "u8",
    "I8": "i8",
    "F8_E5M2": "f8_e5m2",
    "F8_E4M3": "f8_e4m3",
    "F8_E8M0": "f8_e8m0",
    "F8_E4M3FNUZ": "f8_e4m3fnuz",
    "F8_E5M2FNUZ": "f8_e5m2fnuz",
    "I16": "i16",
    "U16": "u16",
    "F16": "f16",
    "BF16": "bf16",
    "I32": "i32",
    "U32": "u32",
    "F32": "f32",
    "C64": "c64",
    "F64": "f64",
    "I64": "i64",
    "U64": "u64",
}

WORD_OF: Final = {name: word for word, name in DTYPES.items()}
ORDER: Final = {name: -place for place, name in enumerate(DTYPES.values())}
