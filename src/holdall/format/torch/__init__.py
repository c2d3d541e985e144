"""PyTorch checkpoints, read without torch and without running anything; legacy files are read, but not written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.text import list_text, plural
from holdall.format.base import Holds, import_late
from holdall.format.torch.layout import LEGACY, TYPE_OF
from holdall.format.torch.native import list_unread_entries
from holdall.format.torch.rules import RULES
from holdall.format.zip.base import ZipFormat

if TYPE_CHECKING:
    from holdall.format.torch.records import OpaqueContent
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["FORMAT"]

# The first entry of an archive of TorchScript, and of a torch.package.
_FIRST = re.compile(rb"[^/]+/(data/\d+|\.data/\d+\.storage)")
_TAIL = 1 << 16  # bytes at the end of a zip that are searched for the name of the pickle


class Torch(ZipFormat):
    """The PyTorch container."""

    name = "torch"
    title = "PyTorch"
    suffixes = (".pt", ".pth", ".ckpt")
    copies_clashing = False  # objects may run code where the copy is loaded
    holds = Holds(
        dtypes=frozenset(TYPE_OF),
        max_rank=64,
        aliases=True,
        foreign_metadata=False,
        free_text=True,
        refuses_name=import_late("holdall.format.torch.write", "name_breach"),
        refuses_metadata=import_late("holdall.format.torch.write", "metadata_breach"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By a zip with a data.pkl in a folder, or the magic number of legacy files."""
        if head.startswith(LEGACY):
            return True
        if not head.startswith(b"PK\3\4") or len(head) < 30:
            return False
        size = int.from_bytes(head[26:28], "little")
        first = source.read(30, size) if size <= source.size - 30 else b""
        if b"/" not in first or first.endswith(b"/data.pkl"):
            return b"/" in first
        if _FIRST.fullmatch(first):
            return True
        tail = min(_TAIL, source.size)
        names = source.read(source.size - tail, tail)
        return b"/data.pkl" in names or b"/.data/extern_modules" in names

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """The objects of classes that are not known, and the program of TorchScript or of a torch.package."""
        opaque = _find_opaque(model)
        described = None if opaque is None else opaque.describe()
        return {} if opaque is None or described is None else {"objects": f"{described} of {opaque.what}"}

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """The classes of the objects, with the number of each."""
        opaque = _find_opaque(model)
        return {} if opaque is None or not opaque.classes else {"objects": dict(opaque.classes)}

    def clashing_content(self, model: Model) -> Mapping[str, str]:
        """The same: the writer never writes objects."""
        return self.unique_content(model)

    def copies_as_it_is(self, model: Model) -> bool:
        """Not a file with arrays or numbers of numpy, which ``torch.load(weights_only=True)`` refuses."""
        opaque = _find_opaque(model)
        return opaque is None or not (opaque.arrays or opaque.numbers)

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """A file with arrays or numbers of numpy, which would be written as tensors and plain numbers."""
        opaque = _find_opaque(model)
        return None if opaque is None else f"it is {opaque.what}, of which only tensors can be written: convert it"

    def list_unchecked(self, model: Model) -> list[str]:
        """Objects, the program of TorchScript, and the entries beside it that are not read."""
        opaque = _find_opaque(model)
        described = None if opaque is None else opaque.describe(most=3)
        return [*([described] if described else []), *list_unread_entries(model.native)]

    def describe(self, model: Model) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
        """What the file is, and the classes that stay opaque, if it holds objects."""
        opaque = _find_opaque(model)
        if opaque is None:
            return {}
        found: dict[str, str | Sequence[Mapping[str, Any]]] = {"content": opaque.what}
        if opaque.arrays or opaque.numbers:
            found["numpy"] = f"{plural(opaque.arrays, 'array')}, {plural(opaque.numbers, 'number')}"
        if opaque.others:
            count = plural(len(opaque.others), "resource")
            found["not read"] = f"{count}, no pickles: {list_text(opaque.others, most=3)}"
        if opaque.cut:
            found["cut"] = f"{plural(len(opaque.cut), 'path')} to objects that have one already"
        rows = [{"opaque class": name, "objects": count} for name, count in opaque.list_classes()]
        return found | ({"opaque class": rows} if rows else {})


def _find_opaque(model: Model) -> OpaqueContent | None:
    opaque: OpaqueContent | None = getattr(model.native, "opaque", None)
    return opaque


FORMAT = Torch()
