"""Skeletons: the file that a model came from, without its tensor payloads.

A conversion that is asked to carries the skeleton of its source under the metadata key ``holdall.skeleton``, or, where
the target is a folder, in a file of that name. :func:`holdall.restore` lays the payloads into it again. The ordinary
reader opens what comes of it, so that a hostile skeleton meets the ordinary checks.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from holdall.check import LIMIT, Rule
from holdall.compression import FrameError, compress, expand
from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.metadata import HASHES, SKELETON, Entry, Metadata
from holdall.payload import Range
from holdall.source import Source, contained

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.tensor import Tensor

__all__ = ["BROKEN", "DIGEST", "Bond", "Member", "Skeleton", "cut", "find", "split_entries", "split_text"]

MAX_BYTES = 256 << 20  # of the pieces together, before compression
DIGEST = 32  # bytes of the BLAKE3 of a bond
_VERSION, _STORED = "2", "2s"  # compressed, or stored where it would shrink to next to nothing
_DEPTH = 4  # folders in folders of an original

BROKEN = Rule("core.skeleton", "a carried skeleton is whole")

Cut = tuple[int, int, int]  # start, size, and the row of the bond whose payload goes there


class Bond(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One tensor of the original: what it was, and as what it travels. ``carried`` is empty when it does not.

    The BLAKE3 of its bytes travels beside the skeleton: it is known only after they have been written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    carried: str
    carried_dtype: str
    carried_shape: tuple[int, ...]

    def fits(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` still has the dtype and the shape in which it was carried."""
        return str(tensor.dtype) == self.carried_dtype and tensor.shape == self.carried_shape

    @property
    def plain(self) -> bool:
        """Whether it travels as what it is."""
        return (self.carried, self.carried_dtype, self.carried_shape) == (self.name, self.dtype, self.shape)


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
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
        """As letters that every free-form place can hold: version, size, BLAKE3, and base64 in its URL alphabet."""
        from blake3 import blake3

        data = msgspec.msgpack.encode(self)
        packed, version = compress(data, 9), _VERSION
        if len(data) > _most(len(packed), DEFAULT_LIMITS):  # readers would take it for a bomb
            packed, version = data, _STORED
        return f"{version}.{len(data)}.{blake3(data).hexdigest()}.{_to_letters(packed)}"

    @classmethod
    def from_text(cls, text: str, limits: Limits = DEFAULT_LIMITS) -> Skeleton:
        """The skeleton in ``text``; FormatError for anything else."""
        from blake3 import blake3

        version, _, rest = text.partition(".")
        if version not in (_VERSION, _STORED):
            message = f"the carried skeleton is of version {version[:20]!r}; version {_VERSION} is known"
            raise FormatError(BROKEN.id, None, message)
        size, _, rest = rest.partition(".")
        digest, _, letters = rest.partition(".")
        try:
            packed = _from_letters(letters)
            data = packed if version == _STORED else _inflate(packed, int(size), limits)
            if blake3(data).hexdigest() != digest:
                raise FormatError(BROKEN.id, None, "the carried skeleton does not have the BLAKE3 that it states")
            skeleton = msgspec.msgpack.decode(data, type=cls)
        except (ValueError, TypeError, FrameError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(BROKEN.id, None, f"the carried skeleton cannot be read: {error}") from None
        _check_bonds(skeleton.bonds)
        _check_names([member.name for member in skeleton.members])
        placed: set[int] = set()  # a bond goes to one place, or a small file would make a huge one
        for member in skeleton.members:
            _check_member(member, skeleton.bonds, placed)
        return skeleton

    def tightened(self, limits: Limits) -> Limits:
        """The limits to read the original with: no table of it is larger than what was kept, compression apart."""
        room = max(limits.decompression_floor, sum(len(member.kept) for member in self.members))
        caps = {name: min(getattr(limits, name), room) for name in _TABLES}
        return replace(limits, **caps)


_TABLES = ("index_bytes", "string_table_bytes", "metadata_bytes")


def _to_letters(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _from_letters(letters: str) -> bytes:
    return urlsafe_b64decode(letters + "=" * (-len(letters) % 4))


def _check_bonds(bonds: Sequence[Bond]) -> None:
    """A tensor travels once, and one that does not travel has no bytes."""
    seen: set[str] = set()
    for bond in bonds:
        if bond.carried in seen:
            raise FormatError(BROKEN.id, None, f"the carried skeleton takes two tensors from {bond.carried!r}")
        if not bond.carried and bond.size:
            raise FormatError(
                BROKEN.id, None, f"the carried skeleton has bytes of {bond.name!r}, which does not travel"
            )
        if bond.carried:
            seen.add(bond.carried)


def _check_names(names: Sequence[str]) -> None:
    """The files of a folder lie in it, not deep, and none where another needs a folder."""
    files = set(names)
    if len(files) < len(names):
        raise FormatError(BROKEN.id, None, "the carried skeleton has a file twice")
    for name in names:
        parts = contained(name) if name else ()
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if len(parts) > _DEPTH or not files.isdisjoint(above):
            raise FormatError(BROKEN.id, None, f"the carried skeleton has a file out of place: {name[:100]!r}")


def _check_member(member: Member, bonds: Sequence[Bond], placed: set[int]) -> None:
    """Cuts in order, apart, inside the file, each as large as its tensor, and exactly the kept bytes between them."""
    at = payload = 0
    for start, size, row in member.cuts:
        wrong = start < at or size < 0 or not 0 <= row < len(bonds) or size != bonds[row].size
        if wrong or row in placed or not bonds[row].carried:
            raise FormatError(BROKEN.id, None, f"the carried skeleton has a cut out of place at {start}")
        placed.add(row)
        at, payload = start + size, payload + size
    if at > member.size or member.size - payload != len(member.kept):
        raise FormatError(BROKEN.id, None, f"the carried skeleton keeps {len(member.kept)} bytes of {member.size}")


def _most(packed: int, limits: Limits) -> int:
    """Bytes that a skeleton of so many compressed ones may have."""
    return min(limits.decompressed_bytes, max(limits.document_bytes, limits.decompression_ratio * packed))


def _inflate(packed: bytes, size: int, limits: Limits) -> bytes:
    cap = _most(len(packed), limits)
    if size > cap:
        raise LimitError(LIMIT.id, None, f"the carried skeleton inflates to {size} bytes, more than {cap}")
    return b"".join(expand([packed], size))


# -- where it travels -------------------------------------------------------------------------------------------------


def split_text(text: str, longest: int | None) -> list[str]:
    """``text`` in parts that the target can hold as one value each."""
    step = longest or max(1, len(text))
    return [text[at : at + step] for at in range(0, len(text), step)] or [""]


def split_entries(key: str, parts: Sequence[str], *, pending: bool = False) -> list[Entry]:
    """The parts of one text as metadata: the first under ``key``, the others under ``key.1`` and so on."""
    numbers = ["", *(f".{number}" for number in range(1, len(parts)))]
    return [Entry(key + number, part, pending=pending) for number, part in zip(numbers, parts, strict=True)]


def _join(metadata: Metadata, key: str) -> str | None:
    """The text under ``key``, joined where it was split; None when there is none."""
    text = metadata.get(key)
    if not isinstance(text, str):
        return None
    parts = [text]
    while isinstance(more := metadata.get(f"{key}.{len(parts)}"), str):
        parts.append(more)
    return "".join(parts)


def find(model: Model, limits: Limits = DEFAULT_LIMITS) -> tuple[Skeleton, bytes] | None:
    """The skeleton that ``model`` carries and the hashes of its bonds, one after the other; None without one."""
    texts = _texts(model, limits)
    if texts is None:
        return None
    skeleton = Skeleton.from_text(texts[0], limits)
    try:
        hashes = _from_letters(texts[1].rstrip("."))
    except ValueError as error:
        raise FormatError(BROKEN.id, None, f"the hashes of the carried skeleton cannot be read: {error}") from None
    if len(hashes) != DIGEST * len(skeleton.bonds):
        message = f"the carried skeleton has {len(skeleton.bonds)} tensors and {len(hashes)} bytes of hashes"
        raise FormatError(BROKEN.id, None, message)
    return skeleton, hashes


def _texts(model: Model, limits: Limits) -> tuple[str, str] | None:
    """The texts of the skeleton and of its hashes, from the metadata or from a file of the folder."""
    text = _join(model.metadata, SKELETON)
    if text is not None:
        return text, _join(model.metadata, HASHES) or ""
    root = model.sources[0] if model.sources else None
    if root is None or not root.is_folder or SKELETON not in root.names():
        return None
    with_hashes = root.sibling(SKELETON)
    try:
        if with_hashes.size > limits.decompressed_bytes:
            message = f"{SKELETON} has {with_hashes.size} bytes; {limits.decompressed_bytes} are allowed"
            raise LimitError(LIMIT.id, None, message)
        text, _, hashes = with_hashes.read(0, with_hashes.size).decode("latin-1").partition("\n")
    finally:
        with_hashes.close()
    return text, hashes


# -- making one -------------------------------------------------------------------------------------------------------


def cut(model: Model, form_of: Callable[[str], Tensor | None]) -> Skeleton:
    """The skeleton of an opened model. ``form_of(name)`` is the form in which a tensor travels, or None."""
    bonds: list[Bond] = []
    ranges: dict[int, list[Cut]] = {}
    for row, tensor in enumerate(model.tensors):
        form = form_of(tensor.name)
        carried = ("", "", ()) if form is None else (form.name, str(form.dtype), form.shape)
        bonds.append(Bond(tensor.name, str(tensor.dtype), tensor.shape, tensor.nbytes, *carried))
        if isinstance(tensor.payload, Range) and tensor.payload.size and form is not None:
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
