"""Hashes that files state of their own bytes, proven while the bytes are on their way.

A format says which stretches have a hash (:meth:`~holdall.format.Format.proofs`), :func:`proofs_for` picks those that
some payloads need, and :class:`Proving` checks them on other threads while the payloads are copied or decoded.

>>> import zlib
>>> from holdall.source import BytesSource
>>> source = BytesSource(b"holdall")
>>> with Proving([Proof(source, 0, 4, "crc32", zlib.crc32(b"hold"), "zip.entry.crc", "npz: entry 'w.npy'")]):
...     "copy it meanwhile"
'copy it meanwhile'
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

from holdall.errors import HashError
from holdall.payload import Payload, Span
from holdall.sizes import tuned

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.source import Source

__all__ = ["Kind", "Proof", "Proving", "proofs_for", "proofs_of", "prove"]

Kind = Literal["crc32", "blake3", "sha256"]
Progress = Callable[[int, int], None]  # bytes done, bytes in all

_TITLES = {"crc32": "CRC-32", "blake3": "BLAKE3", "sha256": "SHA-256"}
_WIDTH = 32  # bytes of a page's digest
_PIECE = tuned(1 << 20)  # bytes read at a time: they are hashed while they are still in the cache
_SEGMENT = tuned(8 << 20)  # bytes of a CRC-32 that one thread sums; the sums are combined
_THREADS = 4
_TICK = 0.1  # seconds between two calls of on_progress while others work


@dataclass(frozen=True, slots=True)
class Proof:
    """What a file states about the bytes ``start..stop`` of ``source``.

    ``every`` is the size of a page; ``expected`` then is the digests of all pages, joined, and ``first`` the number of
    the first. ``what`` names the bytes in messages, ``stated`` what holds the hash, and ``holds(start, stop)`` the
    tensors in a part of them. ``wide`` marks a hash over many tensors.
    """

    source: Source
    start: int
    stop: int
    kind: Kind
    expected: bytes | int
    rule: str
    what: str
    every: int | None = None
    first: int = 0
    stated: str = "the file"
    holds: Callable[[int, int], str] | None = None
    wide: bool = False

    def pages(self) -> Iterator[Proof]:
        """One proof for each page; a proof without pages is the only one."""
        every, digests = self.every, self.expected
        if every is None:
            yield self
            return
        assert isinstance(digests, bytes)
        for number, start in enumerate(range(self.start, self.stop, every)):
            digest = digests[_WIDTH * number : _WIDTH * (number + 1)]
            what = f"{self.what}, page {self.first + number}"
            stop = min(start + every, self.stop)
            yield Proof(self.source, start, stop, self.kind, digest, self.rule, what, None, 0, self.stated, self.holds)

    def after(self, place: int) -> Proof | None:
        """The pages from ``place``, where one begins, on; None when there are none."""
        if place >= self.stop:
            return None
        assert self.every is not None and isinstance(self.expected, bytes)
        skipped = (place - self.start) // self.every
        return replace(self, start=place, expected=self.expected[_WIDTH * skipped :], first=self.first + skipped)

    def check(self, data: memoryview) -> None:
        """HashError unless ``data``, all of the stretch, has the hash that is stated."""
        self.compare(_digest(self.kind, data))

    def compare(self, found: bytes | int) -> None:
        """HashError unless the bytes have the hash that is stated."""
        if found == self.expected:
            return
        names = f"; it holds {self.holds(self.start, self.stop)}" if self.holds is not None else ""
        message = (
            f"{self.what}: its {_TITLES[self.kind]} is {_shown(found)}, {self.stated} says {_shown(self.expected)}"
        )
        error = HashError(self.rule, self.start, message + names)
        error.file = self.source.name
        raise error


def _shown(digest: bytes | int) -> str:
    return f"{digest:08x}" if isinstance(digest, int) else digest.hex()


def proofs_for(model: Model, payloads: Iterable[Payload]) -> list[Proof]:
    """The proofs of what reading ``payloads`` touches of the files of ``model``, each once and in file order.

    Left out are sources that prove what they hand out themselves: remote ones, and all of ``open(..., check=True)``.

    >>> import holdall, numpy as np
    >>> holdall.save("example.npz", {"w": np.ones(3, np.float32)})
    >>> with holdall.open("example.npz") as model:
    ...     [proof.what for proof in proofs_for(model, [model["w"].payload])]
    ["npz: entry 'w.npy'"]
    """
    from holdall import registry

    while model.format is None and model.origin is not None:
        model = model.origin
    if model.format is None:
        return []
    spans: dict[tuple[int, int, int], Span] = {}
    for payload in payloads:
        for source, start, stop in payload.spans():
            if start < stop:
                spans.setdefault((id(source), start, stop), (source, start, stop))
    open_to_doubt = {id(span[0]): not span[0].far and not span[0].checked for span in spans.values()}
    wanted = (span for key, span in sorted(spans.items(), key=lambda item: item[0]) if open_to_doubt[key[0]])
    found: dict[tuple[int, int, int, bytes | int], Proof] = {}
    for proof in registry.find(model.format).proofs(model, wanted):
        found.setdefault((id(proof.source), proof.start, proof.stop, proof.expected), proof)
    proofs = list(found.values())
    _limit_passes(model, proofs)
    return proofs


def proofs_of(model: Model) -> list[Proof]:
    """The proofs of all tensors of ``model``, as :func:`proofs_for` gives them."""
    return proofs_for(model, (payload for tensor in model.tensors for payload in tensor.payloads))


def _limit_passes(model: Model, proofs: Sequence[Proof]) -> None:
    """Refuse hostile files in which many hashed stretches share the same bytes."""
    from holdall.check import Check
    from holdall.limits import DEFAULT_LIMITS

    total = sum(proof.stop - proof.start for proof in proofs)
    size = sum({id(proof.source): proof.source.size for proof in proofs}.values())
    if total > size:
        check = Check(limits=model.limits or DEFAULT_LIMITS)
        check.limit_passes(total - size, size, f"{model.format}: passes over stretches that have hashes")


def prove(proofs: Iterable[Proof]) -> None:
    """Check ``proofs`` now, in this thread; HashError when one fails."""
    Proving(proofs).finish()


class Proving:
    """Checks proofs on other threads while the block runs; HashError at the latest when it ends.

    The bytes are read by positioned reads of their own. That keeps copies inside the kernel, and a copy has put them
    into the page cache, or will find them there. A block that ends by another error ends the threads at once.
    """

    def __init__(self, proofs: Iterable[Proof], on_progress: Progress | None = None) -> None:
        proofs = sorted(proofs, key=lambda proof: (id(proof.source), proof.start))
        self._total = sum(proof.stop - proof.start for proof in proofs)
        self._jobs = _jobs(proofs)
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped = self._total == 0 and not proofs
        self._error: BaseException | None = None
        self._done = 0

    def __enter__(self) -> Proving:
        if not self._stopped:
            # One core is left to the copy: with more threads than cores they take turns, and each waits for the others.
            count = min(_THREADS, max(1, (os.cpu_count() or 1) - 1), -(-self._total // _SEGMENT) or 1)
            for _ in range(count):
                thread = threading.Thread(target=self._work, name="holdall-proof", daemon=True)
                self._threads.append(thread)
                thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.finish()
        self._stopped = True
        self._wait()

    def raise_if_failed(self) -> None:
        """Raise what has gone wrong so far; costs next to nothing."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Wait until everything is checked, helping meanwhile; raise what went wrong."""
        self._work(self._report)
        self._wait(self._report)
        self._report()
        self.raise_if_failed()

    def _wait(self, report: Callable[[], None] = lambda: None) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
                report()
        self._threads.clear()

    def _report(self) -> None:
        if self._on_progress is not None and self._total:
            self._on_progress(self._done, self._total)

    def _work(self, report: Callable[[], None] = lambda: None) -> None:
        """Do jobs until there are none."""
        buffer = memoryview(bytearray(_PIECE))
        while not self._stopped:
            with self._lock:
                job = next(self._jobs, None)
            if job is None:
                return
            try:
                job.run(buffer, self._go_on)
            except _Stopped:
                return
            except BaseException as error:
                with self._lock:
                    self._error = self._error or error
                self._stopped = True
                return
            report()

    def _go_on(self, count: int) -> None:
        """So many more bytes are read."""
        if self._stopped:
            raise _Stopped
        with self._lock:
            self._done += count


