"""The rules of GPTRSCHK and GPTRSTEN files, one row each."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

MAGIC: Final = Rule("gptrs.header.magic", "the file begins with GPTRSCHK or GPTRSTEN")
VERSION: Final = Rule("gptrs.header.version", "the version is 1 or 2")
SHORT: Final = Rule("gptrs.header.short", "header, configuration and index lie inside the file")

CONFIG_JSON: Final = Rule("gptrs.config.json", "the configuration is strict JSON")
CONFIG_KIND: Final = Rule(
    "gptrs.config.kind", "the configuration has a kind, or is a complete legacy gpt configuration"
)
CONFIG_RUNTIME: Final = Rule("gptrs.config.runtime", "runtime is null or an object of known shape")
CONFIG_DUPLICATE: Final = Rule("gptrs.config.duplicate", "keys of the configuration are unique", "strict")

ENTRY: Final = Rule("gptrs.index.entry", "entries end inside the index")
NAME_UTF8: Final = Rule("gptrs.index.utf8", "names are UTF-8")
NAME_ASCII: Final = Rule("gptrs.index.ascii", "names in a checkpoint are ASCII: others have no base id")
DUPLICATE: Final = Rule("gptrs.index.duplicate", "names are unique")
BASE_ID: Final = Rule("gptrs.index.base_id", "a stored base id is 0 or that of the name")
INDEX_END: Final = Rule("gptrs.index.trailing", "the index ends with its last entry", "strict")
SORTED: Final = Rule("gptrs.index.order", "entries are sorted by name", "strict")

DTYPE: Final = Rule("gptrs.tensor.dtype", "dtype_tag is 0-3")
SIZE: Final = Rule("gptrs.tensor.size", "byte_len is what dtype and dims need")
OLD_READERS: Final = Rule("gptrs.tensor.old_readers", "f32 and i32 are all that older readers take", severity="note")
SCALAR: Final = Rule("gptrs.tensor.scalar", "tensors have dimensions, else the Rust reader panics", severity="note")
PLACE: Final = Rule("gptrs.tensor.place", "payloads lie inside the file")
BEFORE_DATA: Final = Rule("gptrs.tensor.before_data", "payloads lie after the index", "strict")
OVERLAP: Final = Rule("gptrs.tensor.overlap", "payloads do not share bytes", "strict")
TRAILING: Final = Rule("gptrs.file.trailing", "the file ends with its last payload", "strict")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
