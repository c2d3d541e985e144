"""An original again: what its skeleton kept, and its payloads taken from the file that carries it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.errors import FormatError
from holdall.ledger import Ledger
from holdall.limits import DEFAULT_LIMITS
from holdall.operations.convert.skeleton import BROKEN, Member, Skeleton, find
from holdall.payload import Held, Payload, Range
from holdall.plan import FolderPlan, Plan
from holdall.source import Source
from holdall.source.folder import MISSING

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.tensor import Tensor

__all__ = ["Bound", "SkeletonSource", "bind", "may_read", "original_of", "plan_of"]

_FILL = 8  # fewer bytes than this fill up an opaque tensor


@dataclass(slots=True)
class Bound:
    """A skeleton with payloads. ``payloads`` has one for each bond, None where none fits any more.

    ``wrong`` says what became of those, by their names in the original.
    """

    source: SkeletonSource
    payloads: list[Payload | None] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)


def bind(skeleton: Skeleton, tensors: Mapping[str, Tensor], name: str) -> Bound:
    """The original as a source, its payloads taken from ``tensors``: only from those of the carried dtype and shape."""
    payloads: list[Payload | None] = []
    wrong: dict[str, str] = {}
    for bond in skeleton.bonds:
        tensor = tensors.get(bond.carried) if bond.carried else None
        payload = tensor.payload if tensor is not None and bond.fits(tensor) else None
        fits = payload is not None and 0 <= payload.size - bond.size < _FILL
        payloads.append(_front(payload, bond.size) if fits and payload is not None else None)
        if not fits and bond.carried:
            was = f"{bond.carried_dtype}{list(bond.carried_shape)}"
            now = "is gone" if tensor is None else f"is {tensor.dtype}{list(tensor.shape)}, but was carried as {was}"
            wrong[bond.name] = now
    members = {m.name: SkeletonSource(f"{name}/{m.name}", m, payloads) for m in skeleton.members}
    if skeleton.folder:
        return Bound(_SkeletonFolder(name, members), payloads, wrong)
    if len(members) != 1:
        raise FormatError(BROKEN.id, None, f"the carried skeleton has {len(members)} files where one is expected")
    return Bound(next(iter(members.values())), payloads, wrong)


def _front(payload: Payload, size: int) -> Payload:
    """The first ``size`` bytes: opaque bytes in wider integers were filled up with zeros."""
    if payload.size == size:
        return payload
    return Range(payload.source, payload.offset, size) if isinstance(payload, Range) else Held(payload.part(0, size))


def may_read(model: Model, format: str) -> bool:
    """Whether a skeleton may have ``format`` read: a built-in one, and allowed where ``model`` has an allowlist."""
    from holdall import registry

    return registry.is_built_in(format) and (model.allowed is None or format in model.allowed)


def original_of(model: Model) -> Model | None:
    """The original that ``model`` carries, opened with its own reader; a payload that no longer fits reads as zeros.

    None where it carries none, or one of a format that may not be read.
    """
    from holdall import registry

    limits = model.limits or DEFAULT_LIMITS
    found = find(model, limits)
    if found is None or not may_read(model, found[0].format):
        return None
    skeleton, _ = found
    bound = bind(skeleton, model, model.sources[0].name if model.sources else "<memory>")
    return registry.find(skeleton.format).read(bound.source, Check(limits=skeleton.tightened(limits)), Ledger())


class SkeletonSource(Source):
    """One file of the original: kept bytes and payloads, laid out as they were. A payload that is None reads as zeros.

    >>> from holdall.payload import Held
    >>> SkeletonSource("x", Member("", 6, ((2, 2, 0),), b"abef"), [Held(b"CD")]).read(1, 4)
    b'bCDe'
    """

    def __init__(self, name: str, member: Member, payloads: Sequence[Payload | None]) -> None:
        self.name = name
        self.size = member.size
        self.pieces: list[tuple[int, int, Payload | None]] = []
        self.rows: dict[int, int] = {}  # where a bond's payload starts -> the row of the bond
        at = used = 0
        for start, size, row in member.cuts:
            if start > at:
                self.pieces.append((at, start - at, Held(member.kept[used : used + start - at])))
            self.pieces.append((start, size, payloads[row]))
            self.rows[start] = row
            used += start - at
            at = start + size
        if member.size > at:
            self.pieces.append((at, member.size - at, Held(member.kept[used:])))
        self._starts = [start for start, _, _ in self.pieces]

    @property
    def identity(self) -> tuple[object, ...]:
        return ("skeleton", self.name, self.size)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        row = max(0, bisect_right(self._starts, offset) - 1)
        while buffer:
            start, size, payload = self.pieces[row]
            skip = offset - start
            take = min(size - skip, len(buffer))
            buffer[:take] = bytes(take) if payload is None else payload.part(skip, skip + take)
            buffer, offset, row = buffer[take:], offset + take, row + 1

    def close(self) -> None:
        return None


class _SkeletonFolder(SkeletonSource):
    """The folder of an original that had several files."""

    is_folder = True

    def __init__(self, name: str, members: Mapping[str, SkeletonSource]) -> None:
        super().__init__(name, Member("", 0, (), b""), ())
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


def plan_of(source: SkeletonSource) -> tuple[Plan | FolderPlan, dict[str, int]]:
    """The plan that writes the original again; and the taps that hash its payloads, each with the row of its bond."""
    if not isinstance(source, _SkeletonFolder):
        return _file_plan(source, "")
    out = FolderPlan()
    taps: dict[str, int] = {}
    for name, member in source.members.items():
        out.files[name], more = _file_plan(member, f"{name}/")
        taps |= more
    return out, taps


def _file_plan(source: SkeletonSource, folder: str) -> tuple[Plan, dict[str, int]]:
    plan = Plan()
    taps: dict[str, int] = {}
    for start, size, payload in source.pieces:
        assert payload is not None, "an original is restored only when all its payloads are there"
        if start in source.rows:
            row = source.rows[start]
            plan.tap(f"bond.{row}", "blake3", start, start + size)
            taps[f"{folder}bond.{row}"] = row
        plan.stream(payload)
    return plan, taps
