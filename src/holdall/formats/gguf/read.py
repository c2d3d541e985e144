"""Reading GGUF: one file, or all parts of a split model, as one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.formats.gguf.part import Part, read_part
from holdall.formats.gguf.splits import KEYS, first_part, joined, read_parts
from holdall.metadata import Entry, Metadata
from holdall.model import Model

if TYPE_CHECKING:
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["GgufNative", "read"]


@dataclass(frozen=True, slots=True)
class GgufNative:
    """What only GGUF has: on what multiples payloads begin, and the files that a split model is made of.

    ``part`` is set on models about to be written as one of several files: its number from 0 on, how many there are,
    and how many tensors all of them have.
    """

    alignment: int = 32
    files: tuple[str, ...] = ()
    part: tuple[int, int, int] | None = None


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``, and in the parts beside it."""
    if source.is_folder:
        first = source.sibling(first_part(source, check))
        opened = read_part(first, check, ledger.member(first))
    else:
        opened = read_part(source, check, ledger)
    parts = [opened]
    with check.scope():
        parts = read_parts(opened, source, check, ledger)
    if check.collecting:
        for part in parts:
            part.prove(check)
    limits = check.limits
    return Model(
        joined(parts),
        metadata=Metadata(lambda: _entries(parts, Check(limits=limits))),
        native=GgufNative(parts[0].alignment, tuple(part.source.name for part in parts) if len(parts) > 1 else ()),
        format="gguf",
        version=(parts[0].version,),
        sources=[source, *(part.source for part in parts if part.source is not source)],
        ledger=ledger,
    )


def _entries(parts: list[Part], check: Check) -> list[Entry]:
    """The metadata of the first part; how a model was split is no part of it."""
    entries = parts[0].entries(check)
    return entries if len(parts) == 1 else [entry for entry in entries if entry.key not in KEYS]
