"""Verifying files, beside the bare hashes over the same bytes."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.case import Case, Contender, Run, at_least, megabytes, seconds
from bench.content import FORMATS, make, path_of, rehearse, small_file
from bench.hashes import hash_file
from bench.measure import warm
from bench.work import Action, Work, work

AERO = {  # the hashes of a file, and how often each byte is hashed
    "shard hashes": (1, {}),
    "shard and page hashes": (2, {"page_hash": True}),
    "shard, page and tensor hashes": (3, {"page_hash": True, "tensor_hash": True}),
}


# -- works ------------------------------------------------------------------------------------------------------------


def holdall_verifies(path: str, level: Any, small: str) -> Action:
    import holdall

    def action(path: str) -> None:
        report = holdall.verify(path, level=level)
        assert report.ok, report.findings

    return rehearse(action, small, path)


def file_is_hashed(path: str, kinds: list[str]) -> Action:
    return lambda: hash_file(path, kinds)


def zip_is_tested(path: str) -> Action:
    """What the standard library does with the checksums of a zip."""
    import zipfile

    def action() -> None:
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None

    return action


def openinfer_parses(path: str) -> Action:
    """The format's own tool: it reads all tensors and prints statistics of their values."""
    from oinf_verify import parse_file

    def action() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            parse_file(path)

    return action


def holdall_describes(path: str, small: str) -> Action:
    """Statistics of all values, which is what that tool prints."""
    import holdall
    from holdall.operations.stats import model_stats

    def action(path: str) -> None:
        with holdall.open(path) as model:
            for _ in model_stats(model):
                pass

    return rehearse(action, small, path)


def holdall_repairs(good: str, bad: str) -> Action:
    """Twenty flipped bytes in a copy, found and put right from the good file."""
    import shutil

    import holdall
    from holdall.operations.repair import repair

    shutil.copyfile(good, bad)
    with holdall.open(good) as model:
        starts = [tensor.offset or 0 for tensor in model.tensors][::15][:20]
    with Path(bad).open("r+b") as file:
        for at in starts:
            file.seek(at + 4096)
            byte = file.read(1)[0]
            file.seek(at + 4096)
            file.write(bytes([byte ^ 1]))

    def action() -> dict[str, int]:
        return {"pages": len(repair(bad, good, fsync=False).patches)}

    return action


# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Formats with checksums, formats without, and mending."""
    size, rounds = run.pick(10**9, 3 * 10**7), run.pick(4, 1)
    with run.folder(9 * size) as folder:
        yield checksums(folder, size, rounds)
        for label, (layers, options) in AERO.items():
            yield aero(folder, label, layers, options, size, rounds)
        yield structure(folder, size, rounds)
        yield values(folder, size, run.pick(3, 1))
        good = make(folder / "good.aero", "aero", size, page_hash=True)
        bad = folder / "bad.aero"
        lines = [Contender("holdall: aero, 4 MiB pages", work(holdall_repairs, str(good), str(bad)), leaves=bad)]
        yield Case(f"Repair {size / 1e6:,.0f} MB with 20 flipped bytes", lines, run.pick(3, 1), size=size)


def verifies(path: Path, level: str) -> Work:
    """Rehearsed with a small file of the same format."""
    format = next(name for name, suffix in FORMATS.items() if path.name.endswith(suffix))
    return work(holdall_verifies, str(path), level, small_file(path.parent.parent, format))


def checksums(folder: Path, size: int, rounds: int) -> Case:
    embd = make(path_of(folder, "one", "embd"), "embd", size)
    zips = {format: make(path_of(folder, "one", format), format, size) for format in ("torch", "npz")}
    warm([embd, *zips.values()])
    twice = "zlib.crc32 twice over reads"
    lines = [
        Contender(twice, work(file_is_hashed, str(embd), ["zlib.crc32", "zlib.crc32"])),
        Contender("isal crc32 once over reads", work(file_is_hashed, str(embd), ["crc32"])),
        Contender("holdall: embd", verifies(embd, "full"), [at_least(4, twice), megabytes(150)]),
    ]
    for format, path in zips.items():
        lines.append(Contender(f"zipfile.testzip: {format}", work(zip_is_tested, str(path))))
        bars = [at_least(1, f"zipfile.testzip: {format}"), megabytes(150)]
        lines.append(Contender(f"holdall: {format}", verifies(path, "full"), bars))
    title = f"Verify {size / 1e6:,.0f} MB with CRC-32, full"
    return Case(title, lines, rounds, twice, "isal crc32 once over reads", size)


def aero(folder: Path, label: str, layers: int, options: dict[str, Any], size: int, rounds: int) -> Case:
    path = make(folder / f"layers-{layers}.aero", "aero", size, **options)
    warm([path])
    hashes = f"BLAKE3 over reads, {layers} times" if layers > 1 else "BLAKE3 over reads"
    lines = [
        Contender(hashes, work(file_is_hashed, str(path), ["blake3"] * layers)),
        Contender("holdall: aero", verifies(path, "full"), [at_least(0.8, hashes), megabytes(200)]),
    ]
    return Case(f"Verify {size / 1e6:,.0f} MB of AERO with {label}", lines, rounds, hashes, hashes, size)


def structure(folder: Path, size: int, rounds: int) -> Case:
    lines = []
    for format in ("oinf", "mcf", "gptrs-checkpoint", "gptrs-archive", "safetensors", "gguf"):
        path = make(path_of(folder, "one", format), format, size)
        lines.append(Contender(f"holdall: {format}", verifies(path, "structure"), [seconds(0.01)]))
    title = f"Verify the structure of {size / 1e6:,.0f} MB, 300 tensors"
    return Case(title, lines, rounds, says="These formats have no checksums; no payload is read.")


def values(folder: Path, size: int, rounds: int) -> Case:
    path = folder / "one.oinf"
    lines = [
        Contender("openinfer-oinf parse_file", work(openinfer_parses, str(path))),
        Contender(
            "holdall statistics",
            work(holdall_describes, str(path), small_file(folder.parent, "oinf")),
            [megabytes(150)],
        ),
        Contender("holdall verify, strict", verifies(path, "strict"), [megabytes(150)]),
    ]
    return Case("Statistics of all values, and every byte that must be zero: oinf", lines, rounds,
                "openinfer-oinf parse_file", size=size)  # fmt: skip
