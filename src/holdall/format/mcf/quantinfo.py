"""QuantInfo, the section that records how each tensor was quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from holdall.format.mcf import rules
from holdall.format.mcf.layout import METHODS, QUANT, QUANTINFO
from holdall.quant import methods
from holdall.quant.record import DOMAINS, QuantRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.base.check import Check
    from holdall.source.ledger import Ledger

__all__ = ["PlainRecord", "Records", "encode", "read", "read_head"]

_DOMAINS = tuple(DOMAINS)
_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """The record of a tensor that is not quantized: it says nothing, and is kept when the file is written again."""

    method: int  # the number of the tensor's dtype, or 0
    domain: int
    block_size: int
    super_size: int
    min_clip: float
    max_clip: float


class Records:
    """The records of a file as columns; ``of(row)`` makes the record of one tensor."""

    def __init__(self, table: NDArray[np.void], place: NDArray[np.int64], plain: NDArray[np.bool_]) -> None:
        self._table = table
        self._place = place  # the row of the record of each tensor; -1 for none
        self._plain = plain  # whether each record is that of a tensor that is not quantized

    def __len__(self) -> int:
        return len(self._table)

    def of(self, row: int) -> QuantRecord | PlainRecord | None:
        """The record of the tensor in ``row``; None if it has none."""
        place = int(self._place[row])
        if place < 0:
            return None
        record = self._table[place]
        if self._plain[place]:
            return PlainRecord(**{field.name: record[field.name].item() for field in fields(PlainRecord)})
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
    """Read the records in the section ``data``, which starts at byte ``at`` of the file.

    ``dtypes`` is the dtype id of every tensor of the index.
    """
    import numpy as np

    table = _read_table(data, at, check, ledger)

    def locate(row: int) -> int:
        return at + QUANTINFO.size + row * QUANT.size

    method, domain = table["method"], table["domain"]
    index, count = table["tensor_index"].astype(np.int64), len(dtypes)
    plain = _find_plain(index, method, dtypes)
    check.rows(
        ~plain, rules.QUANT_PLAIN, locate,
        lambda row: f"mcf: quant record {row}: tensor {index[row]} "
        f"of dtype {int(dtypes[index[row]]):#x} is not quantized",
    )  # fmt: skip
    known = plain | np.isin(method, list(METHODS))
    check.rows(
        known, rules.QUANT_METHOD, locate, lambda row: f"mcf: quant record {row}: {method[row]} is no quantized type"
    )
    raw = np.frombuffer(data, np.uint8, len(table) * QUANT.size, QUANTINFO.size).reshape(-1, QUANT.size)
    reserved = QUANT.offset_of("reserved")
    zero = (raw[:, reserved : reserved + QUANT.fields["reserved"].size] == 0).all(axis=1)
    check.rows(zero, rules.QUANT_RESERVED, locate, lambda row: f"mcf: quant record {row}: reserved bytes are not 0")
    integer = np.isin(method, [number for number, row in METHODS.items() if row.family == "int"])
    check.rows(
        (domain == 0) | ((integer | plain) & (domain == 1)), rules.QUANT_DOMAIN, locate,
        lambda row: f"mcf: quant record {row}: {_name(method[row])} has no domain {domain[row]}",
    )  # fmt: skip
    block, super_ = table["block_size"], table["super_size"]
    blocks, supers = np.zeros(256, np.uint16), np.zeros(256, np.uint16)
    for number, wanted in METHODS.items():
        blocks[number], supers[number] = wanted.block, wanted.super
    sized = plain | (block == blocks[method]) & (super_ == supers[method])

    def sizes_message(row: int) -> str:
        wanted = METHODS[int(method[row])]
        found = f"block size {block[row]} and super size {super_[row]}"
        return f"mcf: quant record {row}: {found}; {wanted.name} has {wanted.block} and {wanted.super}"

    check.rows(sized, rules.QUANT_BLOCK, locate, sizes_message)
    check.rows(
        index < count, rules.QUANT_INDEX, locate,
        lambda row: f"mcf: quant record {row}: there is no tensor {index[row]}; the index has {count}",
    )  # fmt: skip
    check.rows(
        plain | (dtypes[index] == method), rules.QUANT_MATCH, locate,
        lambda row: f"mcf: quant record {row}: method {method[row]:#x} for tensor {index[row]} "
        f"of dtype {int(dtypes[index[row]]):#x}",
    )  # fmt: skip
    place = np.full(count, -1, np.int64)
    rows = np.arange(len(index))
    place[index[::-1]] = rows[::-1]  # the first record of a tensor
    check.rows(
        place[index] == rows, rules.QUANT_REPEATED, locate,
        lambda row: f"mcf: quant record {row}: tensor {index[row]} has a record already",
    )  # fmt: skip
    return Records(table, place, plain)


def _name(method: int) -> str:
    return METHODS[int(method)].name if int(method) in METHODS else f"dtype {int(method):#x}"


def _find_plain(index: NDArray[np.int64], method: NDArray[Any], dtypes: NDArray[Any]) -> NDArray[np.bool_]:
    """Find the records of tensors that are not quantized; they exist if every tensor has a record, and only then.

    The format's document has one record for each tensor, and does not say what it holds for a plain one: the number of
    its dtype or 0 is accepted.
    """
    import numpy as np

    if len(index) != len(dtypes) or not np.array_equal(np.sort(index), np.arange(len(dtypes))):
        return np.zeros(len(index), np.bool_)
    kinds = dtypes[index]
    plain: NDArray[np.bool_] = ~np.isin(kinds, list(METHODS)) & ((method == 0) | (method == kinds))
    return plain


def read_head(data: bytes, at: int, check: Check) -> int:
    """Read how many records the section ``data`` has, and check that they fit."""
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
    count: int = head.record_count
    return count


def _read_table(data: bytes, at: int, check: Check, ledger: Ledger) -> NDArray[np.void]:
    """Read the columns of the records, after the head of the section is checked."""
    count = read_head(data, at, check)
    ledger.record(QUANTINFO, at)
    ledger.table(QUANT, at + QUANTINFO.size, count)
    return QUANT.table(data, QUANTINFO.size, count)


def encode(records: Sequence[tuple[int, QuantRecord | PlainRecord]]) -> bytes:
    """Encode the section that holds ``records``, each given with the row of its tensor in the index."""
    parts = [QUANTINFO.pack(version=_VERSION, record_count=len(records))]
    for row, record in records:
        parts.append(
            QUANT.pack(
                tensor_index=row,
                method=methods.METHODS[record.method].id if isinstance(record, QuantRecord) else record.method,
                domain=DOMAINS[record.domain] if isinstance(record, QuantRecord) else record.domain,
                block_size=record.block_size,
                super_size=record.super_size,
                reserved=bytes(6),
                min_clip=record.min_clip,
                max_clip=record.max_clip,
            )
        )
    return b"".join(parts)