class _Stopped(Exception):
    """Ends a job that is no longer wanted."""


Step = Callable[[int], None]  # takes the number of bytes read; raises _Stopped


class _Batch:
    """Small neighbours, read at once."""

    def __init__(self, proofs: list[Proof]) -> None:
        self._proofs = proofs
        self._stop = max(proof.stop for proof in proofs)

    def run(self, buffer: memoryview, step: Step) -> None:
        first = self._proofs[0]
        data = buffer[: self._stop - first.start]
        first.source.read_into(first.start, data)
        step(sum(proof.stop - proof.start for proof in self._proofs))
        for proof in self._proofs:
            proof.check(data[proof.start - first.start : proof.stop - first.start])


class _Stream:
    """One long stretch, piece by piece into one hash."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof

    def run(self, buffer: memoryview, step: Step) -> None:
        from holdall.sink.digests import new_hash

        proof = self._proof
        running = new_hash(proof.kind, 0)  # of one thread: other threads have other stretches
        for piece in _read(proof.source, proof.start, proof.stop, buffer):
            running.update(piece)
            step(len(piece))
        proof.compare(running.digest())


class _Sum:
    """A long CRC-32: the sums of its segments, by whichever threads, and at last their combination."""

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        self._sums: dict[int, tuple[int, int]] = {}  # crc and length of each segment, by its start
        self._left = proof.stop - proof.start
        self._lock = threading.Lock()

    def add(self, start: int, length: int, crc: int) -> None:
        from holdall.sink.digests import crc32_combine

        with self._lock:
            self._sums[start] = crc, length
            self._left -= length
            if self._left:
                return
        total = 0
        for _, (part, size) in sorted(self._sums.items()):
            total = crc32_combine(total, part, size)
        self.proof.compare(total)


class _Segment:
    """A part of a long CRC-32."""

    def __init__(self, whole: _Sum, start: int) -> None:
        self._whole = whole
        self._start = start

    def run(self, buffer: memoryview, step: Step) -> None:
        from isal.isal_zlib import crc32

        proof, start = self._whole.proof, self._start
        stop, crc = min(start + _SEGMENT, proof.stop), 0
        for piece in _read(proof.source, start, stop, buffer):
            crc = crc32(piece, crc)
            step(len(piece))
        self._whole.add(start, stop - start, crc)


def _jobs(proofs: Iterable[Proof]) -> Iterator[_Batch | _Stream | _Segment]:
    """The work in pieces that any thread may do, in file order."""
    batch: list[Proof] = []
    for proof in chain.from_iterable(each.pages() for each in proofs):
        if batch and (proof.source is not batch[0].source or proof.stop - batch[0].start > _PIECE):
            yield _Batch(batch)
            batch = []
        if proof.stop - proof.start <= _PIECE:
            batch.append(proof)
        elif proof.kind == "crc32":
            whole = _Sum(proof)
            yield from (_Segment(whole, start) for start in range(proof.start, proof.stop, _SEGMENT))
        else:
            yield _Stream(proof)
    if batch:
        yield _Batch(batch)


def _read(source: Source, start: int, stop: int, buffer: memoryview) -> Iterator[memoryview]:
    """The bytes through one buffer."""
    while start < stop:
        piece = buffer[: min(len(buffer), stop - start)]
        source.read_into(start, piece)
        yield piece
        start += len(piece)


def _digest(kind: Kind, data: memoryview) -> bytes | int:
    if kind == "crc32":
        from isal.isal_zlib import crc32

        return crc32(data)
    from holdall.sink.digests import new_hash

    running = new_hash(kind, 0)
    running.update(data)
    return running.digest()
