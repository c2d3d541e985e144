"""TIDX: the index of tensors, read from MessagePack into columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check, Rule
from holdall.base.expansion import Expansion
from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.columns import Shapes
from holdall.binary.documents import msgpack
from holdall.binary.documents.msgpack import KINDS, DocumentError, Rows, TooManyValues
from holdall.binary.kernels import msgpack_tokens as tokens
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunk
from holdall.format.aero.index_values import check_values
from holdall.format.aero.layout import DTYPES, MAX_NAME, MAX_RANK, PACKED
from holdall.format.aero.stored_types import choose_q8_1, find_ggml_type, unit_of
from holdall.model.dtypes import DTYPES as NEUTRAL
from holdall.model.dtypes import DType
from holdall.model.encodings import Opaque, Stored
from holdall.model.ggml import BLOCKS, HALF_Q8_1

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KEYS", "LEAST_ENTRY", "Index", "cost_of_index", "read_index"]

KEYS = ("name", "dtype", "shape", "shard_id", "data_off", "data_len", "flags", "quant_id", "quant_params", "hash_b3")
LEAST_ENTRY = 1 + sum(1 + len(key) + 1 for key in KEYS[:6]) + 1  # bytes of the smallest entry: six keys, a name of one
_BLOCK = buffer_size(1 << 15)  # entries read at a time
_ROW_BYTES = 160  # of the columns, of a name as Python text, and of looking for names that come twice
_TYPE_BYTES = 1200  # of an entry of the palette of types, and for the time that it takes
_DIM_BYTES = 24  # of a dimension, while the column of them grows
_VALUED = 6  # times the bytes of entries that are decoded once more, for the time that it takes
_NIL = b"\xc0"
_HEX = np.zeros(256, np.bool_)
_HEX[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = True

_EXPECTED = {
    "name": (tokens.STR,),
    "dtype": (tokens.UINT,),
    "shape": (tokens.ARRAY,),
    "shard_id": (tokens.UINT,),
    "data_off": (tokens.UINT,),
    "data_len": (tokens.UINT,),
    "flags": (tokens.UINT, tokens.ABSENT),
    "quant_id": (tokens.UINT, tokens.NIL, tokens.ABSENT),
    "quant_params": (tokens.MAP, tokens.NIL, tokens.ABSENT),
    "hash_b3": (tokens.STR, tokens.NIL, tokens.ABSENT),
}


class Index:
    """The tensors of a file as columns. ``sizes`` are the bytes that dtype and shape need, ``stored`` is data_len.

    Entries are read a block at a time, and only what every tensor needs is kept of them; the rest is decoded again
    when it is asked for, so that an index takes little more memory than its own bytes.
    """

    def __init__(self, data: bytes, chunk: Chunk, check: Check, expansion: Expansion) -> None:
        self.data = data
        self._chunk = chunk
        self._check = check
        self._expansion = expansion
        at, end, count = self._find_entries()
        self.names: list[str] = []
        self.dtypes: list[Stored] = []
        self._palette: dict[tuple[str, int], int] = {}  # the place in dtypes of each type, opaque ones by their size
        self._dims = bytearray()
        self._starts, self._hash_at = np.empty(count, np.uint32), np.zeros(count, np.uint32)
        self.codes, self._ranks = np.empty(count, np.int32), np.empty(count, np.uint8)
        self.shards, self.offsets, self.stored, self.sizes = (np.empty(count, np.uint64) for _ in range(4))
        self.known, self.hashed, self._valued = (np.empty(count, np.bool_) for _ in range(3))
        self._read_blocks(at, end)
        self._check_unique()
        if (self.sizes == self.stored).all():
            self.sizes = self.stored
        ranks = self._ranks.astype(np.uint64)
        self.shapes = Shapes(self._dims, (np.cumsum(ranks, dtype=np.uint64) - ranks) * np.uint64(8), self._ranks)
        if check.collecting:
            check_values(self, check.limits.nesting)
        self._check = Check(limits=check.limits)  # what is decoded later fails by itself, outside of any report

    def __len__(self) -> int:
        return len(self._starts)

    def _fail(self, rule: Rule, at: int, path: str, message: str) -> NoReturn:
        """Fail at byte ``at`` of the uncompressed TIDX, which is a place in the file only if TIDX is stored plain."""
        chunk = self._chunk
        place = chunk.offset if chunk.compressed else chunk.offset + at
        self._check.fail(rule, place, f"aero: TIDX: {message}", inner=f"byte {at} of TIDX, {path}")

    def _find_entries(self) -> tuple[int, int, int]:
        """Find where the entries start and end, and how many there are."""
        data, check, chunk = self.data, self._check, self._chunk
        try:
            root = msgpack.rows(data, 0, len(data), 1, ("tensors",), depth=check.limits.nesting)
        except DocumentError as error:
            self._fail(rules.MSGPACK, error.offset, error.path, error.message)
        if root.stop != len(data):
            self._fail(rules.MSGPACK, root.stop, "$", f"{len(data) - root.stop} bytes follow the map")
        kind, at = int(root.kind("tensors")[0]), int(root.at("tensors")[0])
        if kind == tokens.ABSENT:
            self._fail(rules.MSGPACK, 0, "$", "there is no key 'tensors'")
        if kind != tokens.ARRAY:
            self._fail(rules.MSGPACK, at, "$.tensors", f"'tensors' is {KINDS[kind]}, not an array")
        count, end = int(root.value("tensors")[0]), int(root.end("tensors")[0])
        check.limit("tensors", count, chunk.offset, "aero: tensors")
        self._root = at, end  # the array of entries; what is before and after it is the root map
        at += 1 if count < 16 and data[at] >> 4 == 9 else 3 if data[at] == 0xDC else 5
        room = min(count, (end - at) // LEAST_ENTRY + 1)  # one more than can fit: reading it names what is missing
        if chunk.compressed:
            self._add_cost(chunk.fourcc, cost_of_index(chunk.ulen, room))
        return at, end, room

    def _add_cost(self, part: str, cost: int) -> None:
        self._expansion.add(part, cost, self._check, self._chunk.offset, "aero: TIDX")

    def _read_blocks(self, at: int, end: int) -> None:
        """Read all entries into the columns."""
        depth, dims, valued = self._check.limits.nesting - 2, 0, 0
        for first in range(0, len(self), _BLOCK):
            count = min(_BLOCK, len(self) - first)
            try:
                rows = msgpack.rows(self.data, at, end, count, KEYS, depth=depth, path="$.tensors", first=first)
            except DocumentError as error:
                self._fail(rules.MSGPACK, error.offset, error.path, error.message)
            block = slice(first, first + count)
            self._starts[block] = rows.starts
            self._check_types(rows, first)
            self._read_names(rows, first)
            self.shards[block], self.offsets[block] = rows.value("shard_id"), rows.value("data_off")
            self.stored[block] = rows.value("data_len")
            self._valued[block] = (rows.kind("quant_params") == tokens.MAP) | (rows.kind("quant_id") == tokens.UINT)
            self._valued[block] |= (rows.value("flags") * (rows.kind("flags") == tokens.UINT) != 0) | (rows.extras != 0)
            if self._chunk.compressed:
                dims += int(rows.value("shape").sum())
                valued += int((np.append(rows.starts[1:], rows.stop) - rows.starts)[self._valued[block]].sum())
                self._add_cost("values of TIDX", cost_of_index(0, 0, dims=dims, valued=valued))
            shapes = self._read_shapes(rows, first)
            self._find_dtypes(rows, shapes, block)
            self._check_sizes(shapes, block)
            self._read_hashes(rows, first)
            if self._chunk.compressed:
                self._add_cost("types of TIDX", cost_of_index(0, 0, types=len(self.dtypes)))
            at = rows.stop
        self._stop = at

    def _check_types(self, rows: Rows, first: int) -> None:
        for key, expected in _EXPECTED.items():
            kinds = rows.kind(key)
            good = kinds == expected[0]
            for kind in expected[1:]:
                good |= kinds == kind
            if good.all():
                continue
            row = int((~good).argmax())
            found, number = int(kinds[row]), first + row
            if found == tokens.ABSENT:
                message = f"entry {number} has no {key!r}"
                self._fail(rules.FIELD, int(rows.starts[row]), f"$.tensors[{number}]", message)
            at = int(rows.at(key)[row])
            expects = KINDS[expected[0]]
            message = f"{key!r} of entry {number} is {KINDS[found]}, not {expects}"
            self._fail(rules.FIELD, at, f"$.tensors[{number}].{key}", message)

    def where(self, row: int) -> int:
        """The place of an entry in the file; where TIDX is compressed, the place of TIDX."""
        return self._chunk.offset + (0 if self._chunk.compressed else int(self._starts[row]))

    def what(self, row: int) -> str:
        """The subject of messages about an entry."""
        return f"aero: tensor {self.names[row]!r}"

    def type_name(self, row: int) -> str:
        """The name of the type of a tensor."""
        return str(self.dtypes[int(self.codes[row])])

    def describe(self, row: int) -> str:
        """Name, type, shape and place of a tensor, for messages; of a row beyond the last, that there is none."""
        if row >= len(self):
            return "missing"
        place = f"{self.stored[row]} bytes at {self.offsets[row]} of shard {self.shards[row]}"
        return f"{self.names[row]!r} {self.type_name(row)}{list(self.shapes[row])}, {place}"

    def find_difference(self, other: Index) -> int | None:
        """Find the first row that is described otherwise in ``other``; None if there is none."""
        if self._columns() == other._columns():
            return None
        rows = range(max(len(self), len(other)))
        return next((row for row in rows if self.describe(row) != other.describe(row)), None)

    def _columns(self) -> tuple[object, ...]:
        """All that :meth:`describe` tells of the tensors."""
        types = [str(dtype) for dtype in self.dtypes]
        columns = (self.shards, self.offsets, self.stored, self._ranks)
        named = [types[code] for code in self.codes.tolist()]
        return self.names, self._dims, named, *(column.tobytes() for column in columns)

    def _read_names(self, rows: Rows, first: int) -> None:
        starts, lengths = rows.at("name"), rows.value("name")
        bad = ((lengths == 0) | (lengths > MAX_NAME)).nonzero()[0]
        if bad.size:
            row = int(bad[0])
            message = f"the name of entry {first + row} has {lengths[row]} bytes; 1 to {MAX_NAME} are allowed"
            self._fail(rules.TENSOR_NAME, int(starts[row]), f"$.tensors[{first + row}].name", message)
        names, broken = kernels.texts(self.data, starts, lengths)
        assert broken < 0, "the walker has checked the text"
        self.names += names

    def _check_unique(self) -> None:
        again = find_repeat(self.names)
        if again is not None:
            message = f"two tensors are called {self.names[again]!r}"
            self._fail(rules.TENSOR_NAME, int(self._starts[again]), f"$.tensors[{again}].name", message)

    def _read_shapes(self, rows: Rows, first: int) -> Shapes:
        """Read the shapes of a block."""
        ranks, check = rows.value("shape"), self._check
        check.limit("rank", int(ranks.max()), self._chunk.offset, "aero: the rank of a tensor")
        check.rows(
            ranks <= MAX_RANK, rules.RANK, lambda row: self.where(first + row),
            lambda row: f"{self.what(first + row)} has {ranks[row]} dimensions; the format allows {MAX_RANK}",
        )  # fmt: skip
        dims = np.empty(int(ranks.sum()), np.uint64)
        row, at = kernels.msgpack_dims(self.data, np.ascontiguousarray(rows.at("shape")), ranks, dims)
        if row >= 0:
            message = f"a dimension of {self.names[first + row]!r} is not a whole number from 0 to 2^63-1"
            self._fail(rules.FIELD, at, f"$.tensors[{first + row}].shape", message)
        data = dims.tobytes()
        self._ranks[first : first + len(rows)] = ranks
        self._dims += data
        return Shapes(data, (np.cumsum(ranks, dtype=np.uint64) - ranks) * np.uint64(8), ranks)

    def _find_dtypes(self, rows: Rows, shapes: Shapes, block: slice) -> None:
        """Find the place of each type of a block in the palette."""
        stored = rows.value("dtype")
        codes, known = self.codes[block], self.known[block]
        known[...] = stored == np.uint64(PACKED)
        packed = known.nonzero()[0].tolist()
        for code in sorted(DTYPES.keys() & set(np.unique(stored).tolist())):
            chosen = stored == np.uint64(code)
            codes[chosen] = self._place(NEUTRAL[DTYPES[code]])
            known |= chosen
        self._place_packed(rows, packed, shapes, block)
        unknown = ((row, f"aero.{stored[row]}") for row in (~known).nonzero()[0].tolist())
        self._place_opaque(unknown, block)

    def _place(self, stored: Stored, size: int = 0) -> int:
        """Find the place of a type in the palette, and add it if it has none."""
        place = self._palette.setdefault((str(stored), size), len(self.dtypes))
        if place == len(self.dtypes):
            self.dtypes.append(stored)
        return place

    def _place_packed(self, rows: Rows, chosen: list[int], shapes: Shapes, block: slice) -> None:
        """Give packed tensors their ggml type; those of an unknown type stay opaque."""
        params: dict[bytes, int | None] = {}
        kinds, starts, ends = (column("quant_params") for column in (rows.kind, rows.at, rows.end))
        unknown: list[tuple[int, str]] = []
        for row in chosen:
            start, end, path = int(starts[row]), int(ends[row]), f"$.tensors[{block.start + row}].quant_params"
            spelled = self.data[start:end] if kinds[row] == tokens.MAP else b""
            if spelled not in params:
                params[spelled] = find_ggml_type(self._decode(spelled, start, path) if spelled else None)
            kind = params[spelled]
            if kind is not None and kind in BLOCKS:
                blocks = BLOCKS[kind]
                if kind == HALF_Q8_1.id:
                    blocks = choose_q8_1(shapes[row], int(self.stored[block.start + row]))
                self.codes[block.start + row] = self._place(blocks)
            else:
                unknown.append((row, "packed" if kind is None else f"ggml.{kind}"))
        self._place_opaque(unknown, block)

    def _place_opaque(self, named: Iterable[tuple[int, str]], block: slice) -> None:
        """Give rows of unknown types an opaque type: one of the palette for each name and size."""
        for row, name in named:
            size = int(self.stored[block.start + row])
            self.codes[block.start + row] = self._place(Opaque(name, size), size)

    def _check_sizes(self, shapes: Shapes, block: slice) -> None:
        """Compute the bytes that each tensor needs. data_len must be at least that; no product can overflow here."""
        counts, exact = shapes.counts()
        codes, stored = self.codes[block], self.stored[block]
        possible = exact & (counts <= np.uint64(1 << 50))
        counts = np.where(possible, counts, np.uint64(0))
        used, places = np.unique(codes, return_inverse=True)
        types = [self.dtypes[code] for code in used.tolist()]
        block_bytes, elements = np.array([unit_of(each) for each in types], np.uint64).T[:, places]
        opaque = np.array([isinstance(each, Opaque) for each in types], np.bool_)[places]
        needed = (counts + elements - np.uint64(1)) // elements * block_bytes
        needed = np.where(opaque, stored, needed)

        def where(row: int) -> int:
            return self.where(block.start + row)

        def message(row: int) -> str:
            dtype, shape = self.dtypes[int(codes[row])], shapes[row]
            return (
                f"{self.what(block.start + row)} needs {dtype.nbytes(shape)} bytes for {dtype}{list(shape)} "
                f"but its entry says {stored[row]}"
            )

        fits = (possible & (needed <= stored)) | opaque
        self._check.rows(fits, rules.SHORT, where, message)
        plain = np.array([isinstance(each, DType) for each in types], np.bool_)[places]
        self._check.rows((needed == stored) | ~plain, rules.LONG, where, message)
        self.sizes[block] = needed

    def _read_hashes(self, rows: Rows, first: int) -> None:
        starts, lengths = rows.at("hash_b3"), rows.value("hash_b3")
        hashed = self.hashed[first : first + len(rows)]
        hashed[...] = rows.kind("hash_b3") == tokens.STR
        hashed[hashed] = lengths[hashed] > 0
        chosen = hashed.nonzero()[0]
        good = lengths[chosen] == 64
        if good.all() and chosen.size:
            bytes_ = np.frombuffer(self.data, np.uint8)
            digits = bytes_[starts[chosen][:, None] + np.arange(64, dtype=np.uint64)]
            good = _HEX[digits].all(axis=1)
        self._hash_at[first + chosen] = starts[chosen]

        def message(row: int) -> str:
            at, size = int(starts[chosen[row]]), int(lengths[chosen[row]])
            text = self.data[at : at + size].decode()[:80]
            return f"{self.what(first + int(chosen[row]))}: hash_b3 is not 64 hex digits: {text!r}"

        self._check.rows(good, rules.HASH_FIELD, lambda row: self.where(first + int(chosen[row])), message)

    def digest(self, row: int) -> bytes | None:
        """The hash_b3 of a tensor."""
        at = int(self._hash_at[row])
        return bytes.fromhex(self.data[at : at + 64].decode()) if self.hashed[row] else None

    def read_stated(self, row: int) -> dict[str, Any]:
        """All values of an entry that has flags, quantization or keys of other programs; nothing for others."""
        if not self._valued[row]:
            return {}
        found: dict[str, Any] = self._decode(self.entry_bytes(row), int(self._starts[row]), f"$.tensors[{row}]")
        return found

    def read_root(self) -> dict[str, Any]:
        """Read the keys of the root map that the format does not define."""
        start, stop = self._root
        found: dict[str, Any] = self._decode(self.data[:start] + _NIL + self.data[stop:], 0, "$")
        return {key: value for key, value in found.items() if key != "tensors"}

    @property
    def valued(self) -> NDArray[np.bool_]:
        """Which entries have values that :meth:`stated` returns."""
        return self._valued

    @property
    def detailed(self) -> NDArray[np.bool_]:
        """Which entries state a hash, or have values that :meth:`stated` returns."""
        return self.hashed | self._valued

    def entry_bytes(self, row: int) -> bytes:
        """The bytes of an entry."""
        start, end = self._span(row)
        return self.data[start:end]

    def _span(self, row: int) -> tuple[int, int]:
        return int(self._starts[row]), int(self._starts[row + 1]) if row + 1 < len(self) else self._stop

    def _decode(self, part: bytes, start: int, path: str) -> Any:
        """Decode a part of the index, from ``start`` on. The walker has accepted it but for timestamps out of range."""
        chunk, check = self._chunk, self._check
        try:
            most = self._expansion.values_left(check) if chunk.compressed else None
            return msgpack.decode(part, depth=check.limits.nesting, most=most)
        except TooManyValues as error:
            self._expansion.refuse(check, chunk.offset, f"aero: TIDX, {path}: {error.message}")
        except DocumentError as error:
            self._fail(rules.MSGPACK, start + error.offset, path, error.message)


def cost_of_index(size: int, count: int, *, types: int = 0, dims: int = 0, valued: int = 0) -> int:
    """Estimate the memory of an index of ``count`` entries in ``size`` bytes, names and columns included.

    ``types`` are the different types of tensors, ``dims`` the dimensions of all, and ``valued`` the bytes of entries
    that have values of their own.
    """
    return 2 * size + _ROW_BYTES * count + _TYPE_BYTES * types + _DIM_BYTES * dims + _VALUED * valued


def read_index(data: bytes, chunk: Chunk, check: Check, expansion: Expansion) -> Index:
    """Read the index in the content of TIDX."""
    return Index(data, chunk, check, expansion)
