"""Carrying an original: its skeleton goes into the target's metadata, with the hashes of its tensors.

The hashes are known only after the payloads have been written. So the target is planned with placeholders of the same
size, which then become late pieces that taps fill. Nothing is read twice.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdall.errors import ContentError, UnsupportedError
from holdall.model.metadata import HASHES, SKELETON, Metadata
from holdall.model.model import Model
from holdall.model.payload import Payload, SourceRange
from holdall.operations.convert.carried_source import tap_parts
from holdall.operations.convert.options import ConvertOptions
from holdall.operations.convert.skeleton import DIGEST, Bond, Skeleton, StoredForms, split_entries, split_text
from holdall.sink.plan import FolderPlan, Plan, Results

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.model.table import TensorTable

__all__ = ["CarriedSkeleton", "hand_on_error", "hand_on_skeleton", "refuse_carrying"]

_Digest: TypeAlias = bytes | tuple[str, int]  # a hash, or the tap that has it and its number among those of the tap
_TAP = "bonds"
_LEAST = 96  # the hashes take at least so many letters: a placeholder must be longer than the digest in it


def refuse_carrying(models: Sequence[Model], target: Format, options: ConvertOptions) -> None:
    """Raise UnsupportedError if ``options`` change content, or there is no single original, or no place for it."""
    changing = options.list_changing()
    if changing:
        text = "--carry keeps the original as it is, and goes with no change of content; leave out "
        raise UnsupportedError(text + ", ".join(changing))
    if len(models) > 1 or options.split is not None:
        raise UnsupportedError("--carry: files that are merged or split have no single original to carry")
    if not target.carries:
        raise UnsupportedError(f"{target.name} has no place in which an original could be carried")


def hand_on_skeleton(skeleton: Skeleton, model: Model, stored: TensorTable, rows: Mapping[str, int]) -> Skeleton:
    """Rebind the skeleton that ``model`` carries to the tensors that are ``stored`` now, in ``rows`` by their names."""
    bonds, forms = [], StoredForms(stored)
    for bond in skeleton.bonds:
        tensor = model.get(bond.carried) if bond.travels else None
        if bond.travels and (tensor is None or not bond.fits(tensor)):
            now = "is gone" if tensor is None else f"is {tensor.dtype}{list(tensor.shape)}"
            raise hand_on_error(skeleton, f"{bond.carried!r} {now}")
        row = rows.get(bond.carried) if bond.travels else None
        bonds.append(Bond.of(bond.name, bond.dtype, bond.shape, bond.size, forms, row))
    return Skeleton(skeleton.format, tuple(bonds), skeleton.files, skeleton.folder)


def hand_on_error(skeleton: Skeleton, what: str) -> ContentError:
    """Build the error for an original that cannot be passed on; ``what`` says which tensor changed, and how."""
    return ContentError(
        f"the {skeleton.format} original that is carried cannot be handed on: tensor {what}. "
        "Convert without --carry, or restore it first"
    )


class CarriedSkeleton:
    """A skeleton that is being written into a target. ``original_hashes`` are given if the source carried it.

    ``longest`` is the most letters that the target can hold as one metadata value.
    """

    def __init__(self, skeleton: Skeleton, longest: int | None, original_hashes: bytes | None = None) -> None:
        self.text = skeleton.to_text()
        self.skeleton = Skeleton(skeleton.format, skeleton.bonds, (), skeleton.folder)  # the files are in the text
        self._longest = longest
        self._original_hashes = original_hashes
        self._hashes: list[_Digest] = []  # of each bond
        self._letters = max(_LEAST, -(-DIGEST * len(skeleton.bonds) * 4 // 3))

    @property
    def is_handed_on(self) -> bool:
        """Whether the original is one that the source carried already, not the source itself."""
        return self._original_hashes is not None

    @property
    def size(self) -> int:
        """How many letters the skeleton and the hashes take together."""
        return len(self.text) + self._letters

    def extend_metadata(self, metadata: Metadata) -> Metadata:
        """Return ``metadata`` with the skeleton and with placeholders for the hashes."""
        hashes = [self._make_placeholder(start, stop) for start, stop in self._divide_letters()]
        entries = split_entries(SKELETON, split_text(self.text, self._longest))
        return Metadata([*metadata.entries, *entries, *split_entries(HASHES, hashes, pending=True)])

    def attach(self, plan: Plan | FolderPlan, stored: TensorTable, rows: Sequence[int | None]) -> None:
        """Make ``plan`` write the hashes of the ``stored`` tensors of the bonds, which are in ``rows``."""
        files = plan.files if isinstance(plan, FolderPlan) else {"": plan}
        self._hashes = self._tap_payloads(files, stored, rows)
        digests: Sequence[_Digest] = self._hashes if self._original_hashes is None else [self._original_hashes]
        if isinstance(plan, FolderPlan):
            plan.files[SKELETON] = self._plan_file(digests)
            return
        for number, (start, stop) in enumerate(self._divide_letters()):
            make = partial(self._encode_hashes, digests, start, stop)
            placeholder = self._make_placeholder(start, stop).encode()
            if not plan.make_late(f"hashes.{number}", placeholder, _taps_of(digests), make):
                raise ContentError("the target's writer leaves no place for the hashes of what is carried")

    def find_changed(self, results: Results) -> list[str]:
        """Find the tensors of a handed-on original whose bytes are not those that the source carried."""
        if self._original_hashes is None:
            return []
        found = []
        for row, (bond, taken) in enumerate(zip(self.skeleton.bonds, self._hashes, strict=True)):
            digest = _find_digest(taken, results)
            if bond.travels and digest != self._original_hashes[DIGEST * row : DIGEST * (row + 1)]:
                found.append(bond.name)
        return found

    def _plan_file(self, digests: Sequence[_Digest]) -> Plan:
        """Plan the file in which a folder carries an original. It is written last, when all hashes are known."""
        out = Plan()
        out.put(self.text.encode() + b"\n")
        out.late("hashes", self._letters, _taps_of(digests), partial(self._encode_hashes, digests, 0, self._letters))
        return out

    def _divide_letters(self) -> list[tuple[int, int]]:
        """Divide the letters of the hashes into entries of about the same length; return where each starts and stops.

        A short last entry would leave no room for a unique placeholder.
        """
        step = -(-self._letters // -(-self._letters // (self._longest or self._letters)))
        return [(start, min(self._letters, start + step)) for start in range(0, self._letters, step)]

    def _make_placeholder(self, start: int, stop: int) -> str:
        """Make letters that occur nowhere else in the file, since they depend on everything in the skeleton."""
        from blake3 import blake3

        mark = blake3(f"{start}-{stop}-{self.text}".encode(), derive_key_context="holdall placeholder").hexdigest()
        return mark[: stop - start].ljust(stop - start, "-")

    def _encode_hashes(self, digests: Sequence[_Digest], start: int, stop: int, results: Results) -> bytes:
        """Encode the hashes as base64 text, padded with dots, and return its characters ``start..stop``."""
        data = b"".join(_find_digest(each, results) for each in digests)
        return urlsafe_b64encode(data).rstrip(b"=").ljust(self._letters, b".")[start:stop]

    def _tap_payloads(
        self, files: dict[str, Plan], stored: TensorTable, rows: Sequence[int | None]
    ) -> list[_Digest]:  # fmt: skip
        """Return for each bond its hash, or where the tap of its file has it once the payload is written."""
        bonds, places = self.skeleton.bonds, _list_places(files)
        payloads = (None if row is None else stored.payload(row) for row in rows)
        found = [
            None if payload is None or not bond.size else places.get(_place_of(payload))
            for bond, payload in zip(bonds, payloads, strict=True)
        ]
        sizes: dict[str, dict[int, int]] = {file: {} for file in files}  # of the ranges to hash, by where they begin
        for place, bond in zip(found, bonds, strict=True):
            if place is not None:
                sizes[place[0]].setdefault(place[1], bond.size)
        numbers: dict[tuple[str, int], _Digest] = {}
        for file, ranges in sizes.items():
            tap = f"{file}/{_TAP}" if file else _TAP
            ordered = sorted(ranges.items())
            tap_parts(files[file], _TAP, [(start, start + size) for start, size in ordered])
            numbers |= {(file, start): (tap, number) for number, (start, _) in enumerate(ordered)}
        return [
            numbers[place[:2]] if place is not None and sizes[place[0]][place[1]] == bond.size
            else _hash_first(None if row is None else stored.payload(row), bond)
            for place, bond, row in zip(found, bonds, rows, strict=True)
        ]  # fmt: skip


def _list_places(files: Mapping[str, Plan]) -> dict[Any, tuple[str, int, Payload | None]]:
    """List where payloads are written: the file and the offset of each."""
    places: dict[Any, tuple[str, int, Payload | None]] = {}
    for file, plan in files.items():
        for offset, written in plan.payloads():
            kept = None if isinstance(written, SourceRange) else written  # so that no other has its id
            places.setdefault(_place_of(written), (file, offset, kept))
    return places


def _find_digest(digest: _Digest, results: Results) -> bytes:
    if isinstance(digest, bytes):
        return digest
    joined: bytes = results[digest[0]]
    return joined[DIGEST * digest[1] : DIGEST * (digest[1] + 1)]


def _taps_of(digests: Sequence[_Digest]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each[0] for each in digests if not isinstance(each, bytes)))


def _place_of(payload: Payload) -> Any:
    """Equal for payloads that are the same bytes of the same file."""
    return (id(payload.source), payload.offset, payload.size) if isinstance(payload, SourceRange) else id(payload)


def _hash_first(payload: Payload | None, bond: Bond) -> bytes:
    """Hash the first bytes of a payload that the plan does not stream, which no tap covers."""
    from blake3 import blake3

    running, left = blake3(), bond.size
    for chunk in payload.chunks() if payload is not None else ():
        running.update(chunk[:left])
        left -= min(left, len(chunk))
    return running.digest()
