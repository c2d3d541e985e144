"""Writing MCF: sections, payloads and the directory at their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DType
from holdall.errors import ContentError, UnsupportedError
from holdall.formats.mcf import outline as outlines
from holdall.formats.mcf import quantinfo
from holdall.formats.mcf.encodings import BareCodes, Unassigned
from holdall.formats.mcf.layout import (
    ALIGN,
    ALIGNED64,
    BLOCK_ALIGN,
    DTYPE_IDS,
    ENTRY,
    HEADER,
    INDEX,
    MAGIC,
    MAJOR,
    NAMES_SORTED,
    NAMES_UTF8,
    QUANT_INFO,
    SECTION,
    TENSOR_DATA,
    TENSOR_INDEX,
)
from holdall.formats.mcf.outline import Outline
from holdall.formats.mcf.pack import CASTS, cast, packed
from holdall.formats.mcf.placing import place
from holdall.formats.mcf.quantinfo import QuantRecord
from holdall.formats.mcf.sections import McfNative
from holdall.model import Model
from holdall.plan import Plan
from holdall.quant.encodings import McfEncoding
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from holdall.formats.mcf.placing import Places

__all__ = ["arrangement", "plan"]

_YES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The MCF file that holds ``model``."""
    tensors = list(model.tensors)
    if options["cast"] != "keep":
        tensors = [cast(tensor, CASTS[options["cast"]]) for tensor in tensors]
    for tensor in tensors:
        _check(tensor)
    outline = _outline(model, tensors, options)
    return _File(outline, _minor(options["minor"], model, outline)).plan()


# -- choosing -----------------------------------------------------------------------------------------------------


def _outline(model: Model, tensors: Sequence[Tensor], options: Mapping[str, Any]) -> Outline:
    native = model.native if isinstance(model.native, McfNative) else None
    align, dedup = outlines.alignment(options["tensor_align"]), _dedup(options["dedup"])
    records = any(record_of(tensor) is not None for tensor in tensors)
    records |= options["arrange"] == "quantize" and bool(tensors)
    match arrangement(options["arrange"], model, tensors):
        case "pack":
            name = options["model_name"]
            return packed(
                model, tensors, align, records=records, dedup=dedup in ("auto", "content"),
                resources=_flag("resources", options["resources"]), model_name=None if name is None else str(name),
            )  # fmt: skip
        case "quantize":
            assert native is not None
            outline = outlines.requantized(model, native, tensors)
        case "keep":
            assert native is not None
            had = native.get(QUANT_INFO) is not None and bool(tensors)
            outline = outlines.kept(model, native, tensors, align, records=records or had)
        case _:
            outline = outlines.plain(model, tensors, align, records=records)
    return outlines.shared(outline, dedup)


def arrangement(asked: str, model: Model, tensors: Sequence[Tensor]) -> str:
    """How the file is laid out: as asked, or as fits where the model comes from."""
    native = model.native if isinstance(model.native, McfNative) else None
    if asked == "keep" and native is None:
        raise UnsupportedError("mcf: arrange=keep is for models that come from an MCF file")
    if asked not in ("auto", "quantize") or (asked == "quantize" and native is not None):
        return asked
    if native is not None:
        return "quantize" if outlines.newly_quantized(native, tensors) else "keep"
    return "pack" if model.format == "hf" else "plain"


def _dedup(asked: Any) -> str:
    text = str(asked).lower()
    found = {True: "content", False: "none"}[_YES[text]] if text in _YES else text
    if found not in ("auto", "content", "aliases", "none"):
        raise UnsupportedError(f"mcf: dedup is one of auto, content, aliases, none, not {asked!r}")
    return found


def _flag(name: str, asked: Any) -> bool:
    found = _YES.get(str(asked).lower())
    if found is None:
        raise UnsupportedError(f"mcf: {name} is true or false, not {asked!r}")
    return found


def _minor(asked: Any, model: Model, outline: Outline) -> int:
    """1, or 0 where that is asked for or comes from the file, and nothing in it is quantized."""
    quantized = next((t.name for t in outline.tensors if isinstance(t.dtype, McfEncoding)), None)
    records = any(part.type == QUANT_INFO for part in outline.parts)
    if str(asked) == "auto":
        old = model.format == "mcf" and model.version == (MAJOR, 0)
        return 0 if old and quantized is None and not records else 1
    if int(asked) == 0 and quantized is not None:
        raise ContentError(f"mcf: tensor {quantized!r} is quantized, which minor version 0 cannot hold")
    return int(asked)


# -- tensors ------------------------------------------------------------------------------------------------------


def record_of(tensor: Tensor) -> QuantRecord | None:
    """The quant record that belongs to the tensor as it is now."""
    record, dtype = tensor.native, tensor.dtype
    if not isinstance(record, QuantRecord) or not isinstance(dtype, McfEncoding):
        return None
    return record if record.method == dtype.method.name else None


def _check(tensor: Tensor) -> None:
    """Refuse what MCF cannot hold."""
    what = f"mcf: tensor {tensor.name!r}"
    if not tensor.name:
        raise ContentError("mcf: a tensor has an empty name")
    try:
        tensor.name.encode()
    except UnicodeEncodeError:
        raise ContentError(f"{what}: its name has lone surrogates, which are not UTF-8") from None
    if tensor.payload is None:
        raise ContentError(f"{what} is declared without data, which MCF cannot do")
    plain = isinstance(tensor.dtype, DType)
    if not plain and isinstance(tensor.dtype, BareCodes):
        raise ContentError(f"{what}: bare {tensor.dtype} codes have no scale; they can be read, not written")
    dtype_id(tensor)
    if any(not 0 < dim < 1 << 63 for dim in tensor.shape):
        raise ContentError(f"{what}: a dim of {list(tensor.shape)} is 0 or beyond 2^63")
    if (plain or not isinstance(tensor.dtype, Unassigned)) and tensor.nbytes != tensor.dtype.nbytes(tensor.shape):
        needed = tensor.dtype.nbytes(tensor.shape)
        raise ContentError(f"{what}: {tensor.dtype}{list(tensor.shape)} takes {needed} bytes, not {tensor.nbytes}")
    record = record_of(tensor)
    if record is not None and isinstance(tensor.dtype, McfEncoding):
        domain = ("weights", "activations")[tensor.dtype.domain]
        if record.domain != domain:
            raise ContentError(f"{what}: its payload is for {domain}, its record for {record.domain}")


