"""Plans a toy: the place of every piece, and the digests to take as bytes pass."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from holdall.plugin import (
    ContentError,
    FolderPlan,
    Model,
    Payload,
    Plan,
    Results,
    SourceRange,
    Tensor,
    refuse_repeats,
)
from tests.toy.holds import HOLDS
from tests.toy.layout import (
    DTYPES,
    END_MAGIC,
    ENTRY,
    FOOTER,
    HAS_DATA,
    HEADER,
    IN_SIDE,
    INDEX,
    MAGIC,
    MAIN,
    META,
    PAIR,
    SECTION,
    SIDE,
    SIDE_MAGIC,
)
from tests.toy.read import ToyNative


def plan(model: Model, options: Mapping[str, Any]) -> FolderPlan:
    """side.bin first, because the header of main.toy has its checksum."""
    _refuse(model)
    tensors = list(model.tensors)
    align = int(options["align"])
    out = FolderPlan()
    side = Plan()
    side.put(SIDE_MAGIC)
    beside = _place([t for t in tensors if t.name.startswith("side.")], side, align)
    if beside:
        side.tap("crc", "crc32", 0, None)
        out.files[SIDE] = side
    out.files[MAIN] = _main(model, tensors, beside, align)
    return out


def _main(model: Model, tensors: list[Tensor], beside: dict[str, int], align: int) -> Plan:
    sections = _sections(model)
    # Table sizes do not depend on offsets, so that the places of payloads are known before the table is packed.
    table_size = sum(len(_entry(tensor, 0, 0)) for tensor in tensors)
    data_offset = HEADER.size + table_size + len(sections)
    data_offset += -data_offset % align
    payloads = Plan(cursor=data_offset)
    places = _place([tensor for tensor in tensors if tensor.name not in beside], payloads, align)
    distinct = [piece for piece in payloads.pieces if piece.size]

    out = Plan()
    out.put(MAGIC + struct.pack("<5I", 1, len(tensors), _count(model), table_size, data_offset))
    out.late("seal", 32, ("sealed",), lambda results: results["sealed"])
    digest_at = out.late("digest", 32, ("payloads",), lambda results: results["payloads"])
    if beside:
        out.late("side_crc", 4, (f"{SIDE}/crc",), lambda results: struct.pack("<I", results[f"{SIDE}/crc"]))
    else:
        out.put(bytes(4))
    flags = {True: HAS_DATA | IN_SIDE, False: HAS_DATA}
    out.put(
        b"".join(
            _entry(tensor, flags[tensor.name in beside], {**places, **beside}[tensor.name])
            if tensor.has_data
            else _entry(tensor, 0, 0)
            for tensor in tensors
        )
    )
    out.put(sections)
    out.pieces += payloads.pieces
    out.cursor = max(payloads.cursor, data_offset)

    sums = tuple(f"payload {n}" for n in range(len(distinct)))
    for name, piece in zip(sums, distinct, strict=True):
        out.tap(name, "crc32", piece.offset, piece.offset + piece.size)
    out.tap("payloads", "blake3", data_offset, "index")
    out.tap("sealed", "sha256", digest_at, "index", reread=True)
    out.tap("all", "crc32", 0, "footer")
    out.tail("index", sums, lambda results: _index([results[name] for name in sums]), align=8)
    out.tail("footer", ("index", "all", "seal", "digest"), _footer)
    return out


def _place(tensors: list[Tensor], plan: Plan, align: int) -> dict[str, int]:
    """Put each payload into ``plan`` once, however many names it has; return the offset of each tensor."""
    places: dict[str, int] = {}
    known: dict[object, int] = {}
    for tensor in tensors:
        if tensor.payload is not None:
            same = _identity(tensor.payload)
            if same not in known:
                plan.align(align)
                known[same] = plan.stream(tensor.payload)
            places[tensor.name] = known[same]
    return places


def _identity(payload: Payload) -> object:
    """Return a key that payloads share if they are the same bytes at the same place."""
    return (id(payload.source), payload.offset, payload.size) if isinstance(payload, SourceRange) else id(payload)


def _entry(tensor: Tensor, flags: int, offset: int) -> bytes:
    return ENTRY.pack(
        name=tensor.name.encode(),
        dtype=DTYPES.index(str(tensor.dtype)),
        flags=flags,
        rank=len(tensor.shape),
        dims=tensor.shape,
        offset=offset,
        size=tensor.nbytes,
    )


def _sections(model: Model) -> bytes:
    native = model.native if isinstance(model.native, ToyNative) else ToyNative()
    packed = [SECTION.pack(tag=tag, length=len(body), body=body) for tag, body in native.sections]
    if model.metadata:
        pairs = b"".join(PAIR.pack(key=e.key.encode(), value=e.value.encode()) for e in model.metadata.entries)
        packed.append(SECTION.pack(tag=META, length=len(pairs), body=pairs))
    return b"".join(packed)


def _count(model: Model) -> int:
    native = model.native if isinstance(model.native, ToyNative) else ToyNative()
    return len(native.sections) + bool(model.metadata)


def _index(sums: list[int]) -> bytes:
    """Pack the index. Payloads with equal checksums share a row, so that its size depends on them."""
    distinct = sorted(set(sums))
    rows = [distinct.index(value) for value in sums]
    head = INDEX.pack(n_payloads=len(sums), n_sums=len(distinct))
    return head + struct.pack(f"<{len(distinct) + len(rows)}I", *distinct, *rows)


def _footer(results: Results) -> bytes:
    index = results["index"]
    return FOOTER.pack(index_offset=index.offset, index_size=len(index.data), crc=results["all"], magic=END_MAGIC)


def _refuse(model: Model) -> None:
    refuse_repeats("toy", [tensor.name for tensor in model.tensors])
    for tensor in model.tensors:
        if reason := HOLDS.refuses(tensor):
            raise ContentError(f"toy: tensor {tensor.name[:20]!r}: {reason}")
        if any(dim >= 1 << 32 for dim in tensor.shape):
            raise ContentError(f"toy: tensor {tensor.name!r}: the shape {list(tensor.shape)} does not fit 32 bits")
    for entry in model.metadata.entries:
        if reason := HOLDS.refuses_metadata(entry.key, entry.value):
            raise ContentError(f"toy: metadata {entry.key[:20]!r}: {reason}")
