"""Skeletons: the file that a model came from, without its tensor payloads.

A conversion with ``carry=True`` stores the skeleton of its source under the metadata key ``holdall.skeleton``, or in a
file of that name where the target is a folder. :func:`holdall.restore` puts the payloads back into it. The ordinary
reader of the format opens the result, so a hostile skeleton meets the ordinary checks.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from holdall.base.check import LIMIT, Rule
from holdall.binary.compression import FrameError, compress, expand
from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model.gather import read_together
from holdall.model.metadata import HASHES, SKELETON, Entry, Metadata
from holdall.model.payload import SourceRange
from holdall.source import Source, split_contained

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.table import TensorTable
    from holdall.model.tensor import Tensor

__all__ = ["BROKEN", "DIGEST", "Bond", "Skeleton", "SkeletonFile", "find_skeleton", "make_skeleton", "split_entries"]
__all__ += ["StoredForms", "split_text", "unpack_carried"]

MAX_BYTES = 256 << 20  # a skeleton keeps at most so many bytes, before compression
DIGEST = 32  # the size of a BLAKE3
_VERSION, _STORED = "2", "2s"  # compressed; or not, if the compression ratio would exceed the limit of readers
_BLOCK = 4096  # ranges that are read together
_DEPTH = 4  # the most parts that the path of a file in an original has

BROKEN = Rule("core.skeleton", "a carried skeleton is complete")

Hole = tuple[int, int, int]  # start, size, and the row of the bond whose payload goes there


class Bond(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Links an original tensor to the one that stores its bytes in the target; ``carried_dtype`` is empty if none does.

    The name of the other may be empty as well: some formats have such tensors.

    The BLAKE3 of its bytes is stored beside the skeleton, since it is known only after they have been written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    carried: str
    carried_dtype: str
    carried_shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, dtype: str, shape: tuple[int, ...], size: int, stored: StoredForms, row: int | None) -> Bond:
        """The bond of a tensor whose bytes are in ``row`` of what is stored, or not stored."""
        return cls(name, dtype, shape, size, *(("", "", ()) if row is None else stored[row]))

    def fits(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` still has the dtype and the shape in which it was carried."""
        return str(tensor.dtype) == self.carried_dtype and tensor.shape == self.carried_shape

    @property
    def travels(self) -> bool:
        """Whether a tensor of the target stores the bytes."""
        return bool(self.carried_dtype)

    @property
    def plain(self) -> bool:
        """Whether the stored tensor has the name, dtype and shape of the original."""
        return (self.carried, self.carried_dtype, self.carried_shape) == (self.name, self.dtype, self.shape)


class StoredForms:
    """The name, dtype and shape of each tensor of a table, as bonds state them."""

    def __init__(self, table: TensorTable) -> None:
        self._names = table.names
        self._codes = table.forms().codes.tolist()
        self._kinds = [(str(form.dtype), form.shape) for form in table.forms().kinds]

    def __getitem__(self, row: int) -> tuple[str, str, tuple[int, ...]]:
        return self._names[row], *self._kinds[self._codes[row]]


class SkeletonFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file of the original: its name in the folder (empty for a single file) and the bytes between the payloads."""

    name: str
    size: int
    holes: tuple[Hole, ...]
    kept: bytes


class Skeleton(msgspec.Struct, frozen=True, array_like=True):
    """The files of a model without payloads."""

    format: str
    bonds: tuple[Bond, ...]
    files: tuple[SkeletonFile, ...]
    folder: bool

    def to_text(self) -> str:
        """Encode the skeleton as text that any metadata can hold: version, size, BLAKE3, and URL-safe base64."""
        from blake3 import blake3

        data = msgspec.msgpack.encode(self)
        packed, version = compress(data, 9), _VERSION
        if len(data) > _cap_size(len(packed), DEFAULT_LIMITS):  # readers would take it for a bomb
            packed, version = data, _STORED
        return f"{version}.{len(data)}.{blake3(data).hexdigest()}.{_to_letters(packed)}"

    @classmethod
    def from_text(cls, text: str, limits: Limits = DEFAULT_LIMITS) -> Skeleton:
        """Decode the skeleton in ``text``. Raises FormatError for any other text."""
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
        skeleton = cls(skeleton.format, _share_values(skeleton.bonds), skeleton.files, skeleton.folder)
        _check_bonds(skeleton.bonds)
        _check_names([member.name for member in skeleton.files])
        placed: set[int] = set()  # a bond has one place: a small skeleton must not describe a huge file
        for member in skeleton.files:
            _check_member(member, skeleton.bonds, placed)
        return skeleton

    def tighten_limits(self, limits: Limits) -> Limits:
        """Return limits for reading the original: its tables, unless compressed, lie in the bytes that were kept."""
        room = max(limits.decompression_floor, sum(len(member.kept) for member in self.files))
        caps = {name: min(getattr(limits, name), room) for name in _TABLES}
        return replace(limits, **caps)


_TABLES = ("index_bytes", "string_table_bytes", "metadata_bytes")


def _to_letters(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _from_letters(letters: str) -> bytes:
    return urlsafe_b64decode(letters + "=" * (-len(letters) % 4))


def _share_values(bonds: tuple[Bond, ...]) -> tuple[Bond, ...]:
    """Make the names, dtypes and shapes that are equal the same objects: most of a decoded skeleton are such values."""
    known: dict[Hashable, Any] = {}
    share = known.setdefault
    return tuple(
        Bond(
            each.name,
            share(each.dtype, each.dtype),
            share(each.shape, each.shape),
            each.size,
            each.name if each.carried == each.name else each.carried,
            share(each.carried_dtype, each.carried_dtype),
            share(each.carried_shape, each.carried_shape),
        )
        for each in bonds
    )


def _check_bonds(bonds: Sequence[Bond]) -> None:
    """Refuse two bonds of one tensor, and bytes of a tensor that is not stored."""
    seen: set[str] = set()
    for bond in bonds:
        if bond.travels and bond.carried in seen:
            raise FormatError(BROKEN.id, None, f"the carried skeleton takes two tensors from {bond.carried!r}")
        if not bond.travels and bond.size:
            raise FormatError(
                BROKEN.id, None, f"the carried skeleton has bytes of {bond.name!r}, which does not travel"
            )
        if bond.travels:
            seen.add(bond.carried)


def _check_names(names: Sequence[str]) -> None:
    """Refuse names that leave the folder, lie too deep, occur twice, or are also the folder of another file."""
    files = set(names)
    if len(files) < len(names):
        raise FormatError(BROKEN.id, None, "the carried skeleton has a file twice")
    for name in names:
        parts = split_contained(name) if name else ()
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if len(parts) > _DEPTH or not files.isdisjoint(above):
            raise FormatError(BROKEN.id, None, f"the carried skeleton has a file out of place: {name[:100]!r}")


def _check_member(member: SkeletonFile, bonds: Sequence[Bond], placed: set[int]) -> None:
    """Refuse holes that overlap, leave the file or differ from their tensor in size; the kept bytes fill the rest."""
    at = payload = 0
    for start, size, row in member.holes:
        wrong = start < at or size < 0 or not 0 <= row < len(bonds) or size != bonds[row].size
        if wrong or row in placed or not bonds[row].travels:
            raise FormatError(BROKEN.id, None, f"the carried skeleton has a hole out of place at {start}")
        placed.add(row)
        at, payload = start + size, payload + size
    if at > member.size or member.size - payload != len(member.kept):
        raise FormatError(BROKEN.id, None, f"the carried skeleton keeps {len(member.kept)} bytes of {member.size}")


def _cap_size(packed: int, limits: Limits) -> int:
    """Return the most bytes that ``packed`` compressed ones may expand to."""
    return min(limits.decompressed_bytes, max(limits.document_bytes, limits.decompression_ratio * packed))


def _inflate(packed: bytes, size: int, limits: Limits) -> bytes:
    cap = _cap_size(len(packed), limits)
    if size > cap:
        raise LimitError(LIMIT.id, None, f"the carried skeleton inflates to {size} bytes, more than {cap}")
    return b"".join(expand([packed], size))


def unpack_carried(model: Model) -> tuple[int, Iterator[bytes]] | None:
    """Find the letters of the skeleton in the metadata of ``model``: their number, and the bytes that they stand for.

    The bytes come unpacked, piece by piece, and nothing is made of them. Broken letters raise ValueError.
    """
    text = _join(model.metadata, SKELETON)
    return None if text is None else (len(text), _unpack_pieces(text))


def _unpack_pieces(text: str) -> Iterator[bytes]:
    version, size, _, letters = (*text.split(".", 3), "", "", "")[:4]
    packed = _from_letters(letters)
    yield from [packed] if version == _STORED else expand([packed], int(size))


def split_text(text: str, longest: int | None) -> list[str]:
    """Return ``text`` in parts that the target can hold as one value each."""
    step = longest or max(1, len(text))
    return [text[at : at + step] for at in range(0, len(text), step)] or [""]


def split_entries(key: str, parts: Sequence[str], *, pending: bool = False) -> list[Entry]:
    """Return the parts of one text as metadata: the first under ``key``, the others under ``key.1`` and so on."""
    numbers = ["", *(f".{number}" for number in range(1, len(parts)))]
    return [Entry(key + number, part, pending=pending) for number, part in zip(numbers, parts, strict=True)]


def _join(metadata: Metadata, key: str) -> str | None:
    """Return the text under ``key``, joined if it was split; None when there is none."""
    text = metadata.get(key)
    if not isinstance(text, str):
        return None
    parts = [text]
    while isinstance(more := metadata.get(f"{key}.{len(parts)}"), str):
        parts.append(more)
    return "".join(parts)


def find_skeleton(model: Model, limits: Limits = DEFAULT_LIMITS) -> tuple[Skeleton, bytes] | None:
    """Find the skeleton that ``model`` carries and the hashes of its bonds, joined; None when it carries none."""
    texts = _read_texts(model, limits)
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


def _read_texts(model: Model, limits: Limits) -> tuple[str, str] | None:
    """Read the texts of the skeleton and of its hashes, from the metadata or a file in the folder; None if absent."""
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


def make_skeleton(model: Model, stored: TensorTable, rows: Mapping[str, int]) -> Skeleton:
    """Make the skeleton of an opened model. ``rows`` has the row in ``stored`` of each tensor whose bytes are there."""
    table = model.tensors
    own, other = StoredForms(table), StoredForms(stored)
    bonds: list[Bond] = []
    for row, size in enumerate(table.forms().sizes().tolist()):
        name, dtype, shape = own[row]
        bonds.append(Bond.of(name, dtype, shape, size, other, rows.get(name)))
    ranges = table.ranges()
    holes: dict[int, list[Hole]] = {}
    for row in ((ranges.owners >= 0) & (ranges.sizes > 0)).nonzero()[0].tolist():
        if bonds[row].travels:
            source = ranges.sources[ranges.owners[row]]
            holes.setdefault(id(source), []).append((int(ranges.starts[row]), bonds[row].size, row))
    root = model.sources[0]
    several = root.is_folder or len(model.sources) > 1
    files: dict[str, SkeletonFile] = {}
    room = MAX_BYTES
    for source in model.sources:
        name = (source.member or PurePath(source.name).name) if several else ""
        if source.is_folder or name in files:
            continue
        files[name] = _keep_rest(source, name, _drop_overlaps(holes.get(id(source), [])), room)
        room -= len(files[name].kept)
    for name in model.assets if root.is_folder else ():  # each is a file beside those with tensors
        payload = model.assets.payload(name)
        _check_room(payload.size, room)
        files.setdefault(name, SkeletonFile(name, payload.size, (), bytes(payload.view())))
        room -= payload.size
    return Skeleton(model.format or "", tuple(bonds), tuple(files.values()), several)


def _drop_overlaps(holes: list[Hole]) -> Iterator[Hole]:
    """Sort the holes, without those that overlap an earlier one: an alias lies on bytes that are left out already."""
    end = 0
    for start, size, row in sorted(holes):
        if start >= end:
            yield start, size, row
            end = start + size


def _keep_rest(source: Source, name: str, holes: Iterable[Hole], room: int) -> SkeletonFile:
    holes = tuple(holes)
    kept = list(_list_kept_ranges(holes, source.size))
    _check_room(sum(stop - start for start, stop in kept), room)
    source.prefetch(kept)
    data = b"".join(part for block in range(0, len(kept), _BLOCK) for part in read_together(
        [SourceRange(source, start, stop - start) for start, stop in kept[block : block + _BLOCK]]
    ))  # fmt: skip
    return SkeletonFile(name, source.size, holes, data)


def _list_kept_ranges(holes: Iterable[Hole], size: int) -> Iterator[tuple[int, int]]:
    """List the ranges between the holes that have bytes."""
    at = 0
    for start, length, _ in holes:
        if start > at:
            yield at, start
        at = start + length
    if size > at:
        yield at, size


def _check_room(size: int, room: int) -> None:
    if size > room:
        raise UnsupportedError(f"what is not tensor payload takes more than {MAX_BYTES} bytes: too much to carry")
