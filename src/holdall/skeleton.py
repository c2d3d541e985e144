"""Skeletons: the file that a model came from, without its tensor payloads.

A conversion whose target cannot express everything carries the skeleton of its source under the metadata key
``holdall.skeleton``. The way back lays the payloads into it again: a source of the original bytes, which the
ordinary reader opens with the ordinary checks. As long as the payloads are unchanged, that source *is* the
original file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from holdall.check import LIMIT, Rule
from holdall.compression import FrameError, compress, expand
from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.metadata import Entry, Metadata
from holdall.payload import Held, Payload, Range
from holdall.plan import FolderPlan, Plan
from holdall.source import Source
from holdall.source.folder import MISSING

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.tensor import Tensor

__all__ = [
    "KEY",
    "Bond",
    "Skeleton",
    "SkeletonSource",
    "bound_source",
    "cut",
    "find",
    "original_of",
    "plan_of",
    "without",
]

KEY = "holdall.skeleton"
_FILL = 8  # fewer bytes than this fill up an opaque tensor
MAX_BYTES = 256 << 20  # of the pieces together, before compression

BROKEN = Rule("core.skeleton", "a carried skeleton is whole")

Cut = tuple[int, int, int]  # start, size, and the row of the bond whose payload goes there


class Bond(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the original: what it was, and as what it travels. ``carried`` is empty when it does not."""

    name: str
    dtype: str
    size: int
    carried: str
    carried_dtype: str


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One file of the original: its name in its folder (empty for a single file), and what is not payload."""

    name: str
    size: int
    cuts: tuple[Cut, ...]
    kept: bytes


class Skeleton(msgspec.Struct, frozen=True, array_like=True):
    """A whole model without payloads."""

    format: str
    bonds: tuple[Bond, ...]
    members: tuple[Member, ...]
    folder: bool

    def to_text(self) -> str:
        """As letters that every free-form place can hold: the size, a dot, and base64 in its URL alphabet."""
        from base64 import urlsafe_b64encode

        data = msgspec.msgpack.encode(self)
        return f"{len(data)}." + urlsafe_b64encode(compress(data, 9)).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str, limits: Limits = DEFAULT_LIMITS) -> Skeleton:
        """The skeleton in ``text``; FormatError for anything else."""
        from base64 import urlsafe_b64decode

        size, _, letters = text.partition(".")
        try:
            packed = urlsafe_b64decode(letters + "=" * (-len(letters) % 4))
            skeleton = msgspec.msgpack.decode(_inflate(packed, int(size), limits), type=cls)
        except (ValueError, TypeError, FrameError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(BROKEN.id, None, f"the carried skeleton cannot be read: {error}") from None
        for member in skeleton.members:
            _check_member(member, skeleton.bonds)
        return skeleton

    def tightened(self, limits: Limits) -> Limits:
        """The limits to read the original with. Only payloads were cut out of it, so that no table of it is larger
        than what was kept, but for what was compressed; a claimed size is no size."""
        room = max(limits.decompression_floor, sum(len(member.kept) for member in self.members))
        caps = {name: min(getattr(limits, name), room) for name in _TABLES}
        return replace(limits, **caps)


_TABLES = ("index_bytes", "string_table_bytes", "metadata_bytes")


def _check_member(member: Member, bonds: Sequence[Bond]) -> None:
    """Cuts in order, apart, inside the file, each as large as its tensor, and exactly the kept bytes between them."""
    at = payload = 0
    for start, size, row in member.cuts:
        if start < at or size < 0 or not 0 <= row < len(bonds) or size != bonds[row].size:
            raise FormatError(BROKEN.id, None, f"the carried skeleton has a cut out of place at {start}")
        at, payload = start + size, payload + size
    if at > member.size or member.size - payload != len(member.kept):
        raise FormatError(BROKEN.id, None, f"the carried skeleton keeps {len(member.kept)} bytes of {member.size}")


def _inflate(packed: bytes, size: int, limits: Limits) -> bytes:
    cap = min(limits.decompressed_bytes, max(limits.document_bytes, limits.decompression_ratio * len(packed)))
    if size > cap:
        raise LimitError(LIMIT.id, None, f"the carried skeleton inflates to {size} bytes, more than {cap}")
    return b"".join(expand([packed], size))


# -- making one -------------------------------------------------------------------------------------------------------


def cut(model: Model, travels: Callable[[str], tuple[str, str] | None]) -> Skeleton:
    """The skeleton of an opened model. ``travels(name)`` says as what name and dtype a tensor travels, or None."""
    bonds: list[Bond] = []
    ranges: dict[int, list[Cut]] = {}
    for row, tensor in enumerate(model.tensors):
        carried = travels(tensor.name) or ("", "")
        bonds.append(Bond(tensor.name, str(tensor.dtype), tensor.nbytes, *carried))
        if isinstance(tensor.payload, Range) and tensor.payload.size:
            span = (tensor.payload.offset, tensor.payload.size, row)
            ranges.setdefault(id(tensor.payload.source), []).append(span)
    root = model.sources[0]
    several = root.is_folder or len(model.sources) > 1
    members: dict[str, Member] = {}
    room = MAX_BYTES
    for source in model.sources:
        name = (source.member or PurePath(source.name).name) if several else ""
        if source.is_folder or name in members:
            continue
        members[name] = _cut_source(source, name, _apart(ranges.get(id(source), [])), room)
        room -= len(members[name].kept)
    for name in model.assets if root.is_folder else ():  # files of their own, beside those with tensors
        payload = model.assets.payload(name)
        _has_room(payload.size, room)
        members.setdefault(name, Member(name, payload.size, (), bytes(payload.view())))
        room -= payload.size
    return Skeleton(model.format or "", tuple(bonds), tuple(members.values()), several)


def _apart(cuts: list[Cut]) -> Iterator[Cut]:
    """Cuts in order; one that overlaps an earlier one (an alias) is left out, since its bytes are cut already."""
    end = 0
    for start, size, row in sorted(cuts):
        if start >= end:
            yield start, size, row
            end = start + size


def _cut_source(source: Source, name: str, cuts: Iterable[Cut], room: int) -> Member:
    made, kept, at = [], bytearray(), 0
    cuts = list(cuts)
    source.prefetch(_between(cuts, source.size))
    for start, size, row in cuts:
        _has_room(start - at, room - len(kept))
        kept += source.read(at, start - at)
        made.append((start, size, row))
        at = start + size
    _has_room(source.size - at, room - len(kept))
    kept += source.read(at, source.size - at)
    return Member(name, source.size, tuple(made), bytes(kept))


def _between(cuts: Iterable[Cut], size: int) -> Iterator[tuple[int, int]]:
    """The ranges that no cut takes."""
    at = 0
    for start, length, _ in cuts:
        yield at, start
        at = start + length
    yield at, size


def _has_room(size: int, room: int) -> None:
    if size > room:
        raise UnsupportedError(f"what is not tensor payload takes more than {MAX_BYTES} bytes: too much to carry")


# -- the way back -----------------------------------------------------------------------------------------------------


def find(model: Model, limits: Limits = DEFAULT_LIMITS) -> Skeleton | None:
    """The skeleton that ``model`` carries; None when it carries none."""
    text = model.metadata.get(KEY)
    if not isinstance(text, str):
        return None
    number = 1
    while isinstance(more := model.metadata.get(f"{KEY}.{number}"), str):  # a format with short values splits it
        text += more
        number += 1
    return Skeleton.from_text(text, limits)


def may_read(model: Model, format: str) -> bool:
    """Whether the allowlist that ``model`` was opened with, if any, has ``format``."""
    return model.allowed is None or format in model.allowed


def original_of(model: Model) -> Model | None:
    """The original that ``model`` carries, opened with its own reader; payloads that changed read as zeros.

    None also where the model was opened with an allowlist that does not have the original's format.
    """
    from holdall import registry
    from holdall.check import Check
    from holdall.ledger import Ledger

    limits = model.limits or DEFAULT_LIMITS
    carried = find(model, limits)
    if carried is None or not may_read(model, carried.format):
        return None
    source, _ = bound_source(carried, model, model.sources[0].name if model.sources else "<memory>")
    return registry.find(carried.format).read(source, Check(limits=carried.tightened(limits)), Ledger())


def without(metadata: Metadata) -> Metadata:
    """``metadata`` without the carried skeleton."""
    return Metadata([entry for entry in metadata.entries if not _is_carried(entry)])


def _is_carried(entry: Entry) -> bool:
    return entry.key == KEY or entry.key.startswith(f"{KEY}.")


class SkeletonSource(Source):
    """One file of the original again: kept bytes and payloads, laid out as they were.

    A payload that is not there any more reads as zeros.
    """

    def __init__(self, name: str, member: Member, payloads: Sequence[Payload | None]) -> None:
        self.name = name
        self.size = member.size
        self.pieces: list[tuple[int, int, Payload | None]] = []
        at = used = 0
        for start, size, row in member.cuts:
            if start > at:
                self.pieces.append((at, start - at, Held(member.kept[used : used + start - at])))
            self.pieces.append((start, size, payloads[row]))
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


def bound_source(skeleton: Skeleton, tensors: Mapping[str, Tensor], name: str) -> tuple[SkeletonSource, list[str]]:
    """The original as a source, its payloads taken from ``tensors``; and the names of those that no longer fit."""
    payloads: list[Payload | None] = []
    changed: list[str] = []
    for bond in skeleton.bonds:
        tensor = tensors.get(bond.carried) if bond.carried else None
        payload = None if tensor is None or str(tensor.dtype) != bond.carried_dtype else tensor.payload
        fits = payload is not None and 0 <= payload.size - bond.size < _FILL
        payloads.append(_front(payload, bond.size) if fits and payload is not None else None)
        if not fits and bond.size:
            changed.append(bond.name)
    members = {m.name: SkeletonSource(f"{name}/{m.name}", m, payloads) for m in skeleton.members}
    if skeleton.folder:
        return _SkeletonFolder(name, members), changed
    if len(members) != 1:
        raise FormatError(BROKEN.id, None, f"the carried skeleton has {len(members)} files where one is expected")
    return next(iter(members.values())), changed


def _front(payload: Payload, size: int) -> Payload:
    """The first ``size`` bytes: opaque bytes in wider integers were filled up with zeros."""
    if payload.size == size:
        return payload
    return Range(payload.source, payload.offset, size) if isinstance(payload, Range) else Held(payload.part(0, size))


def plan_of(source: SkeletonSource) -> Plan | FolderPlan:
    """The plan that writes the original again, byte for byte."""
    if isinstance(source, _SkeletonFolder):
        return FolderPlan({name: _file_plan(member) for name, member in source.members.items()})
    return _file_plan(source)


def _file_plan(source: SkeletonSource) -> Plan:
    plan = Plan()
    for _, _, payload in source.pieces:
        assert payload is not None, "a changed payload cannot restore the original"
        plan.stream(payload)
    return plan
