"""What more cores gain: every pass over all bytes, on one thread and on as many as there are.

Beside each stands what no pass can beat on as many threads: a copy in memory, the bare hash, a loop of arithmetic.
"""

from __future__ import annotations

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
OURS = "holdall, threads: {}"
TWO = 1.7  # times the speed of one thread that two have to reach
PAIRS = ("Compare equal files", "Measure differences")  # which read two files
MANY = 16  # threads of a large machine, of which more is asked
PIECE = 4 << 20


# -- works ------------------------------------------------------------------------------------------------------------


def memory_is_copied(size: int, fresh: bool, threads: int) -> Action:
    """Into memory that was touched before, or that the machine first has to give."""
    import numpy as np

    source = np.ones(size, np.uint8)
    target = np.empty(size, np.uint8) if fresh else np.zeros(size, np.uint8) + 1

    def copy(start: int) -> None:
        np.copyto(target[start : start + PIECE], source[start : start + PIECE])

    return lambda: _in_threads(copy, range(0, size, PIECE), threads)


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

    def action(path: str) -> None:
        load_file(path)

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
    """Every pass on 1, 2, 4 ... threads, each beside its limit."""
    from holdall.base.platform import core_count

    threads = [1 << bits for bits in range(core_count().bit_length())]
    # More for many cores: with less, the beginning of their threads would be most of the time.
    size = run.pick(max(10**9, 25 * 10**7 * core_count()), 3 * 10**7)
    small = partial(small_file, run.scratch)
    with run.folder(8 * size) as folder:
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
        limits: dict[str, partial[Action]] = {
            COPY: partial(memory_is_copied, size, False),
            TWICE: partial(memory_is_copied, 2 * size, False),
            FRESH: partial(memory_is_copied, size, True),
            HASH: partial(memory_is_hashed, str(aero)),
            LOOP: partial(numbers_are_computed, run.pick(1600, 20)),
        }

        def case(title: str, job: Work, *beside: str, bars: Bars, leaves: Path | None = None) -> Case:
            name = f"{title}, by threads"
            lines = list(_contenders(title, job, {name: limits[name] for name in beside}, threads, bars, leaves))
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
        target = folder / "new.aero"
        convert = work(holdall_converts, str(plain), str(target), hub)
        yield case("Convert safetensors to AERO", convert, COPY, bars=lambda count: [], leaves=target)


Bars = Callable[[int], list[Bar]]


def _pass_bars(copied: str = COPY, hashed: str = "") -> Bars:
    """Of work that reads all bytes: near a copy on many threads; where it hashes, near the bare hash on two."""

    def bars(count: int) -> list[Bar]:
        asked = [either(at_least(8, OURS.format(1)), at_least(0.7, _beside(copied, count)))] if count == MANY else []
        return asked + ([at_least(0.8, _beside(hashed, count))] if hashed and count == 2 else [])

    return bars


def _load_bars(count: int) -> list[Bar]:
    return [at_least(0.6, _beside(FRESH, count))] if count == MANY else []


def _arithmetic_bars(count: int) -> list[Bar]:
    """Of work that computes: it gains what a loop of arithmetic gains."""
    bar = scaling(0.75, _beside(LOOP, count), OURS.format(1), _beside(LOOP, 1))
    return [bar] if count == MANY else []


def _beside(name: str, threads: int) -> str:
    return f"{name}, threads: {threads}"


def _contenders(
    title: str, job: Work, limits: dict[str, partial[Action]], threads: list[int], bars: Bars, leaves: Path | None
) -> Iterator[Contender]:
    for count in threads:
        for name, limit in limits.items():
            yield Contender(_beside(name, count), work(limit.func, *limit.args, count), series=name, x=count)
        asked = bars(count) + ([at_least(TWO, OURS.format(1))] if count == 2 else [])
        asked += [megabytes(100 + 12 * max(0, count - 2))] if leaves else []
        mine = replace(job, env={"HOLDALL_THREADS": str(count)})
        series = f"holdall: {title}"
        yield Contender(OURS.format(count), mine, asked, leaves=leaves, least=1, series=series, x=count)
