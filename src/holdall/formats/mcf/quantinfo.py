"""QuantInfo: how each quantized tensor was made. Decoding needs the domain of int8 and int4 at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdall.errors import ContentError
from holdall.formats.mcf import rules
from holdall.formats.mcf.layout import METHODS, QUANT, QUANTINFO

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.check import Check
    from holdall.ledger import Ledger

__all__ = ["Domain", "QuantRecord", "Records", "encode", "read"]

Domain = Literal["weights", "activations"]

_DOMAINS: tuple[Domain, ...] = ("weights", "activations")
_BY_NAME = {method.name: method for method in METHODS.values()}
_VERSION = 1


@dataclass(frozen=True, slots=True)
class QuantRecord:
    """The record of one quantized tensor: ``tensor.native`` where the file has one.

    ``min_clip`` and ``max_clip`` are the bounds to which the quantizer clipped (float32 values). They are
    kept for reproduction and never needed to decode.

    >>> QuantRecord("k4", "weights", -0.5, 0.5).super_size
    256
    """

    method: str  # "k4"; the tensor's dtype is then "mcf.k4"
    domain: Domain
    min_clip: float
    max_clip: float

    def __post_init__(self) -> None:
        if self.method not in _BY_NAME:
            raise ContentError(f"mcf: there is no method {self.method!r}; the methods are {', '.join(_BY_NAME)}")
        if self.domain not in _DOMAINS:
            raise ContentError(f"mcf: the domain is one of {', '.join(_DOMAINS)}, not {self.domain!r}")
        if self.domain == "activations" and _BY_NAME[self.method].family != "int":
            raise ContentError(f"mcf: {self.method} is for weights only; int8 and int4 also take activations")

    @property
    def block_size(self) -> int:
        """Elements that share a scale; 0 where the whole tensor does."""
        return _BY_NAME[self.method].block

    @property
    def super_size(self) -> int:
        """Elements that share a super-scale; 0 where there is none."""
        return _BY_NAME[self.method].super


class Records:
    """The records of a file, still as columns; ``of(row)`` makes the one of a tensor."""

    def __init__(self, table: NDArray[np.void], place: NDArray[np.int64]) -> None:
        self._table = table
        self._place = place  # tensor -> record; -1: none

    def __len__(self) -> int:
        return len(self._table)

    def of(self, row: int) -> QuantRecord | None:
        """The record of the tensor in ``row``; None where it has none."""
        place = int(self._place[row])
        if place < 0:
            return None
        record = self._table[place]
        return QuantRecord(
            METHODS[int(record["method"])].name,
            _DOMAINS[int(record["domain"])],
            float(record["min_clip"]),
            float(record["max_clip"]),
        )

    def domains(self) -> NDArray[np.int64]:
        """The domain of every tensor: 0, 1, or -1 without a record."""
        import numpy as np

        domains = np.append(self._table["domain"].astype(np.int64), -1)
        found: NDArray[np.int64] = domains[self._place]
        return found


def read(data: bytes, at: int, dtypes: NDArray[Any], check: Check, ledger: Ledger) -> Records:
    """The records in the section ``data``, which starts at byte ``at`` of the file.

    ``dtypes`` is the dtype id of every tensor of the index.
    """
    import numpy as np

    if len(data) < QUANTINFO.size:
        check.fail(
            rules.QUANT_SIZE, at, f"mcf: QuantInfo: {len(data)} bytes cannot hold its {QUANTINFO.size}-byte head"
        )
    head = QUANTINFO.read(data, 0)
    if head.version != _VERSION:
        check.fail(rules.QUANT_VERSION, at, f"mcf: QuantInfo: version {head.version} is unknown; 1 is known")
    room = (len(data) - QUANTINFO.size) // QUANT.size
    if head.record_count > room:
        message = f"mcf: QuantInfo: {head.record_count} records are announced, {room} fit its {len(data)} bytes"
        check.fail(rules.QUANT_SIZE, at + QUANTINFO.offset_of("record_count"), message)
    ledger.record(QUANTINFO, at)
    ledger.table(QUANT, at + QUANTINFO.size, head.record_count)
    table = QUANT.table(data, QUANTINFO.size, head.record_count)

    def locate(row: int) -> int:
        return at + QUANTINFO.size + row * QUANT.size

    method, domain = table["method"], table["domain"]
    known = np.isin(method, list(METHODS))
    check.rows(
        known, rules.QUANT_METHOD, locate, lambda row: f"mcf: quant record {row}: {method[row]} is no quantized type"
    )
    raw = np.frombuffer(data, np.uint8, len(table) * QUANT.size, QUANTINFO.size).reshape(-1, QUANT.size)
    reserved = QUANT.offset_of("reserved")
    zero = (raw[:, reserved : reserved + QUANT.fields["reserved"].size] == 0).all(axis=1)
    check.rows(zero, rules.QUANT_RESERVED, locate, lambda row: f"mcf: quant record {row}: reserved bytes are not 0")
    integer = np.isin(method, [number for number, row in METHODS.items() if row.family == "int"])
    check.rows(
        (domain == 0) | (integer & (domain == 1)), rules.QUANT_DOMAIN, locate,
        lambda row: f"mcf: quant record {row}: {METHODS[int(method[row])].name} has no domain {domain[row]}",
    )  # fmt: skip
    block, super_ = table["block_size"], table["super_size"]
    blocks, supers = np.zeros(256, np.uint16), np.zeros(256, np.uint16)
    for number, wanted in METHODS.items():
        blocks[number], supers[number] = wanted.block, wanted.super
    sized = (block == blocks[method]) & (super_ == supers[method])

    def sizes_message(row: int) -> str:
        wanted = METHODS[int(method[row])]
        found = f"block size {block[row]} and super size {super_[row]}"
        return f"mcf: quant record {row}: {found}; {wanted.name} has {wanted.block} and {wanted.super}"

    check.rows(sized, rules.QUANT_BLOCK, locate, sizes_message)
    index, count = table["tensor_index"].astype(np.int64), len(dtypes)
    check.rows(
        index < count, rules.QUANT_INDEX, locate,
        lambda row: f"mcf: quant record {row}: there is no tensor {index[row]}; the index has {count}",
    )  # fmt: skip
    check.rows(
        dtypes[index] == method, rules.QUANT_MATCH, locate,
        lambda row: f"mcf: quant record {row}: method {method[row]:#x} for tensor {index[row]} "
        f"of dtype {int(dtypes[index[row]]):#x}",
    )  # fmt: skip
    place = np.full(count, -1, np.int64)
    rows = np.arange(len(index))
    place[index[::-1]] = rows[::-1]  # the first record of a tensor
    check.rows(
        place[index] == rows, rules.QUANT_TWICE, locate,
        lambda row: f"mcf: quant record {row}: tensor {index[row]} has a record already",
    )  # fmt: skip
    return Records(table, place)


def encode(records: Sequence[tuple[int, QuantRecord]]) -> bytes:
    """The section for records given with the place of their tensor in the index."""
    parts = [QUANTINFO.pack(version=_VERSION, record_count=len(records))]
    for row, record in records:
        parts.append(
            QUANT.pack(
                tensor_index=row,
                method=_BY_NAME[record.method].id,
                domain=_DOMAINS.index(record.domain),
                block_size=record.block_size,
                super_size=record.super_size,
                reserved=bytes(6),
                min_clip=record.min_clip,
                max_clip=record.max_clip,
            )
        )
    return b"".join(parts)
