"""npz, numpy's zip of arrays; a single npy array is read too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Tick
from holdall.formats.npz.layout import CODE_OF, MAGIC, SUFFIX
from holdall.formats.npz.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.payload import Span
    from holdall.plan import Plan
    from holdall.proof import Proof
    from holdall.source import Source

__all__ = ["FORMAT"]


def _refuses_name(name: str) -> str | None:
    from holdall.formats.npz.write import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.npz.metadata import breach

    return breach(key, value)


class Npz(Format):
    """The npz container."""

    name = "npz"
    title = "npz (NumPy)"
    suffixes = (".npz",)
    holds = Holds(
        dtypes=frozenset(CODE_OF),
        max_rank=32,
        foreign_metadata=False,
        free_text=True,
        names="any relative path but __metadata__ and what ends in .npy",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic of an array, or a zip whose first entry is called like one; a zip of nothing is an npz too."""
        if head.startswith((MAGIC, b"PK\5\6")):
            return len(head) >= 10
        if not head.startswith(b"PK\3\4") or len(head) < 30:
            return False
        size = int.from_bytes(head[26:28], "little")
        return size <= source.size - 30 and source.read(30, size).endswith(SUFFIX.encode())

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """The directory and the header of every array."""
        from holdall.formats.npz.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """Stored entries, as ``numpy.savez``."""
        from holdall.formats.npz.write import plan

        return plan(model, options)

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """A lone array: its file has no place for names and metadata."""
        from holdall.formats.npz.read import NpzNative

        if isinstance(model.native, NpzNative) and model.native.archive is None:
            return "a single .npy array has no name and no metadata to edit, and is not written: convert it to npz"
        return None

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """The CRC-32s of the archive."""
        from holdall.formats.npz.read import NpzNative

        archive = model.native.archive if isinstance(model.native, NpzNative) else None
        return () if archive is None else archive.proofs(spans)

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """The CRC-32 of every entry."""
        from holdall import zipfiles
        from holdall.formats.npz.read import NpzNative

        if isinstance(model.native, NpzNative) and model.native.archive is not None:
            zipfiles.audit(model.native.archive, check, tick)


FORMAT = Npz()
