"""What PyTorch checkpoints must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall import ziplayout
from holdall.check import Rule

__all__ = ["RULES"]

PICKLE: Final = Rule("torch.pickle.missing", "the archive has one data.pkl")
BROKEN: Final = Rule("torch.pickle.broken", "the pickle is whole")
OPCODE: Final = Rule("torch.pickle.opcode", "the pickle uses only what plain values and tensors need")
GLOBAL: Final = Rule("torch.pickle.global", "the pickle names only what rebuilds tensors and plain containers")
CALL: Final = Rule("torch.pickle.call", "what the pickle calls gets the arguments it takes")
VALUE: Final = Rule("torch.pickle.value", "values are plain: text, numbers, flags, bytes, lists, tuples, dicts")
SIZE: Final = Rule("torch.pickle.size", "the content stays in proportion to the pickle")

BYTEORDER: Final = Rule("torch.byteorder", "byteorder is little or big")
STORAGE: Final = Rule("torch.storage.missing", "every storage that a tensor uses is there")
STORAGE_SIZE: Final = Rule("torch.storage.size", "a storage has as many bytes as the pickle says")
TENSOR: Final = Rule("torch.tensor.range", "a tensor lies inside its storage")
DUPLICATE: Final = Rule("torch.name.duplicate", "names stay apart when nested containers are flattened")
LEGACY: Final = Rule("torch.legacy.order", "a legacy file is its pickles, then its storages")

RULES: Final = (*ziplayout.RULES, *(value for value in list(globals().values()) if isinstance(value, Rule)))
