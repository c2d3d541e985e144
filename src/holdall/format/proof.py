"""Checks the hashes that files state of their own bytes.

A format knows which ranges have a hash (:meth:`Format.proofs`), :func:`proofs_for` picks those that cover some
payloads, and :class:`Prover` checks them on other threads while the payloads are copied or decoded.

>>> import zlib
>>> from holdall.source import BytesSource
>>> source = BytesSource(b"holdall")
>>> with Prover([Proof(source, 0, 4, "crc32", zlib.crc32(b"hold"), "zip.entry.crc", "npz: entry 'w.npy'")]):
...     "copy it meanwhile"
'copy it meanwhile'
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import thread_count
from holdall.base.progress import Progress
from holdall.errors import HashError
from holdall.format.long_crc32 import SEGMENT, Segment, read_pieces, split_crc32
from holdall.format.proof_rows import ProofRows, RowsBatch
from holdall.model.payload import Payload
from holdall.model.ranges import Ranges, Spans
from holdall.source.base import CHUNK

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["Kind", "Proof", "Prover", "Stated", "proofs_for", "proofs_of", "prove"]

Kind = Literal["crc32", "blake3", "sha256"]

_TITLES = {"crc32": "CRC-32", "blake3": "BLAKE3", "sha256": "SHA-256"}
_WIDTH = 32  # bytes of the digest of a page
_PIECE = buffer_size(1 << 20)  # bytes read at a time, so that they are still in the cache when they are hashed
_FEW_THREADS = 2
_TICK = 0.1  # seconds between two calls of on_progress while waiting for threads


@dataclass(frozen=True, slots=True)
class Proof:
    """The hash that a file states of the bytes ``start..stop`` of ``source``.

    With ``every``, the size of a page, ``expected`` has the digests of all pages one after the other, and ``first`` is
    the number of the first page. For messages, ``what`` names the bytes, ``stated`` the place of the hash, and
    ``holds(start, stop)`` the tensors in a part of the bytes. ``wide`` marks a hash over many tensors.
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

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.stop - self.start

    @property
    def key(self) -> object:
        """What proofs of the same bytes by the same hash have in common."""
        return id(self.source), self.start, self.stop, self.expected

    def pages(self) -> Iterator[Proof]:
        """One proof for each page, or this proof if it has no pages."""
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

    def split(self, piece: int) -> Iterator[Proof]:
        """Divide the work: page by page, however short a page."""
        return self.pages()

    def after(self, place: int) -> Proof | None:
        """The pages from byte ``place`` on, where a page begins; None if there are none."""
        if place >= self.stop:
            return None
        assert self.every is not None and isinstance(self.expected, bytes)
        skipped = (place - self.start) // self.every
        return replace(self, start=place, expected=self.expected[_WIDTH * skipped :], first=self.first + skipped)

    def check(self, data: memoryview) -> None:
        """Raise HashError unless ``data``, which is the whole range, has the expected hash."""
        self.compare(_digest(self.kind, data))

    def compare(self, found: bytes | int) -> None:
        """Raise HashError unless ``found`` is the expected hash."""
        if found == self.expected:
            return
        names = f"; it holds {self.holds(self.start, self.stop)}" if self.holds is not None else ""
        title, wanted = _TITLES[self.kind], _format_hex(self.expected)
        message = f"{self.what}: its {title} is {_format_hex(found)}, {self.stated} says {wanted}"
        error = HashError(self.rule, self.start, message + names)
        error.file = self.source.name
        raise error


Stated = Proof | ProofRows


def _format_hex(digest: bytes | int) -> str:
    return f"{digest:08x}" if isinstance(digest, int) else digest.hex()


def proofs_for(model: Model, payloads: Iterable[Payload]) -> list[Stated]:
    """The proofs that cover ``payloads`` in the files of ``model``, each once and in file order.

    Sources that check every read are left out: remote ones, and all sources of ``open(..., check=True)``.

    >>> import holdall, numpy as np
    >>> holdall.save("example.npz", {"w": np.ones(3, np.float32)})
    >>> with holdall.open("example.npz") as model:
    ...     [proof.what for proof in proofs_for(model, [model["w"].payload])]
    ["npz: entry 'w.npy'"]
    """
    return _find_proofs(model, lambda: Ranges.of_spans(span for payload in payloads for span in payload.spans()))


def _needs_proof(source: Source) -> bool:
    """Whether no reading compares the bytes of ``source``."""
    return not source.is_remote and not source.is_checked


def proofs_of(model: Model) -> list[Stated]:
    """The proofs that cover the tensors of ``model``; see :func:`proofs_for`."""
    table = model.tensors

    def collect() -> Ranges:
        ranges = table.ranges()
        others = [table.payload(row) for row in (ranges.owners < 0).nonzero()[0].tolist()]
        made = Ranges.of_spans(span for payload in others if payload is not None for span in payload.spans())
        return Ranges.join(ranges, made) if len(made) else ranges

    return _find_proofs(model, collect)


def _find_proofs(model: Model, collect: Callable[[], Ranges]) -> list[Stated]:
    """The proofs that cover ranges. A format without hashes does not ask for them, and spends no time on them."""
    from holdall.format import registry

    while model.format is None and model.origin is not None:
        model = model.origin
    if model.format is None:
        return []
    spans = Spans(lambda: collect().select_distinct(_needs_proof))
    found: dict[object, Stated] = {}
    for proof in registry.find(model.format).proofs(model, spans):
        found.setdefault(proof.key, proof)
    proofs = list(found.values())
    _limit_passes(model, proofs)
    return proofs


