"""Zip archives as plans: every entry stored, its data aligned, no clock in it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from holdall.layout import Layout
from holdall.payload import Held, Payload
from holdall.plan import Plan, Results
from holdall.sizes import tuned
from holdall.ziplayout import (
    CENTRAL_FRONT,
    CENTRAL_SIGNATURE,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    LOCAL_FRONT,
    LOCAL_SIGNATURE,
    LOCATOR,
    LOCATOR_SIGNATURE,
    ZIP64,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ZipPlan"]

_PADDING: Final = 0x4246  # "FB", the id under which PyTorch fills up to its alignment
_UTF8: Final = 0x0800
_NEWYEAR: Final = 0x0021  # 1980-01-01, the first day that a zip knows
_FULL: Final = 0xFFFFFFFF
_SMALL: Final = tuned(1 << 16)  # bytes that are summed when planned
_TINY: Final = tuned(512)  # bytes that are no more than the headers before them, and go along with those
_LARGE: Final = tuned(1 << 20)  # bytes that are put by themselves
_TOGETHER: Final = tuned(4096)  # pieces of known bytes that are put at once
_NARROW, _WIDE = 20, 45  # versions of the zip format, without and with numbers of 64 bits


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    parts: tuple[bytes | Payload, ...]
    size: int
    crc: int | None  # where it is known before the bytes have passed


class ZipPlan:
    """Collects the entries of a zip and makes its plan; ``align`` is where the data of each begins.

    >>> archive = ZipPlan(64)
    >>> archive.add("hello.txt", b"hello")
    >>> archive.finish().size
    146
    """

    def __init__(self, align: int) -> None:
        self._align = align
        self._entries: list[_Entry] = []

    def add(self, name: str, *parts: bytes | Payload, pending: bool = False) -> None:
        """Append an entry made of ``parts``, one after the other; ``pending`` says that some bytes are not final."""
        size = 0
        # What is small and in memory is summed now, which spares the sink a late piece.
        crc: int | None = None if pending else 0
        for part in parts:
            if isinstance(part, bytes):
                size += len(part)
                crc = None if crc is None else zlib.crc32(part, crc)
            else:
                size += part.size
                small = crc is not None and isinstance(part, Held) and part.size <= _SMALL
                crc = zlib.crc32(cast(Held, part).data, cast(int, crc)) if small else None
        self._entries.append(_Entry(name.encode(), parts, size, crc))

    def finish(self) -> Plan:
        """The plan, with the directory at its end."""
        plan, offsets = Plan(), list[int]()
        extras = self._extras(offsets)
        fronts, width = self._local_fronts(extras), LOCAL_FRONT.size
        known: list[bytes] = []  # that lies before what comes next, and is put with it
        for number, (entry, extra) in enumerate(zip(self._entries, extras, strict=True)):
            known += fronts[number * width : (number + 1) * width], entry.name, extra
            if entry.crc is None:
                front = b"".join(known[-3:])
                _put(plan, known[:-3])
                known = []
                tap = f"crc {number}"
                plan.late(f"header {number}", len(front), (tap,), _Front(front, tap))
                plan.tap(tap, "crc32", plan.cursor, plan.cursor + entry.size)
            for part in entry.parts:
                if isinstance(part, bytes):
                    known.append(part)
                    if len(part) > _LARGE:
                        _put(plan, known)
                        known = []
                elif isinstance(part, Held) and part.size <= _TINY:
                    known.append(bytes(part.data))
                else:
                    _put(plan, known)
                    plan.stream(part)
                    known = []
            if entry.crc is None or len(known) >= _TOGETHER:
                _put(plan, known)
                known = []
        _put(plan, known)
        self._directory(plan, offsets)
        return plan

    def _extras(self, offsets: list[int]) -> list[bytes]:
        """The extra field of each local header, which brings the data to its place; ``offsets`` gets the headers'."""
        padding = [b""] * 4 + [_field(_PADDING, bytes(size - 4)) for size in range(4, self._align + 4)]
        extras: list[bytes] = []
        at = 0
        for entry in self._entries:
            wide = _field(ZIP64, entry.size.to_bytes(8, "little") * 2) if entry.size >= _FULL else b""
            front = LOCAL_FRONT.size + len(entry.name) + len(wide)
            fill = -(at + front) % self._align
            if 0 < fill < 4:
                fill += self._align
            offsets.append(at)
            extras.append(wide + padding[fill])
            at += front + fill + entry.size
        return extras

    def _local_fronts(self, extras: list[bytes]) -> bytes:
        """The fixed part of every local header; a CRC that is not known yet is 0."""
        table = self._table(LOCAL_FRONT, LOCAL_SIGNATURE)
        table["crc"] = [entry.crc or 0 for entry in self._entries]
        table["version"] = [_WIDE if entry.size >= _FULL else _NARROW for entry in self._entries]
        table["extra_size"] = [len(extra) for extra in extras]
        return table.tobytes()

    def _directory(self, plan: Plan, offsets: list[int]) -> None:
        """The directory and the end record."""
        entries, start = self._entries, plan.cursor
        extras = [_central_extra(entry.size, offset) for entry, offset in zip(entries, offsets, strict=True)]
        table = self._table(CENTRAL_FRONT, CENTRAL_SIGNATURE)
        table["version"] = table["made_by"] = [_WIDE if extra else _NARROW for extra in extras]
        table["extra_size"] = [len(extra) for extra in extras]
        table["offset"] = [min(offset, _FULL) for offset in offsets]
        unknown = {number: f"crc {number}" for number, entry in enumerate(entries) if entry.crc is None}

        def directory(results: Results) -> bytes:
            table["crc"] = [
                results[unknown[number]] if entry.crc is None else entry.crc for number, entry in enumerate(entries)
            ]
            fixed, width = table.tobytes(), CENTRAL_FRONT.size
            fronts = [fixed[at : at + width] for at in range(0, len(fixed), width)]
            rows = zip(fronts, entries, extras, strict=True)
            return b"".join([piece for front, entry, extra in rows for piece in (front, entry.name, extra)])

        size = CENTRAL_FRONT.size * len(entries) + sum(len(entry.name) for entry in entries) + sum(map(len, extras))
        if unknown:
            plan.late("directory", size, tuple(unknown.values()), directory)
        else:
            plan.put(directory({}))
        plan.put(_end(len(entries), start, size))

    def _table(self, layout: Layout, signature: int) -> NDArray[np.void]:
        """A record for each entry, with what local headers and the directory have in common."""
        import numpy as np

        table: NDArray[Any] = np.zeros(len(self._entries), layout.dtype)
        table["signature"], table["flags"], table["date"] = signature, _UTF8, _NEWYEAR
        table["stored"] = table["size"] = [min(entry.size, _FULL) for entry in self._entries]
        table["name_size"] = [len(entry.name) for entry in self._entries]
        return table


