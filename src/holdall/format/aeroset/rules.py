"""What a set of AERO files must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

JSON: Final = Rule("aeroset.json", "the index is one JSON object without duplicate keys")
FIELD: Final = Rule("aeroset.field", "format, parts and global_tidx have the fields and types that the format names")
VERSION: Final = Rule("aeroset.version", "the format is AEROSET, version 0.1 or 0.2")
SHARDS: Final = Rule("aeroset.shards", "a shard is in one part only")
TWICE: Final = Rule("aeroset.parts", "a file is one part only")
NO_INDEX: Final = Rule("aeroset.index.absent", "the set has a global index", "strict")
MISSING: Final = Rule("aeroset.file", "every file of the set is there")
SIZE: Final = Rule("aeroset.size", "a file of the set has the size that the index states")
HASH: Final = Rule("aeroset.sha256", "the SHA-256 of a file is the one in the index", "full")
NO_PART: Final = Rule("aeroset.tensor.part", "every tensor's shard is in a part")
AGREE: Final = Rule("aeroset.tensor.agree", "a part has each of its tensors as the global index describes it")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
