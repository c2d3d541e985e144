"""Saving arrays, in every format, beside safetensors and beside writing the same bytes; with fsync and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.case import Case, Contender, Run, at_least, megabytes
from bench.content import FORMATS, HASHES, arrays, name_of, path_of, tensors
from bench.hashes import beside, hash_arrays
from bench.work import Action, work

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAVE_FILE = "safetensors.numpy.save_file"
WRITE = "write(2) of the same bytes"
MEMORY = 150

OTHERS = {"torch.save": ".pt", "numpy.savez": ".npz", "gguf.GGUFWriter": ".gguf", "openinfer-oinf": ".oinf"}


# -- works ------------------------------------------------------------------------------------------------------------


def holdall_saves(path: str, format: str, size: int, fsync: bool) -> Action:
    import holdall

    with TemporaryDirectory(dir=Path(path).parent) as folder:
        holdall.save(f"{folder}/rehearsal", arrays(64, 2), format=format, fsync=False)
    content = arrays(size)
    return lambda: holdall.save(path, content, format=format, fsync=fsync)


def holdall_saves_lazily(path: str, size: int) -> Action:
    """Payloads that are made when their turn comes: the memory of writing is not that of the model."""
    import holdall

    content = tensors(size)
    return lambda: holdall.save(path, content, fsync=False)


def safetensors_saves(path: str, size: int, fsync: bool) -> Action:
    from safetensors.numpy import save_file

    content = arrays(size)

    def action() -> None:
        save_file(content, path)
        sync_if(path, fsync)

    return action


def safetensors_saves_beside_hashes(path: str, size: int, fsync: bool, kinds: list[str]) -> Action:
    """A real run of both at the same time: the file in one process, the hashes of the same arrays in another."""
    from safetensors.numpy import save_file

    content = arrays(size)

    def save() -> None:
        save_file(content, path)
        sync_if(path, fsync)

    return lambda: beside(lambda: hash_arrays(list(content.values()), kinds), save)


def bytes_are_written(path: str, size: int, fsync: bool) -> Action:
    content = arrays(size)

    def action() -> None:
        with open(path, "wb", buffering=0) as file:  # noqa: PTH123
            for array in content.values():
                data = array.data.cast("B")
                while data:
                    data = data[file.write(data) :]
        sync_if(path, fsync)

    return action


def other_saves(library: str, path: str, size: int, fsync: bool) -> Action:
    content = arrays(size)
    saved = _saver(library, path, content)

    def action() -> None:
        saved()
        sync_if(path, fsync)

    return action


def _saver(library: str, path: str, content: dict[str, NDArray[Any]]) -> Callable[[], object]:
    match library:
        case "torch.save":
            import torch

            held = {name: torch.from_numpy(array) for name, array in content.items()}
            return lambda: torch.save(held, path)
        case "numpy.savez":
            import numpy as np

            return lambda: np.savez(path, **content)  # type: ignore[arg-type]  # arrays by name, which may be any
        case "openinfer-oinf":
            from dataclass_to_oinf import write_oinf

            fields = {name.replace(".", "_"): array for name, array in content.items()}
            holder = make_dataclass("Weights", [(name, type(array)) for name, array in fields.items()])
            instance = holder(**fields)
            return lambda: write_oinf(instance, path)
        case _:
            from gguf import GGUFWriter

            def write() -> None:
                writer = GGUFWriter(path, "bench")
                for name, array in content.items():
                    writer.add_tensor(name, array)
                writer.write_header_to_file()
                writer.write_kv_data_to_file()
                writer.write_tensors_to_file()
                writer.close()

            return write


def sync_if(path: str, wanted: bool) -> None:
    """What ``fsync=True`` does here: the file, and the folder that has its name."""
    for one in (path, str(Path(path).parent)) if wanted else ():
        fd = os.open(one, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def many_are_saved(path: str, count: int, library: bool) -> Action:
    """Small tensors: what one of them costs."""
    import numpy as np

    import holdall

    values = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    content = {name_of(n): values[n] for n in range(count)}
    if library:
        from safetensors.numpy import save_file

        return lambda: save_file(content, path)
    return lambda: holdall.save(path, content, fsync=False)


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Every format without and with fsync; sizes; many small tensors; payloads made lazily."""
    size = run.pick(10**9, 3 * 10**7)
    for fsync in (False, True):
        with run.folder(5 * size) if fsync else run.memory(5 * size) as folder:
            lines = contenders(folder, size, fsync, others=not run.quick and not fsync)
            yield Case(
                f"Save {size / 1e6:,.0f} MB of arrays, {'with' if fsync else 'without'} fsync",
                lines,
                run.pick(4, 1),
                SAVE_FILE,
                WRITE,
                size,
                says="Beside formats with checksums, save_file runs while another process takes the same hashes of the "
                "same arrays. The arrays themselves are in the peak of memory.",
            )
            if not fsync:
                yield lazily(run, folder, size)
    yield from growing(run)
    with run.memory(10**9) as folder:
        yield many(run, folder)


