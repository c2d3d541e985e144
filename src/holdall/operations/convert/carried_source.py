"""Reads a carried original: the bytes that its skeleton kept, with the payloads of the file that carries it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.errors import ContentError, FormatError
from holdall.limits import DEFAULT_LIMITS
from holdall.model.gather import read_together
from holdall.model.growth import limit_growth
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.model.tensor import Tensor
from holdall.operations.convert.skeleton import BROKEN, Skeleton, SkeletonFile, StoredForms, find_skeleton
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import Source
from holdall.source.digests import Parts
from holdall.source.folder import MISSING
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model
    from holdall.model.table import TensorTable

__all__ = ["FilledSkeleton", "SkeletonSource", "fill_skeleton", "list_current", "may_read", "open_current"]
__all__ += ["open_original", "plan_original", "tap_parts"]

_TAP = "bonds"  # hashes the payloads of a file
_FILL = 8  # an opaque tensor is padded by fewer bytes than this


@dataclass(slots=True)
class FilledSkeleton:
    """A skeleton with payloads. ``payloads`` has one for each bond, None if the tensor no longer fits.

    ``mismatches`` says how those tensors changed, by their names in the original.
    """

    skeleton: Skeleton
    source: SkeletonSource
    payloads: list[Payload | None] = field(default_factory=list)
    mismatches: dict[str, str] = field(default_factory=dict)


def fill_skeleton(skeleton: Skeleton, table: TensorTable, name: str) -> FilledSkeleton:
    """Make a source of the original, with the payloads of ``table`` that still have the carried dtype and shape."""
    payloads: list[Payload | None] = []
    mismatches: dict[str, str] = {}
    rows, forms = {name: row for row, name in enumerate(table.names)}, StoredForms(table)
    for bond in skeleton.bonds:
        row = rows.get(bond.carried) if bond.travels else None
        fitting = row is not None and forms[row][1:] == (bond.carried_dtype, bond.carried_shape)
        payload = table.payload(row) if row is not None and fitting else None
        fits = payload is not None and 0 <= payload.size - bond.size < _FILL
        payloads.append(_take_first(payload, bond.size) if fits and payload is not None else None)
        if not fits and bond.travels:
            was = f"{bond.carried_dtype}{list(bond.carried_shape)}"
            mismatches[bond.name] = "is gone"
            if row is not None:
                _, dtype, shape = forms[row]
                mismatches[bond.name] = f"is {dtype}{list(shape)}, but was carried as {was}"
    places = {m.name: f"{name}/{m.name}" if m.name else name for m in skeleton.files}
    members = {m.name: SkeletonSource(places[m.name], m, payloads) for m in skeleton.files}
    if skeleton.folder:
        return FilledSkeleton(skeleton, _SkeletonFolder(name, members), payloads, mismatches)
    if len(members) != 1:
        raise FormatError(BROKEN.id, None, f"the carried skeleton has {len(members)} files where one is expected")
    return FilledSkeleton(skeleton, next(iter(members.values())), payloads, mismatches)


def _take_first(payload: Payload, size: int) -> Payload:
    """Take the first ``size`` bytes: opaque bytes in wider integers are padded with zeros."""
    if payload.size == size:
        return payload
    return (
        SourceRange(payload.source, payload.offset, size)
        if isinstance(payload, SourceRange)
        else InMemory(payload.slice(0, size))
    )


def may_read(model: Model, format: str) -> bool:
    """Whether a skeleton of ``format`` may be opened: by no plug-in, and only if the allowlist of ``model`` has it."""
    from holdall.format import registry

    return registry.is_built_in(format) and (model.allowed is None or format in model.allowed)


def open_original(model: Model) -> Model | None:
    """Open the original that ``model`` carries with the reader of its format.

    A payload that no longer fits reads as zeros. None when there is no original, or its format may not be read.
    """
    found = _open(model)
    return None if found is None else found[0]


def open_current(model: Model) -> Model | None:
    """Open the original that ``model`` carries, with the tensors that the file has now; None as in open_original."""
    found = _open(model)
    if found is None:
        return None
    original, filled = found
    limit_growth(model, Check(limits=model.limits or DEFAULT_LIMITS), original.tensors)
    known = {bond.carried for bond in filled.skeleton.bonds if bond.travels}
    tensors = [now for _, now in list_current(original, filled, model) if now is not None]
    return original.replace(tensors=[*tensors, *(model[name] for name in model if name not in known)])


def _open(model: Model) -> tuple[Model, FilledSkeleton] | None:
    from holdall.format import registry

    limits = model.limits or DEFAULT_LIMITS
    found = find_skeleton(model, limits)
    if found is None or not may_read(model, found[0].format):
        return None
    skeleton, _ = found
    filled = fill_skeleton(skeleton, model.tensors, model.sources[0].name if model.sources else "<memory>")
    original = registry.find(skeleton.format).read(
        filled.source, Check(limits=skeleton.tighten_limits(limits)), Ledger()
    )
    original.resolve_facet = registry.resolve_facet
    return original, filled


def list_current(original: Model, filled: FilledSkeleton, model: Model) -> Iterator[tuple[Tensor, Tensor | None]]:
    """List the tensors of ``original``, each with the form that it has in ``model`` now; None if it was removed.

    Raises ContentError for one that was stored in another form and does not have that form any more.
    """
    rows = {bond.name: row for row, bond in enumerate(filled.skeleton.bonds)}
    for tensor in original.tensors:
        row = rows.get(tensor.name)  # one without a row lies in the bytes that the skeleton kept
        yield tensor, tensor if row is None else _find_current_form(tensor, row, filled, model)


def _find_current_form(tensor: Tensor, row: int, filled: FilledSkeleton, model: Model) -> Tensor | None:
    bond, payload = filled.skeleton.bonds[row], filled.payloads[row]
    if payload is not None:
        return tensor.replace(payload=payload)
    if not bond.travels:
        return tensor
    now = model.get(bond.carried)
    if now is None:
        return None
    if not bond.plain:
        what = filled.mismatches[tensor.name]
        raise ContentError(f"tensor {tensor.name!r} {what}: it cannot be turned into {bond.dtype} again")
    return Tensor(tensor.name, now.dtype, now.shape, now.payload)


class SkeletonSource(Source):
    """One file of the original: the kept bytes and the payloads at their old offsets. A missing payload reads as zeros.

    >>> from holdall.model.payload import InMemory
    >>> SkeletonSource("x", SkeletonFile("", 6, ((2, 2, 0),), b"abef"), [InMemory(b"CD")]).read(1, 4)
    b'bCDe'
    """

    def __init__(self, name: str, member: SkeletonFile, payloads: Sequence[Payload | None]) -> None:
        self.name = name
        self.size = member.size
        self.holes = member.holes
        self._kept = memoryview(member.kept)
        self._payloads = payloads
        # A piece is a hole, or kept bytes: where it begins, and the row of its bond, or ~ of its place in the kept.
        starts, places = list[int](), list[int]()
        at = used = 0
        for start, size, row in member.holes:
            if start > at:
                starts.append(at)
                places.append(~used)
                used += start - at
            starts.append(start)
            places.append(row)
            at = start + size
        if member.size > at:
            starts.append(at)
            places.append(~used)
        self.starts = np.array(starts, np.uint64)
        self._ends = np.append(self.starts[1:], np.uint64(member.size))
        self._places = np.array(places, np.int64)

    def payload(self, row: int) -> Payload | None:
        """The bytes of a piece: a payload of the carrier, None if that is missing, or bytes that were kept."""
        place = int(self._places[row])
        if place >= 0:
            return self._payloads[place]
        return InMemory(self._kept[~place : ~place + int(self._ends[row] - self.starts[row])])

    @property
    def identity(self) -> tuple[object, ...]:
        return ("skeleton", self.name, self.size)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_inside(offset, len(buffer))
        row = max(0, int(self.starts.searchsorted(np.uint64(offset), "right")) - 1)
        while buffer:
            start, stop, payload = int(self.starts[row]), int(self._ends[row]), self.payload(row)
            skip = offset - start
            take = min(stop - offset, len(buffer))
            buffer[:take] = bytes(take) if payload is None else payload.slice(skip, skip + take)
            buffer, offset, row = buffer[take:], offset + take, row + 1

    def close(self) -> None:
        return None


class _SkeletonFolder(SkeletonSource):
    """The folder of an original that has several files."""

    is_folder = True

    def __init__(self, name: str, members: Mapping[str, SkeletonSource]) -> None:
        super().__init__(name, SkeletonFile("", 0, (), b""), ())
        self.members = members
        for member, source in members.items():
            source.member = member

    def names(self) -> list[str]:
        return sorted(self.members)

    def files(self) -> list[str]:
        return self.names()

    def sibling(self, relative: str) -> Source:
        found = self.members.get(relative)
        if found is None:
            raise FormatError(MISSING.id, None, f"the carried folder has no {relative!r}")
        return found


class _Pieces:
    """The pieces of an original, as a plan takes them."""

    def __init__(self, source: SkeletonSource) -> None:
        self._source = source

    def payload(self, row: int) -> Payload | None:
        """The bytes of a piece."""
        found = self._source.payload(row)
        assert found is not None, "an original is restored only when all its payloads are there"
        return found

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        """The bytes of small pieces."""
        return read_together([self.payload(row) for row in rows.tolist()])

    def sources(self) -> Sequence[Source]:
        """The sources of the payloads, each once."""
        payloads = map(self.payload, range(len(self._source.starts)))
        found = (each.source for each in payloads if isinstance(each, SourceRange))
        return list({id(source): source for source in found}.values())


def plan_original(source: SkeletonSource) -> tuple[Plan | FolderPlan, dict[str, list[int]]]:
    """Plan the original file, with the taps that hash its payloads, each with the rows of their bonds."""
    if not isinstance(source, _SkeletonFolder):
        return _plan_file(source), {_TAP: [row for _, _, row in source.holes]}
    files = {name: _plan_file(member) for name, member in source.members.items()}
    taps = {f"{name}/{_TAP}": [row for _, _, row in member.holes] for name, member in source.members.items()}
    return FolderPlan(files), taps


def _plan_file(source: SkeletonSource) -> Plan:
    plan = Plan()
    plan.run(_Pieces(source), range(len(source.starts)), source.starts)
    tap_parts(plan, _TAP, [(start, start + size) for start, size, _ in source.holes])
    return plan


def tap_parts(plan: Plan, name: str, ranges: Sequence[tuple[int, int]]) -> None:
    """Hash ``ranges`` (start, stop), which ascend and do not overlap, while they are written: one tap joins them."""
    starts, stops = np.array(ranges, np.uint64).reshape(-1, 2).T
    first, last = (int(starts[0]), int(stops[-1])) if ranges else (0, 0)
    plan.tap(name, "blake3", first, last, parts=Parts(starts, stops))
