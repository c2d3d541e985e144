"""What a Hugging Face folder must obey beside the rules of its safetensors files: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule
from holdall.format.hf_assets import ASSET

__all__ = ["RULES"]

WEIGHTS: Final = Rule("hf.folder.weights", "the folder has model.safetensors, one index, or one *.safetensors")
BOTH: Final = Rule("hf.folder.both", "the folder has no index beside model.safetensors", "strict", "warning")

JSON: Final = Rule("hf.index.json", "the index is strict JSON")
DUPLICATE: Final = Rule("hf.index.duplicate", "keys of the index are unique")
TYPE: Final = Rule("hf.index.type", "the index is an object with an object weight_map of texts")
MISSING: Final = Rule("hf.index.missing", "every tensor of the index is in the file that it names")
UNLISTED: Final = Rule("hf.index.unlisted", "every tensor of a file is in the index")
TOTAL: Final = Rule("hf.index.total_size", "total_size is what the tensors take together", "strict", "warning")

SHARED: Final = Rule("hf.shard.duplicate", "no tensor is in two files")
METADATA: Final = Rule("hf.shard.metadata", "the files of a model agree on its metadata", "strict", "warning")

RULES: Final = (*(value for value in list(globals().values()) if isinstance(value, Rule) and value is not ASSET), ASSET)
