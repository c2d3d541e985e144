"""A source that hands out nothing that its file states a hash of before the hash is proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from holdall.locks import Lock
from holdall.proof import Proof, Proving, prove
from holdall.sink.digests import new_hash
from holdall.sizes import tuned
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup

__all__ = ["CheckedSource"]

_HELD = tuned(64 << 20)  # remote bytes that are held in memory until they are proven
_LARGE = tuned(32 << 20)  # bytes that are worth other threads
_WINDOW = tuned(16 << 20)  # a long stretch is looked up in parts of this: pages may cover what no single hash does

Stated = Callable[[Source, int, int], Iterable[Proof]]


class _Book:
    """What the files of one model state; nothing while the model is being read."""

    stated: Stated | None = None


class CheckedSource(Source):
    """``origin`` with every read checked, as far as its file states hashes.

    Local bytes are proven once, by positioned reads, and remembered. Remote bytes are proven whenever they arrive. A
    hash over many tensors costs a remote source all of them: it is used when ``everything`` says so, and only once.

    >>> import holdall, numpy as np
    >>> holdall.save("example.npz", {"w": np.ones(3, np.float32)})
    >>> holdall.open("example.npz", check=True)["w"][1:].tolist()
    [1.0, 1.0]
    """

    checked = True

    def __init__(
        self, origin: Source, everything: bool, book: _Book | None = None, alias: Source | None = None
    ) -> None:
        self.name, self.size, self.member = origin.name, origin.size, origin.member
        self.is_folder, self.far = origin.is_folder, origin.far
        self._origin = origin
        self._everything = everything
        self._book = book or _Book()
        self._alias = alias or self  # what the model's records call this source
        self._proven: set[tuple[int, int, bytes | int]] = set()
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._origin, name)  # path, url: what only this kind of source has

    def state(self, stated: Stated) -> None:
        """From now on prove what ``stated(source, start, stop)`` says of this source and its siblings."""
        self._book.stated = stated

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, size: int) -> bytes:
        if self.far:
            return bytes(self._view_remote(offset, size))
        self._prove(offset, offset + size)
        return self._origin.read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if self.far and self._proofs(offset, offset + len(buffer)):
            buffer[:] = self._view_remote(offset, len(buffer))
            return
        self._prove(offset, offset + len(buffer))
        self._origin.read_into(offset, buffer)

    def view(self, offset: int, size: int) -> memoryview:
        if self.far:
            return self._view_remote(offset, size)
        self._prove(offset, offset + size)
        return self._origin.view(offset, size)

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        if not self.far:
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

    # -- proving ----------------------------------------------------------------------------------------------------

    def _proofs(self, start: int, stop: int) -> list[Proof]:
        """The hashed stretches that hold the range; those over many tensors are proven here, once."""
        stated = self._book.stated
        if stated is None or start >= stop:
            return []
        found = [page for proof in stated(self._alias, start, stop) for page in proof.pages()]
        if self.far and any(proof.wide for proof in found):
            if self._everything:
                self._prove_once([proof for proof in found if proof.wide])
            found = [proof for proof in found if not proof.wide]
        return found

    def _prove(self, start: int, stop: int) -> None:
        """Prove what holds a range of a local source."""
        found = self._proofs(start, stop)
        if found and not self.far:
            self._prove_once(found)

    def _prove_once(self, proofs: Sequence[Proof]) -> None:
        with self._lock:
            fresh = {(proof.start, proof.stop, proof.expected): proof for proof in proofs}
            for key in self._proven.intersection(fresh):
                del fresh[key]
            plain = [_of(proof, self._origin) for proof in fresh.values()]
            if sum(proof.stop - proof.start for proof in plain) > _LARGE:
                with Proving(plain):
                    pass
            elif plain:
                prove(plain)
            self._proven.update(fresh)

    def _view_remote(self, start: int, size: int) -> memoryview:
        stop = start + size
        proofs = self._proofs(start, stop)
        low, high = _reach(proofs, start, stop)
        if high - low > max(_HELD, 2 * size):
            return memoryview(b"".join(self._stream(proofs, start, stop)))
        data = self._origin.view(low, high - low)
        for proof in proofs:
            proof.check(data[proof.start - low : proof.stop - low])
        return data[start - low : stop - low]

    def _stream(self, proofs: Sequence[Proof], start: int, stop: int) -> Iterator[memoryview]:
        """The range in one pass. What fits is held until it is proven; a longer stretch fails at its end."""
        low, high = _reach(proofs, start, stop)
        waiting = [_Running(proof) for proof in sorted(proofs, key=lambda proof: proof.start)]
        held, first, at = bytearray(), low, low  # ``held`` begins at ``first``
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

    # -- the rest is the origin's -----------------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[object, ...]:
        return self._origin.identity

    @property
    def lanes(self) -> int:
        return self._origin.lanes

    @property
    def opened(self) -> bool:
        return self._origin.opened

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        if self.far:
            self._origin.prefetch(self._widened(ranges))

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> Source:
        if not self.far:
            return self
        return CheckedSource(self._origin.fetch(self._widened(ranges)), self._everything, self._book, self._alias)

    def _widened(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The ranges with what is needed to prove them."""
        return [_reach(self._proofs(*each), *each) for each in ranges]

    def sibling(self, relative: str) -> Source:
        return CheckedSource(self._origin.sibling(relative), self._everything, self._book)

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


class _Running:
    """A proof whose bytes come in order."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._crc = 0
        self.start, self.stop, self.size = proof.start, proof.stop, proof.stop - proof.start

    @cached_property
    def _hash(self) -> Any:
        return new_hash(self._proof.kind, self.size)

    def feed(self, at: int, data: memoryview) -> None:
        """Take what of ``data``, which begins at ``at``, belongs to the stretch; compare after its last byte."""
        part = data[max(0, self.start - at) : max(0, self.stop - at)]
        if self._proof.kind == "crc32":
            from isal.isal_zlib import crc32

            self._crc = crc32(part, self._crc)
        elif part:
            self._hash.update(part)
        if at < self.stop <= at + len(data):
            self._proof.compare(self._crc if self._proof.kind == "crc32" else self._hash.digest())


def _reach(proofs: Iterable[Proof], start: int, stop: int) -> tuple[int, int]:
    """The range together with the stretches that prove it."""
    for proof in proofs:
        start, stop = min(start, proof.start), max(stop, proof.stop)
    return start, stop


def _of(proof: Proof, source: Source) -> Proof:
    """The same proof, by reading ``source`` itself."""
    from dataclasses import replace

    return replace(proof, source=source)
