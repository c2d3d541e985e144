"""The GPTRSCHK and GPTRSTEN tables, as in the format's document. All integers little-endian, nothing aligned."""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import U8, U32, U64, Layout, array, blob, raw, text

__all__ = ["ALIGN", "ARCHIVE_ENTRY", "ARCHIVE_MAGIC", "CHECKPOINT_ENTRY", "CHECKPOINT_MAGIC", "CONFIG_LENGTH", "COUNT"]
__all__ += ["DTYPES", "DTYPE_TAG", "HEADER", "INDEX_LENGTH", "INLINE_ENTRY", "MEMBERS", "NEW_DTYPES"]

CHECKPOINT_MAGIC: Final = b"GPTRSCHK"
ARCHIVE_MAGIC: Final = b"GPTRSTEN"
ALIGN: Final = 64  # payloads of the aligned form start at multiples of it in the file

# In a checkpoint the length of the configuration and the configuration follow. Then, in both formats, version 2 has
# the length of the index and the index, and version 1 the number of tensors and the tensors.
HEADER: Final = Layout("header", magic=raw(8), version=U32)
CONFIG_LENGTH: Final = Layout("configuration length", config_len=U32)
INDEX_LENGTH: Final = Layout("index length", index_len=U32)
COUNT: Final = Layout("index", tensor_count=U32)

_HEAD = {"rank": U32, "dims": array(U64, "rank"), "dtype": U32, "flag": U8}

# The stored id is 128 bits; 0 means that it is not stored.
CHECKPOINT_ENTRY: Final = Layout("tensor", name=text(U32), id_low=U64, id_high=U64, **_HEAD, offset=U64, byte_len=U64)

ARCHIVE_ENTRY: Final = Layout("tensor", name=text(U32), **_HEAD, offset=U64, byte_len=U64)

INLINE_ENTRY: Final = Layout("tensor", name=text(U32), **_HEAD, byte_len=U64, data=blob("byte_len"))  # version 1

MEMBERS: Final = ("kind", "config", "runtime", "eos_token_ids")  # of the configuration that programs know

DTYPES: Final = ("f32", "f16", "bf16", "i32")  # by tag
NEW_DTYPES: Final = ("f16", "bf16")  # the first readers of version 2 refuse them
DTYPE_TAG: Final = {name: tag for tag, name in enumerate(DTYPES)}
