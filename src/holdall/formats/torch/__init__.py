"""PyTorch checkpoints, read without torch and without running anything; zip archives are written, legacy files read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Tick
from holdall.formats.torch.layout import LEGACY, TYPE_OF
from holdall.formats.torch.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.payload import Span
    from holdall.plan import Plan
    from holdall.proof import Proof
    from holdall.source import Source

__all__ = ["FORMAT"]

_TAIL = 1 << 16  # bytes at the end of a zip in which the name of the pickle is looked for


def _refuses_name(name: str) -> str | None:
    from holdall.formats.torch.write import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.torch.write import metadata_breach

    return metadata_breach(key, value)


class Torch(Format):
    """The PyTorch container."""

    name = "torch"
    title = "PyTorch"
    suffixes = (".pt", ".pth", ".ckpt")
    holds = Holds(
        dtypes=frozenset(TYPE_OF),
        max_rank=64,
        aliases=True,
        foreign_metadata=False,
        free_text=True,
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By a zip that has a data.pkl in a folder, or the magic number of legacy files."""
        if head.startswith(LEGACY):
            return True
        if not head.startswith(b"PK\3\4") or len(head) < 30:
            return False
        size = int.from_bytes(head[26:28], "little")
        first = source.read(30, size) if size <= source.size - 30 else b""
        if b"/" not in first or first.endswith(b"/data.pkl"):
            return b"/" in first
        tail = min(_TAIL, source.size)
        return b"/data.pkl" in source.read(source.size - tail, tail)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """The pickle and the directory; storages stay where they are."""
        from holdall.formats.torch.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """A zip checkpoint with a state dict."""
        from holdall.formats.torch.write import plan

        return plan(model, options)

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """The CRC-32s of the archive."""
        from holdall.formats.torch.read import TorchNative

        archive = model.native.archive if isinstance(model.native, TorchNative) else None
        return () if archive is None else archive.proofs(spans)

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """The CRC-32 of every entry."""
        from holdall import zipfiles
        from holdall.formats.torch.read import TorchNative

        if isinstance(model.native, TorchNative) and model.native.archive is not None:
            zipfiles.audit(model.native.archive, check, tick)


FORMAT = Torch()
