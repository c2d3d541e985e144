"""Every command on a file of very many small tensors, in each format: no more than seconds, and bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.case import Case, Contender, Run, megabytes, seconds
from bench.content import FORMATS, make_many, name_of, path_of
from bench.work import Command

SECONDS, MEGABYTES = 5, 400
OTHER = "diff with safetensors"
NEW = "{new}"  # in the words of a command: the file that it writes
READING = {
    "info": ["info", "{path}"],
    "info --duplicates": ["info", "--duplicates", "{path}"],
    "ls": ["ls", "{path}"],
    "ls --long": ["ls", "--long", "{path}"],
    "ls --tree": ["ls", "--tree", "{path}"],
    "ls --sort size": ["ls", "--sort", "size", "{path}"],
    "ls --json": ["ls", "--json", "{path}"],
    "ls --stats": ["ls", "--stats", "{path}"],
    "ls --stats --json": ["ls", "--stats", "--json", "{path}"],
    "verify": ["verify", "{path}"],
    "verify --level strict": ["verify", "--level", "strict", "{path}"],
    "verify --stats": ["verify", "--stats", "{path}"],
    "verify --stats --json": ["verify", "--stats", "--json", "{path}"],
    "explain": ["explain", "{path}"],
    "explain --json": ["explain", "--json", "{path}"],
    "explain --at": ["explain", "--at", "0x1000", "{path}"],
    "assets": ["assets", "{path}"],
    "extract": ["extract", "{path}", name_of(1), "-o", NEW],
    "diff with itself": ["diff", "{path}", "{path}"],
    OTHER: ["diff", "{path}", "{hub}"],
    "diff --trace": ["diff", "--trace", "{path}", "{path}"],
    "edit --dry-run": ["edit", "{path}", "--rename", f"{name_of(1)}=renamed", "--dry-run"],
}
WRITING = {
    "convert to safetensors": ["convert", "{path}", NEW, "--format", "safetensors", "--no-fsync"],
    "convert from safetensors": ["convert", "{hub}", NEW, "--format", "{format}", "--no-fsync"],
    "convert --cast bf16": ["convert", "{path}", NEW, "--format", "safetensors", "--cast", "bf16", "--no-fsync"],
    "convert --carry": ["convert", "{path}", NEW, "--format", "oinf", "--carry", "--no-fsync"],
}
FOLDERS = ("aeroset", "hf")  # whose files are explained one by one, and which are not edited in place
UNLIKE = ("gptrs-checkpoint", "hf")  # which have metadata of their own, so that no other file is equal


def cases(run: Run) -> Iterator[Case]:
    """A case for each format, one turn a command: a minute for each."""
    count = run.pick(200_000, 300)
    with run.memory(10**9) as folder:
        for format in FORMATS:
            make_many(folder, count, list({format, "safetensors"}))
            yield Case(f"Every command on {count:,} tensors, {format}", list(_contenders(folder, count, format)), 1)


def _contenders(folder: Path, count: int, format: str) -> Iterator[Contender]:
    facts = {
        "path": str(path_of(folder, f"many-{count}", format)),
        "hub": str(path_of(folder, f"many-{count}", "safetensors")),
        "new": str(folder / "new"),
        "format": format,
    }
    for name, words in (READING | WRITING).items():
        if (name.startswith(("explain", "edit")) and format in FOLDERS) or (name == OTHER and format in UNLIKE):
            continue
        command = Command((sys.executable, "-m", "holdall", *(word.format(**facts) for word in words)))
        leaves = folder / "new" if NEW in words else None
        yield Contender(name, command, [seconds(SECONDS), megabytes(MEGABYTES)], leaves=leaves, least=1)
