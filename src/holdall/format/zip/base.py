"""What formats have in common whose files are zip archives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdall.format.base import Format, OnProgress

if TYPE_CHECKING:
    from holdall.base.check import Check
    from holdall.format.proof import Stated
    from holdall.format.zip.archive import Archive
    from holdall.model.model import Model
    from holdall.model.payload import Span

__all__ = ["ZipFormat"]


class ZipFormat(Format):
    """A format whose models have the ``archive`` in their native part, or None there for files that are no zip."""

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Stated]:
        """The CRC-32s of the archive."""
        archive: Archive | None = getattr(model.native, "archive", None)
        return () if archive is None else archive.proofs(spans)

    def audit(self, model: Model, check: Check, on_progress: OnProgress) -> None:
        """The CRC-32 of every entry."""
        archive: Archive | None = getattr(model.native, "archive", None)
        if archive is not None:
            archive.audit(check, on_progress)
