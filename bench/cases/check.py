"""Checking hashes in passing: a conversion with it and without, and a copy while another thread hashes the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import holdall
from bench.case import Case, Contender, Run, at_least, megabytes
from bench.measure import warm
from bench.work import Action, work

_TENSORS = 100


def convert(source: str, target: str, check: bool) -> Action:
    def action() -> None:
        Path(target).unlink(missing_ok=True)
        holdall.convert(source, target, check=check, fsync=False)

    return action


def copy_beside_blake3(source: str, target: str) -> Action:
    """As cp does it, while the blake3 package hashes the same file on as many threads as holdall takes: one."""
    from threading import Thread

    from blake3 import blake3

    def hash_all() -> None:
        running, buffer = blake3(), memoryview(bytearray(1 << 20))
        with Path(source).open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                running.update(buffer[:count])

    def action() -> None:
        Path(target).unlink(missing_ok=True)
        other = Thread(target=hash_all)
        other.start()
        left = Path(source).stat().st_size
        with Path(source).open("rb") as old, Path(target).open("xb") as new:
            while left:
                left -= os.copy_file_range(old.fileno(), new.fileno(), min(left, 32 << 20))
        other.join()

    return action


def cases(run: Run) -> Iterator[Case]:
    """npz has a CRC-32 of every member, AERO a BLAKE3 of every tensor; safetensors has none, and is the target."""
    size, rounds = run.pick(10**9, 3 * 10**7), run.pick(5, 1)
    rng = np.random.default_rng(0)
    tensors = {f"t{n}": rng.integers(0, 256, size // _TENSORS, np.uint8) for n in range(_TENSORS)}
    with run.folder(4 * size) as folder:
        npz, aero, target = folder / "m.npz", folder / "m.aero", str(folder / "m.safetensors")
        holdall.save(npz, tensors, fsync=False)
        holdall.save(aero, tensors, tensor_hash=True, fsync=False)
        del tensors
        warm([npz, aero])
        lines = [
            Contender("npz, unchecked", work(convert, str(npz), target, False)),
            Contender("npz, CRC-32 checked", work(convert, str(npz), target, True),
                      [at_least(0.87, "npz, unchecked"), megabytes(150)]),
            Contender("copy beside blake3", work(copy_beside_blake3, str(aero), target)),
            Contender("AERO, BLAKE3 checked", work(convert, str(aero), target, True),
                      [at_least(0.8, "copy beside blake3"), megabytes(150)]),
        ]  # fmt: skip
        yield Case(f"Convert {size / 1e6:,.0f} MB and check its hashes", lines, rounds, "npz, unchecked", size=size)