def dtype_id(tensor: Tensor) -> int:
    """The number of the tensor's type."""
    if isinstance(tensor.dtype, DType) and tensor.dtype.name in DTYPE_IDS:  # most of them
        return DTYPE_IDS[tensor.dtype.name]
    if isinstance(tensor.dtype, Unassigned):
        return tensor.dtype.number
    if isinstance(tensor.dtype, McfEncoding) and str(tensor.dtype) in DTYPE_IDS:
        return DTYPE_IDS[str(tensor.dtype)]
    raise ContentError(f"mcf: tensor {tensor.name!r}: {tensor.dtype} is not an MCF type")


# -- the file -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """One outline on its way to a plan."""

    outline: Outline
    minor: int

    def plan(self) -> Plan:
        """Every section at its place: sizes first, since an index may lie before the payloads it points to."""
        outline = self.outline
        tensors = outline.tensors
        order = sorted(range(len(tensors)), key=lambda row: tensors[row].name)
        for before, after in pairwise(order):
            if tensors[before].name == tensors[after].name:
                raise ContentError(f"mcf: two tensors are called {tensors[before].name!r}")
        records = quantinfo.encode(
            [(place, record) for place, row in enumerate(order) if (record := record_of(tensors[row])) is not None]
        )
        index_size = len(_index([tensors[row] for row in order], [0] * len(order)))
        places: Places | None = None
        starts, sizes, cursor = [], [], HEADER.size
        for part in outline.parts:
            cursor += -cursor % ALIGN
            if part.type == TENSOR_DATA:
                places = place(outline, cursor)
                size = places.end - cursor
            else:
                size = {TENSOR_INDEX: index_size, QUANT_INFO: len(records)}.get(part.type, 0)
                size = size if part.payload is None else part.payload.size
            starts.append(cursor)
            sizes.append(size)
            cursor += size
        directory = cursor + -cursor % ALIGN

        out = Plan()
        out.put(self._header(directory, places))
        for part, start in zip(outline.parts, starts, strict=True):
            out.cursor = start
            if part.payload is not None:
                out.stream(part.payload)
            elif part.type == TENSOR_INDEX:
                assert places is not None
                out.put(_index([tensors[row] for row in order], [places.offsets[row] for row in order]))
            elif part.type == QUANT_INFO:
                out.put(records)
            else:
                assert places is not None
                for at, payload in places.payloads:
                    out.cursor = at
                    out.stream(payload)
        out.cursor = directory
        rows = sorted(zip(outline.parts, starts, sizes, strict=True), key=lambda row: row[0].type)
        out.put(b"".join(SECTION.pack(type=p.type, version=p.version, offset=at, size=n) for p, at, n in rows))
        return out

    def _header(self, directory: int, places: Places | None) -> bytes:
        outline = self.outline
        aligned = outline.aligned_flag
        quantized = any(isinstance(t.dtype, McfEncoding) and t.dtype.method.family != "int" for t in outline.tensors)
        if aligned is None:
            aligned = places is not None and all(offset % BLOCK_ALIGN == 0 for offset in places.offsets)
        return HEADER.pack(
            magic=MAGIC,
            major=MAJOR,
            minor=self.minor,
            header_size=HEADER.size,
            section_count=len(outline.parts),
            section_dir_offset=directory,
            file_size=directory + len(outline.parts) * SECTION.size,
            flags=outline.flags | (ALIGNED64 if aligned or quantized else 0),
        )


def _index(tensors: Sequence[Tensor], offsets: Sequence[int]) -> bytes:
    """TensorIndex: entries, dims and names one after the other, without gaps."""
    import numpy as np

    names = [tensor.name.encode() for tensor in tensors]
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    ranks = np.fromiter((len(tensor.shape) for tensor in tensors), np.int64, len(tensors))
    dims = np.array([dim for tensor in tensors for dim in tensor.shape], "<u8")
    if max(lengths.sum(), ranks.sum(), len(names)) >= 1 << 32:
        raise ContentError(f"mcf: {len(names)} names of {lengths.sum()} bytes are more than an index can hold")
    entries = np.zeros(len(tensors), ENTRY.dtype)
    entries["name_len"], entries["name_off"] = lengths, np.cumsum(lengths) - lengths
    entries["rank"], entries["dim_off"] = ranks, np.cumsum(ranks) - ranks
    entries["dtype"] = [dtype_id(tensor) for tensor in tensors]
    entries["data_off"] = offsets
    entries["data_size"] = [tensor.nbytes for tensor in tensors]
    dims_off = INDEX.size + entries.nbytes
    strings = b"".join(names)
    head = INDEX.pack(
        version=1,
        flags=NAMES_SORTED | NAMES_UTF8,
        tensor_count=len(tensors),
        dims_count=dims.size,
        entries_off=INDEX.size,
        dims_off=dims_off,
        strings_off=dims_off + dims.nbytes,
        strings_size=len(strings),
    )
    return head + entries.tobytes() + dims.tobytes() + strings
