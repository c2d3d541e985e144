"""Legacy PyTorch files, from before there was a zip: pickles, then storages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.check import Check, figure
from holdall.formats.torch import rules
from holdall.formats.torch.content import Refused, Storage, TensorRef
from holdall.formats.torch.flatten import flatten
from holdall.formats.torch.layout import COUNT, MAGIC_NUMBER, PROTOCOL
from holdall.formats.torch.pickle import Machine
from holdall.formats.torch.refs import Refs
from holdall.formats.torch.tensors import Place, Storages, lay_out, width_of
from holdall.metadata import Metadata
from holdall.model import Model
from holdall.payload import Range
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["read"]

_FIRST = tuned(1 << 16)  # bytes in which the pickles are looked for at first; four times as many, until they are whole


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in the legacy file ``source``."""
    (magic, protocol, system, root, keys), ends = _pickles(source, check)
    if magic != MAGIC_NUMBER or protocol != PROTOCOL or not isinstance(system, dict):
        check.fail(rules.LEGACY, 0, f"torch: the legacy protocol {str(protocol)[:20]} is unknown")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        check.fail(rules.LEGACY, ends[3], "torch: the storage keys are not a list of different texts")
    ledger.region("pickles", 0, ends[-1])
    content = flatten(root, ends[3] - ends[2], ends[2], check)
    used: dict[str, Storage] = {}
    for ref in content.tensors.values():
        known = used.setdefault(ref.storage.key, ref.storage)
        if (known.kind, known.elements) != (ref.storage.kind, ref.storage.elements):
            check.fail(rules.STORAGE_SIZE, ref.at, f"torch: storage {known.key!r} is described in two ways")
    places = _places(source, keys, used, ends[-1], check, ledger)

    swapped = system.get("little_endian") is False
    table = lay_out(content.refs, _Placed(places, check), source, swapped, 0, check)
    from holdall.formats.torch.read import TorchNative

    native = TorchNative(None, "", content.nesting)
    entries = Metadata(content.entries)
    return Model(table, metadata=entries, native=native, format="torch", sources=[source], ledger=ledger)


class _Placed(Storages):
    """The storages of a legacy file."""

    def __init__(self, places: dict[str, Place], check: Check) -> None:
        self.starts = np.array([place.at for place in places.values()], np.uint64)
        self.sizes = np.array([place.payload.size for place in places.values()], np.uint64)
        self.plain = np.ones(len(places), np.bool_)
        self._places = places
        self._check = check

    def rows(self, refs: Refs) -> NDArray[np.intp]:
        rows = {key: row for row, key in enumerate(self._places)}
        return np.array([rows.get(key, -1) for key in refs.keys], np.intp)

    def place(self, ref: TensorRef) -> Place:
        place = self._places.get(ref.storage.key)
        if place is None:
            self._check.fail(rules.STORAGE, ref.at, f"torch: there is no storage {ref.storage.key!r}")
        return place


def _pickles(source: Source, check: Check) -> tuple[list[Any], list[int]]:
    """The five values at the beginning of the file, and where each ends."""
    size = min(_FIRST, source.size)
    while True:
        machine = Machine(source.read(0, size), check.limits)
        values: list[Any] = []
        ends: list[int] = []
        try:
            for _ in range(5):
                value, end = machine.run(ends[-1] if ends else 0)
                values.append(value)
                ends.append(end)
            return values, ends
        except Refused as refused:
            if not refused.short or size == source.size:
                check.fail(refused.rule, refused.at, f"torch: {refused.message}")
        size = min(4 * size, source.size)
        check.limit("index_bytes", size, 0, "torch: bytes of pickles")


def _places(
    source: Source, keys: list[str], used: dict[str, Storage], at: int, check: Check, ledger: Ledger
) -> dict[str, Place]:  # fmt: skip
    """Where each storage is: they follow each other in the order of their keys."""
    places: dict[str, Place] = {}
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
                f"{figure(elements)} elements are said, {storage.elements} expected, {source.size - at} bytes left"
            )
            check.fail(rules.STORAGE_SIZE, at - COUNT.size, f"torch: storage {key!r}: {message}")
        places[key] = Place(Range(source, at, size), at)
        at += size
    if at != source.size:
        check.fail(rules.LEGACY, at, f"torch: {source.size - at} bytes follow the last storage")
    ledger.regions("storage size", counts, [COUNT.size] * len(counts))
    spans = [place.payload for place in places.values()]
    starts = np.array([place.at for place in places.values()], np.uint64)
    ledger.payloads("storage", starts, np.array([span.size for span in spans], np.uint64), list(places).__getitem__)
    return places
