"""Converting without changing a value, beside ``cp`` of the same bytes: a star through safetensors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.case import Bar, Case, Contender, Run, at_least, megabytes
from bench.cases.save import sync_if
from bench.content import FORMATS, HASHES, make, make_llama, path_of, small_file
from bench.hashes import beside, hash_file
from bench.measure import drop, remove, warm
from bench.work import Action, work

CP = "cp"
MEMORY = 300
LARGE = {False: ("hf", "aero"), True: ("hf",)}  # at the large size too, without and with fsync

# -- works ------------------------------------------------------------------------------------------------------------


def holdall_converts(source: str, target: str, format: str, fsync: bool, small: str) -> Action:
    import holdall

    with TemporaryDirectory(dir=Path(target).parent) as folder:
        holdall.convert(small, f"{folder}/rehearsal", format=format, fsync=False)

    def action() -> None:
        report = holdall.convert(source, target, format=format, fsync=fsync)
        left = [loss for loss in report.losses if loss.fate != "text"]  # text has the value, in another form
        assert not left, left
        assert not report.dropped, report.dropped

    return action


def holdall_follows_the_recipe(source: str, target: str, small: str) -> Action:
    """From a folder to what llama.cpp runs: names, and the rows of queries and keys in another order."""
    import holdall

    with TemporaryDirectory(dir=Path(target).parent) as folder:
        holdall.convert(small, f"{folder}/rehearsal.gguf", fsync=False)

    def action() -> None:
        report = holdall.convert(source, target, fsync=False)
        assert report.recipe is not None, report.changes
        assert report.recipe.recipe.name == "llama-gguf", report.changes
        turned = [row for row in report.recipe.rows if any("permute" in word for word in row.operations)]
        assert len(turned) > 1, report.changes

    return action


def file_is_copied(source: str, target: str, fsync: bool) -> Action:
    return lambda: _copy(source, target, fsync)


def file_is_copied_and_hashed(source: str, target: str, fsync: bool, kinds: list[str]) -> Action:
    """``cp``, and at the same time in another process the hashes that the format has, over reads."""
    return lambda: beside(lambda: hash_file(source, kinds), lambda: _copy(source, target, fsync))


def _copy(source: str, target: str, fsync: bool) -> None:
    subprocess.run(["cp", "-r", "--reflink=never", source, target], check=True)
    sync_if(target, fsync)


def file_is_loaded_and_saved(source: str, target: str) -> Action:
    """What people write by hand."""
    import numpy as np
    from safetensors.numpy import load_file

    return lambda: np.savez(target, **load_file(source))  # type: ignore[arg-type]  # arrays by name, which may be any


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Each format both ways at 1 GB; a recipe at 5 GB, and two formats, one with fsync too; small to large files."""
    size = run.pick(10**9, 3 * 10**7)
    with run.memory(4 * size) as folder:
        hub = make(folder / "hub.safetensors", "safetensors", size)
        drop(hub)
        for format in FORMATS:
            if format != "safetensors":
                yield star(run, folder, hub, format, size, fsync=False)
    yield from recipe(run, run.pick(5 * 10**9, 3 * 10**7))
    if not run.quick:
        for fsync, formats in LARGE.items():
            yield from large(run, 5 * 10**9, fsync, formats)
    yield from growing(run)


def large(run: Run, size: int, fsync: bool, formats: tuple[str, ...]) -> Iterator[Case]:
    with run.folder(4 * size) if fsync else run.memory(3 * size) as folder:
        hub = make(folder / "hub.safetensors", "safetensors", size)
        drop(hub)
        for format in formats:
            yield star(run, folder, hub, format, size, fsync)


def recipe(run: Run, size: int) -> Iterator[Case]:
    """A Llama for llama.cpp: one recipe, of which a tenth of the bytes changes places."""
    with run.memory(3 * size) as folder:
        source, small = folder / "llama", folder / "small"
        make_llama(source, size)
        make_llama(small, 1)
        stored = sum(file.stat().st_size for file in source.iterdir())
        drop(source)
        warm([source])
        copied, target = folder / "copied", folder / "llama.gguf"
        bars: list[Bar] = [at_least(0.6, CP), megabytes(MEMORY)]
        job = work(holdall_follows_the_recipe, str(source), str(target), str(small))
        lines = [
            Contender(CP, work(file_is_copied, str(source), str(copied), False), leaves=copied),
            Contender("hf → gguf by llama-gguf", job, bars, leaves=target),
        ]
        title = f"Convert a Llama of {size / 1e9:g} GB for llama.cpp, without fsync"
        yield Case(title, lines, run.pick(4, 1), CP, CP, stored)


def star(run: Run, folder: Path, hub: Path, format: str, size: int, fsync: bool) -> Case:
    """From safetensors to the format and back, beside a copy, and one with the format's hashes."""
    source = path_of(folder, "from", format)
    if not source.exists():
        for old in folder.glob("from*"):
            remove(old)
        make(source, format, size)
        drop(source)
    warm([hub, source])
    there, back, copied = path_of(folder, "to", format), folder / "to.safetensors", folder / "copied"
    kinds = HASHES.get(format, ())
    hashed = f"{CP} beside {' and '.join(kinds)}"
    lines = [Contender(CP, work(file_is_copied, str(hub), str(copied), fsync), leaves=copied)]
    if kinds:
        job = work(file_is_copied_and_hashed, str(hub), str(copied), fsync, list(kinds))
        lines.append(Contender(hashed, job, leaves=copied))
    small = {kind: small_file(run.scratch, kind) for kind in ("safetensors", format)}
    for name, start, end, kind, bar in (
        (f"safetensors → {format}", hub, there, format, at_least(0.8, hashed if kinds else CP)),
        (f"{format} → safetensors", source, back, "safetensors", at_least(0.8, CP)),
    ):
        bars: list[Bar] = [bar, megabytes(MEMORY)]
        rehearsal = small["safetensors" if start == hub else format]
        job = work(holdall_converts, str(start), str(end), kind, fsync, rehearsal)
        lines.append(Contender(name, job, bars, leaves=end))
    title = f"Convert {size / 1e9:g} GB, {format}, {'with' if fsync else 'without'} fsync"
    return Case(title, lines, run.pick(4, 1), CP, CP, size)


def growing(run: Run) -> Iterator[Case]:
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for size in [10**6, 10**7] if run.quick else [10**6, 10**7, 10**8, 10**9, 10**10]:
        with run.memory(3 * size) as folder:
            hub = make(folder / "hub.safetensors", "safetensors", size)
            drop(hub)
            warm([hub])
            targets = {"oinf": folder / "to.oinf", "aero": folder / "to.aero"}
            copied, small = folder / "copied", small_file(run.scratch, "safetensors")
            lines = [
                Contender(CP, work(file_is_copied, str(hub), str(copied), False), leaves=copied, series=CP, x=size)
            ]
            for format, target in targets.items():
                job = work(holdall_converts, str(hub), str(target), format, False, small)
                name = f"holdall: to {format}"
                lines.append(Contender(name, job, [megabytes(MEMORY)], leaves=target, series=name, x=size))
            if 3.5 * size < room:
                name, target = "load_file, numpy.savez", folder / "by-hand.npz"
                job = work(file_is_loaded_and_saved, str(hub), str(target))
                lines.append(Contender(name, job, leaves=target, series=name, x=size))
            title = f"Convert {size / 1e6:,.0f} MB from safetensors"
            rounds = 1 if size > 10**9 else run.pick(3, 1)
            yield Case(title, lines, rounds, CP, CP, size, plots=["convert-size", "convert-memory"])
