"""Models in several files: NAME-00001-of-0000N.gguf, found from any one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from holdall.errors import FormatError
from holdall.formats.gguf import rules
from holdall.formats.gguf.part import PALETTE, Dims, Part, read_part
from holdall.formats.gguf.values import Scalar
from holdall.model import ColumnTable, ListTable, TensorTable

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["KEYS", "first_part", "joined", "part_name", "read_parts", "sets_in"]

NUMBER, COUNT, TENSORS = KEYS = ("split.no", "split.count", "split.tensors.count")

_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE | re.DOTALL)


def part_name(stem: str, number: int, count: int) -> str:
    """What the part ``number``, from 0 on, is called.

    >>> part_name("llama", 0, 3)
    'llama-00001-of-00003.gguf'
    """
    return f"{stem}-{number + 1:05}-of-{count:05}.gguf"


def sets_in(names: Iterable[str]) -> dict[tuple[str, int], str]:
    """The split models that files of these names are parts of, by stem and count, each with its first part's name.

    >>> sets_in(["a-00002-of-00002.gguf", "a-00001-of-00002.gguf", "b.gguf"])
    {('a', 2): 'a-00001-of-00002.gguf'}
    """
    found: dict[tuple[str, int], str] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            stem, count = match[1], int(match[3])
            first = found.setdefault((stem, count), part_name(stem, 0, count))
            found[stem, count] = name if int(match[2]) == 1 else first  # as it is spelt: the suffix may be .GGUF
    return found


def first_part(folder: Source, check: Check) -> str:
    """The name of the first part of the one split model in a folder."""
    found = list(sets_in(folder.names()).values())
    if len(found) != 1:
        shown = f"the parts of {len(found)} models, which begin with {', '.join(found[:5])}" if found else "no parts"
        check.fail(rules.SPLIT_FOLDER, None, f"gguf: {folder.name} has {shown}", hint="open one file by its own path")
    return found[0]


def read_parts(opened: Part, home: Source, check: Check, ledger: Ledger) -> list[Part]:
    """All parts of the model of which ``opened`` is one, in order; ``opened`` alone when it is all of it.

    ``home`` is what knows the files beside it: the opened file itself, or its folder.
    """
    if COUNT not in opened.located:
        return [opened]
    number, count = _place(opened, check)
    if count <= 1:
        return [opened]
    name = PurePosixPath(opened.source.name.replace("\\", "/").partition("?")[0]).name
    match = _NAME.fullmatch(opened.source.member.rpartition("/")[2] or name)
    if match is None or (int(match[2]), int(match[3])) != (number + 1, count):
        message = f"gguf: {name!r} says that it is part {number + 1} of {count}; its name does not"
        check.fail(rules.SPLIT_NAME, None, message, hint=f"call it {part_name('NAME', number, count)}")
    parts, before = [], len(ledger.members)
    try:
        for place in range(count):
            if place == number:
                parts.append(opened)
                continue
            beside = part_name(match[1], place, count)
            with _file(check, beside):
                parts.append(_read_beside(home, beside, place, count, check, ledger))
        _agree(parts, opened, check)
    except BaseException:
        for part in parts:
            if part is not opened:
                part.source.close()
        del ledger.members[before:]  # nobody can look into them any more
        raise
    return parts


def _place(part: Part, check: Check) -> tuple[int, int]:
    """split.no and split.count of a part that states them."""
    number, count = _integer(part, NUMBER, check), _integer(part, COUNT, check)
    if count < 0 or number < 0 or (count and number >= count):
        check.fail(rules.SPLIT_KEYS, None, f"gguf: split.no is {number} and split.count {count}")
    check.limit("sections", count, None, "gguf: parts")
    return number, count


def _integer(part: Part, key: str, check: Check) -> int:
    value = part.known.get(key)
    if not isinstance(part.located.get(key), Scalar) or not isinstance(value, int) or isinstance(value, bool):
        check.fail(rules.SPLIT_KEYS, None, f"gguf: {key} is not an integer")
    return value


def _read_beside(home: Source, name: str, place: int, count: int, check: Check, ledger: Ledger) -> Part:
    try:
        source = home.sibling(name)
    except (OSError, FormatError) as error:
        message = f"gguf: part {place + 1} of {count} cannot be opened: {error}"
        check.fail(rules.SPLIT_MISSING, None, message)
    try:
        part = read_part(source, check, ledger.member(source))
        stated = _place(part, check) if COUNT in part.located else None
        if stated != (place, count):
            said = "no part of anything" if stated is None else f"part {stated[0] + 1} of {stated[1]}"
            check.fail(
                rules.SPLIT_AGREE, None, f"gguf: {name!r} says that it is {said}, not part {place + 1} of {count}"
            )
    except BaseException:
        source.close()
        raise
    return part


def _agree(parts: Sequence[Part], opened: Part, check: Check) -> None:
    total = sum(part.count for part in parts)
    stated = _integer(opened, TENSORS, check) if TENSORS in opened.located else total
    if stated != total:
        check.fail(rules.SPLIT_TENSORS, None, f"gguf: {TENSORS} is {stated}, the parts have {total} tensors")
    seen: set[str] = set()
    for part in parts:
        names = part.table.names if part.table is not None else []
        if not seen.isdisjoint(names):
            twice = next(name for name in names if name in seen)
            check.fail(rules.SPLIT_DUPLICATE, None, f"gguf: two parts have a tensor called {twice!r}")
        seen.update(names)


def joined(parts: Sequence[Part]) -> TensorTable:
    """The tensors of all parts, as far as their tables can be relied on."""
    found = [(part, part.table) for part in parts if part.table is not None]
    if not found:
        return ListTable([])
    if len(found) == 1:
        part, table = found[0]
        return ColumnTable(part.source, table.names, PALETTE, table.codes, table.shapes, table.starts, table.sizes)
    tables = [table for _, table in found]
    owners = np.repeat(np.arange(len(found)), [len(table.names) for table in tables])
    return ColumnTable(
        found[0][0].source,
        [name for table in tables for name in table.names],
        PALETTE,
        np.concatenate([table.codes for table in tables]),
        Dims.joined([table.shapes for table in tables]),
        np.concatenate([table.starts for table in tables]),
        np.concatenate([table.sizes for table in tables]),
        source_of=lambda row: found[int(owners[row])][0].source,
    )


@contextmanager
def _file(check: Check, name: str) -> Iterator[None]:
    """Findings in this block belong to one file of the set."""
    before, check.file = check.file, name
    try:
        yield
    finally:
        check.file = before
