"""Checking hashes in passing: a conversion with it and without, a copy while another thread hashes the file, and reads
of one large tensor that has a hash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from bench.case import Case, Contender, Run, at_least, at_most, megabytes
from bench.hashes import hash_file
from bench.measure import warm
from bench.work import Action, work

_TENSORS = 100
_COLUMNS = 1_000
_SLICES = 200  # so few that a turn is shorter than the time slice of another process
_ROWS = "safetensors.safe_open"
_BARE = "BLAKE3 over reads"


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


def take_rows(tensor: Any, rows: int) -> Action:
    def action() -> dict[str, float]:
        for row in range(0, rows, rows // _SLICES):
            values = tensor[row]
        return {"same": float(values[0])}

    return action


def holdall_takes_rows(path: str, rows: int, check: bool | None) -> Action:
    return take_rows(holdall.open(path, check=check)["w"], rows)


def safetensors_takes_rows(path: str, rows: int) -> Action:
    from safetensors import safe_open

    file: Any = safe_open(path, "np")
    return take_rows(file.get_slice("w"), rows)


def holdall_opens_for_a_row(path: str, row: int, check: bool | None) -> Action:
    def action() -> dict[str, float]:
        with holdall.open(path, check=check) as model:
            return {"same": float(model["w"][row][0])}

    return action


def safetensors_opens_for_a_row(path: str, row: int) -> Action:
    from safetensors import safe_open

    def action() -> dict[str, float]:
        with safe_open(path, "np") as file:
            return {"same": float(file.get_slice("w")[row][0])}

    return action


def holdall_proves(path: str) -> Action:
    def action() -> None:
        with holdall.open(path, check=True) as model:
            model["w"].numpy()

    return action


def file_is_hashed(path: str) -> Action:
    return lambda: hash_file(path, ["blake3"])


def cases(run: Run) -> Iterator[Case]:
    """Conversions, and reads of one tensor."""
    yield from conversions(run)
    yield from one_tensor(run)


def one_tensor(run: Run) -> Iterator[Case]:
    """A tensor of 200 MB: rows of it, which no hash is taken for, and all of it, proven."""
    rows = run.pick(50_000, 5_000)
    size = rows * _COLUMNS * 4
    values = {"w": np.random.default_rng(1).standard_normal((rows, _COLUMNS), np.float32)}
    with run.folder(4 * size) as folder:
        plain, hashed, paged = (str(folder / name) for name in ("m.safetensors", "hashed.aero", "paged.aero"))
        holdall.save(plain, values, fsync=False)
        holdall.save(hashed, values, tensor_hash=True, fsync=False)
        holdall.save(paged, values, tensor_hash=True, page_hash=True, fsync=False)
        del values
        warm([Path(path) for path in (plain, hashed, paged)])
        yield row_slices(plain, hashed, paged, rows, run.pick(200, 2))
        yield first_rows(plain, hashed, paged, rows // 2, run.pick(50, 2))
        lines = [
            Contender(_BARE, work(file_is_hashed, hashed)),
            Contender("holdall, check=True: hash_b3", work(holdall_proves, hashed), [at_least(0.7, _BARE)]),
            Contender("holdall, check=True: pages of 4 MiB", work(holdall_proves, paged), [at_least(0.7, _BARE)]),
        ]
        title = f"Prove and map an AERO tensor of {size / 1e6:,.0f} MB"
        yield Case(title, lines, run.pick(100, 2), _BARE, _BARE, size, alone=False)


def row_slices(plain: str, hashed: str, paged: str, rows: int, rounds: int) -> Case:
    bars = [at_most(2, _ROWS), at_most(2, "holdall: safetensors")]
    lines = [
        Contender(_ROWS, work(safetensors_takes_rows, plain, rows)),
        Contender("holdall: safetensors", work(holdall_takes_rows, plain, rows, None)),
        Contender("holdall: aero with hash_b3", work(holdall_takes_rows, hashed, rows, None), bars),
        Contender("holdall, check=True: aero, proven before", work(holdall_takes_rows, paged, rows, True)),
    ]
    title = f"{_SLICES:,} slices of one row, of a mapped tensor of {rows * _COLUMNS * 4 / 1e6:,.0f} MB"
    return Case(title, lines, rounds, _ROWS, alone=False)


def first_rows(plain: str, hashed: str, paged: str, row: int, rounds: int) -> Case:
    lines = [
        Contender(_ROWS, work(safetensors_opens_for_a_row, plain, row)),
        Contender("holdall: safetensors", work(holdall_opens_for_a_row, plain, row, None)),
        Contender("holdall: aero with hash_b3", work(holdall_opens_for_a_row, hashed, row, None)),
        Contender("holdall, check=True: aero, a page of 4 MiB", work(holdall_opens_for_a_row, paged, row, True)),
        Contender("holdall, check=True: aero, the tensor", work(holdall_opens_for_a_row, hashed, row, True)),
    ]
    return Case("Open the same file and read one row", lines, rounds, _ROWS, alone=False)


def conversions(run: Run) -> Iterator[Case]:
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