def contenders(folder: Path, size: int, fsync: bool, others: bool) -> list[Contender]:
    target = folder / "theirs"
    lines = [
        Contender(SAVE_FILE, work(safetensors_saves, str(target), size, fsync), leaves=target),
        Contender(WRITE, work(bytes_are_written, str(target), size, fsync), leaves=target),
    ]
    for kinds in dict.fromkeys(HASHES.values()):
        job = work(safetensors_saves_beside_hashes, str(target), size, fsync, list(kinds))
        lines.append(Contender(with_hashes(kinds), job, leaves=target))
    for format in FORMATS:
        path = path_of(folder, "ours", format)
        bar = at_least(1.0, with_hashes(HASHES[format]) if format in HASHES else SAVE_FILE)
        job = work(holdall_saves, str(path), format, size, fsync)
        lines.append(Contender(f"holdall: {format}", job, [bar], leaves=path))
    if others:
        for library, suffix in OTHERS.items():
            path = folder / f"other{suffix}"
            lines.append(Contender(library, work(other_saves, library, str(path), size, fsync), leaves=path))
    return lines


def with_hashes(kinds: tuple[str, ...]) -> str:
    return f"{SAVE_FILE} beside {' and '.join(kinds)}"


def lazily(run: Run, folder: Path, size: int) -> Case:
    path = folder / "lazily.oinf"
    job = work(holdall_saves_lazily, str(path), size)
    lines = [Contender("holdall: oinf", job, [megabytes(MEMORY)], leaves=path)]
    return Case(f"Write {size / 1e6:,.0f} MB that is made lazily", lines, run.pick(3, 1), size=size)


def growing(run: Run) -> Iterator[Case]:
    for size in [10**6, 10**7] if run.quick else [10**6, 10**7, 10**8, 10**9, 4 * 10**9]:
        with run.memory(2 * size) as folder:
            target, path = folder / "theirs", folder / "ours.safetensors"
            ways = {
                SAVE_FILE: (target, work(safetensors_saves, str(target), size, False)),
                WRITE: (target, work(bytes_are_written, str(target), size, False)),
                "holdall: safetensors": (path, work(holdall_saves, str(path), "safetensors", size, False)),
            }
            lines = [Contender(name, job, leaves=at, series=name, x=size) for name, (at, job) in ways.items()]
            title, rounds = f"Save {size / 1e6:,.0f} MB, safetensors", run.pick(3 if size <= 10**9 else 1, 1)
            yield Case(title, lines, rounds, SAVE_FILE, WRITE, size, plots=["save-size"])


def many(run: Run, folder: Path) -> Case:
    count = run.pick(100_000, 5000)
    paths = {format: path_of(folder, "many", format) for format in ("safetensors", "oinf", "gguf", "aero")}
    lines = [Contender(SAVE_FILE, work(many_are_saved, str(paths["safetensors"]), count, True),
                       leaves=paths["safetensors"])]  # fmt: skip
    for format, path in paths.items():
        lines.append(Contender(f"holdall: {format}", work(many_are_saved, str(path), count, False), leaves=path))
    return Case(f"Save {count:,} small tensors", lines, run.pick(3, 1), SAVE_FILE)
