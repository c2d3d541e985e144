"""npz, numpy's zip of arrays; a single npy array is read too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.format.base import Holds, import_late
from holdall.format.npz.layout import CODE_OF, MAGIC, OPAQUE, SUFFIX
from holdall.format.npz.rules import RULES
from holdall.format.zip.base import ZipFormat

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["FORMAT"]


class Npz(ZipFormat):
    """The npz container."""

    name = "npz"
    title = "npz (NumPy)"
    suffixes = (".npz",)
    plain_arrays = True
    holds = Holds(
        dtypes=frozenset(CODE_OF),
        opaque=OPAQUE,
        max_rank=32,
        foreign_metadata=False,
        free_text=True,
        names="any relative path but __metadata__ and what ends in .npy",
        refuses_name=import_late("holdall.format.npz.write", "name_breach"),
        refuses_metadata=import_late("holdall.format.npz.metadata", "breach"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic of an array, or a zip whose first entry ends in .npy; an empty zip is an npz too."""
        if head.startswith((MAGIC, b"PK\5\6")):
            return len(head) >= 10
        if not head.startswith(b"PK\3\4") or len(head) < 30:
            return False
        size = int.from_bytes(head[26:28], "little")
        return size <= source.size - 30 and source.read(30, size).endswith(SUFFIX.encode())

    def copies_as_it_is(self, model: Model) -> bool:
        """Not a lone npy array, which numpy would not read as an npz."""
        from holdall.format.npz.read import NpzNative

        return not isinstance(model.native, NpzNative) or model.native.archive is not None

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """A lone npy array cannot be edited: its file has no place for names and metadata."""
        from holdall.format.npz.read import NpzNative

        if isinstance(model.native, NpzNative) and model.native.archive is None:
            return "a single .npy array has no name and no metadata to edit, and is not written: convert it to npz"
        return None


FORMAT = Npz()
