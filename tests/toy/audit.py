"""The part of verification that needs payload bytes: one pass computes all digests of a file."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

from blake3 import blake3

from holdall.plugin import Check, Model, OnProgress, Proof, Source, Span
from tests.toy import rules
from tests.toy.layout import FOOTER, HEADER, INDEX, SIDE


def audit(model: Model, check: Check, on_progress: OnProgress) -> None:
    """Compare every stored digest with the bytes. Each is reported apart from the others."""
    if not check.wants("full"):
        return
    main, *rest = model.sources
    header = HEADER.read(main.read(0, HEADER.size), 0)
    end = main.size - FOOTER.size
    footer = FOOTER.read(main.read(end, FOOTER.size), 0)
    seal_start = HEADER.offset_of("digest")
    seal, digest, crc = hashlib.sha256(), blake3(), 0
    for start, stop in pairwise((0, seal_start, header.data_offset, footer.index_offset, end)):
        for chunk in main.chunks(start, stop - start):
            crc = zlib.crc32(chunk, crc)
            if seal_start <= start < footer.index_offset:
                seal.update(chunk)
            if header.data_offset <= start < footer.index_offset:
                digest.update(chunk)
            on_progress(len(chunk))
    if seal.digest() != header.seal:
        check.note(rules.SEAL, HEADER.offset_of("seal"), "toy: the seal is not that of the file")
    if digest.digest() != header.digest:
        check.note(rules.DIGEST, HEADER.offset_of("digest"), "toy: the digest is not that of the payloads")
    if crc != footer.crc:
        check.note(rules.CRC, end + FOOTER.offset_of("crc"), f"toy: the file's CRC-32 is {crc:#x}, not {footer.crc:#x}")
    with check.scope():
        _check_side(rest, header.side_crc, check, on_progress)
    with check.scope():
        _check_index(main, footer.index_offset, footer.index_size, model, check)


def _check_side(rest: list[Source], expected: int, check: Check, on_progress: OnProgress) -> None:
    crc = 0
    for side in rest:
        for chunk in side.chunks(0, side.size):
            crc = zlib.crc32(chunk, crc)
            on_progress(len(chunk))
    if crc != expected:
        message = f"toy: {SIDE} has the CRC-32 {crc:#x}, not {expected:#x}"
        check.note(rules.SIDE_CRC, HEADER.offset_of("side_crc"), message)


def _check_index(main: Source, at: int, size: int, model: Model, check: Check) -> None:
    """The index is read here and not when opening: only verification looks at it."""
    if size < INDEX.size:
        check.fail(rules.INDEX, at, f"toy: {size} bytes cannot hold an index")
    data = main.read(at, size)
    head = INDEX.read(data, 0)
    if size != INDEX.size + 4 * (head.n_payloads + head.n_sums):
        check.fail(rules.INDEX, at, f"toy: {head.n_payloads} payloads and {head.n_sums} sums do not make {size} bytes")
    words = struct.unpack_from(f"<{head.n_sums + head.n_payloads}I", data, INDEX.size)
    sums, rows = words[: head.n_sums], words[head.n_sums :]
    payloads = {t.offset: t.payload for t in model.tensors if t.nbytes and t.payload.source is main}
    if len(payloads) != len(rows) or any(row >= len(sums) for row in rows):
        check.fail(rules.INDEX, at, f"toy: the index has {len(rows)} payloads, the table {len(payloads)}")
    for row, (offset, payload) in zip(rows, sorted(payloads.items()), strict=True):
        crc = 0
        for chunk in payload.chunks():
            crc = zlib.crc32(chunk, crc)
        if crc != sums[row]:
            check.note(rules.INDEX, offset, f"toy: the payload at {offset} has the CRC-32 {crc:#x}, not {sums[row]:#x}")


def find_proofs(model: Model, spans: Iterable[Span]) -> Iterator[Proof]:
    """The hash that covers each span: conversion compares it while it copies the bytes."""
    main = model.sources[0]
    header = HEADER.read(main.read(0, HEADER.size), 0)
    footer = FOOTER.read(main.read(main.size - FOOTER.size, FOOTER.size), 0)
    for source, _, _ in spans:
        if source is main:
            start, stop = header.data_offset, footer.index_offset
            yield Proof(main, start, stop, "blake3", header.digest, rules.DIGEST.id, "toy: the payloads", wide=True)
        else:
            yield Proof(source, 0, source.size, "crc32", header.side_crc, rules.SIDE_CRC.id, f"toy: {SIDE}", wide=True)
