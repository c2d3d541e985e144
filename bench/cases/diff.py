"""Comparing two files, beside ``cmp`` and beside reading both into memory.

Equal files: holdall compares bytes. Files in which every value differs: bytes are found different at once, and all
values of both are decoded and measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.case import Case, Contender, Run, at_least, megabytes
from bench.content import make, small_file
from bench.measure import warm
from bench.work import Action, Command, work


def holdall_compares(a: str, b: str, differ: bool, small: str) -> Action:
    import holdall

    holdall.diff(small, small)

    def action() -> None:
        assert bool(holdall.diff(a, b)) == differ

    return action


def both_are_read(a: str, b: str) -> Action:
    """Into memory, with the bytes of one compared to those of the other."""

    def action() -> None:
        assert Path(a).read_bytes() != Path(b).read_bytes()

    return action


def values_are_changed(source: str, target: str) -> Action:
    """Every value by one bit, which is another value."""
    import numpy as np

    def action() -> None:
        data = bytearray(Path(source).read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        values = np.frombuffer(data, np.uint32, offset=start)
        values ^= 1
        Path(target).write_bytes(data)

    return action


def cases(run: Run) -> Iterator[Case]:
    """Equal, and all different."""
    from bench.work import run as run_once

    size, rounds = run.pick(2 * 10**9, 3 * 10**7), run.pick(3, 1)
    with run.folder(3 * size) as folder:
        a, same, other = (folder / f"{name}.safetensors" for name in ("a", "same", "other"))
        make(a, "safetensors", size)
        make(same, "safetensors", size)
        run_once(work(values_are_changed, str(a), str(other)))
        warm([a, same, other])
        small = small_file(run.scratch, "safetensors")
        lines = [
            Contender("cmp", Command(("cmp", str(a), str(same)))),
            Contender("holdall.diff", work(holdall_compares, str(a), str(same), False, small),
                      [at_least(1, "cmp"), megabytes(150)]),
        ]  # fmt: skip
        yield Case(f"Compare two equal files of {size / 1e6:,.0f} MB", lines, rounds, "cmp", size=size)
        lines = [
            Contender("read both", work(both_are_read, str(a), str(other))),
            Contender("holdall.diff", work(holdall_compares, str(a), str(other), True, small),
                      [at_least(1, "read both"), megabytes(150)]),
        ]  # fmt: skip
        title = f"Measure how two files of {size / 1e6:,.0f} MB differ, in all values"
        yield Case(title, lines, rounds, "read both", size=size)
