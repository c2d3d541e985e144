"""Legacy PyTorch files, from before there was a zip: pickles, then storages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check, figure
from holdall.base.repeats import find_repeats
from holdall.format.pickle_opcodes import find_end
from holdall.format.torch import rules
from holdall.format.torch.flatten import Content, flatten
from holdall.format.torch.layout import COUNT, MAGIC_NUMBER, PICKLES, PROTOCOL
from holdall.format.torch.native import TorchNative
from holdall.format.torch.object_files import (
    ArrayStorages,
    ObjectContent,
    fail_at,
    flatten_objects,
    is_tolerable,
    refuse_objects,
)
from holdall.format.torch.pickle import Machine
from holdall.format.torch.pickle_objects import Refused, Storage, TensorRef
from holdall.format.torch.refs import Refs
from holdall.format.torch.tensors import StoragePlace, Storages, lay_out, width_of
from holdall.format.torch.tolerant_machine import Findings, TolerantMachine
from holdall.model.metadata import Metadata
from holdall.model.model import Model
from holdall.model.payload import SourceRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["read"]

# Bytes in which the pickles are looked for at first; four times as many, until they are whole.
_FIRST = buffer_size(1 << 16)


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in the legacy file ``source``."""
    (magic, protocol, system, root, keys), ends, found = _run_pickles(source, check, ledger, None)
    ledger.region("pickles", 0, ends[-1])
    if magic != MAGIC_NUMBER or protocol != PROTOCOL or not isinstance(system, dict):
        check.fail(rules.LEGACY, 0, f"torch: the legacy protocol {str(protocol)[:20]} is unknown")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or find_repeats(keys):
        check.fail(rules.LEGACY, ends[3], "torch: the storage keys are not a list of different texts")
    try:
        content, objects = _flatten(root, ends, found, check)
    except Refused as refused:
        refuse_objects(refused, ends[2], "", check)
        values, ends, found = _run_pickles(source, check, ledger, Findings())
        content, objects = _flatten(values[3], ends, found, check)
    used: dict[str, Storage] = {} if found is None else found.storages
    for ref in content.tensors.values() if found is None else ():
        used.setdefault(ref.storage.key, ref.storage)
    places = _locate_storages(source, keys, used, ends[-1], check, ledger)

    # The facts about the system may say big-endian: PyTorch writes and reads little-endian storages on every machine.
    storages: Storages = _LegacyStorages(places, check)
    if objects is not None:
        storages = ArrayStorages(storages, objects.arrays, big_endian=False)
    table = lay_out(content.refs, storages, source, big_endian=False, base=0, check=check)
    native = TorchNative(None, "", content.nesting, None if objects is None else objects.opaque)
    entries = Metadata(content.entries)
    return Model(table, metadata=entries, native=native, format="torch", sources=[source], ledger=ledger)


def _flatten(
    root: Any, ends: list[int], found: Findings | None, check: Check
) -> tuple[Content, ObjectContent | None]:  # fmt: skip
    """The content of the fourth pickle, and what else is known if it was read as one with objects."""
    size = ends[3] - ends[2]
    if found is None:
        return flatten(root, size, ends[2], check), None
    objects = flatten_objects([("", root, 0)], size, found, "", check)
    return objects.content, objects


class _LegacyStorages(Storages):
    """The storages of a legacy file."""

    def __init__(self, places: dict[str, StoragePlace], check: Check) -> None:
        self.starts = np.array([place.at for place in places.values()], np.uint64)
        self.sizes = np.array([place.payload.size for place in places.values()], np.uint64)
        self.plain = np.ones(len(places), np.bool_)
        self._locate_storages = places
        self._check = check

    def rows(self, refs: Refs) -> NDArray[np.intp]:
        rows = {key: row for row, key in enumerate(self._locate_storages)}
        return np.array([rows.get(key, -1) for key in refs.keys], np.intp)

    def place(self, ref: TensorRef) -> StoragePlace:
        place = self._locate_storages.get(ref.storage.key)
        if place is None:
            self._check.fail(rules.STORAGE, ref.at, f"torch: there is no storage {ref.storage.key!r}")
        return place


def _run_pickles(
    source: Source, check: Check, ledger: Ledger, found: Findings | None
) -> tuple[list[Any], list[int], Findings | None]:
    """The values of the five pickles at the beginning of the file, where each ends, and what objects they have.

    Objects are allowed from the beginning if ``found`` is given, which is to hold them.
    """
    size = min(_FIRST, source.size)
    while True:
        data = source.read(0, size)
        machine = Machine(data, check.limits) if found is None else TolerantMachine(data, check.limits, found)
        values: list[Any] = []
        ends: list[int] = []
        try:
            for _ in range(PICKLES):
                value, end = machine.run(ends[-1] if ends else 0)
                values.append(value)
                ends.append(end)
            return values, ends, found
        except Refused as refused:
            if not refused.short or size == source.size:
                if found is not None or not is_tolerable(refused, check):
                    ledger.region("pickles", 0, find_end(source, 0, size, PICKLES))
                if found is not None:
                    fail_at(refused, 0, check)
                refuse_objects(refused, 0, "", check)
                found = Findings()
                continue
        found = None if found is None else Findings()
        size = min(4 * size, source.size)
        check.limit("index_bytes", size, 0, "torch: bytes of pickles")


def _locate_storages(
    source: Source, keys: list[str], used: dict[str, Storage], at: int, check: Check, ledger: Ledger
) -> dict[str, StoragePlace]:  # fmt: skip
    """Find where each storage is: storages follow each other in the order of their keys."""
    places: dict[str, StoragePlace] = {}
    counts: list[int] = []
    for key in keys:
        storage = used.get(key)
        if storage is None:
            check.fail(rules.STORAGE, at, f"torch: the type of storage {key!r} is unknown: no tensor uses it")
        if source.size - at < COUNT.size:
            check.fail(rules.LEGACY, at, f"torch: the file ends before storage {key!r}")
        elements = COUNT.read(source.read(at, COUNT.size), 0).elements
        size = elements * (width_of(storage.kind) if storage.kind else 1)
        counts.append(at)
        at += COUNT.size
        if elements != storage.elements or not 0 <= size <= source.size - at:
            message = (
                f"{figure(elements)} elements are stated, {storage.elements} expected, {source.size - at} bytes left"
            )
            check.fail(rules.STORAGE_SIZE, at - COUNT.size, f"torch: storage {key!r}: {message}")
        places[key] = StoragePlace(SourceRange(source, at, size), at)
        at += size
    if at != source.size:
        check.fail(rules.LEGACY, at, f"torch: {source.size - at} bytes follow the last storage")
    ledger.regions("storage size", counts, [COUNT.size] * len(counts))
    spans = [place.payload for place in places.values()]
    starts = np.array([place.at for place in places.values()], np.uint64)
    ledger.payloads("storage", starts, np.array([span.size for span in spans], np.uint64), list(places).__getitem__)
    return places
