"""The header of an npy array: Python literals, parsed without evaluating anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdall.base.check import Check
from holdall.binary.columns import product
from holdall.format.npz import rules
from holdall.format.npz.layout import ALIGN, CODE_OF, DTYPES, MAGIC, OPAQUE, PREFIX
from holdall.format.npz.literals import LiteralError, parse_literal
from holdall.model.dtypes import find_dtype
from holdall.model.encodings import Opaque, Stored

__all__ = ["Array", "encode", "find_text", "name_encoding", "parse"]

_PLAIN = re.compile(
    r"\{'descr': '([<>|=][a-zA-Z?]\d*)', 'fortran_order': (False|True), "
    r"'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?)\), ?\} *\n?"
)
_CODE = re.compile(r"[<>|=]?([a-zA-Z])(\d*)(\[[a-zA-Z0-9]{1,8}\])?")
_DEPTH = 16
_UNIT = {"U": 4, "S": 1, "a": 1, "V": 1, "M": 0, "m": 0, "f": 1, "c": 1, "i": 1, "u": 1, "b": 1}
_NUMBERS = "fciub"  # a letter alone means a type of numpy's own choice


@dataclass(frozen=True, slots=True)
class Array:
    """The array that a header describes. Its elements begin ``start`` bytes after the magic."""

    dtype: Stored
    width: int  # bytes of an element
    swap: int  # bytes of each number whose order is to be reversed, 0 for none
    fortran: bool
    shape: tuple[int, ...]
    start: int

    @property
    def is_fortran(self) -> bool:
        """Whether elements are in column-major order, and that differs from row-major order."""
        return self.fortran and sum(size > 1 for size in self.shape) > 1


def find_text(prefix: bytes, at: int, check: Check, what: str) -> tuple[int, int]:
    """Find where the text of the header starts and ends; ``prefix`` is the first 12 bytes (10 for version 1)."""
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


def name_encoding(prefix: bytes) -> str:
    """Name the encoding of the header that follows ``prefix``: UTF-8 since version 3.0."""
    return "utf-8" if prefix[6] >= 3 else "latin-1"


def parse(text: bytes, start: int, at: int, check: Check, what: str, encoding: str = "latin-1") -> Array:
    """Parse the array that ``text`` describes; its elements begin at ``start``. ``at`` is the place of the text."""
    try:
        letters = text.decode(encoding)
    except UnicodeDecodeError as error:
        check.fail(rules.HEADER, at + error.start, f"{what}: the header is not UTF-8, as version 3.0 has it")
    plain = _PLAIN.fullmatch(letters)
    if plain is not None:
        descr: Any = plain[1]
        fortran: Any = plain[2] == "True"
        shape: Any = tuple(int(size) for size in plain[3].split(",") if size.strip())
        if len(shape) == 1 and "," not in plain[3]:
            check.fail(rules.SHAPE, at, f"{what}: the shape ({plain[3]}) is not a tuple")
    else:
        try:
            fields = parse_literal(letters)
        except LiteralError as error:
            before = len(letters[: error.at].encode(encoding))
            check.fail(rules.HEADER, at + before, f"{what}: the header {error}")
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
    return _make_array(descr, fortran, shape, start, at, check, what)


def _make_array(
    descr: Any, fortran: bool, shape: tuple[int, ...], start: int, at: int, check: Check, what: str
) -> Array:  # fmt: skip
    code = descr.lstrip("<>|=") if isinstance(descr, str) else ""
    if code in DTYPES and len(descr) - len(code) < 2:  # the byte order may be left out
        dtype = find_dtype(DTYPES[code])
        width = dtype.bits // 8
        swap = 0 if descr[0] != ">" or width == 1 else width // 2 if dtype.kind == "complex" else width
        return Array(dtype, width, swap, fortran, shape, start)
    width = _element_width(descr, at, check, what)
    # numpy writes the repr into the header, so that it is all that a writer needs to keep the type.
    name = descr if isinstance(descr, str) else repr(descr)
    return Array(Opaque(f"{OPAQUE}{name}", product(shape) * width), width, 0, fortran, shape, start)


def _element_width(descr: Any, at: int, check: Check, what: str, depth: int = 0) -> int:
    """Bytes of one element of a type that holdall copies but does not decode."""
    if isinstance(descr, list) and descr and depth < _DEPTH:
        total = 0
        for field in descr:
            if not isinstance(field, tuple) or not 2 <= len(field) <= 3:
                check.fail(rules.DESCR, at, f"{what}: {field!r} is not a field of a type")
            dims = field[2] if len(field) == 3 else ()
            dims = dims if isinstance(dims, tuple) else (dims,)  # numpy takes a number for a shape of one dimension
            count = product([size if type(size) is int else 0 for size in dims])
            total += count * _element_width(field[1], at, check, what, depth + 1)
        return total
    known = _CODE.fullmatch(descr) if isinstance(descr, str) else None
    if known is not None and known[1] == "O":
        check.fail(rules.OBJECT, at, f"{what}: an array of Python objects is refused: it would have to be unpickled")
    if known is None or known[1] not in _UNIT or len(known[2]) > 9 or (known[1] in _NUMBERS and not known[2]):
        check.fail(rules.DESCR, at, f"{what}: {descr!r} is not a type")
    return 8 if known[1] in "Mm" else _UNIT[known[1]] * int(known[2] or 0)


def encode(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Encode the header of an array of ``dtype``, padded so that the elements begin at a multiple of 64.

    As numpy does it: the first version that has room for the text, and an encoding of its letters.
    """
    if dtype.startswith(OPAQUE):
        descr = dtype.removeprefix(OPAQUE)
        descr = descr if descr.startswith("[") else f"'{descr}'"
    else:
        descr = f"'{'|' if CODE_OF[dtype][1:] == '1' else '<'}{CODE_OF[dtype]}'"
    sizes = f"{shape[0]}," if len(shape) == 1 else ", ".join(map(str, shape))
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': ({sizes}), }}"
    encoding = "utf-8" if any(letter > "\xff" for letter in text) else "latin-1"
    data = text.encode(encoding)
    version = 3 if encoding == "utf-8" else 1 if len(data) + ALIGN < 1 << 16 else 2
    width = 2 if version == 1 else 4
    data += b" " * (-(PREFIX.size + width + len(data) + 1) % ALIGN) + b"\n"
    return PREFIX.pack(magic=MAGIC, major=version, minor=0) + len(data).to_bytes(width, "little") + data
