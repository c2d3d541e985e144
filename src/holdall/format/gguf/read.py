"""Reading GGUF: one file, or all parts of a split model, as one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.format.gguf.gguf_file import GgufFile, read_file
from holdall.format.gguf.splits import KEYS, first_part, join_tables, read_all_parts
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model

if TYPE_CHECKING:
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["GgufNative", "read"]


@dataclass(frozen=True, slots=True)
class GgufNative:
    """What only GGUF has: the alignment of payloads, and the files of a split model.

    ``part`` is set on a model that is about to be written as one of several files: the number of the part, from 0
    on, how many parts there are, and how many tensors they have together.
    """

    alignment: int = 32
    files: tuple[str, ...] = ()
    part: tuple[int, int, int] | None = None


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``, and in the parts beside it."""
    if source.is_folder:
        first = source.sibling(first_part(source, check))
        opened = read_file(first, check, ledger.member(first))
    else:
        opened = read_file(source, check, ledger)
    parts = [opened]
    with check.scope():
        parts = read_all_parts(opened, source, check, ledger)
    if check.collecting:
        for part in parts:
            part.prove(check)
    limits = check.limits
    return Model(
        join_tables(parts),
        metadata=Metadata(lambda: _collect_entries(parts, Check(limits=limits))),
        native=GgufNative(parts[0].alignment, tuple(part.source.name for part in parts) if len(parts) > 1 else ()),
        format="gguf",
        version=(parts[0].version,),
        sources=[source, *(part.source for part in parts if part.source is not source)],
        ledger=ledger,
    )


def _collect_entries(parts: list[GgufFile], check: Check) -> list[Entry]:
    """Collect the metadata of the first part, without the entries that say how the model was split."""
    entries = parts[0].entries(check)
    return entries if len(parts) == 1 else [entry for entry in entries if entry.key not in KEYS]
