"""What PyTorch checkpoints must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule
from holdall.format.zip import layout as zip_layout

__all__ = ["RULES"]

PICKLE: Final = Rule("torch.pickle.missing", "the archive has one data.pkl")
BROKEN: Final = Rule("torch.pickle.broken", "the pickle is whole")
OPCODE: Final = Rule("torch.pickle.opcode", "the pickle uses only what plain values and tensors need")
GLOBAL: Final = Rule(
    "torch.pickle.global", "the pickle names only what rebuilds tensors and plain containers", severity="unread"
)
OBJECT: Final = Rule(
    "torch.pickle.object", "the pickle holds plain values and tensors in plain containers, and no objects",
    severity="unread",
)  # fmt: skip
TEXT: Final = Rule("torch.pickle.text", "texts are whole: none has half of a surrogate pair", severity="unread")
CALL: Final = Rule("torch.pickle.call", "what the pickle calls gets the arguments it takes")
STATE: Final = Rule("torch.pickle.state", "the attributes that the pickle sets on a tensor do not change its values")
VALUE: Final = Rule("torch.pickle.value", "values are plain: text, numbers, flags, bytes, lists, tuples, dicts")
SIZE: Final = Rule("torch.pickle.size", "the content stays in proportion to the pickle", severity="unread")
UNUSUAL: Final = Rule(
    "torch.pickle.unusual",
    "objects of Python and arrays of numpy are made the way these pickle them",
    severity="unread",
)
OPAQUE: Final = Rule(
    "torch.pickle.opaque", "the pickle names only classes that are known; objects of others stay data", "structure",
    "warning",
)  # fmt: skip
RESOURCE: Final = Rule("torch.package.resource", "the resources of a package are pickles", "structure", "note")
CUT: Final = Rule("torch.pickle.cut", "one path leads to each object", "structure", "note")

BYTEORDER: Final = Rule("torch.byteorder", "byteorder is little or big")
STORAGE: Final = Rule("torch.storage.missing", "every storage that a tensor uses is there")
STORAGE_SIZE: Final = Rule("torch.storage.size", "a storage has as many bytes as the pickle says")
DEFLATED: Final = Rule(
    "torch.storage.deflated", "storages are not deflated: PyTorch maps them unchanged", "structure", "warning"
)  # fmt: skip
MAPPED: Final = Rule("torch.storage.mapped", "torch.load reads the same values with mmap=True", "strict")
TENSOR: Final = Rule("torch.tensor.range", "a tensor lies inside its storage")
MIRRORED: Final = Rule(
    "torch.tensor.mirrored", "a negative or conjugate view is one of numbers that have a negative or conjugate",
    severity="unread",
)  # fmt: skip
LEGACY: Final = Rule("torch.legacy.order", "a legacy file is its pickles, then its storages")

RULES: Final = (*zip_layout.RULES, *(value for value in list(globals().values()) if isinstance(value, Rule)))
