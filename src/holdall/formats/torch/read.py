"""Reading PyTorch checkpoints: the pickle by the machine that runs nothing, the storages where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.check import Check
from holdall.formats.torch import legacy, rules
from holdall.formats.torch.content import Refused, TensorRef
from holdall.formats.torch.flatten import Content, flatten
from holdall.formats.torch.layout import LEGACY
from holdall.formats.torch.pickle import Machine
from holdall.formats.torch.tensors import Place, lay_out, width_of
from holdall.inflated import read_part
from holdall.metadata import Metadata
from holdall.model import Model
from holdall.zipfiles import STORED, Archive, read_archive

if TYPE_CHECKING:
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["TorchNative", "read"]


@dataclass(frozen=True, slots=True, eq=False)
class TorchNative:
    """What only PyTorch files have: the archive (None for a legacy file), and what its first folder is called."""

    archive: Archive | None = None
    root: str = "archive"


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``."""
    if source.read(0, min(len(LEGACY), source.size)) == LEGACY:
        return legacy.read(source, check, ledger)
    archive = read_archive(source, check, ledger, "torch")
    root, row = _pickle_row(archive, check)
    pickle = archive.payload(row)
    check.limit("index_bytes", pickle.size, archive.starts[row], "torch: bytes of data.pkl")
    base = archive.starts[row]
    content = run(read_part(pickle, 0, pickle.size), base, check)
    swapped = _swapped(archive, root, check)
    storages = _Storages(archive, root, base, check)
    table = lay_out(content.tensors, storages.place, source, swapped, base, check)
    _own(archive, ledger, root)
    return Model(
        table,
        metadata=Metadata(content.entries),
        native=TorchNative(archive, root),
        format="torch",
        sources=[source],
        ledger=ledger,
    )


def run(data: bytes, base: int, check: Check) -> Content:
    """The content of the one pickle in ``data``."""
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


def _pickle_row(archive: Archive, check: Check) -> tuple[str, int]:
    """The folder that everything is in, and the row of its pickle."""
    rows = [row for row, name in enumerate(archive.names) if name.count("/") == 1 and name.endswith("/data.pkl")]
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
        check.fail(rules.BYTEORDER, archive.starts[row], f"torch: byteorder is {word!r}")
    return word == b"big"


class _Storages:
    """The storages of an archive by key; how many bytes each has must be what every use of it says."""

    def __init__(self, archive: Archive, root: str, base: int, check: Check) -> None:
        self._archive = archive
        lead = f"{root}data/"
        self._rows = {name[len(lead) :]: row for row, name in enumerate(archive.names) if name.startswith(lead)}
        self._base = base
        self._check = check

    def place(self, ref: TensorRef) -> Place:
        """Where the storage of ``ref`` is."""
        storage, archive = ref.storage, self._archive
        row = self._rows.get(storage.key)
        if row is None:
            self._check.fail(rules.STORAGE, self._base + ref.at, f"torch: there is no storage {storage.key!r}")
        needed = storage.elements * (width_of(storage.kind) if storage.kind else 1)
        if archive.sizes[row] != needed:
            message = f"torch: storage {storage.key!r} has {archive.sizes[row]} bytes, the pickle says {needed}"
            self._check.fail(rules.STORAGE_SIZE, archive.starts[row], message)
        return Place(archive.payload(row), archive.starts[row])


def _own(archive: Archive, ledger: Ledger, root: str) -> None:
    """Storages are payloads, all other entries are regions of the file."""
    data = [row for row, name in enumerate(archive.names) if name.startswith(f"{root}data/")]
    plain = [row for row in data if archive.methods[row] == STORED]
    rest = sorted(set(range(len(archive.names))) - set(plain))
    for rows, own in ((plain, ledger.payloads), (rest, ledger.regions)):
        starts = np.array([archive.starts[row] for row in rows], np.uint64)
        sizes = np.array([archive.stored[row] for row in rows], np.uint64)
        own("storage" if rows is plain else "entry", starts, sizes, [archive.names[row] for row in rows].__getitem__)
