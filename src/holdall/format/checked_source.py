"""A source that checks the hashes its file states before it returns the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.locks import make_lock
from holdall.base.once import computed_once
from holdall.format.proof import Proof, Prover, Stated, prove
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup
from holdall.source.digests import new_hash
from holdall.source.ranges import RangeSet

__all__ = ["CheckedSource"]

_HELD = buffer_size(64 << 20)  # the most remote bytes that are kept in memory until they are proven
_LARGE = buffer_size(32 << 20)  # the least bytes that are proven by several threads
# The proofs of a long range are looked up in windows of this size: pages may cover a range that no single hash covers.
_WINDOW = buffer_size(16 << 20)

FindProofs = Callable[[Source, int, int], Iterable[Stated]]


class _SharedProofs:
    """The proofs of one model, shared by its sources; None until the model has been read."""

    find: FindProofs | None = None


class CheckedSource(Source):
    """``origin`` with every read checked against the hashes that its file states.

    Local bytes are proven once, by positioned reads, and remembered. Remote bytes are proven each time they arrive. To
    check a hash over many tensors, a remote source has to fetch all of them: this is done only with ``everything``, and
    once.

    >>> import holdall, numpy as np
    >>> holdall.save("example.npz", {"w": np.ones(3, np.float32)})
    >>> holdall.open("example.npz", check=True)["w"][1:].tolist()
    [1.0, 1.0]
    """

    is_checked = True

    def __init__(
        self, origin: Source, everything: bool, shared: _SharedProofs | None = None, alias: Source | None = None
    ) -> None:
        self.name, self.size, self.member = origin.name, origin.size, origin.member
        self.is_folder, self.is_remote, self.origins = origin.is_folder, origin.is_remote, origin.origins
        self._origin = origin
        self._everything = everything
        self._shared = shared or _SharedProofs()
        self._alias = alias or self  # the source that the records of the model refer to
        self._proven = RangeSet()
        self._lock = make_lock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._origin, name)  # attributes of one kind of source, such as path and url

    def set_proofs(self, find: FindProofs) -> None:
        """From now on check what ``find(source, start, stop)`` gives for this source and its siblings."""
        self._shared.find = find

    def read(self, offset: int, size: int) -> bytes:
        if self.is_remote:
            return bytes(self._view_remote(offset, size))
        self._prove(offset, offset + size)
        return self._origin.read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if self.is_remote and self._proofs(offset, offset + len(buffer)):
            buffer[:] = self._view_remote(offset, len(buffer))
            return
        self._prove(offset, offset + len(buffer))
        self._origin.read_into(offset, buffer)

    def view(self, offset: int, size: int) -> memoryview:
        if self.is_remote:
            return self._view_remote(offset, size)
        self._prove(offset, offset + size)
        return self._origin.view(offset, size)

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        if not self.is_remote:
            self._prove(offset, offset + size)
            return self._origin.chunks(offset, size, chunk)
        if size <= _HELD:
            data = self.view(offset, size)
            return (data[at : at + chunk] for at in range(0, size, chunk))
        stop = offset + size
        found = {
            (proof.start, proof.stop, proof.expected): proof
            for at in range(offset, stop, _WINDOW)
            for proof in self._proofs(at, min(at + _WINDOW, stop))
        }
        return regroup(self._stream(list(found.values()), offset, stop), chunk)

    def _proofs(self, start: int, stop: int) -> list[Proof]:
        """The proofs that cover the range. For a remote source, those over many tensors are checked here instead."""
        find = self._shared.find
        if find is None or start >= stop:
            return []
        found = [page for proof in find(self._alias, start, stop) for page in proof.pages()]
        if self.is_remote and any(proof.wide for proof in found):
            if self._everything:
                self._prove_once([proof for proof in found if proof.wide])
            found = [proof for proof in found if not proof.wide]
        return found

    def _prove(self, start: int, stop: int) -> None:
        """Check the proofs that cover a range of a local source; proven bytes are not hashed again."""
        if (start, stop) in self._proven:
            return
        found = self._proofs(start, stop)
        if found and not self.is_remote:
            self._prove_once(found)

    def _prove_once(self, proofs: Sequence[Proof]) -> None:
        with self._lock:
            fresh = {
                (proof.start, proof.stop, proof.expected): replace(proof, source=self._origin)
                for proof in proofs
                if (proof.start, proof.stop) not in self._proven
            }
            plain = list(fresh.values())
            if sum(proof.stop - proof.start for proof in plain) > _LARGE:
                with Prover(plain, alone=True):
                    pass
            elif plain:
                prove(plain)
            for proof in plain:
                self._proven.add(proof.start, proof.stop)

    def _view_remote(self, start: int, size: int) -> memoryview:
        stop = start + size
        proofs = self._proofs(start, stop)
        low, high = _span_with_proofs(proofs, start, stop)
        if high - low > max(_HELD, 2 * size):
            return memoryview(b"".join(self._stream(proofs, start, stop)))
        data = self._origin.view(low, high - low)
        for proof in proofs:
            proof.check(data[proof.start - low : proof.stop - low])
        return data[start - low : stop - low]

    def _stream(self, proofs: Sequence[Proof], start: int, stop: int) -> Iterator[memoryview]:
        """The range in one pass. Bytes wait until they are proven; only a range too long for that fails at its end."""
        low, high = _span_with_proofs(proofs, start, stop)
        waiting = [_RunningProof(proof) for proof in sorted(proofs, key=lambda proof: proof.start)]
        held, first, at = bytearray(), low, low  # ``first`` is the offset of ``held``
        for data in self._origin.chunks(low, high - low):
            held += data
            for running in waiting:
                running.feed(at, data)
            at += len(data)
            waiting = [running for running in waiting if running.stop > at]
            keep = min((each.start for each in waiting if each.start < at and each.size <= _HELD), default=at)
            if keep > first:
                yield memoryview(bytes(held[max(0, start - first) : max(0, min(keep, stop) - first)]))
                del held[: keep - first]
                first = keep

    @property
    def unchecked(self) -> Source:
        return self._origin

    @property
    def identity(self) -> tuple[object, ...]:
        return self._origin.identity

    @property
    def parallel_reads(self) -> int:
        return self._origin.parallel_reads

    @property
    def is_opened(self) -> bool:
        return self._origin.is_opened

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        if self.is_remote:
            self._origin.prefetch(self._widen(ranges))

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> Source:
        if not self.is_remote:
            return self
        return CheckedSource(self._origin.fetch(self._widen(ranges)), self._everything, self._shared, self._alias)

    def _widen(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the ranges, each extended to the bytes that prove it."""
        return [_span_with_proofs(self._proofs(*each), *each) for each in ranges]

    def sibling(self, relative: str) -> Source:
        return CheckedSource(self._origin.sibling(relative), self._everything, self._shared)

    def expect(self, names: Iterable[str]) -> None:
        self._origin.expect(names)

    def names(self) -> list[str]:
        return self._origin.names()

    def everything(self) -> list[str]:
        return self._origin.everything()

    def files(self) -> list[str]:
        return self._origin.files()

    def close(self) -> None:
        self._origin.close()


class _RunningProof:
    """A proof whose bytes arrive in order."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._crc = 0
        self.start, self.stop, self.size = proof.start, proof.stop, proof.stop - proof.start

    @computed_once
    def _hash(self) -> Any:
        return new_hash(self._proof.kind, self.size)

    def feed(self, at: int, data: memoryview) -> None:
        """Hash the part of ``data``, from byte ``at`` on, that the proof covers; compare after its last byte."""
        part = data[max(0, self.start - at) : max(0, self.stop - at)]
        if self._proof.kind == "crc32":
            from isal.isal_zlib import crc32

            self._crc = crc32(part, self._crc)
        elif part:
            self._hash.update(part)
        if at < self.stop <= at + len(data):
            self._proof.compare(self._crc if self._proof.kind == "crc32" else self._hash.digest())


def _span_with_proofs(proofs: Iterable[Proof], start: int, stop: int) -> tuple[int, int]:
    """The range extended to all bytes of its proofs."""
    for proof in proofs:
        start, stop = min(start, proof.start), max(stop, proof.stop)
    return start, stop
