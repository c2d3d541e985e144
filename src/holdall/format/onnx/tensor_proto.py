"""One initializer: a TensorProto on the wire, and where its values are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from holdall.base.check import Check, figure
from holdall.format.onnx import layout, rules
from holdall.format.onnx.layout import DTYPES
from holdall.format.onnx.values import Numbers
from holdall.format.onnx.wire import BYTES, VARINT, Walker
from holdall.model.dtypes import DTYPES as NAMED
from holdall.model.encodings import Opaque, Stored
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.source.ranges import ByteRange

if TYPE_CHECKING:
    from holdall.format.onnx.external import ExternalFiles
    from holdall.model.dtypes import DType
    from holdall.source import Source

__all__ = ["TensorProto", "make_payload", "read_pair", "read_proto"]

_MOST_CODE = (1 << 31) - 1  # data_type is an int32
_SINGLE = (layout.NAME, layout.RAW, layout.DATA_TYPE, layout.LOCATION)  # fields that come at most once


@dataclass(slots=True)
class TensorProto:
    """The fields of a TensorProto; values are spans of the file."""

    start: int
    stop: int
    name: ByteRange | None = None
    dims: list[int] = field(default_factory=list)
    code: int | None = None
    raw: ByteRange | None = None
    numbers: dict[int, list[ByteRange]] = field(default_factory=dict)
    external: list[ByteRange] = field(default_factory=list)
    location: int | None = None


def read_pair(start: int, stop: int, walker: Walker) -> tuple[str | None, str | None]:
    """Key and value of a StringStringEntryProto."""
    parts: dict[int, str] = {}
    for number, kind, first, last in walker.fields(start, stop):
        if kind == BYTES and number in (1, 2):
            parts[number] = walker.text(first, last, "metadata")
    return parts.get(1), parts.get(2)


def read_proto(start: int, stop: int, walker: Walker, check: Check) -> TensorProto:
    """Read the TensorProto in a span of the file."""
    proto = TensorProto(start, stop)
    seen: set[int] = set()
    for number, kind, first, last in walker.fields(start, stop):
        if number == layout.DIMS:
            if kind == BYTES:
                proto.dims += _read_packed(first, last, walker)
            else:
                proto.dims.append(first)
            check.limit("rank", len(proto.dims), first, "onnx: dimensions of a tensor")
        elif number in layout.NUMBERS:
            spans = proto.numbers.setdefault(number, [])
            low = walker.value_at if kind == VARINT else first
            if spans and spans[-1][1] == low:
                spans[-1] = (spans[-1][0], last)
            elif last > low:
                spans.append((low, last))
        elif number == layout.EXTERNAL and kind == BYTES:
            proto.external.append((first, last))
        elif number in _SINGLE:
            if number in seen or (kind == BYTES) != (number in (layout.NAME, layout.RAW)):
                check.fail(rules.ONCE, start, f"onnx: field {number} of a tensor is there twice, or of a wrong kind")
            seen.add(number)
            match number:
                case layout.NAME:
                    proto.name = (first, last)
                case layout.RAW:
                    proto.raw = (first, last)
                case layout.DATA_TYPE:
                    proto.code = first
                case layout.LOCATION:
                    proto.location = first
    if any(dim >> 63 for dim in proto.dims):
        check.fail(rules.DIMS, start, "onnx: a dim is negative")
    return proto


def _read_packed(start: int, stop: int, walker: Walker) -> list[int]:
    numbers = []
    while start < stop:
        value, start = walker.varint(start, stop)
        numbers.append(value)
    return numbers


def make_payload(
    name: str, proto: TensorProto, source: Source, files: ExternalFiles, walker: Walker, check: Check
) -> tuple[Stored, Payload]:
    """Make the type and the payload of a tensor, whose values are raw, external, or repeated numbers."""
    what = f"onnx: tensor {name!r}"
    if proto.code == layout.STRING:  # not numbers: the whole message is the payload
        texts = sum(number == layout.STRINGS for number, *_ in walker.fields(proto.start, proto.stop))
        if texts != prod(proto.dims):
            message = f"{what}: string{proto.dims} needs {figure(prod(proto.dims))} texts, and {texts} are there"
            check.fail(rules.SIZE, proto.start, message)
        if proto.location == 1:
            check.fail(rules.DATA, proto.start, f"{what}: texts cannot be external data")
        size = proto.stop - proto.start
        return Opaque(layout.TEXTS, size), SourceRange(source, proto.start, size)
    if proto.code not in DTYPES:
        _refuse_code(proto, what, check)
    dtype = NAMED[DTYPES[proto.code]]
    size = dtype.nbytes(proto.dims)
    shown = f"{what}: {dtype}{proto.dims} needs {figure(size)} bytes"
    numbers = {number: spans for number, spans in proto.numbers.items() if spans}
    external = proto.location == 1
    if external + (proto.raw is not None and not external) + len(numbers) > 1 or proto.location not in (None, 0, 1):
        check.fail(rules.DATA, proto.start, f"{what} has values in several places")
    if external:
        pairs = (read_pair(*span, walker) for span in proto.external)
        entries = {key: value for key, value in pairs if key is not None and value is not None}
        return dtype, files.place(entries, size, proto.start, what)
    if proto.raw is not None:
        start, stop = proto.raw
        if stop - start != size:
            check.fail(rules.SIZE, start, f"{shown}, and {stop - start} are there")
        return dtype, SourceRange(source, start, size)
    if not numbers:
        if size:
            check.fail(rules.DATA, proto.start, f"{shown}, and it has no values")
        return dtype, InMemory(b"")
    number, spans = next(iter(numbers.items()))
    if number != _field_of(dtype):
        check.fail(rules.DATA, proto.start, f"{what}: values of {dtype} are not in field {number}")
    width = max(1, dtype.bits // 8)
    if dtype.bits == 6:  # each element is a number here, while those of 4 and 2 bits come packed into bytes
        codes = _make_numbers(what, shown, prod(proto.dims), 1, number, spans, source, check)
        return dtype, Computed(size, partial(_pack_codes, codes, dtype.bits, size), (codes,))
    return dtype, _make_numbers(what, shown, size, width, number, spans, source, check)


def _refuse_code(proto: TensorProto, what: str, check: Check) -> NoReturn:
    """Refuse a tensor by its data_type, which may be one that a newer version of ONNX has."""
    if proto.code is None:
        check.fail(rules.DTYPE, proto.start, f"{what} has no data_type")
    newest = max(DTYPES)
    if newest < proto.code <= _MOST_CODE:
        message = f"{what}: data_type {proto.code} is unknown; holdall knows those up to {newest}"
        check.fail(rules.NEWER, proto.start, message)
    check.fail(rules.DTYPE, proto.start, f"{what}: data_type {proto.code} is not that of any type")


def _make_numbers(
    what: str, shown: str, size: int, width: int, number: int, spans: list[ByteRange], source: Source, check: Check
) -> Payload:
    """Make the numbers of a repeated field as ``size`` bytes, ``width`` for each."""
    total = sum(stop - start for start, stop in spans)
    varints = number in (layout.INT32S, layout.INT64S, layout.UINT64S)
    count = size // width
    if (varints and not count <= total <= 10 * count) or (not varints and total != size):
        check.fail(rules.SIZE, spans[0][0], f"{shown}, and {total} bytes of numbers are there")
    return Numbers(source, tuple(spans), size, width, varints, what).payload()


def _pack_codes(codes: Payload, bits: int, size: int) -> Iterator[memoryview]:
    from holdall.binary import kernels

    out = np.empty(size, np.uint8)
    kernels.pack(np.frombuffer(codes.view(), np.uint8), bits, out)
    yield out.data


def _field_of(dtype: DType) -> int:
    """The field that holds the values of a type if they are not raw."""
    if dtype.name in ("f32", "c64"):
        return layout.FLOATS
    if dtype.name in ("f64", "c128"):
        return layout.DOUBLES
    if dtype.name == "i64":
        return layout.INT64S
    return layout.UINT64S if dtype.name in ("u32", "u64") else layout.INT32S
