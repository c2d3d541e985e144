"""Plans MCF files: sections, payloads and the directory at their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import ne
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.base.text import plural
from holdall.base.utf8 import utf8_breach
from holdall.binary.columns import measure_names, sort_names
from holdall.errors import ContentError, UnsupportedError
from holdall.format.mcf import file_plan, quantinfo
from holdall.format.mcf.encodings import BareCodes, Unassigned
from holdall.format.mcf.file_plan import FilePlan
from holdall.format.mcf.hf_packer import CASTS, cast, plan_packed
from holdall.format.mcf.index import read_tensors
from holdall.format.mcf.layout import (
    ALIGN,
    ALIGNED64,
    ASSETS,
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
    option_name,
)
from holdall.format.mcf.modelinfo import MODEL_NAME
from holdall.format.mcf.offsets import Offsets, assign_offsets
from holdall.format.mcf.quantinfo import PlainRecord
from holdall.format.mcf.sections import McfNative
from holdall.format.refusals import refuse_names, refuse_repeats
from holdall.model.dtypes import DType
from holdall.model.encodings import Stored
from holdall.model.model import Model
from holdall.model.payload import Computed, SourceRange
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor
from holdall.quant.encodings import McfEncoding
from holdall.quant.record import QuantRecord
from holdall.sink.plan import Plan
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["choose_arrangement", "choose_documents", "plan"]

_U32 = (1 << 32) - 1
_BLOCK = buffer_size(1 << 13)  # entries that are made at a time

_YES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the MCF file that holds ``model``."""
    tensors = model.tensors
    if options["cast"] != "keep":
        tensors = ListTable(cast(tensor, CASTS[options["cast"]]) for tensor in tensors)
    if _keeps_index(model, tensors, options["arrange"]):
        file = _choose_plan(model, ListTable([]), options, index_kept=True)
    else:
        _check_tensors(tensors)
        file = _choose_plan(model, tensors, options)
    return _assemble(file, _choose_minor(options["minor"], model, file))


def _keeps_index(model: Model, tensors: TensorTable, arrange: str) -> bool:
    """Whether the new file has the index of the old one, whose tensors have no data; ContentError if they changed."""
    native = model.native
    if not isinstance(native, McfNative) or not len(tensors) or native.get(TENSOR_DATA) is not None:
        return False
    index = native.get(TENSOR_INDEX)
    if index is None or not isinstance(index.payload, SourceRange) or any(tensor.has_data for tensor in tensors):
        return False
    if choose_arrangement(arrange, model, tensors) != "keep":
        return False
    old = read_tensors(index.payload.source, native, Check(limits=native.limits), Ledger())
    if list(old.names) != list(tensors.names) or any(map(ne, old.forms(), tensors.forms())):
        message = "its TensorIndex has no TensorData and can be kept, not written anew"
        raise ContentError(f"mcf: {message}: change tensors in the file that has their data")
    return True


def choose_documents(model: Model, options: Mapping[str, Any]) -> Model:
    """``model`` with the documents that the options give in place of its own; without any if they are not wanted."""
    wanted = _parse_flag("resources", options["resources"])
    given = {name: options[option_name(name)] for name in ASSETS.values() if options[option_name(name)] is not None}
    if given and not wanted:
        raise UnsupportedError(f"mcf: {option_name(next(iter(given)))} is given, but resources=false leaves it out")
    if not wanted:
        return model.replace(assets={})
    if not given:
        return model
    kept = {name: model.assets.payload(name) for name in model.assets}
    return model.replace(assets={**kept, **{name: _to_document(name, value) for name, value in given.items()}})


