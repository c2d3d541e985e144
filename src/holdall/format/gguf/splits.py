"""Models in several files: NAME-00001-of-0000N.gguf, found from any one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.repeats import find_repeat
from holdall.errors import FormatError
from holdall.format.gguf import rules
from holdall.format.gguf.gguf_file import GgufFile, read_file
from holdall.format.gguf.tensor_table import PALETTE, Dims, Table
from holdall.format.gguf.values import Scalar
from holdall.model.table import ColumnTable, ListTable, TensorTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.base.check import Check
    from holdall.model.encodings import Stored
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["KEYS", "first_part", "join_tables", "part_name", "read_all_parts", "sets_in"]

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
            # The name as the folder has it: the suffix may be .GGUF.
            found[stem, count] = name if int(match[2]) == 1 else first
    return found


def first_part(folder: Source, check: Check) -> str:
    """The name of the first part of the one split model in a folder."""
    found = list(sets_in(folder.names()).values())
    if len(found) != 1:
        shown = f"the parts of {len(found)} models, which begin with {', '.join(found[:5])}" if found else "no parts"
        check.fail(rules.SPLIT_FOLDER, None, f"gguf: {folder.name} has {shown}", hint="open one file by its own path")
    return found[0]


def read_all_parts(opened: GgufFile, home: Source, check: Check, ledger: Ledger) -> list[GgufFile]:
    """Read all parts of the model of which ``opened`` is one, in order; ``opened`` alone if the model is not split.

    The other parts are opened as siblings of ``home``, which is the opened file or its folder.
    """
    if COUNT not in opened.located:
        return [opened]
    number, count = _read_position(opened, check)
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
            with check.inside(beside):
                parts.append(_read_beside(home, beside, place, count, check, ledger))
        _check_agreement(parts, opened, check)
    except BaseException:
        for part in parts:
            if part is not opened:
                part.source.close()
        del ledger.members[before:]  # their sources are closed
        raise
    return parts


def _read_position(part: GgufFile, check: Check) -> tuple[int, int]:
    """split.no and split.count, of a file that has them."""
    number, count = _get_integer(part, NUMBER, check), _get_integer(part, COUNT, check)
    if count < 0 or number < 0 or (count and number >= count):
        check.fail(rules.SPLIT_KEYS, None, f"gguf: split.no is {number} and split.count {count}")
    check.limit("sections", count, None, "gguf: parts")
    return number, count


def _get_integer(part: GgufFile, key: str, check: Check) -> int:
    value = part.known.get(key)
    if not isinstance(part.located.get(key), Scalar) or not isinstance(value, int) or isinstance(value, bool):
        check.fail(rules.SPLIT_KEYS, None, f"gguf: {key} is not an integer")
    return value


def _read_beside(home: Source, name: str, place: int, count: int, check: Check, ledger: Ledger) -> GgufFile:
    try:
        source = home.sibling(name)
    except (OSError, FormatError) as error:
        message = f"gguf: part {place + 1} of {count} cannot be opened: {error}"
        check.fail(rules.SPLIT_MISSING, None, message)
    try:
        part = read_file(source, check, ledger.member(source))
        stated = _read_position(part, check) if COUNT in part.located else None
        if stated != (place, count):
            said = "no part of anything" if stated is None else f"part {stated[0] + 1} of {stated[1]}"
            check.fail(
                rules.SPLIT_AGREE, None, f"gguf: {name!r} says that it is {said}, not part {place + 1} of {count}"
            )
    except BaseException:
        source.close()
        raise
    return part


def _check_agreement(parts: Sequence[GgufFile], opened: GgufFile, check: Check) -> None:
    """Check that the parts have as many tensors as ``opened`` states, and no two of one name."""
    total = sum(part.count for part in parts)
    stated = _get_integer(opened, TENSORS, check) if TENSORS in opened.located else total
    if stated != total:
        check.fail(rules.SPLIT_TENSORS, None, f"gguf: {TENSORS} is {stated}, the parts have {total} tensors")
    names = [name for part in parts if part.table is not None for name in part.table.names]
    repeat = find_repeat(names)
    if repeat is not None:
        check.fail(rules.SPLIT_DUPLICATE, None, f"gguf: two parts have a tensor called {names[repeat]!r}")


def join_tables(parts: Sequence[GgufFile]) -> TensorTable:
    """Return the tensors of all parts; a part whose table is broken has none."""
    found = [(part, part.table) for part in parts if part.table is not None]
    if not found:
        return ListTable([])
    if len(found) == 1:
        part, table = found[0]
        return ColumnTable(
            part.source, table.names, table.palette, table.codes, table.shapes, table.starts, table.sizes
        )
    tables = [table for _, table in found]
    owners = np.repeat(np.arange(len(found)), [len(table.names) for table in tables])
    palette, codes = _join_palettes(tables)
    return ColumnTable(
        found[0][0].source,
        [name for table in tables for name in table.names],
        palette,
        codes,
        Dims.join([table.shapes for table in tables]),
        np.concatenate([table.starts for table in tables]),
        np.concatenate([table.sizes for table in tables]),
        source_of=lambda row: found[int(owners[row])][0].source,
    )


def _join_palettes(tables: Sequence[Table]) -> tuple[list[Stored], NDArray[np.unsignedinteger[Any]]]:
    """Join the types of several tables: those that all have, then the opaque ones of each."""
    palette, codes = list(PALETTE), []
    for table in tables:
        added = len(palette) - len(PALETTE)
        codes.append(np.where(table.codes < len(PALETTE), table.codes, table.codes + table.codes.dtype.type(added)))
        palette += table.palette[len(PALETTE) :]
    return palette, np.concatenate(codes)