def _put(plan: Plan, known: list[bytes]) -> None:
    """Put small pieces together, and a last one that is large by itself: joining would copy it."""
    large = known.pop() if known and len(known[-1]) > _LARGE else b""
    if known:
        plan.put(b"".join(known))
    if large:
        plan.put(large)


@dataclass(frozen=True, slots=True)
class _Front:
    """Makes the local header of an entry once its CRC is known."""

    front: bytes
    tap: str

    def __call__(self, results: Results) -> bytes:
        at, crc = LOCAL_FRONT.offset_of("crc"), int(results[self.tap])
        return self.front[:at] + crc.to_bytes(4, "little") + self.front[at + 4 :]


def _field(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data


def _central_extra(size: int, offset: int) -> bytes:
    """The zip64 field, with those numbers that do not fit 32 bits."""
    numbers = [number for number in (size, size, offset) if number >= _FULL]
    return _field(ZIP64, b"".join(number.to_bytes(8, "little") for number in numbers)) if numbers else b""


def _end(count: int, start: int, size: int) -> bytes:
    wide = b""
    if count >= 0xFFFF or start >= _FULL or size >= _FULL:
        wide = END64.pack(
            signature=END64_SIGNATURE, record_size=END64.size - 12, made_by=_WIDE, version=_WIDE, disk=0,
            first_disk=0, here=count, count=count, size=size, offset=start,
        )  # fmt: skip
        wide += LOCATOR.pack(signature=LOCATOR_SIGNATURE, disk=0, offset=start + size, disks=1)
    few = min(count, 0xFFFF)
    return wide + END.pack(
        signature=END_SIGNATURE, disk=0, first_disk=0, here=few, count=few, size=min(size, _FULL),
        offset=min(start, _FULL), comment_size=0,
    )  # fmt: skip
