"""The header of an npy array: Python literals, read without evaluating anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdall.check import Check
from holdall.columns import product
from holdall.dtypes import named
from holdall.encodings import Opaque, Stored
from holdall.formats.npz import rules
from holdall.formats.npz.layout import ALIGN, CODE_OF, DTYPES, MAGIC, PREFIX

__all__ = ["Array", "encode", "parse", "span"]

_PLAIN = re.compile(
    r"\{'descr': '([<>|=][a-zA-Z?]\d*)', 'fortran_order': (False|True), "
    r"'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?)\), ?\} *\n?"
)
_TOKEN = re.compile(
    r"\s*(?:([{}\[\](),:])|(True|False|None)\b|(\d{1,30})L?\b|[ub]?'([^'\\\n]*)'|[ub]?\"([^\"\\\n]*)\")"
)
_CODE = re.compile(r"[<>|=]?([a-zA-Z])(\d*)(\[[a-zA-Z0-9]{1,8}\])?")
_DEPTH = 16
_UNIT = {"U": 4, "S": 1, "a": 1, "V": 1, "M": 0, "m": 0, "f": 1, "c": 1, "i": 1, "u": 1, "b": 1}


@dataclass(frozen=True, slots=True)
class Array:
    """What a header says: the type, the order, and where the elements begin after the start of the file."""

    dtype: Stored
    width: int  # bytes of an element
    swap: int  # width of the numbers to be turned round, 0 for none
    fortran: bool
    shape: tuple[int, ...]
    start: int

    @property
    def turned(self) -> bool:
        """Whether the first axis runs fastest, and it makes a difference."""
        return self.fortran and sum(size > 1 for size in self.shape) > 1


def span(prefix: bytes, at: int, check: Check, what: str) -> tuple[int, int]:
    """Where the text of the header starts and ends, from the first 12 bytes of an array (10 suffice for version 1)."""
    if not prefix.startswith(MAGIC):
        check.fail(rules.MAGIC, at, f"{what}: begins with {prefix[:6]!r}, not with {MAGIC!r}")
    if len(prefix) < PREFIX.size + 2:
        check.fail(rules.SHORT, at, f"{what}: {len(prefix)} bytes cannot hold a header")
    version = (prefix[6], prefix[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        check.fail(rules.VERSION, at + 6, f"{what}: version {version[0]}.{version[1]} is unknown")
    width = 2 if version == (1, 0) else 4
    if len(prefix) < PREFIX.size + width:
        check.fail(rules.SHORT, at, f"{what}: {len(prefix)} bytes cannot hold a header")
    start = PREFIX.size + width
    return start, start + int.from_bytes(prefix[PREFIX.size : start], "little")


def parse(text: bytes, start: int, at: int, check: Check, what: str) -> Array:
    """The array that the header ``text`` describes; ``start`` is where its elements begin, ``at`` where it lies."""
    letters = text.decode("latin-1")
    plain = _PLAIN.fullmatch(letters)
    if plain is not None:
        descr: Any = plain[1]
        fortran: Any = plain[2] == "True"
        shape: Any = tuple(int(size) for size in plain[3].split(",") if size.strip())
        if len(shape) == 1 and "," not in plain[3]:
            check.fail(rules.SHAPE, at, f"{what}: the shape ({plain[3]}) is not a tuple")
    else:
        try:
            fields = _literal(letters)
        except _LiteralError as error:
            check.fail(rules.HEADER, at + error.args[1], f"{what}: the header {error.args[0]}")
        if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
            check.fail(rules.HEADER, at, f"{what}: the header is not a dict of descr, fortran_order and shape")
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    if not isinstance(fortran, bool):
        check.fail(rules.HEADER, at, f"{what}: fortran_order is {fortran!r}")
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        check.fail(rules.SHAPE, at, f"{what}: the shape {shape!r} is not a tuple of sizes")
    check.limit("rank", len(shape), at, f"{what}: dimensions")
    if any(size >= 1 << 63 for size in shape):
        check.fail(rules.SHAPE, at, f"{what}: the shape {shape!r} is beyond 64 bits")
    return _typed(descr, fortran, shape, start, at, check, what)


def _typed(
    descr: Any, fortran: bool, shape: tuple[int, ...], start: int, at: int, check: Check, what: str
) -> Array:  # fmt: skip
    code = descr[1:] if isinstance(descr, str) else ""
    if code in DTYPES and descr[0] in "<>|=":
        dtype = named(DTYPES[code])
        width = dtype.bits // 8
        swap = 0 if descr[0] != ">" or width == 1 else width // 2 if dtype.kind == "complex" else width
        return Array(dtype, width, swap, fortran, shape, start)
    width = _width(descr, at, check, what)
    name = descr if isinstance(descr, str) else "structured"
    return Array(Opaque(f"npy.{name}", product(shape) * width), width, 0, fortran, shape, start)


def _width(descr: Any, at: int, check: Check, what: str, depth: int = 0) -> int:
    """Bytes of one element of a type that holdall carries without decoding it."""
    if isinstance(descr, list) and descr and depth < _DEPTH:
        total = 0
        for field in descr:
            if not isinstance(field, tuple) or not 2 <= len(field) <= 3:
                check.fail(rules.DESCR, at, f"{what}: {field!r} is not a field of a type")
            dims = field[2] if len(field) == 3 and isinstance(field[2], tuple) else ()
            count = product([size if type(size) is int else 0 for size in dims])
            total += count * _width(field[1], at, check, what, depth + 1)
        return total
    known = _CODE.fullmatch(descr) if isinstance(descr, str) else None
    if known is not None and known[1] == "O":
        check.fail(rules.OBJECT, at, f"{what}: an array of Python objects is refused: it would have to be unpickled")
    if known is None or known[1] not in _UNIT or len(known[2]) > 9:
        check.fail(rules.DESCR, at, f"{what}: {descr!r} is not a type")
    return 8 if known[1] in "Mm" else _UNIT[known[1]] * int(known[2] or 0)


class _LiteralError(Exception):
    """What is wrong with the text of a header, and where."""


def _literal(text: str) -> Any:
    """The value of ``text``: dicts, lists, tuples, text, whole numbers, True, False and None; nothing else."""
    tokens: list[tuple[str, Any, int]] = []
    at = 0
    body = text.rstrip()
    for match in _TOKEN.finditer(body):
        if match.start() != at:
            break
        sign, word, number, single, double = match.groups()
        if sign:
            tokens.append((sign, None, at))
        elif number:
            tokens.append(("value", int(number), at))
        elif word:
            tokens.append(("value", {"True": True, "False": False, "None": None}[word], at))
        else:
            tokens.append(("value", single if single is not None else double, at))
        at = match.end()
    if at != len(body):
        raise _LiteralError("holds something that is no literal", at)
    tokens.append(("end", None, at))
    tokens.reverse()
    value = _value(tokens, 0)
    if tokens[-1][0] != "end":
        raise _LiteralError("goes on after its end", tokens[-1][2])
    return value


def _value(tokens: list[tuple[str, Any, int]], depth: int) -> Any:
    kind, value, at = tokens.pop()
    if kind == "value":
        return value
    close = {"(": ")", "[": "]", "{": "}"}.get(kind)
    if close is None or depth > _DEPTH:
        raise _LiteralError("is not made of literals" if close is None else "is nested too deeply", at)
    items: list[Any] = []
    keys: set[str] = set()
    commas = 0
    while tokens[-1][0] != close:
        item = tokens.pop()[1] if tokens[-1][0] == "value" else _value(tokens, depth + 1)
        if kind == "{":
            if tokens[-1][0] != ":" or not isinstance(item, str) or item in keys:
                raise _LiteralError("has a key that is not text, or twice", tokens[-1][2])
            keys.add(item)
            tokens.pop()
            item = (item, _value(tokens, depth + 1))
        items.append(item)
        if tokens[-1][0] == ",":
            commas += 1
            tokens.pop()
        elif tokens[-1][0] != close:
            raise _LiteralError("lacks a comma or its end", tokens[-1][2])
    tokens.pop()
    if kind == "{":
        return dict(items)
    return items if kind == "[" else tuple(items) if commas or not items else items[0]


def encode(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of an array of ``dtype``, padded so that the elements begin at a multiple of 64."""
    code = CODE_OF[dtype]
    order = "|" if code[1:] == "1" else "<"
    sizes = f"{shape[0]}," if len(shape) == 1 else ", ".join(map(str, shape))
    text = f"{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({sizes}), }}"
    version, width = ((1, 0), 2) if len(text) + ALIGN < 1 << 16 else ((2, 0), 4)
    text += " " * (-(PREFIX.size + width + len(text) + 1) % ALIGN) + "\n"
    prefix = PREFIX.pack(magic=MAGIC, major=version[0], minor=version[1])
    return prefix + len(text).to_bytes(width, "little") + text.encode("ascii")
