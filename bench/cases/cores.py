"""What more cores gain: every pass over all bytes, on one thread and on as many as there are.

Beside each stands what no pass can beat on as many threads: a copy in memory, the bare hash, a loop of arithmetic.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.case import Bar, Case, Contender, Run, at_least, either, megabytes, scaling
from bench.cases.diff import holdall_compares, values_are_changed
from bench.cases.quant import MATRIX, matrices_are_saved
from bench.cases.verify import holdall_describes, holdall_verifies
from bench.content import make, rehearse, small_file
from bench.measure import warm
from bench.work import Action, Work, work
from bench.work import run as run_once

COPY, FRESH, HASH, LOOP = "copy in memory", "copy into new memory", "BLAKE3 of memory", "arithmetic"
TWICE = "copy of as much in memory"
CP, COPIES = "cp", "copies of parts of the file"
OURS = "holdall, threads: {}"
TWO = 1.7  # times the speed of one thread that two have to reach
PAIRS = ("Compare equal files", "Measure differences")  # which read two files
MANY = 16  # threads of a large machine, of which more is asked
PIECE = 4 << 20
BLOCK = 1 << 30  # bytes that are copied again and again: far more than any cache holds


# -- works ------------------------------------------------------------------------------------------------------------


def memory_is_copied(size: int, fresh: bool, threads: int) -> Action:
    """Into memory that was touched before, or that the machine first has to give."""
    import numpy as np

    source = np.ones(min(size, BLOCK), np.uint8)
    target = np.empty(size, np.uint8) if fresh else np.zeros(len(source), np.uint8) + 1

    def copy(start: int) -> None:
        out = target[start % len(target) :][: min(PIECE, size - start)]
        np.copyto(out, source[start % len(source) :][: len(out)])

    return lambda: _in_threads(copy, range(0, size, PIECE), threads)


def file_is_copied_in_parts(source: str, target: str, threads: int) -> Action:
    """By positioned reads and writes of every thread, each with a buffer of its own."""

    def action() -> None:
        reading, writing = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
        kept = threading.local()

        def copy(start: int) -> None:
            if not hasattr(kept, "buffer"):
                kept.buffer = memoryview(bytearray(PIECE))
            size = os.preadv(reading, [kept.buffer], start)
            os.pwrite(writing, kept.buffer[:size], start)

        _in_threads(copy, range(0, os.fstat(reading).st_size, PIECE), threads)
        os.close(reading)
        os.close(writing)

    return action


def file_is_copied_by_cp(source: str, target: str, threads: int) -> Action:
    """One thread, however many there may be."""
    return lambda: _run_cp(source, target)


def _run_cp(source: str, target: str) -> None:
    subprocess.run(["cp", "--reflink=never", source, target], check=True)


def memory_is_hashed(path: str, threads: int) -> Action:
    from blake3 import blake3

    data = Path(path).read_bytes()
    return lambda: blake3(data, max_threads=threads).digest()


def numbers_are_computed(count: int, threads: int) -> Action:
    """Sines of numbers that stay in the cache: nothing but arithmetic."""
    import numpy as np

    values = np.linspace(0, 1, 1 << 14)
    outs = [values.copy() for _ in range(threads)]

    def compute(number: int) -> None:
        for _ in range(32):
            np.sin(values, out=outs[number % threads])

    return lambda: _in_threads(compute, range(count), threads)


def _in_threads(work: Callable[[int], None], items: range, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, items):
            pass


def holdall_loads(path: str, small: str) -> Action:
    from holdall.numpy import load_file

    def action(path: str) -> list[object]:
        return [load_file(path)]  # giving the memory back is not timed

    return rehearse(action, small, path)


def holdall_quantizes(path: str, target: str, small: str) -> Action:
    import holdall

    def action(path: str) -> None:
        holdall.convert(path, target, quantize="k4", fsync=False)

    return rehearse(action, small, path)


def holdall_decodes(path: str, small: str) -> Action:
    """All tensors one after the other, each in new memory."""
    import holdall

    def action(path: str) -> None:
        with holdall.open(path) as model:
            for tensor in model.tensors:
                tensor.numpy()

    return rehearse(action, small, path)


def holdall_converts(path: str, target: str, small: str) -> Action:
    import holdall

    def action(path: str) -> None:
        holdall.convert(path, target, fsync=False)

    return rehearse(action, small, path)


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Every pass on one thread, on two, on half of what there are and on all, each beside its limit."""
    from holdall.base.platform import core_count

    most = core_count()
    threads = sorted({1, min(2, most), (most + 1) // 2, most})
    # More for many cores: with less, the beginning of their threads would be most of the time.
    size = run.pick(max(10**9, 2 * 10**8 * most), 3 * 10**7)
    with run.folder(8 * size) as folder:
        yield from _cases(run, folder, size, threads)


def _cases(run: Run, folder: Path, size: int, threads: list[int]) -> Iterator[Case]:
    small = partial(small_file, run.scratch)
    aero, embd = make(folder / "one.aero", "aero", size), make(folder / "one.weights", "embd", size)
    plain, same, other = (folder / f"{name}.safetensors" for name in ("plain", "same", "other"))
    make(plain, "safetensors", size)
    make(same, "safetensors", size)
    run_once(work(values_are_changed, str(plain), str(other)))
    matrices, packed = folder / "matrices.safetensors", folder / "matrices.mcf"
    matrix, small_packed = folder / "matrix.safetensors", folder / "matrix.mcf"
    run_once(work(matrices_are_saved, str(matrices), size // 4))
    run_once(work(matrices_are_saved, str(matrix), MATRIX))
    run_once(work(holdall_quantizes, str(matrix), str(small_packed), str(matrix)))
    run_once(work(holdall_quantizes, str(matrices), str(packed), str(matrix)))
    warm([aero, embd, plain, same, other, matrices, packed])
    copied = folder / "copied"
    limits: dict[str, partial[Action]] = {
        COPY: partial(memory_is_copied, size, False),
        TWICE: partial(memory_is_copied, 2 * size, False),
        FRESH: partial(memory_is_copied, size, True),
        HASH: partial(memory_is_hashed, str(aero)),
        LOOP: partial(numbers_are_computed, run.pick(800, 20)),
        CP: partial(file_is_copied_by_cp, str(plain), str(copied)),
        COPIES: partial(file_is_copied_in_parts, str(plain), str(copied)),
    }

    def case(title: str, job: Work, *beside: str, bars: Bars, leaves: Path | None = None) -> Case:
        name = f"{title}, by threads"
        chosen = {name: (limits[name], copied if name in (CP, COPIES) else None) for name in beside}
        lines = list(_contenders(title, job, chosen, threads, bars, leaves))
        moved = size // 4 if title.endswith("k4") else 2 * size if title in PAIRS else size
        return Case(name, lines, run.pick(2, 1), OURS.format(1), size=moved, plots=["cores"])

    hub = small("safetensors")
    verify = work(holdall_verifies, str(aero), "full", small("aero"))
    yield case("Verify AERO", verify, COPY, HASH, bars=_pass_bars(hashed=HASH))
    verify = work(holdall_verifies, str(embd), "full", small("embd"))
    yield case("Verify EMBD", verify, COPY, bars=_pass_bars())
    compare = work(holdall_compares, str(plain), str(same), False, hub)
    yield case("Compare equal files", compare, TWICE, bars=_pass_bars(TWICE))
    compare = work(holdall_compares, str(plain), str(other), True, hub)
    yield case("Measure differences", compare, TWICE, bars=_pass_bars(TWICE))
    yield case("Statistics", work(holdall_describes, str(plain), hub), COPY, bars=_pass_bars())
    yield case("Load as arrays", work(holdall_loads, str(plain), hub), FRESH, bars=_load_bars)
    target = folder / "new.mcf"
    quantize = work(holdall_quantizes, str(matrices), str(target), str(matrix))
    yield case("Quantize, best k4", quantize, LOOP, bars=_arithmetic_bars, leaves=target)
    yield case("Decode k4", work(holdall_decodes, str(packed), str(small_packed)), LOOP, bars=_arithmetic_bars)
    for format in ("oinf", "aero"):
        target = folder / f"new.{format}"
        convert = work(holdall_converts, str(plain), str(target), hub)
        yield case(f"Convert safetensors to {format}", convert, CP, COPIES, bars=_copy_bars, leaves=target)


Bars = Callable[[int], list[Bar]]


def _pass_bars(copied: str = COPY, hashed: str = "") -> Bars:
    """Of work that reads all bytes: near a copy on many threads; where it hashes, near the bare hash on two."""

    def bars(count: int) -> list[Bar]:
        asked = [either(at_least(8, OURS.format(1)), at_least(0.7, _beside(copied, count)))] if count == MANY else []
        return asked + ([at_least(0.8, _beside(hashed, count))] if hashed and count == 2 else [])

    return bars


def _load_bars(count: int) -> list[Bar]:
    return [at_least(0.6, _beside(FRESH, count))] if count == MANY else []


def _copy_bars(count: int) -> list[Bar]:
    """Of a conversion: no slower than cp, and on many threads near what they copy together."""
    return [at_least(0.7, _beside(COPIES, count))] if count == MANY else [at_least(0.8, _beside(CP, count))]


def _arithmetic_bars(count: int) -> list[Bar]:
    """Of work that computes: it gains what a loop of arithmetic gains."""
    bar = scaling(0.75, _beside(LOOP, count), OURS.format(1), _beside(LOOP, 1))
    return [bar] if count == MANY else []


def _beside(name: str, threads: int) -> str:
    return f"{name}, threads: {threads}"


def _contenders(
    title: str,
    job: Work,
    limits: dict[str, tuple[partial[Action], Path | None]],
    threads: list[int],
    bars: Bars,
    leaves: Path | None,
) -> Iterator[Contender]:
    for count in threads:
        for name, (limit, copied) in limits.items():
            does = work(limit.func, *limit.args, count)
            yield Contender(_beside(name, count), does, leaves=copied, series=name, x=count)
        asked = bars(count) + ([at_least(TWO, OURS.format(1))] if count == 2 else [])
        asked += [megabytes(100 + 12 * max(0, count - 2))] if leaves else []
        mine = replace(job, env={"HOLDALL_THREADS": str(count)})
        series = f"holdall: {title}"
        yield Contender(OURS.format(count), mine, asked, leaves=leaves, least=1, series=series, x=count)
