"""Zip archives as plans: every entry stored, its data aligned, no clock in it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, cast

from holdall.payload import Held, Payload
from holdall.plan import Plan, Results
from holdall.ziplayout import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    LOCAL,
    LOCAL_SIGNATURE,
    LOCATOR,
    LOCATOR_SIGNATURE,
    ZIP64,
)

__all__ = ["ZipPlan"]

_PADDING: Final = 0x4246  # "FB", the id under which PyTorch fills up to its alignment
_UTF8: Final = 0x0800
_NEWYEAR: Final = 0x0021  # 1980-01-01, the first day that a zip knows
_FULL: Final = 0xFFFFFFFF
_SMALL: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    offset: int
    size: int
    crc: int | str  # the number, or the tap that finds it


class ZipPlan:
    """Builds the plan of a zip, entry by entry; ``align`` is where the data of each begins.

    >>> archive = ZipPlan(64)
    >>> archive.add("hello.txt", b"hello")
    >>> archive.finish().size
    146
    """

    def __init__(self, align: int) -> None:
        self._align = align
        self._plan = Plan()
        self._entries: list[_Entry] = []

    def add(self, name: str, *parts: bytes | Payload) -> None:
        """Append an entry made of ``parts``, one after the other."""
        plan, stored = self._plan, name.encode()
        size = sum(len(part) if isinstance(part, bytes) else part.size for part in parts)
        offset = plan.cursor
        wide = _field(ZIP64, size.to_bytes(8, "little") * 2) if size >= _FULL else b""
        front = LOCAL.min_size + len(stored) + len(wide)
        fill = -(offset + front) % self._align
        if fill:
            fill += self._align if fill < 4 else 0
            wide += _field(_PADDING, bytes(fill - 4))
        number = len(self._entries)
        crc: int | str = f"crc {number}"
        if all(isinstance(part, bytes) or (isinstance(part, Held) and part.size <= _SMALL) for part in parts):
            crc = 0  # what is small and in memory is summed now, which spares the sink a late piece
            for part in parts:
                crc = zlib.crc32(part.data if isinstance(part, Held) else cast(bytes, part), crc)
        if isinstance(crc, int):
            plan.put(_local(stored, size, wide, crc))
        else:
            tap = crc
            plan.late(
                f"header {number}", len(_local(stored, size, wide, 0)), (tap,), _Front(stored, size, wide, tap)
            )  # fmt: skip
        start = plan.cursor
        for part in parts:
            if isinstance(part, bytes):
                plan.put(part)
            elif part.size:
                plan.stream(part)
        if isinstance(crc, str):
            plan.tap(crc, "crc32", start, plan.cursor)
        self._entries.append(_Entry(stored, offset, size, crc))

    def finish(self) -> Plan:
        """The plan, with the directory at its end."""
        plan, entries = self._plan, self._entries
        start = plan.cursor
        needs = tuple(entry.crc for entry in entries if isinstance(entry.crc, str))

        def directory(results: Results) -> bytes:
            return b"".join(_central(e, results[e.crc] if isinstance(e.crc, str) else e.crc) for e in entries)

        size = sum(len(_central(entry, 0)) for entry in entries)
        if needs:
            plan.late("directory", size, needs, directory)
        else:
            plan.put(directory({}))
        plan.put(_end(len(entries), start, size))
        return plan


@dataclass(frozen=True, slots=True)
class _Front:
    """Makes the header of an entry once its CRC is known."""

    name: bytes
    size: int
    extra: bytes
    tap: str

    def __call__(self, results: Results) -> bytes:
        return _local(self.name, self.size, self.extra, results[self.tap])


def _field(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data


def _local(name: bytes, size: int, extra: bytes, crc: int) -> bytes:
    narrow = min(size, _FULL)
    return LOCAL.pack(
        signature=LOCAL_SIGNATURE, version=45 if size >= _FULL else 20, flags=_UTF8, method=0, time=0, date=_NEWYEAR,
        crc=crc, stored=narrow, size=narrow, name_size=len(name), extra_size=len(extra), name=name, extra=extra,
    )  # fmt: skip


def _central(entry: _Entry, crc: int) -> bytes:
    numbers = [number.to_bytes(8, "little") for number in (entry.size, entry.size) if number >= _FULL]
    numbers += [entry.offset.to_bytes(8, "little")] if entry.offset >= _FULL else []
    extra = _field(ZIP64, b"".join(numbers)) if numbers else b""
    version, narrow = 45 if numbers else 20, min(entry.size, _FULL)
    return CENTRAL.pack(
        signature=CENTRAL_SIGNATURE, made_by=version, version=version, flags=_UTF8, method=0, time=0, date=_NEWYEAR,
        crc=crc, stored=narrow, size=narrow, name_size=len(entry.name), extra_size=len(extra), comment_size=0, disk=0,
        internal=0, external=0, offset=min(entry.offset, _FULL), name=entry.name, extra=extra, comment=b"",
    )  # fmt: skip


def _end(count: int, start: int, size: int) -> bytes:
    wide = b""
    if count >= 0xFFFF or start >= _FULL or size >= _FULL:
        wide = END64.pack(
            signature=END64_SIGNATURE, record_size=END64.size - 12, made_by=45, version=45, disk=0, first_disk=0,
            here=count, count=count, size=size, offset=start,
        )  # fmt: skip
        wide += LOCATOR.pack(signature=LOCATOR_SIGNATURE, disk=0, offset=start + size, disks=1)
    few = min(count, 0xFFFF)
    return wide + END.pack(
        signature=END_SIGNATURE, disk=0, first_disk=0, here=few, count=few, size=min(size, _FULL),
        offset=min(start, _FULL), comment_size=0,
    )  # fmt: skip
