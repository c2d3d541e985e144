"""Reading PyTorch checkpoints: the pickle machine calls nothing that a file names, and storages stay in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.base.once import computed_once
from holdall.base.repeats import find_repeat
from holdall.errors import ForeignError
from holdall.format.sniff import EXPORTED
from holdall.format.torch import legacy, rules
from holdall.format.torch.fast_state_dict import FastStateDict, Forgotten, find_state_dict
from holdall.format.torch.flatten import Content, flatten
from holdall.format.torch.layout import LEGACY
from holdall.format.torch.native import TorchNative
from holdall.format.torch.object_files import (
    ArrayStorages,
    ObjectContent,
    find_package,
    load_pickle,
    name_archive,
    read_archive_objects,
    read_package,
    refuse_objects,
)
from holdall.format.torch.pickle import Machine
from holdall.format.torch.pickle_objects import Refused, Storage, TensorRef
from holdall.format.torch.refs import Refs
from holdall.format.torch.storage_keys import numbers_of
from holdall.format.torch.tensors import StoragePlace, Storages, lay_out, width_of
from holdall.format.zip.archive import STORED, Archive, read_archive
from holdall.format.zip.inflate import read_part
from holdall.format.zip.layout import CASE
from holdall.model.metadata import Metadata
from holdall.model.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["read"]


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``."""
    if source.read(0, min(max(map(len, LEGACY)), source.size)).startswith(LEGACY):
        return legacy.read(source, check, ledger)
    archive = read_archive(source, check, ledger, "torch")
    _refuse_same_but_case(archive, check)
    root, content, objects = _read_pickles(archive, source, check, ledger)
    big_endian = _is_big_endian(archive, root, check)
    base = 0 if objects is not None else int(archive.starts[archive.row(f"{root}data.pkl") or 0])
    own = _ZipStorages(archive, f"{root}data/" if objects is None else "", base, check)
    storages: Storages = own if objects is None else ArrayStorages(own, objects.arrays, big_endian)
    table = lay_out(content.refs, storages, source, big_endian, base, check)
    return Model(
        table,
        metadata=Metadata(content.entries),
        native=TorchNative(archive, root, content.nesting, None if objects is None else objects.opaque),
        format="torch",
        sources=[source],
        ledger=ledger,
    )


def _read_pickles(
    archive: Archive, source: Source, check: Check, ledger: Ledger
) -> tuple[str, Content, ObjectContent | None]:
    """The top folder and the content of the archive, and what else is known if it holds objects."""
    package = find_package(archive)
    if package is not None:
        if archive.row(f"{package}data.pkl") is not None:
            check.fail(rules.PICKLE, 0, "torch: the archive is a torch.package, and has a data.pkl as well")
        _record_regions(archive, ledger, _find_storages(archive, package), check)
        found = read_package(archive, package, source.size, check)
        return package, found.content, found
    root, row = _find_pickle(archive, check)
    _record_regions(archive, ledger, _find_storages(archive, root), check)
    base, data = int(archive.starts[row]), load_pickle(archive, row, source.size, check)
    try:
        return root, run_pickle(data, base, check), None
    except Refused as refused:
        refuse_objects(refused, base, name_archive(archive, root), check)
    found = read_archive_objects(archive, root, data, source.size, check)
    return root, found.content, found


def _find_storages(archive: Archive, root: str) -> NDArray[np.bool_]:
    """Find the entries that are storages: of checkpoints, of TorchScript, and of packages."""
    starts_with = archive.directory.starts_with
    return starts_with(f"{root}data/") | starts_with(f"{root}constants/") | archive.directory.ends_with(".storage")


def _refuse_same_but_case(archive: Archive, check: Check) -> None:
    """PyTorch ignores case when it looks for an entry: of two names that differ in nothing else it may take either."""
    joined = "\n".join(archive.names)
    if joined == joined.casefold():  # they are unique, and all in lower case
        return
    folded = [name.casefold() for name in archive.names]
    repeat = find_repeat(folded)
    if repeat is not None:
        first = archive.names[folded.index(folded[repeat])]
        message = (
            f"torch: the entries {first!r} and {archive.names[repeat]!r} differ only in case, which PyTorch ignores"
        )
        check.fail(CASE, int(archive.starts[repeat]), message)


