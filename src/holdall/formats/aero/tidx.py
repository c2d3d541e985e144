"""TIDX: the index of tensors, as typed columns straight from its MessagePack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from holdall import kernels
from holdall.check import Check, Rule
from holdall.columns import Shapes
from holdall.documents import msgpack
from holdall.documents.msgpack import KINDS, DocumentError, Rows
from holdall.dtypes import DTYPES as NEUTRAL
from holdall.dtypes import DType
from holdall.encodings import Opaque, Stored
from holdall.formats.aero import rules
from holdall.formats.aero.chunks import Chunk
from holdall.formats.aero.layout import DTYPES, MAX_NAME, MAX_RANK, PACKED
from holdall.ggml import BLOCKS, Blocks
from holdall.kernels import msgpack_reference as tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Index", "read_index"]

KEYS = ("name", "dtype", "shape", "shard_id", "data_off", "data_len", "flags", "quant_id", "quant_params", "hash_b3")
_LEAST = 1 + sum(1 + len(key) + 1 for key in KEYS[:6]) + 1  # bytes of the smallest entry: six keys, a name of one
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
    """The tensors of a file as columns. ``sizes`` is what dtype and shape need, ``stored`` what data_len says."""

    def __init__(self, data: bytes, chunk: Chunk, check: Check) -> None:
        self.data = data
        self._chunk = chunk
        self._check = check
        self.rows = self._scan()
        self._types()
        self.names = self._names()
        self.shapes = self._shapes()
        self.shards = self.rows.value("shard_id")
        self.offsets = self.rows.value("data_off")
        self.stored = self.rows.value("data_len")
        self.dtypes, self.codes = self._dtypes()
        self.sizes = self._sizes()
        self.hashed = (self.rows.kind("hash_b3") == tokens.STR) & (self.rows.value("hash_b3") > 0)
        self._hashes()

    def __len__(self) -> int:
        return len(self.rows)

    # -- the document -----------------------------------------------------------------------------------------------

    def _fail(self, rule: Rule, at: int, path: str, message: str) -> NoReturn:
        """Refuse; ``at`` counts in the uncompressed TIDX, and in the file too where that is how it is stored."""
        chunk = self._chunk
        place = chunk.offset if chunk.compressed else chunk.offset + at
        self._check.fail(rule, place, f"aero: TIDX: {message}", inner=f"byte {at} of TIDX, {path}")

    def _scan(self) -> Rows:
        data, check = self.data, self._check
        depth = check.limits.nesting
        if not kernels.NATIVE and depth > 3:
            from holdall.documents.msgpack_quick import quick_rows

            rows = quick_rows(data, "tensors", KEYS)
            if rows is not None:
                check.limit("tensors", len(rows), self._chunk.offset, "aero: tensors")
                return rows
        try:
            root = msgpack.rows(data, 0, len(data), 1, ("tensors",), depth=depth)
            if root.stop != len(data):
                self._fail(rules.MSGPACK, root.stop, "$", f"{len(data) - root.stop} bytes follow the map")
            kind, at = int(root.kind("tensors")[0]), int(root.at("tensors")[0])
            if kind == tokens.ABSENT:
                self._fail(rules.MSGPACK, 0, "$", "there is no key 'tensors'")
            if kind != tokens.ARRAY:
                self._fail(rules.MSGPACK, at, "$.tensors", f"'tensors' is {KINDS[kind]}, not an array")
            count, end = int(root.value("tensors")[0]), int(root.end("tensors")[0])
            check.limit("tensors", count, self._chunk.offset, "aero: tensors")
            head = 1 if count < 16 and data[at] >> 4 == 9 else 3 if data[at] == 0xDC else 5
            room = min(count, (end - at - head) // _LEAST + 1)  # one more cannot be whole: it names what it lacks
            return msgpack.rows(data, at + head, end, room, KEYS, depth=depth - 2, path="$.tensors")
        except DocumentError as error:
            self._fail(rules.MSGPACK, error.offset, error.path, error.message)

    def _types(self) -> None:
        rows = self.rows
        for key, expected in _EXPECTED.items():
            kinds = rows.kind(key)
            good = kinds == expected[0]
            for kind in expected[1:]:
                good |= kinds == kind
            if good.all():
                continue
            row = int((~good).argmax())
            found = int(kinds[row])
            if found == tokens.ABSENT:
                self._fail(rules.FIELD, int(rows.starts[row]), f"$.tensors[{row}]", f"entry {row} has no {key!r}")
            at = int(rows.at(key)[row])
            expects = KINDS[expected[0]]
            message = f"{key!r} of entry {row} is {KINDS[found]}, not {expects}"
            self._fail(rules.FIELD, at, f"$.tensors[{row}].{key}", message)

    def where(self, row: int) -> int:
        """The place of an entry, for findings: in the file when TIDX is stored as it is, else that of TIDX."""
        return self._chunk.offset + (0 if self._chunk.compressed else int(self.rows.starts[row]))

    def what(self, row: int) -> str:
        """How messages call an entry."""
        return f"aero: tensor {self.names[row]!r}"

    # -- columns ----------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        starts, lengths = self.rows.at("name"), self.rows.value("name")
        bad = ((lengths == 0) | (lengths > MAX_NAME)).nonzero()[0]
        if bad.size:
            row = int(bad[0])
            message = f"the name of entry {row} has {lengths[row]} bytes; 1 to {MAX_NAME} are allowed"
            self._fail(rules.TENSOR_NAME, int(starts[row]), f"$.tensors[{row}].name", message)
        names, broken = kernels.texts(self.data, starts, lengths)
        assert broken < 0, "the walker has proven the text"
        if len(set(names)) != len(names):
            seen: set[str] = set()
            for row, name in enumerate(names):
                if name in seen:
                    message = f"two tensors are called {name!r}"
                    self._fail(rules.TENSOR_NAME, int(starts[row]), f"$.tensors[{row}].name", message)
                seen.add(name)
        return names

    def _shapes(self) -> Shapes:
        ranks = self.rows.value("shape")
        check = self._check
        if len(self):
            check.limit("rank", int(ranks.max()), self._chunk.offset, "aero: the rank of a tensor")
        check.rows(
            ranks <= MAX_RANK, rules.RANK, self.where,
            lambda row: f"{self.what(row)} has {ranks[row]} dimensions; the format allows {MAX_RANK}",
        )  # fmt: skip
        dims = np.empty(int(ranks.sum()), np.uint64)
        row, at = kernels.msgpack_dims(self.data, np.ascontiguousarray(self.rows.at("shape")), ranks, dims)
        if row >= 0:
            message = f"a dimension of {self.names[row]!r} is not a whole number from 0 to 2^63-1"
            self._fail(rules.FIELD, at, f"$.tensors[{row}].shape", message)
        positions = (np.cumsum(ranks, dtype=np.uint64) - ranks) * np.uint64(8)
        return Shapes(dims.tobytes(), positions, ranks)

    def _dtypes(self) -> tuple[list[Stored], NDArray[np.int64]]:
        """The palette of types, and each tensor's place in it."""
        stored = self.rows.value("dtype")
        palette: list[Stored] = []
        codes = np.empty(len(self), np.int64)
        unknown = stored != np.uint64(PACKED)
        for code in sorted(DTYPES.keys() & set(np.unique(stored).tolist())):
            chosen = stored == np.uint64(code)
            codes[chosen] = len(palette)
            palette.append(NEUTRAL[DTYPES[code]])
            unknown &= ~chosen
        self._packed((stored == np.uint64(PACKED)).nonzero()[0].tolist(), palette, codes)
        self._opaque(((row, f"aero.{stored[row]}") for row in unknown.nonzero()[0].tolist()), palette, codes)
        return palette, codes

    def _packed(self, chosen: list[int], palette: list[Stored], codes: NDArray[np.int64]) -> None:
        """Packed tensors by their ggml type; one whose type is not known stays opaque."""
        params: dict[bytes, int | None] = {}
        known: dict[int, int] = {}
        kinds, starts, ends = (column("quant_params") for column in (self.rows.kind, self.rows.at, self.rows.end))
        unknown: list[tuple[int, str]] = []
        for row in chosen:
            spelled = self.data[int(starts[row]) : int(ends[row])] if kinds[row] == tokens.MAP else b""
            if spelled not in params:
                params[spelled] = _ggml_type(self.params(row))
            kind = params[spelled]
            if kind is not None and kind in BLOCKS:
                if kind not in known:
                    known[kind] = len(palette)
                    palette.append(BLOCKS[kind])
                codes[row] = known[kind]
            else:
                unknown.append((row, "packed" if kind is None else f"ggml.{kind}"))
        self._opaque(unknown, palette, codes)

    def _opaque(self, named: Iterable[tuple[int, str]], palette: list[Stored], codes: NDArray[np.int64]) -> None:
        """Types without a meaning here, by row and name: one row of the palette for each name and size."""
        places: dict[tuple[str, int], int] = {}
        for row, name in named:
            key = (name, int(self.stored[row]))
            if key not in places:
                places[key] = len(palette)
                palette.append(Opaque(*key))
            codes[row] = places[key]

    def _sizes(self) -> NDArray[np.uint64]:
        """What each tensor needs; data_len must be at least that, in numbers that cannot wrap."""
        counts, exact = self.shapes.counts()
        possible = exact & (counts <= np.uint64(1 << 50))
        counts = np.where(possible, counts, np.uint64(0))
        block_bytes = np.array([_block(stored)[0] for stored in self.dtypes] or [1], np.uint64)[self.codes]
        elements = np.array([_block(stored)[1] for stored in self.dtypes] or [1], np.uint64)[self.codes]
        opaque = np.array([isinstance(stored, Opaque) for stored in self.dtypes] or [False], np.bool_)[self.codes]
        needed = (counts + elements - np.uint64(1)) // elements * block_bytes
        needed = np.where(opaque, self.stored, needed)

        def message(row: int) -> str:
            dtype, shape = self.dtypes[int(self.codes[row])], self.shapes[row]
            return (
                f"{self.what(row)} needs {dtype.nbytes(shape)} bytes for {dtype}{list(shape)} "
                f"but its entry says {self.stored[row]}"
            )

        fits = (possible & (needed <= self.stored)) | opaque
        self._check.rows(fits, rules.SHORT, self.where, message)
        plain = np.array([isinstance(stored, DType) for stored in self.dtypes] or [False], np.bool_)[self.codes]
        self._check.rows((needed == self.stored) | ~plain, rules.LONG, self.where, message)
        return needed

    def _hashes(self) -> None:
        chosen = self.hashed.nonzero()[0]
        lengths = self.rows.value("hash_b3")[chosen]
        good = lengths == 64
        if good.all() and chosen.size:
            bytes_ = np.frombuffer(self.data, np.uint8)
            digits = bytes_[self.rows.at("hash_b3")[chosen][:, None] + np.arange(64, dtype=np.uint64)]
            good = _HEX[digits].all(axis=1)
        self._check.rows(
            good, rules.HASH_FIELD, lambda n: self.where(int(chosen[n])),
            lambda n: f"{self.what(int(chosen[n]))}: hash_b3 is not 64 hex digits: "
                      f"{self.text('hash_b3', int(chosen[n]))[:80]!r}",
        )  # fmt: skip

    # -- one entry --------------------------------------------------------------------------------------------------

    def text(self, key: str, row: int) -> str:
        """The text that an entry has under ``key``."""
        start = int(self.rows.at(key)[row])
        return self.data[start : start + int(self.rows.value(key)[row])].decode()

    def digest(self, row: int) -> bytes | None:
        """The hash_b3 of a tensor."""
        return bytes.fromhex(self.text("hash_b3", row)) if self.hashed[row] else None

    def number(self, key: str, row: int) -> int | None:
        """The number that an entry has under ``key``."""
        return int(self.rows.value(key)[row]) if self.rows.kind(key)[row] == tokens.UINT else None

    def params(self, row: int) -> dict[str, Any] | None:
        """The quant_params of an entry."""
        if self.rows.kind("quant_params")[row] != tokens.MAP:
            return None
        start, end = int(self.rows.at("quant_params")[row]), int(self.rows.end("quant_params")[row])
        found: dict[str, Any] = self._decoded(start, end, f"$.tensors[{row}].quant_params")
        return found

    def extra(self, row: int) -> dict[str, Any]:
        """What an entry has under keys that the format does not know."""
        if not self.rows.extras[row]:
            return {}
        starts = self.rows.starts
        end = int(starts[row + 1]) if row + 1 < len(starts) else self.rows.stop
        entry = self._decoded(int(starts[row]), end, f"$.tensors[{row}]")
        return {key: value for key, value in entry.items() if key not in KEYS}

    def check_values(self) -> None:
        """Make the values that are otherwise made when they are asked for; what has none is refused."""
        for row in (self.rows.kind("quant_params") == tokens.MAP).nonzero()[0].tolist():
            self.params(row)
        for row in self.rows.extras.nonzero()[0].tolist():
            self.extra(row)

    def _decoded(self, start: int, end: int, path: str) -> Any:
        """The value in a part of the index; the walker let it pass, but there are timestamps of no time."""
        if self._chunk.compressed:
            self._check.limit("document_bytes", end - start, self._chunk.offset, f"aero: TIDX, bytes of {path}")
        try:
            return msgpack.decode(self.data[start:end], depth=self._check.limits.nesting)
        except DocumentError as error:
            self._fail(rules.MSGPACK, start + error.offset, path, error.message)


def read_index(data: bytes, chunk: Chunk, check: Check) -> Index:
    """The index in the content of TIDX."""
    return Index(data, chunk, check)


def _ggml_type(params: dict[str, Any] | None) -> int | None:
    kind = (params or {}).get("ggml_type")
    return kind if isinstance(kind, int) and not isinstance(kind, bool) else None


def _block(stored: Stored) -> tuple[int, int]:
    """Bytes and elements of the unit that a type is stored in."""
    if isinstance(stored, Blocks):
        return stored.block_bytes, stored.elements
    return (1, 1) if isinstance(stored, Opaque) else (getattr(stored, "bits", 8) // 8, 1)
