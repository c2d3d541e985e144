"""Reading all tensors of a file as arrays, every byte of them touched: as copies, and as views on the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.case import Case, Contender, Run, at_least
from bench.content import FORMATS, TENSORS, checksum, make, path_of, rehearse, small_file
from bench.measure import drop, warm
from bench.work import Action, Job, work

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOAD_FILE = "safetensors.numpy.load_file"
MEMMAP = "numpy.memmap, a slice for each tensor"
READ = "read(2) into new memory"

OTHERS = {  # what else loads a file of the format
    "torch.load": "torch",
    "torch.load, mmap": "torch",
    "numpy.load": "npz",
    "gguf.GGUFReader": "gguf",
    "onnx.load": "onnx",
}


# -- works ------------------------------------------------------------------------------------------------------------


def holdall_loads(path: str, small: str) -> Action:
    from holdall.numpy import load_file

    return rehearse(lambda path: checksum(load_file(path)), small, path)


def holdall_views(path: str, small: str) -> Action:
    import holdall

    def action(path: str) -> dict[str, str]:
        with holdall.open(path) as model:
            return checksum([tensor.numpy() for tensor in model.tensors])

    return rehearse(action, small, path)


def safetensors_loads(path: str, small: str) -> Action:
    from safetensors.numpy import load_file

    return rehearse(lambda path: checksum(load_file(path)), small, path)


def file_is_mapped(path: str, start: int) -> Action:
    """The limit of views: one map of all payload bytes, cut into as many arrays as there are tensors."""
    import numpy as np

    return lambda: checksum(np.array_split(np.memmap(path, np.uint64, "r", start), TENSORS))


def file_is_read(path: str, start: int) -> Action:
    """The limit of copies: the payload bytes by read(2) into memory that is new."""
    import numpy as np

    def action() -> dict[str, str]:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # Path.open is the same, with a Path in between
            file.seek(start)
            values = np.empty(os.fstat(file.fileno()).st_size - start, np.uint8)
            window, at = values.data, 0
            while got := file.readinto(window[at:]):
                at += got
        return checksum([values])

    return action


def other_loads(library: str, path: str, small: str) -> Action:
    return rehearse(lambda path: checksum(_load(library, path)), small, path)


def _load(library: str, path: str) -> list[NDArray[Any]]:
    match library:
        case "numpy.load":
            import numpy as np

            with np.load(path) as file:
                return [file[name] for name in file.files]
        case "gguf.GGUFReader":
            from gguf import GGUFReader

            return [tensor.data for tensor in GGUFReader(path).tensors]
        case "onnx.load":
            import onnx
            from onnx import numpy_helper

            return [numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer]
        case _:
            import torch

            found = torch.load(path, mmap=library.endswith("mmap"), weights_only=True)
            return [tensor.numpy() for tensor in found.values()]


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Every format at one size, warm; the same cold; safetensors from small to large."""
    size = run.pick(10**9, 3 * 10**7)
    with run.folder(13 * size) as folder:
        paths = {format: make(path_of(folder, "large", format), format, size) for format in FORMATS}
        small = {format: small_file(run.scratch, format) for format in FORMATS}
        hub = small["safetensors"]
        warm(paths.values())
        lines = [theirs(paths["safetensors"], hub), limit(paths["safetensors"])]
        lines += [
            Contender(
                f"holdall.numpy.load_file: {format}",
                work(holdall_loads, str(path), small[format]),
                [at_least(1.0, LOAD_FILE)],
            )
            for format, path in paths.items()
        ]
        others = {} if run.quick else OTHERS
        for name, format in others.items():
            lines.append(Contender(name, work(other_loads, name, str(paths[format]), small[format])))
        rounds = run.pick(5, 1)
        yield Case(f"Load {_gb(size)} as arrays of their own, warm", lines, rounds, LOAD_FILE, READ, size)
        lines = [mapped(paths["safetensors"])]
        lines += [
            Contender(
                f"holdall views: {format}", work(holdall_views, str(path), small[format]), [at_least(0.9, MEMMAP)]
            )
            for format, path in paths.items()
        ]
        yield Case(f"Touch {_gb(size)} as views on the file, warm", lines, rounds, MEMMAP, MEMMAP, size)
        path = paths["safetensors"]
        lines = [theirs(path, hub), limit(path), mapped(path)]
        lines += [
            Contender("holdall.numpy.load_file", work(holdall_loads, str(path), hub), [at_least(0.9, LOAD_FILE)]),
            Contender("holdall views", work(holdall_views, str(path), hub), [at_least(0.9, MEMMAP)]),
        ]
        yield Case(f"Read {_gb(size)} from the disk", lines, run.pick(3, 1), LOAD_FILE, READ, size, cold=[path])
    yield from growing(run)


def theirs(path: Path, small: str) -> Contender:
    return Contender(LOAD_FILE, work(safetensors_loads, str(path), small))


def limit(path: Path) -> Contender:
    return Contender(READ, work(file_is_read, str(path), _payload(path)))


def mapped(path: Path) -> Contender:
    return Contender(MEMMAP, work(file_is_mapped, str(path), _payload(path)))


def _payload(path: Path) -> int:
    """Where the payloads of a safetensors file begin."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def growing(run: Run) -> Iterator[Case]:
    """Two ways of each side; copies only where file and copies have room in memory together."""
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for size in [10**6, 10**7] if run.quick else [10**6, 10**7, 10**8, 10**9, 10**10]:
        with run.folder(size) as folder:
            path = make(folder / "one.safetensors", "safetensors", size)
            drop(path)  # writes it, so that no turn meets that
            warm([path])
            hub = small_file(run.scratch, "safetensors")
            ways: dict[str, Job] = {"holdall views": work(holdall_views, str(path), hub), MEMMAP: mapped(path).job}
            if 2.5 * size < room:
                ways["holdall.numpy.load_file"] = work(holdall_loads, str(path), hub)
                ways[LOAD_FILE] = work(safetensors_loads, str(path), hub)
            else:
                run.skipped.append(f"copies of {_gb(size)}: file and copies do not fit into memory together")
            lines = [Contender(name, job, series=name, x=size) for name, job in ways.items()]
            yield Case(f"Read {_gb(size)}, safetensors", lines, run.pick(3, 1), MEMMAP, size=size, plots=["read-size"])


def _gb(size: int) -> str:
    return f"{size / 1e9:g} GB" if size >= 10**9 else f"{size / 1e6:g} MB"
