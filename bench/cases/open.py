"""Opening a file and listing its tensors: by their number, and by the size of the file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.case import Bar, Case, Contender, Run, at_most, seconds
from bench.content import (
    FORMATS,
    HASHES,
    make,
    make_many,
    make_many_by_safetensors,
    make_sparse,
    make_variants,
    path_of,
    rehearse,
    small_file,
)
from bench.measure import warm
from bench.work import Action, Work, run, work

SAFE_OPEN = "safetensors.safe_open"
LIBRARIES = {  # what else opens a file of the format, and lists it
    "safetensors": SAFE_OPEN,
    "gguf": "gguf.GGUFReader",
    "torch": "torch.load, mmap",
    "npz": "numpy.load",
    "onnx": "onnx.load",
}
LARGEST = {**dict.fromkeys(HASHES, 10**9), "onnx": 2 * 10**9}  # real data; the most that a protobuf message has
SLOW = 3.0  # seconds for 100,000 tensors: a contender that takes longer is not measured on a million


# -- works ------------------------------------------------------------------------------------------------------------


def holdall_lists(path: str, small: str) -> Action:
    import holdall

    def action(path: str) -> dict[str, int]:
        with holdall.open(path) as model:
            return {"same": len(list(model))}

    return rehearse(action, small, path)


def library_lists(library: str, path: str, small: str) -> Action:
    return rehearse(lambda path: {"same": len(_names(library, path))}, small, path)


def _names(library: str, path: str) -> list[str]:
    match library:
        case "gguf.GGUFReader":
            from gguf import GGUFReader

            return [tensor.name for tensor in GGUFReader(path).tensors]
        case "torch.load, mmap":
            import torch

            return list(torch.load(path, mmap=True, weights_only=True))
        case "numpy.load":
            import numpy as np

            with np.load(path) as arrays:
                return list(arrays.files)
        case "onnx.load":
            import onnx

            return [tensor.name for tensor in onnx.load(path, load_external_data=False).graph.initializer]
        case _:
            from safetensors import safe_open

            with safe_open(path, "np") as file:
                return list(file.keys())


def vocabulary_opens(path: str) -> Action:
    """A GGUF file with 256,000 tokens."""
    import numpy as np

    import holdall

    metadata = {
        "tokenizer.ggml.tokens": [f"token{n}" for n in range(256_000)],
        "tokenizer.ggml.scores": np.zeros(256_000, np.float32),
    }
    holdall.save(path, {"w": np.ones(8, np.float32)}, metadata=metadata, fsync=False)

    def action() -> None:
        with holdall.open(path) as model:
            list(model)

    return action


def names_become_ids(count: int, keys: bool) -> Action:
    """The 64-bit ids of parameters, or the keys of their cache."""
    from bench.content import name_of
    from holdall import identity

    names = [name_of(n) for n in range(count)]
    ids = identity.base_ids(names)

    def action() -> None:
        if keys:
            identity.param_keys(1, ids)
        else:
            identity.base_ids(names)

    return action


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """By number of tensors, then by size, then what belongs to opening."""
    yield from by_tensors(run)
    yield from by_size(run)
    with run.folder(0) as folder:
        count = run.pick(100_000, 20_000)
        yield Case(
            "A vocabulary of 256,000 tokens; ids of many names",
            [
                Contender("open a GGUF file with the tokens", work(vocabulary_opens, str(folder / "vocab.gguf")),
                          [seconds(0.1)]),
                Contender(f"ids of {count:,} names", work(names_become_ids, count, False), [seconds(0.1)]),
                Contender(f"cache keys of {count:,} ids", work(names_become_ids, count, True), [seconds(0.1)]),
            ],
            rounds=5, alone=False,
        )  # fmt: skip


def by_tensors(run: Run) -> Iterator[Case]:
    """10 to 1,000,000 tensors in every format."""
    counts = [10, 2000] if run.quick else [10, 1000, 10_000, 100_000]
    most = run.pick(1_000_000, 10_000)
    with run.folder(run.pick(5_000_000_000, 100_000_000)) as folder:
        for count in counts:
            make_all(folder, count)
        for count in counts[:-1]:
            lines = [*theirs(folder, count), *(ours(folder, count, format) for format in FORMATS)]
            yield Case(
                f"Open and list {count:,} tensors",
                lines,
                run.pick(2, 1),
                beside=SAFE_OPEN,
                plots=["open-tensors", "open-formats"],
            )
        count = counts[-1]
        native = [ours(folder, count, format, [at_most(0.5, SAFE_OPEN)]) for format in FORMATS]
        native += [
            Contender(f"holdall: {name}", work(holdall_lists, str(path), small_file(run.scratch, name.split(",")[0])),
                      [at_most(0.5, SAFE_OPEN)])
            for name, path in make_variants(folder, count).items()
        ]  # fmt: skip
        twins = [twin(folder, count, format) for format in (("oinf", "safetensors") if run.quick else FORMATS)]
        yield Case(
            f"Open and list {count:,} tensors, each format",
            [*theirs(folder, count), *native, *twins],
            run.pick(3, 1),
            beside=SAFE_OPEN,
            plots=["open-tensors", "open-formats"],
            says="The twins are the plain Python readers that serve where no C was compiled (HOLDALL_NATIVE=0).",
        )
        slow = SLOW * count / 100_000
        quick_ones = [format for format in FORMATS if once(folder, count, format) < slow]
        run.skipped.extend(
            f"open {most:,} tensors, {format}: {count:,} take more than {slow:g} s"
            for format in FORMATS
            if format not in quick_ones
        )
        make_all(folder, most, quick_ones)
        lines = [one for one in theirs(folder, most) if one.name.startswith(SAFE_OPEN)]
        for format in quick_ones:
            base = replace(ours(folder, count, format), series="")
            linear = at_most(most / count * 1.25, base.name)
            lines += [base, replace(ours(folder, most, format, [linear]), name=f"{base.name}, {most:,}")]
        yield Case(
            f"Open and list {most:,} tensors",
            lines,
            run.pick(2, 1),
            beside=lines[0].name,
            plots=["open-tensors", "open-formats"],
            says=f"Linear growth from {count:,} tensors is {most // count} times the time; the bar leaves a quarter.",
        )


def make_all(folder: Path, count: int, formats: list[str] | None = None) -> None:
    """The files; large ones by two processes at a time."""
    chosen = formats or list(FORMATS)
    groups = [chosen] if count < 100_000 else [[format] for format in chosen]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda group: make_many(folder, count, group), groups))
    library = folder / f"library-{count}.safetensors"
    make_many_by_safetensors(library, count)
    warm([library, *(path_of(folder, f"many-{count}", format) for format in chosen)])


def lists(folder: Path, count: int, format: str) -> Work:
    return work(holdall_lists, str(path_of(folder, f"many-{count}", format)), small_file(folder.parent, format))


def once(folder: Path, count: int, format: str) -> float:
    return run(lists(folder, count, format)).seconds


def ours(folder: Path, count: int, format: str, bars: list[Bar] | None = None) -> Contender:
    return Contender(
        f"holdall: {format}", lists(folder, count, format), bars or [], series=f"holdall: {format}", x=count
    )


def twin(folder: Path, count: int, format: str) -> Contender:
    job = replace(lists(folder, count, format), env={"HOLDALL_NATIVE": "0"})
    return Contender(f"holdall, twins: {format}", job, [at_most(6.0, SAFE_OPEN)])


def theirs(folder: Path, count: int) -> list[Contender]:
    found = []
    for format, library in LIBRARIES.items():
        own = folder / f"library-{count}.safetensors"
        path = own if library == SAFE_OPEN else path_of(folder, f"many-{count}", format)
        if path.exists():
            job = work(library_lists, library, str(path), small_file(folder.parent, format))
            found.append(Contender(library, job, series=library, x=count))
    return sorted(found, key=lambda one: one.name != SAFE_OPEN)


def by_size(run: Run) -> Iterator[Case]:
    """1 MB to 10 GB: payloads are holes where a format has no checksums of them, and real up to 1 GB where it has."""
    sizes = [10**6, 10**8] if run.quick else [10**6, 10**7, 10**8, 10**9, 10**10]
    with run.folder(run.pick(8_000_000_000, 700_000_000)) as folder:
        small = {format: small_file(run.scratch, format) for format in FORMATS}
        lines: list[Contender] = []
        for format in ("safetensors", "oinf", "npz") if run.quick else FORMATS:
            first = f"holdall: {format}, {_megabytes(sizes[0])}"
            for size in (sizes[0], min(sizes[-1], LARGEST.get(format, sizes[-1]))):
                path = path_of(folder, f"size-{size}", format)
                (make if format in HASHES else make_sparse)(path, format, size)
                name = f"holdall: {format}, {_megabytes(size)}"
                bars = [seconds(0.005)] if size == sizes[0] else [seconds(0.005), at_most(1.5, first)]
                lines.append(Contender(name, work(holdall_lists, str(path), small[format]), bars))
        yield Case(
            "Open a small and a large file of 300 tensors",
            lines,
            run.pick(4, 1),
            says="The large one is 10 GB of holes. Formats with checksums have 1 GB of real data, ONNX 2 GB, its most.",
        )
        growing: list[Contender] = []
        for size in sizes:
            for format in ("safetensors", "oinf", "gguf"):
                path = path_of(folder, f"size-{size}", format)
                if not path.exists():
                    make_sparse(path, format, size)
                job = work(holdall_lists, str(path), small[format])
                growing.append(Contender(f"holdall: {format}, {_megabytes(size)}", job,
                                         series=f"holdall: {format}", x=size))  # fmt: skip
                if format in LIBRARIES:
                    library = LIBRARIES[format]
                    job = work(library_lists, library, str(path), small[format])
                    growing.append(Contender(f"{library}, {_megabytes(size)}", job, series=library, x=size))
        yield Case("Open by size, beside the formats' own libraries", growing, run.pick(3, 1), plots=["open-size"])


def _megabytes(size: int) -> str:
    return f"{size / 1e9:g} GB" if size >= 10**9 else f"{size / 1e6:g} MB"
