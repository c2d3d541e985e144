"""Checking hashes in passing: a copy inside the kernel alone, and while holdall proves what is copied.

The peer is the same copy while another thread hashes the same file with the blake3 package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.case import Case, Contender, Run, at_least, megabytes
from bench.measure import warm
from bench.work import Action, work

_TENSORS = 100


def _copy(source: str, target: str) -> None:
    """As cp does it."""
    Path(target).unlink(missing_ok=True)
    left = Path(source).stat().st_size
    with Path(source).open("rb") as old, Path(target).open("xb") as new:
        while left:
            left -= os.copy_file_range(old.fileno(), new.fileno(), min(left, 32 << 20))


def copy_alone(source: str, target: str) -> Action:
    def action() -> None:
        _copy(source, target)

    return action


def copy_beside_blake3(source: str, target: str) -> Action:
    from threading import Thread

    from blake3 import blake3

    def hash_all() -> None:
        running, buffer = blake3(), memoryview(bytearray(1 << 20))
        with Path(source).open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                running.update(buffer[:count])

    def action() -> None:
        other = Thread(target=hash_all)
        other.start()
        _copy(source, target)
        other.join()

    return action


def copy_beside_proofs(source: str, target: str, kind: str) -> Action:
    from holdall.proof import Proof, Proving
    from holdall.source import FileSource

    file = FileSource(source)
    step = file.size // _TENSORS
    stretches = [(at, at + step) for at in range(0, step * _TENSORS, step)]
    digests = [_digest(kind, file.read(start, stop - start)) for start, stop in stretches]
    proofs = [
        Proof(file, *where, kind, digest, "bench", f"tensor {number}")  # type: ignore[arg-type]
        for number, (where, digest) in enumerate(zip(stretches, digests, strict=True))
    ]

    def action() -> None:
        with Proving(proofs):
            _copy(source, target)

    return action


def _digest(kind: str, data: bytes) -> Any:
    from blake3 import blake3
    from isal.isal_zlib import crc32

    return crc32(data) if kind == "crc32" else blake3(data).digest()


def cases(run: Run) -> Iterator[Case]:
    """One file, three ways."""
    size, rounds = run.pick(10**9, 3 * 10**7), run.pick(5, 1)
    with run.folder(3 * size) as folder:
        source, target = folder / "source.bin", str(folder / "target.bin")
        with source.open("wb") as file:
            for start in range(0, size, 10**7):
                file.write(os.urandom(min(10**7, size - start)))
        warm([source])
        lines = [
            Contender("copy", work(copy_alone, str(source), target)),
            Contender("copy beside blake3", work(copy_beside_blake3, str(source), target)),
            Contender("copy beside Proving, CRC-32", work(copy_beside_proofs, str(source), target, "crc32"),
                      [at_least(0.87, "copy"), megabytes(150)]),
            Contender("copy beside Proving, BLAKE3", work(copy_beside_proofs, str(source), target, "blake3"),
                      [at_least(0.8, "copy beside blake3"), megabytes(150)]),
        ]  # fmt: skip
        yield Case(f"Copy {size / 1e6:,.0f} MB and check its hashes", lines, rounds, "copy", size=size)
