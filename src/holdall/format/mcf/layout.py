"""The MCF tables, most of which the format's document does not have. All integers are little-endian."""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import F32, U8, U16, U32, U64, Layout, raw
from holdall.quant import methods

__all__ = ["ALIGN", "ALIGNED64", "ASSETS", "BLOCK_ALIGN", "CHAT_TEMPLATE", "DTYPES", "DTYPE_IDS", "ENTRY", "HEADER"]
__all__ += ["INDEX", "INT4", "LOOSE"]
__all__ += ["INT8", "KV", "MAGIC", "MAJOR", "METHODS", "MODELINFO", "MODEL_INFO", "NAMES_SORTED", "NAMES_UTF8"]
__all__ += ["PACK_ORDER", "QUANT", "QUANTINFO", "QUANT_INFO", "SECTION", "SECTION_NAMES", "TENSOR_DATA", "TENSOR_INDEX"]
__all__ += ["option_name", "section_name", "section_type"]

MAGIC: Final = b"MCF\0"
MAJOR: Final = 1
ALIGN: Final = 8  # sections and the directory start at multiples of it
BLOCK_ALIGN: Final = methods.ALIGN  # quantized payloads and the regions inside them start at multiples of it
ALIGNED64: Final = 1  # bit 0 of the header's flags

HEADER: Final = Layout(
    "header",
    magic=raw(4),
    major=U16,
    minor=U16,
    header_size=U32,
    section_count=U32,
    section_dir_offset=U64,
    file_size=U64,
    flags=U64,
)

# Offsets of sections are absolute; size is the exact payload, without padding.
SECTION: Final = Layout("section", type=U32, version=U32, offset=U64, size=U64)

MODEL_INFO, QUANT_INFO, TENSOR_INDEX, TENSOR_DATA = 1, 2, 3, 4

# The sections of Hugging Face files, by type.
ASSETS: Final = {
    0x100: "config.json",
    0x101: "generation_config.json",
    0x102: "tokenizer.json",
    0x103: "tokenizer_config.json",
    0x104: "vocab.json",
    0x105: "merges.txt",
}

CHAT_TEMPLATE: Final = "chat_template.jinja"  # has no section: packing merges it into tokenizer_config.json

# The order in which the packer writes these sections.
PACK_ORDER: Final = (0x100, 0x101, 0x102, 0x104, 0x103, 0x105)

SECTION_NAMES: Final = {
    MODEL_INFO: "ModelInfo",
    QUANT_INFO: "QuantInfo",
    TENSOR_INDEX: "TensorIndex",
    TENSOR_DATA: "TensorData",
    **ASSETS,
}

# What the sections have that belong to a TensorIndex, and are of no use without it.
LOOSE: Final = {TENSOR_DATA: "bytes", QUANT_INFO: "records"}

# The four offsets of the index are relative to the start of its section.
INDEX: Final = Layout(
    "tensor index",
    version=U32,
    flags=U32,
    tensor_count=U32,
    dims_count=U32,
    entries_off=U64,
    dims_off=U64,
    strings_off=U64,
    strings_size=U64,
)

NAMES_SORTED: Final = 1  # bits of the index's flags
NAMES_UTF8: Final = 2

# dim_off counts dims, not bytes; data_off is absolute.
ENTRY: Final = Layout(
    "tensor",
    name_off=U32,
    name_len=U32,
    dtype=U32,
    rank=U32,
    dim_off=U32,
    reserved=U32,
    data_off=U64,
    data_size=U64,
)

# Offsets in ModelInfo are relative to the start of its section; 0 stands for an absent text.
MODELINFO: Final = Layout(
    "model info",
    version=U32,
    flags=U32,
    arch=U32,
    pad=U32,
    vocab_size=U32,
    hidden_size=U32,
    layer_count=U32,
    head_count=U32,
    head_count_kv=U32,
    context_length=U32,
    train_context=U32,
    rope_type=U32,
    rope_freq_base=F32,
    rope_scale=F32,
    model_name_off=U64,
    base_model_off=U64,
    kv_count=U32,
    kv_pad=U32,
    kv_off=U64,
)

KV: Final = Layout("model info entry", key_off=U64, type=U32, pad=U32, value_off=U64)

QUANTINFO: Final = Layout("quant info", version=U32, record_count=U32)

QUANT: Final = Layout(
    "quant record",
    tensor_index=U32,
    method=U8,
    domain=U8,
    block_size=U16,
    super_size=U16,
    reserved=raw(6),
    min_clip=F32,
    max_clip=F32,
)

DTYPES: Final = {
    1: "f32",
    2: "f16",
    3: "bf16",
    4: "f64",
    5: "i8",
    6: "u8",
    7: "i16",
    8: "u16",
    9: "i32",
    10: "u32",
    11: "i64",
    12: "u64",
}

# Quantized types: the id is both the tensor's dtype and the method of its record.
METHODS: Final = {method.id: method for method in methods.METHODS.values()}

INT8, INT4 = methods.METHODS["int8"].id, methods.METHODS["int4"].id

DTYPE_IDS: Final = {
    **{name: number for number, name in DTYPES.items()},
    **{f"mcf.{method.name}": number for number, method in METHODS.items()},
}

_TYPES: Final = {name: number for number, name in SECTION_NAMES.items()}


def option_name(asset: str) -> str:
    """The writer option that replaces an asset.

    >>> option_name("tokenizer_config.json")
    'tokenizer_config'
    """
    return asset.partition(".")[0]


def section_name(type: int) -> str:
    """The name of a type of section, or the number in hex if it has no name.

    >>> section_name(3), section_name(0x200)
    ('TensorIndex', '0x0200')
    """
    return SECTION_NAMES.get(type, f"{type:#06x}")


def section_type(name: str | int) -> int | None:
    """The type of the section called ``name``; None for an unknown name.

    >>> section_type("TensorIndex"), section_type("0x0200"), section_type("Index")
    (3, 512, None)
    """
    if isinstance(name, int):
        return name
    if name in _TYPES:
        return _TYPES[name]
    try:
        return int(name, 16) if name[:2].lower() == "0x" else None
    except ValueError:
        return None