def _limit_passes(model: Model, proofs: Sequence[Stated]) -> None:
    """Refuse hostile files in which many hashed ranges share the same bytes."""
    from holdall.base.check import Check
    from holdall.limits import DEFAULT_LIMITS

    total = sum(proof.size for proof in proofs)
    size = sum({id(proof.source): proof.source.size for proof in proofs}.values())
    if total > size:
        check = Check(limits=model.limits or DEFAULT_LIMITS)
        check.limit_passes(total - size, size, f"{model.format}: passes over stretches that have hashes")


def prove(proofs: Iterable[Stated]) -> None:
    """Check ``proofs`` in this thread; raises HashError if one fails."""
    Prover(proofs).finish()


class Prover:
    """Checks proofs on other threads while its block runs, and raises HashError at the end of the block.

    The threads read the bytes with positioned reads, apart from the copy in the block. So the copy can stay inside the
    kernel, and the second reader finds the bytes in the page cache. If the block raises, the threads stop at once.
    If nothing runs in the block, ``alone`` lets a hash that is longer than all others take every core. With few threads
    all long ones do, one after the other: then threads would only wait for each other.
    """

    def __init__(self, proofs: Iterable[Stated], on_progress: Progress | None = None, *, alone: bool = False) -> None:
        proofs = sorted(proofs, key=lambda proof: (id(proof.source), proof.start))
        self._total = sum(proof.size for proof in proofs)
        self._serial = alone and thread_count() <= _FEW_THREADS
        self._jobs = _split_jobs(proofs, 0 if self._serial else self._total // 2 if alone else None)
        self._piece = CHUNK if alone else _PIECE  # without a copy beside it, the cache has room for more
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped = self._total == 0 and not proofs
        self._error: BaseException | None = None
        self._done = 0

    def __enter__(self) -> Prover:
        if not self._stopped and not self._serial:
            # One core is left to the copy: with more threads than cores, all of them wait for each other.
            count = min(thread_count() - 1, -(-self._total // SEGMENT) or 1)
            for _ in range(count):
                thread = threading.Thread(target=self._run_jobs, name="holdall-proof", daemon=True)
                self._threads.append(thread)
                thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.finish()
        self._stopped = True
        self._wait()

    def raise_failure(self) -> None:
        """Raise the first error so far, if there is one; this costs next to nothing."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Check what is left, together with the threads; raise the first error."""
        self._run_jobs(self._report)
        self._wait(self._report)
        self._report()
        self.raise_failure()

    def _wait(self, report: Callable[[], None] = lambda: None) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
                report()
        self._threads.clear()

    def _report(self) -> None:
        if self._on_progress is not None and self._total:
            self._on_progress(self._done, self._total)

    def _run_jobs(self, report: Callable[[], None] = lambda: None) -> None:
        """Run jobs until none is left."""
        buffer = memoryview(bytearray(self._piece))
        while not self._stopped:
            with self._lock:
                job = next(self._jobs, None)
            if job is None:
                return
            try:
                job.run(buffer, self._count_bytes)
            except _Stopped:
                return
            except BaseException as error:
                with self._lock:
                    self._error = self._error or error
                self._stopped = True
                return
            report()

    def _count_bytes(self, count: int) -> None:
        """Count ``count`` more bytes; raise _Stopped if the job is no longer wanted."""
        if self._stopped:
            raise _Stopped
        with self._lock:
            self._done += count


class _Stopped(Exception):
    """Raised inside a job to end it."""


Step = Callable[[int], None]  # takes the number of bytes read; raises _Stopped


class _Batch:
    """Neighbouring small ranges, which are read at once."""

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
    """One long range, hashed piece by piece. Unless ``wide``, by one thread, because others hash other ranges."""

    def __init__(self, proof: Proof, wide: bool) -> None:
        self._proof = proof
        self._wide = wide

    def run(self, buffer: memoryview, step: Step) -> None:
        from holdall.source.digests import new_hash

        proof = self._proof
        running = new_hash(proof.kind, None if self._wide else 0)
        for piece in read_pieces(proof.source, proof.start, proof.stop, buffer):
            running.update(piece)
            step(len(piece))
        proof.compare(running.digest())


def _split_jobs(proofs: Iterable[Stated], wide: int | None) -> Iterator[_Batch | RowsBatch | _Stream | Segment]:
    """Return the work as jobs that any thread can run, in file order; a hash of more than ``wide`` bytes takes all."""
    batch: list[Proof] = []
    for proof in chain.from_iterable(each.split(_PIECE) for each in proofs):
        if isinstance(proof, RowsBatch):
            yield proof
            continue
        if batch and (proof.source is not batch[0].source or proof.stop - batch[0].start > _PIECE):
            yield _Batch(batch)
            batch = []
        if proof.size <= _PIECE:
            batch.append(proof)
        elif proof.kind == "crc32":
            yield from split_crc32(proof)
        else:
            yield _Stream(proof, wide is not None and proof.size > wide)
    if batch:
        yield _Batch(batch)


def _digest(kind: Kind, data: memoryview) -> bytes | int:
    if kind == "crc32":
        from isal.isal_zlib import crc32

        return crc32(data)
    from holdall.source.digests import new_hash

    running = new_hash(kind, 0)
    running.update(data)
    return running.digest()
