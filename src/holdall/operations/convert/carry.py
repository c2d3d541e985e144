"""Carrying an original along: its skeleton in the target's metadata, and the hashes of its tensors, taken as they pass.

The hashes are known only after the payloads have been written. The plan is made with placeholders of their size, which
then become late pieces fed by taps, so that carrying reads nothing twice.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdall.errors import ContentError
from holdall.metadata import HASHES, SKELETON, Metadata
from holdall.operations.convert.skeleton import DIGEST, Bond, Skeleton, split_entries, split_text
from holdall.payload import Payload, Range
from holdall.plan import FolderPlan, Plan, Results, Stream
from holdall.tensor import Tensor

__all__ = ["Carried"]

_LEAST = 96  # letters of the hashes: a placeholder has to be longer than the words that make it unique


class Carried:
    """A skeleton on its way into a target. ``known`` are the hashes of an original that is handed on."""

    def __init__(self, skeleton: Skeleton, longest: int | None, known: bytes | None = None) -> None:
        self.skeleton = skeleton
        self.text = skeleton.to_text()
        self._longest = longest
        self._known = known
        self._taken: list[str | bytes] = []
        self._letters = max(_LEAST, -(-DIGEST * len(skeleton.bonds) * 4 // 3))

    @property
    def size(self) -> int:
        """Letters of the skeleton and of the hashes."""
        return len(self.text) + self._letters

    def extend(self, metadata: Metadata) -> Metadata:
        """``metadata`` with the skeleton and with placeholders for the hashes."""
        hashes = [self._placeholder(start, stop) for start, stop in self._stretches()]
        entries = split_entries(SKELETON, split_text(self.text, self._longest))
        return Metadata([*metadata.entries, *entries, *split_entries(HASHES, hashes, pending=True)])

    def attach(self, plan: Plan | FolderPlan, forms: Sequence[Tensor | None]) -> None:
        """Have ``plan`` write the hashes of ``forms``, which are the tensors as they travel, one for each bond."""
        files = plan.files if isinstance(plan, FolderPlan) else {"": plan}
        self._taken = self._digests(files, forms)
        digests = self._taken if self._known is None else self._known
        if isinstance(plan, FolderPlan):
            plan.files[SKELETON] = self._file(digests)
            return
        for number, (start, stop) in enumerate(self._stretches()):
            make = partial(self._slice, digests, start, stop)
            placeholder = self._placeholder(start, stop).encode()
            if not plan.make_late(f"hashes.{number}", placeholder, _needs(digests), make):
                raise ContentError("the target's writer leaves no place for the hashes of what is carried")

    def changed(self, results: Results) -> list[str]:
        """The tensors of an original that is handed on whose bytes are no longer those that were carried."""
        if self._known is None:
            return []
        found = []
        for row, (bond, taken) in enumerate(zip(self.skeleton.bonds, self._taken, strict=True)):
            digest = results[taken] if isinstance(taken, str) else taken
            if bond.carried and digest != self._known[DIGEST * row : DIGEST * (row + 1)]:
                found.append(bond.name)
        return found

    def _file(self, digests: bytes | list[str | bytes]) -> Plan:
        """The file in which a folder carries an original; it comes last, when the hashes of all others are known."""
        out = Plan()
        out.put(self.text.encode() + b"\n")
        out.late("hashes", self._letters, _needs(digests), partial(self._slice, digests, 0, self._letters))
        return out

    def _stretches(self) -> list[tuple[int, int]]:
        """The letters of each entry of the hashes. All are about as long, so that none is too short to be unique."""
        step = -(-self._letters // -(-self._letters // (self._longest or self._letters)))
        return [(start, min(self._letters, start + step)) for start in range(0, self._letters, step)]

    def _placeholder(self, start: int, stop: int) -> str:
        """Letters that stand nowhere else in the file: they depend on all that the skeleton holds."""
        from blake3 import blake3

        mark = blake3(f"{start}-{stop}-{self.text}".encode(), derive_key_context="holdall placeholder").hexdigest()
        return mark[: stop - start].ljust(stop - start, "-")

    def _slice(self, digests: bytes | list[str | bytes], start: int, stop: int, results: Results) -> bytes:
        """Letters ``start..stop`` of the hashes, filled up with dots."""
        if isinstance(digests, bytes):
            data = digests
        else:
            data = b"".join(results[one] if isinstance(one, str) else one for one in digests)
        return urlsafe_b64encode(data).rstrip(b"=").ljust(self._letters, b".")[start:stop]

    def _digests(self, files: dict[str, Plan], forms: Sequence[Tensor | None]) -> list[str | bytes]:
        """For each bond its hash, or the name of the tap that takes it."""
        places: dict[Any, tuple[str, int]] = {}
        for file, plan in files.items():
            for piece in plan.pieces:
                if isinstance(piece, Stream):
                    places.setdefault(_identity(piece.payload), (file, piece.offset))
        digests: list[str | bytes] = []
        taps: set[str] = set()
        for bond, form in zip(self.skeleton.bonds, forms, strict=True):
            payload = None if form is None else form.payload
            place = None if payload is None or not bond.size else places.get(_identity(payload))
            if place is None:
                digests.append(_digest(payload, bond))
                continue
            file, offset = place
            name = f"bond.{offset}.{bond.size}"
            digests.append(f"{file}/{name}" if file else name)
            if digests[-1] not in taps:
                taps.add(f"{file}/{name}" if file else name)
                files[file].tap(name, "blake3", offset, offset + bond.size)
        return digests


def _needs(digests: bytes | list[str | bytes]) -> tuple[str, ...]:
    return () if isinstance(digests, bytes) else tuple(dict.fromkeys(one for one in digests if isinstance(one, str)))


def _identity(payload: Payload) -> Any:
    """Equal for payloads that are the same bytes of the same file."""
    return (id(payload.source), payload.offset, payload.size) if isinstance(payload, Range) else id(payload)


def _digest(payload: Payload | None, bond: Bond) -> bytes:
    """The BLAKE3 of the first bytes of a payload that the plan does not stream by itself."""
    from blake3 import blake3

    running, left = blake3(), bond.size
    for chunk in payload.chunks() if payload is not None else ():
        running.update(chunk[:left])
        left -= min(left, len(chunk))
    return running.digest()
