"""Saving and opening a million tensors of 16 bytes, where what each tensor costs is all that counts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.case import EACH, Case, Contender, Run, at_most, bytes_each
from bench.content import FORMATS, make_many, make_many_by_safetensors, name_of, path_of, rehearse
from bench.work import Action, work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.model.model import Model

SAVE_FILE = "safetensors.numpy.save_file"
SAFE_OPEN = "safetensors.safe_open"
TIME = "µs a tensor"
MEMORY = 150  # bytes a tensor
OBJECTS = ("torch", "npz", "onnx")  # every tensor is an entry of an archive or a message of its own
SLOWER = 1.5


# -- works ------------------------------------------------------------------------------------------------------------


def count_each(action: Callable[[], object], count: int) -> Action:
    """``action``, with the time and the memory that it takes for each of ``count`` tensors."""

    def counted() -> dict[str, float]:
        import time

        before, began = _memory("VmRSS"), time.perf_counter()
        kept = action()
        seconds, peak = time.perf_counter() - began, _memory("VmHWM")
        del kept
        return {TIME: round(seconds / count * 1e6, 2), EACH: round((peak - before) / count)}

    return counted


def _memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def content(count: int) -> dict[str, NDArray[np.float32]]:
    import numpy as np

    values = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    gc.disable()  # it would look at a million arrays again and again
    made = {name_of(number): values[number] for number in range(count)}
    gc.enable()
    return made


def columns(count: int) -> Model:
    """The same tensors without an object for each: columns, as those of a file that is open."""
    import numpy as np

    from holdall.binary.columns import Shapes
    from holdall.model.dtypes import find_dtype
    from holdall.model.model import Model
    from holdall.model.table import ColumnTable
    from holdall.source import BytesSource

    values = np.arange(4 * count, dtype=np.float32)
    shapes = Shapes(np.uint64(4).tobytes(), np.zeros(count, np.uint64), np.ones(count, np.uint64))
    return Model(
        ColumnTable(
            BytesSource(values.data.cast("B")), [name_of(number) for number in range(count)], [find_dtype("f32")],
            np.zeros(count, np.uint8), shapes, np.arange(count, dtype=np.uint64) * np.uint64(16),
            np.full(count, 16, np.uint64),
        )
    )  # fmt: skip


def holdall_saves(path: str, format: str, count: int) -> Action:
    import holdall

    with TemporaryDirectory(dir=Path(path).parent) as folder:
        holdall.save(f"{folder}/rehearsal", content(3), format=format, fsync=False)
    tensors = content(count)
    return count_each(lambda: holdall.save(path, tensors, format=format, fsync=False), count)


def holdall_saves_columns(path: str, format: str, count: int) -> Action:
    import holdall

    with TemporaryDirectory(dir=Path(path).parent) as folder:
        holdall.save(f"{folder}/rehearsal", columns(3), format=format, fsync=False)
    model = columns(count)
    return count_each(lambda: holdall.save(path, model, format=format, fsync=False), count)


def safetensors_saves(path: str, count: int) -> Action:
    from safetensors.numpy import save_file

    with TemporaryDirectory(dir=Path(path).parent) as folder:
        save_file(content(3), f"{folder}/rehearsal")
    tensors = content(count)
    return count_each(lambda: save_file(tensors, path), count)


def holdall_opens(path: str, small: str, count: int) -> Action:
    import holdall

    def action(path: str) -> object:
        model = holdall.open(path)
        return model, list(model)

    return count_each(rehearse(action, small, path), count)


def safetensors_opens(path: str, small: str, count: int) -> Action:
    from safetensors import safe_open

    def action(path: str) -> object:
        file = safe_open(path, "numpy")
        return file, list(file.keys())  # type: ignore[no-untyped-call]

    return count_each(rehearse(action, small, path), count)


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Saving every format, saving ten times as many from columns, and opening every format."""
    count, rounds = run.pick(1_000_000, 10_000), run.pick(3, 1)
    with run.folder(count * 800) as folder:
        yield Case(
            f"Save {count:,} tensors, each format", list(_savers(folder, count)), rounds, beside=SAVE_FILE,
            says="Arrays of 16 bytes in a dict. The memory is the peak beyond what the caller holds.",
        )  # fmt: skip
    with run.folder(count * 10 * 200) as folder:
        yield Case(
            f"Save {10 * count:,} tensors", list(_column_savers(folder, count)), run.pick(2, 1),
            says="The tensors of holdall are columns, as those of an open file; save_file has a tenth of them.",
        )  # fmt: skip
    with run.folder(count * 2500) as folder:
        yield Case(
            f"Open and list {count:,} tensors, memory", list(_openers(folder, count)), rounds, beside=SAFE_OPEN,
            says="The memory is the peak beyond the library itself, with the names of all tensors.",
        )  # fmt: skip


def _savers(folder: Path, count: int) -> Iterator[Contender]:
    path = folder / "by-safetensors"
    yield Contender(SAVE_FILE, work(safetensors_saves, str(path), count), leaves=path, least=16 * count)
    for format in FORMATS:
        path = path_of(folder, "many", format)
        bars = [at_most(SLOWER if format in OBJECTS else 1.0, SAVE_FILE), bytes_each(MEMORY)]
        job = work(holdall_saves, str(path), format, count)
        yield Contender(f"holdall: {format}", job, bars, leaves=path, least=16 * count)


def _column_savers(folder: Path, count: int) -> Iterator[Contender]:
    path = folder / "by-safetensors"
    name = f"{SAVE_FILE}, {count:,}"
    yield Contender(name, work(safetensors_saves, str(path), count), leaves=path, least=16 * count)
    path = path_of(folder, "columns", "aero")
    job = work(holdall_saves_columns, str(path), "aero", 10 * count)
    bars = [at_most(10.0, name), bytes_each(MEMORY)]
    yield Contender(f"holdall: aero, {10 * count:,}", job, bars, leaves=path, least=160 * count)


def _openers(folder: Path, count: int) -> Iterator[Contender]:
    for number in (1, count):
        make_many(folder, number, list(FORMATS))
        make_many_by_safetensors(folder / f"by-safetensors-{number}", number)
    found, small = (str(folder / f"by-safetensors-{number}") for number in (count, 1))
    yield Contender(SAFE_OPEN, work(safetensors_opens, found, small, count))
    for format in FORMATS:
        found, small = (str(path_of(folder, f"many-{number}", format)) for number in (count, 1))
        yield Contender(f"holdall: {format}", work(holdall_opens, found, small, count))
