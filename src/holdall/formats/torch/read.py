"""Reading PyTorch checkpoints: the pickle by the machine that runs nothing, the storages where they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.check import Check
from holdall.formats.torch import legacy, rules
from holdall.formats.torch.content import Refused, Storage, TensorRef
from holdall.formats.torch.flatten import Content, flatten
from holdall.formats.torch.front import Forgotten, Front, find_front
from holdall.formats.torch.keys import numbers_of
from holdall.formats.torch.layout import LEGACY
from holdall.formats.torch.nesting import Nesting
from holdall.formats.torch.pickle import Machine
from holdall.formats.torch.refs import Refs
from holdall.formats.torch.tensors import Place, Storages, lay_out, width_of
from holdall.inflated import Inflated, read_part
from holdall.metadata import Metadata
from holdall.model import Model
from holdall.zipfiles import STORED, Archive, read_archive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["TorchNative", "read"]


@dataclass(frozen=True, slots=True, eq=False)
class TorchNative:
    """What only PyTorch files have: the archive (None for a legacy file), what its first folder is called, and the
    containers that the tensors are in (None for a flat dict)."""

    archive: Archive | None = None
    root: str = "archive"
    nesting: Nesting | None = None

    @property
    def notes(self) -> list[str]:
        """What is worth telling when the file is written again."""
        legacy = "was a legacy file, from before there was a zip: written as a zip"
        return [legacy] if self.archive is None else self.archive.notes


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``."""
    if source.read(0, min(len(LEGACY), source.size)) == LEGACY:
        return legacy.read(source, check, ledger)
    archive = read_archive(source, check, ledger, "torch")
    root, row = _pickle_row(archive, check)
    pickle = archive.payload(row)
    base = int(archive.starts[row])
    check.limit("index_bytes", pickle.size, base, "torch: bytes of data.pkl")
    if isinstance(pickle, Inflated):
        # Twice: a byte of a pickle takes longer than one of other documents.
        check.limit_document(2 * pickle.size, source.size, base, "torch: bytes of data.pkl, inflated, twice")
    content = run(read_part(pickle, 0, pickle.size), base, check)
    swapped = _swapped(archive, root, check)
    storages = _ZipStorages(archive, root, base, check)
    table = lay_out(content.refs, storages, source, swapped, base, check)
    _own(archive, ledger, storages.inside)
    return Model(
        table,
        metadata=Metadata(content.entries),
        native=TorchNative(archive, root, content.nesting),
        format="torch",
        sources=[source],
        ledger=ledger,
    )


def run(data: bytes, base: int, check: Check) -> Content:
    """The content of the one pickle in ``data``."""
    front = find_front(data, check.limits)
    # What follows the front may have to be run twice: not worth it where that is most of the pickle.
    found = None if front is None or front.at < len(data) // 2 else _after(front, data, base, check)
    if found is not None:
        return found
    machine = Machine(data, check.limits)
    value: Any = None
    end = 0
    try:
        value, end = machine.run(0)
    except Refused as refused:
        check.fail(refused.rule, base + refused.at, f"torch: {refused.message}")
    if end != len(data):
        check.fail(rules.BROKEN, base + end, f"torch: {len(data) - end} bytes follow the pickle")
    return flatten(value, len(data), base, check)


def _after(front: Front, data: bytes, base: int, check: Check) -> Content | None:
    """The content when the machine runs only what follows the front; None when it has to run all of it."""
    try:
        value, end = Machine(data, check.limits).run(front.at, front)
    except (Refused, Forgotten):
        return None
    ahead = set(front.refs.names) if value else frozenset[str]()
    if value is not front.root or end != len(data) or not ahead.isdisjoint(value):
        return None
    content = flatten(value, len(data), base, check, front.refs)
    return content if ahead.isdisjoint(content.tensors) else None


def _pickle_row(archive: Archive, check: Check) -> tuple[str, int]:
    """The folder that everything is in, and the row of its pickle."""
    called = archive.directory.ends("/data.pkl").nonzero()[0].tolist()
    rows = [row for row in called if archive.names[row].count("/") == 1]
    if len(rows) != 1:
        check.fail(rules.PICKLE, 0, f"torch: the archive has {len(rows)} entries called */data.pkl, not one")
    return archive.names[rows[0]].removesuffix("data.pkl"), rows[0]


def _swapped(archive: Archive, root: str, check: Check) -> bool:
    row = archive.row(f"{root}byteorder")
    if row is None:
        return False  # files of before there was the entry
    payload = archive.payload(row)
    word = read_part(payload, 0, min(16, payload.size))
    if word not in (b"little", b"big"):
        check.fail(rules.BYTEORDER, int(archive.starts[row]), f"torch: byteorder is {word!r}")
    return word == b"big"


class _ZipStorages(Storages):
    """The storages of an archive by key; how many bytes each has must be what every use of it says."""

    def __init__(self, archive: Archive, root: str, base: int, check: Check) -> None:
        lead = f"{root}data/"
        self.inside = archive.directory.begins(lead)
        self.starts, self.sizes, self.plain = archive.starts, archive.sizes, archive.methods == STORED
        self._archive = archive
        self._lead = lead
        self._base = base
        self._check = check
        self._placed: dict[Storage, Place] = {}  # those that were asked for, and are as said

    def rows(self, refs: Refs) -> NDArray[np.intp]:
        """The row of each storage: by number where all keys are, else by name."""
        inside, directory = self.inside.nonzero()[0], self._archive.directory
        lead = np.uint64(len(self._lead.encode()))
        numbers = numbers_of(directory.data, directory.name_at[inside] + lead, directory.name_size[inside] - lead)
        most = int(refs.numbers.max(initial=-1))
        if most >= 8 * len(inside) or (refs.numbers < 0).any():
            return np.array([-1 if (row := self._row(key)) is None else row for key in refs.keys], np.intp)
        known = (numbers >= 0) & (numbers <= most)
        row_of = np.full(most + 1, -1, np.intp)
        row_of[numbers[known]] = inside[known]
        return row_of[refs.numbers]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._archive.names)}

    def _row(self, key: str) -> int | None:
        return self._rows.get(self._lead + key)

    def place(self, ref: TensorRef) -> Place:
        """Where the storage of ``ref`` is."""
        storage, archive = ref.storage, self._archive
        placed = self._placed.get(storage)
        if placed is not None:
            return placed
        row = self._row(storage.key)
        if row is None:
            self._check.fail(rules.STORAGE, self._base + ref.at, f"torch: there is no storage {storage.key!r}")
        needed = storage.elements * (width_of(storage.kind) if storage.kind else 1)
        if archive.sizes[row] != needed:
            message = f"torch: storage {storage.key!r} has {archive.sizes[row]} bytes, the pickle says {needed}"
            self._check.fail(rules.STORAGE_SIZE, int(archive.starts[row]), message)
        placed = self._placed[storage] = Place(archive.payload(row), int(archive.starts[row]))
        return placed


def _own(archive: Archive, ledger: Ledger, inside: NDArray[np.bool_]) -> None:
    """Storages are payloads, all other entries are regions of the file."""
    plain = inside & (archive.methods == STORED)
    storages, others = plain.nonzero()[0], (~plain).nonzero()[0]
    names = archive.names
    ledger.payloads(
        "storage", archive.starts[storages], archive.stored[storages], lambda row: names[storages[row]]
    )  # fmt: skip
    ledger.regions("entry", archive.starts[others], archive.stored[others], lambda row: names[others[row]])