def _to_document(name: str, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    raise UnsupportedError(f"mcf: {name} is text or bytes, not {type(value).__name__}")


def _choose_plan(
    model: Model, tensors: TensorTable, options: Mapping[str, Any], *, index_kept: bool = False
) -> FilePlan:
    own, model = model, choose_documents(model, options)
    native = model.native if isinstance(model.native, McfNative) else None
    align, dedup = file_plan.parse_alignment(options["tensor_align"]), _parse_dedup(options["dedup"])
    records = bool(_choose_records(tensors)[0])
    records |= options["arrange"] == "quantize" and bool(tensors)
    name = None if options["model_name"] is None else str(options["model_name"])
    arrangement = choose_arrangement(options["arrange"], model, tensors)
    if arrangement == "pack":
        return plan_packed(
            model, tensors, align, folder=own, records=records, dedup=dedup in ("auto", "content"),
            model_name=name,
        )  # fmt: skip
    if name is not None:
        model = model.replace(metadata=model.metadata.replace({MODEL_NAME: name}))
    match arrangement:
        case "quantize":
            assert native is not None
            file = file_plan.plan_requantized(model, native, tensors)
        case "keep" if index_kept:
            assert native is not None
            file = file_plan.plan_index_kept(model, native)
        case "keep":
            assert native is not None
            had = native.get(QUANT_INFO) is not None and bool(tensors)
            file = file_plan.plan_copy(model, native, tensors, align, records=records or had)
        case _:
            file = file_plan.plan_plain(model, tensors, align, records=records)
    return file_plan.share_payloads(file, dedup)


def choose_arrangement(asked: str, model: Model, tensors: Sequence[Tensor]) -> str:
    """Choose the arrangement asked for; "auto" chooses by where the model comes from."""
    native = model.native if isinstance(model.native, McfNative) else None
    if asked == "keep" and native is None:
        raise UnsupportedError("mcf: arrange=keep is for models that come from an MCF file")
    if asked not in ("auto", "quantize") or (asked == "quantize" and native is not None):
        return asked
    if native is not None:
        return "quantize" if file_plan.has_new_quantized(native, tensors) else "keep"
    return "pack" if model.format == "hf" else "plain"


def _parse_dedup(asked: Any) -> str:
    text = str(asked).lower()
    found = {True: "content", False: "none"}[_YES[text]] if text in _YES else text
    if found not in ("auto", "content", "aliases", "none"):
        raise UnsupportedError(f"mcf: dedup is one of auto, content, aliases, none, not {asked!r}")
    return found


def _parse_flag(name: str, asked: Any) -> bool:
    found = _YES.get(str(asked).lower())
    if found is None:
        raise UnsupportedError(f"mcf: {name} is true or false, not {asked!r}")
    return found


def _choose_minor(asked: Any, model: Model, file: FilePlan) -> int:
    """Choose the minor version; "auto" is 1, or 0 for a model from a file of version 1.0 without quantization."""
    forms = file.tensors.forms()
    kinds = zip(forms.kinds, forms.firsts, strict=True)
    first = min((row for form, row in kinds if isinstance(form.dtype, McfEncoding)), default=None)
    quantized = None if first is None else file.tensors.names[first]
    records = any(section.type == QUANT_INFO for section in file.sections)
    if str(asked) == "auto":
        old = model.format == "mcf" and model.version == (MAJOR, 0)
        return 0 if old and quantized is None and not records else 1
    if int(asked) == 0 and quantized is not None:
        raise ContentError(f"mcf: tensor {quantized!r} is quantized, which minor version 0 cannot hold")
    return int(asked)


def record_of(tensor: Tensor) -> QuantRecord | None:
    """The quant record of the tensor; None if it has none, or one of another method than its dtype."""
    record, dtype = tensor.native, tensor.dtype
    if not isinstance(record, QuantRecord) or not isinstance(dtype, McfEncoding):
        return None
    return record if record.method == dtype.method.name else None


def _check_tensors(table: TensorTable) -> None:
    """Raise ContentError for a tensor that MCF cannot hold."""
    refuse_names("mcf", table.names, _name_breach, _U32)
    for row in table.forms().firsts:
        _check_form(table.tensor(row))
    for row, _ in table.natives(QuantRecord):
        tensor = table.tensor(row)
        record = record_of(tensor)
        if record is not None and isinstance(tensor.dtype, McfEncoding):
            domain = ("weights", "activations")[tensor.dtype.domain]
            if record.domain != domain:
                message = f"its payload is for {domain}, its record for {record.domain}"
                raise ContentError(f"mcf: tensor {tensor.name!r}: {message}")


def _name_breach(name: str) -> str | None:
    wrong = utf8_breach(name)
    return "a tensor has an empty name" if not name else wrong and f"the name {wrong}"


def _check_form(tensor: Tensor) -> None:
    """Raise ContentError for a type, shape or size that MCF cannot hold."""
    what = f"mcf: tensor {tensor.name!r}"
    if tensor.payload is None:
        raise ContentError(f"{what} is declared without data, which MCF cannot do")
    plain = isinstance(tensor.dtype, DType)
    if not plain and isinstance(tensor.dtype, BareCodes):
        raise ContentError(f"{what}: bare {tensor.dtype} codes have no scale; they can be read, not written")
    dtype_id(tensor.name, tensor.dtype)
    if any(not 0 < dim < 1 << 63 for dim in tensor.shape):
        raise ContentError(f"{what}: a dim of {list(tensor.shape)} is 0 or beyond 2^63")
    if (plain or not isinstance(tensor.dtype, Unassigned)) and tensor.nbytes != tensor.dtype.nbytes(tensor.shape):
        needed = tensor.dtype.nbytes(tensor.shape)
        raise ContentError(f"{what}: {tensor.dtype}{list(tensor.shape)} takes {needed} bytes, not {tensor.nbytes}")


def dtype_id(name: str, dtype: Stored) -> int:
    """The number of the type of the tensor ``name``."""
    if isinstance(dtype, DType) and dtype.name in DTYPE_IDS:  # first, because it is the usual case
        return DTYPE_IDS[dtype.name]
    if isinstance(dtype, Unassigned):
        return dtype.number
    if isinstance(dtype, McfEncoding) and str(dtype) in DTYPE_IDS:
        return DTYPE_IDS[str(dtype)]
    raise ContentError(f"mcf: tensor {name!r}: {dtype} is not an MCF type")


def _assemble(file: FilePlan, minor: int) -> Plan:
    """Sections, payloads and directory. Offsets come first: an index may lie before the payloads it points to."""
    order = sort_names(file.tensors.names)
    refuse_repeats("mcf", file.tensors.names)
    chosen, omitted = _choose_records(file.tensors)
    records = _encode_records(chosen, order)
    index_size = _measure_index(file.tensors)
    offsets = Offsets()
    starts, sizes, cursor = [], [], HEADER.size
    for section in file.sections:
        cursor += -cursor % ALIGN
        if section.payload is not None:
            size = section.payload.size
        elif section.type == TENSOR_DATA:
            offsets = assign_offsets(file, cursor)
            size = offsets.end - cursor
        else:
            size = {TENSOR_INDEX: index_size, QUANT_INFO: len(records)}[section.type]
        starts.append(cursor)
        sizes.append(size)
        cursor += size
    directory = cursor + -cursor % ALIGN

    out = Plan()
    if omitted:
        what = plural(omitted, "quant record of a plain tensor", "quant records of plain tensors")
        out.notes.append(f"{what} left out: not every tensor has a record that fits")
    out.put(_pack_header(file, minor, directory, offsets))
    for section, start in zip(file.sections, starts, strict=True):
        out.cursor = start
        if section.payload is not None:
            out.stream(section.payload)
        elif section.type == TENSOR_INDEX:
            out.stream(Computed(index_size, partial(_build_index, file.tensors, order, offsets.tensors)))
        elif section.type == QUANT_INFO:
            out.put(records)
        else:
            offsets.put(out, file.tensors)
    out.cursor = directory
    entries = sorted(zip(file.sections, starts, sizes, strict=True), key=lambda entry: entry[0].type)
    out.put(b"".join(SECTION.pack(type=s.type, version=s.version, offset=at, size=n) for s, at, n in entries))
    return out


def _pack_header(file: FilePlan, minor: int, directory: int, offsets: Offsets) -> bytes:
    aligned = file.aligned_flag
    dtypes = [form.dtype for form in file.tensors.forms().kinds]
    quantized = any(isinstance(dtype, McfEncoding) and dtype.method.family != "int" for dtype in dtypes)
    if aligned is None:
        aligned = bool(len(offsets.tensors)) and not bool((offsets.tensors % np.uint64(BLOCK_ALIGN)).any())
    return HEADER.pack(
        magic=MAGIC,
        major=MAJOR,
        minor=minor,
        header_size=HEADER.size,
        section_count=len(file.sections),
        section_dir_offset=directory,
        file_size=directory + len(file.sections) * SECTION.size,
        flags=file.flags | (ALIGNED64 if aligned or quantized else 0),
    )


def _choose_records(table: TensorTable) -> tuple[dict[int, QuantRecord | PlainRecord], int]:
    """Choose the records by row, and count those of plain tensors that are left out.

    A reader takes records of plain tensors only if every tensor has one, with the number of its dtype or 0 as method.
    """
    found: dict[int, QuantRecord | PlainRecord] = {}
    for row, _ in table.natives(QuantRecord):
        record = record_of(table.tensor(row))
        if record is not None:
            found[row] = record
    forms, plain = table.forms(), dict(table.natives(PlainRecord))
    fit = sum(record.method in (0, dtype_id("", forms[row].dtype)) for row, record in plain.items())
    return (found, len(plain)) if len(found) + fit < len(table) else ({**found, **plain}, 0)


def _encode_records(records: Mapping[int, QuantRecord | PlainRecord], order: NDArray[np.intp]) -> bytes:
    """Encode QuantInfo: the records of tensors by their places in the index."""
    places = dict(zip(order.tolist(), range(len(order)), strict=True)) if records else {}
    rows = sorted(records, key=lambda row: places[row])
    return quantinfo.encode([(places[row], records[row]) for row in rows])


def _measure_index(table: TensorTable) -> int:
    """Measure the TensorIndex; ContentError if its numbers do not fit."""
    names = int(measure_names(table.names).sum())
    dims = int(table.forms().column(lambda form: len(form.shape), np.int64).sum())
    if max(names, dims, len(table)) > _U32:
        raise ContentError(f"mcf: {len(table)} names of {names} bytes are more than an index can hold")
    return INDEX.size + len(table) * ENTRY.size + 8 * dims + names


def _build_index(table: TensorTable, order: NDArray[np.intp], offsets: NDArray[np.uint64]) -> Iterator[bytes]:
    """Build TensorIndex block by block: entries, then dims, then names, without gaps."""
    forms, names = table.forms(), table.names
    dims = np.array([dim for form in forms.kinds for dim in form.shape], "<u8")
    numbers = forms.table(lambda form: dtype_id("", form.dtype), np.uint32)
    ranks = forms.table(lambda form: len(form.shape), np.int64)
    sizes = forms.table(lambda form: form.size or 0, np.uint64)
    blocks = [order[start : start + _BLOCK] for start in range(0, len(order), _BLOCK)]
    dims_count = int(ranks[forms.codes].sum())
    strings_size = int(measure_names(names).sum())
    dims_off = INDEX.size + len(order) * ENTRY.size
    yield INDEX.pack(
        version=1,
        flags=NAMES_SORTED | NAMES_UTF8,
        tensor_count=len(order),
        dims_count=dims_count,
        entries_off=INDEX.size,
        dims_off=dims_off,
        strings_off=dims_off + 8 * dims_count,
        strings_size=strings_size,
    )
    name_off = dim_off = 0
    for rows in blocks:
        codes = forms.codes[rows]
        entries = np.zeros(len(rows), ENTRY.dtype)
        lengths = measure_names([names[row] for row in rows.tolist()]).astype(np.int64)
        entries["name_len"], entries["name_off"] = lengths, name_off + np.cumsum(lengths) - lengths
        entries["rank"], entries["dim_off"] = ranks[codes], dim_off + np.cumsum(ranks[codes]) - ranks[codes]
        entries["dtype"] = numbers[codes]
        entries["data_off"] = offsets[rows]
        entries["data_size"] = sizes[codes]
        name_off, dim_off = name_off + int(lengths.sum()), dim_off + int(ranks[codes].sum())
        yield entries.tobytes()
    for rows in blocks:
        counts = ranks[forms.codes[rows]]
        firsts = (np.cumsum(ranks) - ranks)[forms.codes[rows]]  # where the dims of each form begin
        yield dims[np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())].tobytes()
    for rows in blocks:
        yield "".join([names[row] for row in rows.tolist()]).encode()
