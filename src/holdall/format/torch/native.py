"""What only PyTorch files have."""

from __future__ import annotations

from dataclasses import dataclass

from holdall.format.torch.nesting import Nesting
from holdall.format.torch.records import OpaqueContent
from holdall.format.zip.archive import Archive

__all__ = ["TorchNative", "list_unread_entries"]

_UNREAD = {"traced_inputs.pkl": "the inputs of a trace", "extra/": "the extra files of the program"}  # of TorchScript


@dataclass(frozen=True, slots=True, eq=False)
class TorchNative:
    """The archive, its top folder, how the tensors are nested, and the objects beside them.

    ``archive`` is None for a legacy file, ``nesting`` is flat for a file with objects that are not all arrays of numpy,
    and ``opaque`` is None for a file without objects.
    """

    archive: Archive | None = None
    root: str = "archive"
    nesting: Nesting | None = None
    opaque: OpaqueContent | None = None

    @property
    def notes(self) -> list[str]:
        """Notes for a report when the file is written again."""
        legacy = "was a legacy file, from before there was a zip: written as a zip"
        notes = [legacy] if self.archive is None else self.archive.notes
        if self.opaque is None:
            return notes
        how = "written as tensors and plain numbers" if self.opaque.nested else "its tensors are written as a flat dict"
        return [*notes, f"was {self.opaque.what}: {how}"]


def list_unread_entries(native: object) -> list[str]:
    """List what an archive of TorchScript holds beside tensors, objects and its program."""
    if not isinstance(native, TorchNative) or native.archive is None or native.opaque is None or not native.opaque.code:
        return []
    starts_with = native.archive.directory.starts_with
    return [what for name, what in _UNREAD.items() if starts_with(native.root + name).any()]