def run_pickle(data: bytes, base: int, check: Check) -> Content:
    """The content of the one pickle in ``data``; raises Refused for what is not plain values and tensors."""
    front = find_state_dict(data, check.limits)
    # The rest after the front may have to be run twice, which does not pay if it is most of the pickle.
    found = None if front is None or front.at < len(data) // 2 else _run_rest(front, data, base, check)
    if found is not None:
        return found
    value, end = Machine(data, check.limits).run(0)
    if end != len(data):
        check.fail(rules.BROKEN, base + end, f"torch: {len(data) - end} bytes follow the pickle")
    return flatten(value, len(data), base, check)


def _run_rest(front: FastStateDict, data: bytes, base: int, check: Check) -> Content | None:
    """The content, if it is enough to run what follows the front; None if the whole pickle has to be run."""
    try:
        machine = Machine(data, check.limits)
        value, end = machine.run(front.at, front)
    except (Refused, Forgotten):
        return None
    if machine.storages and not _agree(front.refs, machine.storages):
        return None
    leading = set(front.refs.names) if value else frozenset[str]()
    if value is not front.root or end != len(data) or not leading.isdisjoint(value):
        return None
    content = flatten(value, len(data), base, check, front.refs)
    return content if leading.isdisjoint(content.tensors) else None


def _agree(refs: Refs, storages: Mapping[str, Storage]) -> bool:
    """Whether the front describes none of ``storages`` in another way."""
    for row, key in enumerate(refs.keys):
        if key in storages and not storages[key].agrees_with(refs.ref(row).storage):
            return False
    return True


def _find_pickle(archive: Archive, check: Check) -> tuple[str, int]:
    """Find the top folder of the archive, and the row of its pickle."""
    called = archive.directory.ends_with("/data.pkl").nonzero()[0].tolist()
    rows = [row for row in called if archive.names[row].count("/") == 1]
    if not rows and archive.directory.ends_with("/archive_format").any():
        raise ForeignError(rules.PICKLE.id, 0, f"{archive.source.name}: {EXPORTED}")
    if len(rows) != 1:
        check.fail(rules.PICKLE, 0, f"torch: the archive has {len(rows)} entries called */data.pkl, not one")
    return archive.names[rows[0]].removesuffix("data.pkl"), rows[0]


def _is_big_endian(archive: Archive, root: str, check: Check) -> bool:
    row = archive.row(f"{root}byteorder")
    if row is None:
        return False  # old files lack the entry
    payload = archive.payload(row)
    word = read_part(payload, 0, min(16, payload.size))
    if word not in (b"little", b"big"):
        check.fail(rules.BYTEORDER, int(archive.starts[row]), f"torch: byteorder is {word!r}")
    return word == b"big"


class _ZipStorages(Storages):
    """The storages of an archive by key; the size of each must be the one that the pickle states."""

    def __init__(self, archive: Archive, lead: str, base: int, check: Check) -> None:
        self.inside = archive.directory.starts_with(lead)
        self.starts, self.sizes, self.plain = archive.starts, archive.sizes, archive.methods == STORED
        self._archive = archive
        self._lead = lead
        self._base = base
        self._check = check
        self._placed: dict[Storage, StoragePlace] = {}  # checked ones

    def rows(self, refs: Refs) -> NDArray[np.intp]:
        """The row of each storage, found by number if all keys are numbers, else by name."""
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

    @computed_once
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._archive.names)}

    def _row(self, key: str) -> int | None:
        return self._rows.get(self._lead + key)

    def place(self, ref: TensorRef) -> StoragePlace:
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
        placed = self._placed[storage] = StoragePlace(archive.payload(row), int(archive.starts[row]))
        return placed


def _record_regions(archive: Archive, ledger: Ledger, inside: NDArray[np.bool_], check: Check) -> None:
    """Record stored storages as payloads, all other entries as regions of the file, and report deflated storages."""
    plain, names = archive.methods == STORED, archive.names
    # PyTorch never deflates, and with mmap=True it takes the deflated bytes for values.
    rule = rules.MAPPED if check.wants("strict") else rules.DEFLATED
    for row in (inside & ~plain).nonzero()[0].tolist() if check.collecting else ():
        message = f"{archive.label(row)} is a deflated storage, whose bytes torch.load takes for values with mmap=True"
        check.note(rule, int(archive.starts[row]), message)
    storages = (inside & plain).nonzero()[0]
    ledger.payloads(
        "storage", archive.starts[storages], archive.stored[storages], lambda row: names[storages[row]]
    )  # fmt: skip
    for name, rows in ("entry", (~inside & plain).nonzero()[0]), ("deflated", (~plain).nonzero()[0]):
        if len(rows):
            ledger.regions(name, archive.starts[rows], archive.stored[rows], [names[row] for row in rows].__getitem__)
