"""Reads the sequential layout: tensors one after the other, each with its data, then the vocabulary.

The first bytes do not tell this layout from the other one. A file is sequential when a walk over its tensors and
tokens reaches a valid end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import LIMIT, Check, Rule
from holdall.base.repeats import find_repeats
from holdall.format.embd import rules
from holdall.format.embd.layout import MAGIC, SEQ_TENSOR, SEQ_TENSOR_HEAD, SEQ_TOKEN, SEQUENTIAL
from holdall.format.embd.native import EmbdNative
from holdall.limits import Limits
from holdall.model.dtypes import DTYPES
from holdall.model.model import Model
from holdall.model.table import ColumnTable
from holdall.model.vocab import Vocab
from holdall.source.interleaved import InterleavedTable, walk
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["Walk", "read", "walk_file"]

STRING_BYTES = 1 << 20  # the C++ loader refuses longer strings
LOADER_TOKENS = 100_000  # the C++ loader refuses larger vocabularies

Breach = tuple[Rule, int, str]


@dataclass(slots=True)
class Walk:
    """The tensors and tokens that a walk found, and the first breach if it did not reach a valid end."""

    tensors: InterleavedTable | None = None
    tokens: InterleavedTable | None = None
    end: int = 0
    breach: Breach | None = None


def walk_file(source: Source, limits: Limits) -> Walk:
    """Walk the whole file without reading the data of tensors."""
    found = Walk()
    found.breach = next(_walk_breaches(source, limits, found), None)
    return found


def _walk_breaches(source: Source, limits: Limits, found: Walk) -> Iterator[Breach]:
    """Walk the file, fill ``found``, and yield the breaches in the order of the file."""
    size = source.size
    if size < SEQUENTIAL.size:
        yield rules.SEQ_HEADER, size, f"embd: {size} bytes cannot hold the header of {SEQUENTIAL.size}"
        return
    header = SEQUENTIAL.read(source.read(0, SEQUENTIAL.size), 0)
    if header.magic != MAGIC:
        yield rules.MAGIC, 0, f"embd: the file begins with {header.magic!r}, not {MAGIC!r}"
    if header.version != 1:
        yield rules.SEQ_HEADER, 4, f"embd: version {header.version} is unknown; 1 is known"
    count = header.num_tensors
    if count > limits.tensors:
        yield LIMIT, 8, f"embd: tensors: {count} is above the limit of {limits.tensors}"
    tensors = found.tensors = walk(source, SEQ_TENSOR, SEQUENTIAL.size, size, count)
    yield from _tensor_breaches(source, tensors, count)

    at = tensors.columns.end
    if size - at < 4:
        message = f"embd: the file ends {size - at} bytes after its {count} tensors; the vocabulary count is missing"
        yield rules.SEQ_VOCAB, at, message
    tokens = int.from_bytes(source.read(at, 4), "little")
    if tokens > limits.metadata_entries:
        yield LIMIT, at, f"embd: tokens: {tokens} is above the limit of {limits.metadata_entries}"
    vocab = found.tokens = walk(source, SEQ_TOKEN, at + 4, size, tokens)
    found.end = vocab.columns.end
    yield from _string_breaches(vocab, "token", "token", "token")
    if vocab.columns.failed is not None:
        message = f"embd: token {len(vocab.columns)} of {tokens} runs past the end of the file at {size}"
        yield rules.SEQ_VOCAB, vocab.columns.end, message
    if found.end < size and not count:
        yield rules.SEQ_TRAILING, found.end, f"embd: {size - found.end} bytes follow the vocabulary"


def _tensor_breaches(source: Source, tensors: InterleavedTable, count: int) -> Iterator[Breach]:
    columns = tensors.columns
    ranks = columns["rank"]
    bad = ((ranks < 1) | (ranks > 4)).nonzero()[0]
    if bad.size:
        row = int(bad[0])
        yield rules.SEQ_RANK, int(columns.starts[row]), f"embd: tensor {row} has {ranks[row]} dims; 1 to 4 are allowed"
    yield from _string_breaches(tensors, "name", "name", "tensor")
    names = tensors.texts.get("name", [])
    for row in find_repeats(names):
        yield rules.SEQ_DUPLICATE, int(columns.starts[row]), f"embd: two tensors are called {names[row]!r}"
    if columns.failed is not None:
        yield _explain_failure(source, tensors, count)


def _explain_failure(source: Source, tensors: InterleavedTable, count: int) -> Breach:
    """Why the walk stopped: an impossible number is named rather than the bytes that it makes run past the end."""
    columns = tensors.columns
    what = f"embd: tensor {len(columns)} of {count}"
    if columns.failed == "name" and source.size - columns.end >= 4:
        length = int.from_bytes(source.read(columns.end, 4), "little")
        if length > STRING_BYTES:
            return rules.SEQ_STRING, columns.end, f"{what}: a name of {length} bytes; at most {STRING_BYTES}"
    if columns.failed in ("dims", "data"):
        head = walk(source, SEQ_TENSOR_HEAD, columns.whole, source.size, 1).columns
        rank = int(head["rank"][0])
        if not 1 <= rank <= 4:
            return rules.SEQ_RANK, head.end - 4, f"{what} has {rank} dims; 1 to 4 are allowed"
    return rules.SEQ_TENSOR, columns.end, f"{what}: its {columns.failed} runs past the end of the file at {source.size}"


def _string_breaches(table: InterleavedTable, field: str, label: str, what: str) -> Iterator[Breach]:
    columns = table.columns
    long = (columns[f"{field}#"] > STRING_BYTES).nonzero()[0]
    if long.size:
        row = int(long[0])
        message = f"embd: {what} {row}: a {label} of {columns[f'{field}#'][row]} bytes; at most {STRING_BYTES}"
        yield rules.SEQ_STRING, int(columns.starts[row]), message
    if table.unreadable is not None:
        row = table.unreadable[1]
        yield rules.SEQ_STRING, int(columns[f"{field}@"][row]), f"embd: the {label} of {what} {row} is not UTF-8"


def read(source: Source, walked: Walk, check: Check, ledger: Ledger) -> Model:
    """Read the model that a walk found; the breach of the walk is reported here."""
    if walked.breach is not None:
        rule, at, message = walked.breach
        check.fail(rule, at, message)
    tensors, tokens = walked.tensors, walked.tokens
    assert tensors is not None and tokens is not None and tensors.shapes is not None
    columns, names, size = tensors.columns, tensors.texts.get("name", []), source.size
    ledger.record(SEQUENTIAL, 0)
    ledger.entries(columns, names.__getitem__, payload="data")
    ledger.region("token count", columns.end, 4)
    ledger.entries(tokens.columns, tokens.texts.get("token", []).__getitem__)
    if walked.end < size:
        message = f"embd: {size - walked.end} bytes follow the vocabulary; the C++ loader ignores them"
        check.note(rules.SEQ_IGNORED, walked.end, message)
        ledger.region("ignored", walked.end, size - walked.end)
    counts, _ = tensors.shapes.counts()  # exact: each lies in the file
    shapes = tensors.shapes
    check.rows(
        counts > 0, rules.SEQ_LOADER, columns.starts,
        lambda row: f"embd: tensor {names[row]!r} f32{list(shapes[row])} has a dim of 0, which the C++ loader refuses",
    )  # fmt: skip
    if len(tokens.columns) > LOADER_TOKENS:
        message = f"embd: {len(tokens.columns)} tokens: the C++ loader refuses more than {LOADER_TOKENS}"
        check.note(rules.SEQ_LOADER, columns.end, message)
    sizes = counts * np.uint64(4)
    ledger.payloads("tensor", columns["data@"], sizes, names.__getitem__)
    table = ColumnTable(source, names, [DTYPES["f32"]], np.zeros(len(names), np.uint8), shapes, columns["data@"], sizes)
    vocab = Vocab(tokens.texts["token"]) if len(tokens.columns) else None
    return Model(
        table,
        native=EmbdNative(vocab, "sequential", aligned=False, checksums=False),
        format="embd",
        version=(1,),
        sources=[source],
        ledger=ledger,
    )
