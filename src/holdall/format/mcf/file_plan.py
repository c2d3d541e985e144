"""The sections and tensors of a file to be written, in their order, before they have offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from holdall.errors import ContentError, UnsupportedError
from holdall.format.mcf.layout import (
    ALIGNED64,
    ASSETS,
    BLOCK_ALIGN,
    CHAT_TEMPLATE,
    MODEL_INFO,
    PACK_ORDER,
    QUANT_INFO,
    SECTION_NAMES,
    TENSOR_DATA,
    TENSOR_INDEX,
)
from holdall.format.mcf.modelinfo import ModelInfo
from holdall.format.mcf.sections import McfNative, Section
from holdall.format.refusals import parse_number
from holdall.model.arranged_table import ArrangedTable
from holdall.model.dtypes import DType
from holdall.model.equal_tensors import find_equal
from holdall.model.metadata import Metadata
from holdall.model.model import Model
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor
from holdall.quant.encodings import McfEncoding

__all__ = ["FilePlan", "NewSection", "asset_sections", "find_equal_plain", "has_new_quantized", "info_section"]
__all__ += ["parse_alignment", "plan_copy", "plan_index_kept", "plan_plain", "plan_requantized", "share_payloads"]
__all__ += ["table_sections"]

_LARGEST = 1 << 30  # the largest alignment
_TABLES = (TENSOR_DATA, TENSOR_INDEX, QUANT_INFO)  # sections that the writer builds from the tensors


@dataclass(frozen=True, slots=True)
class NewSection:
    """A section to be written. One that the writer builds from the tensors has no payload."""

    type: int
    version: int = 1
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file without offsets. ``tensors`` are in the order of their payloads.

    ``same`` maps the row of a tensor to an earlier one with the same content, whose bytes it shares. With ``aliases``
    tensors that share bytes in their source share them in the new file too.
    """

    sections: Sequence[NewSection]
    tensors: TensorTable
    align: int = BLOCK_ALIGN
    flags: int = 0
    aligned_flag: bool | None = None  # bit 0 of the flags; None sets it if every payload starts at a multiple of 64
    same: Mapping[int, int] | None = None
    aliases: bool = True
    pad_end: bool = False  # TensorData ends with the padding for a further tensor


def table_sections(tensors: Sequence[Tensor], *, records: bool) -> list[NewSection]:
    """The sections that hold the tensors, in the order of the format's own writers."""
    types = [*((TENSOR_DATA, TENSOR_INDEX) if tensors else ()), *((QUANT_INFO,) if records else ())]
    return [NewSection(type) for type in types]


def asset_sections(model: Model) -> list[NewSection]:
    """The assets of the model as sections; raises ContentError for an asset that MCF has no section for."""
    unknown = [name for name in model.assets if name not in ASSETS.values()]
    if CHAT_TEMPLATE in unknown:
        raise ContentError(f"mcf: {CHAT_TEMPLATE} is no section; arrange=pack merges it into tokenizer_config.json")
    if unknown:
        known = ", ".join(ASSETS.values())
        raise ContentError(f"mcf: there is no section for the asset {unknown[0]!r}; there is one for {known}")
    types = [type for type in PACK_ORDER if ASSETS[type] in model.assets]
    return [NewSection(type, 1, model.assets.payload(ASSETS[type])) for type in types]


def info_section(info: ModelInfo) -> NewSection:
    """ModelInfo as a section."""
    return NewSection(MODEL_INFO, 1, InMemory(info.encode()))


def plan_plain(model: Model, tensors: TensorTable, align: int | None, *, records: bool) -> FilePlan:
    """Plan a file for any model: assets, ModelInfo for the metadata, tensors sorted by name."""
    sections = asset_sections(model)
    if model.metadata or not (tensors or sections):  # a file has at least one section
        sections.append(info_section(ModelInfo.of(model.metadata)))
    sections += table_sections(tensors, records=records)
    return FilePlan(sections, ArrangedTable.by_name(tensors), BLOCK_ALIGN if align is None else align)


def plan_copy(model: Model, native: McfNative, tensors: TensorTable, align: int | None, *, records: bool) -> FilePlan:
    """Plan a file like the MCF file of the model: sections and payloads in the order in which they lie in it."""
    old = native.get(TENSOR_DATA)
    unchanged = _ranges_of(old, tensors)
    natural = _infer_alignment(unchanged, old.offset) if old is not None and unchanged else BLOCK_ALIGN
    end = max((payload.offset + payload.size for payload in unchanged), default=0)
    return FilePlan(
        _merge_sections(model, native, _sort_sections(native), table_sections(tensors, records=records)),
        ListTable(_sort_by_offset(tensors)),
        natural if align is None else align,
        flags=native.flags & ~ALIGNED64,
        aligned_flag=None if align is not None or native.flags & ALIGNED64 else False,
        pad_end=old is not None and bool(unchanged) and end < old.offset + old.size,
    )


def plan_index_kept(model: Model, native: McfNative) -> FilePlan:
    """Plan a file like the MCF file of the model, which has no TensorData: its tables do not change.

    What the entries of such an index say of payloads is known to the file alone, so that no new one can be built.
    """
    tables = (native.get(type) for type in _TABLES)
    kept = [NewSection(table.type, table.version, table.payload) for table in tables if table is not None]
    sections = _merge_sections(model, native, _sort_sections(native), kept)
    return FilePlan(sections, ListTable([]), flags=native.flags, aligned_flag=False)


def plan_requantized(model: Model, native: McfNative, tensors: TensorTable) -> FilePlan:
    """Plan a file like those of the reference quantizer: sections in directory order, tensors by name, no aliases."""
    others = [section for section in native.sections if section.type not in _TABLES]
    sections = _merge_sections(model, native, others, table_sections(tensors, records=bool(tensors)))
    return FilePlan(sections, ArrangedTable.by_name(tensors), aligned_flag=True, aliases=False)


def share_payloads(file: FilePlan, dedup: str) -> FilePlan:
    """``file`` with payloads shared as the option ``dedup`` asks; "auto" leaves it unchanged."""
    if dedup == "auto":
        return file
    same = find_equal_plain(file.tensors) if dedup == "content" else None
    return replace(file, same=same, aliases=dedup != "none")


def find_equal_plain(tensors: TensorTable) -> dict[int, int]:
    """Find the rows with the content of an earlier row, as :func:`find_equal` gives them.

    Quantized tensors are left out: to compute them twice costs more than the bytes that sharing saves.
    """
    return find_equal(tensors, lambda form: isinstance(form.dtype, DType))


def has_new_quantized(native: McfNative, tensors: Sequence[Tensor]) -> bool:
    """Whether some quantized payload does not come from the file of ``native``."""
    quantized = [tensor for tensor in tensors if isinstance(tensor.dtype, McfEncoding) and tensor.has_data]
    return len(_ranges_of(native.get(TENSOR_DATA), quantized)) < len(quantized)


def _merge_sections(
    model: Model, native: McfNative, sections: Sequence[Section], tables: Sequence[NewSection]
) -> list[NewSection]:
    """Return the sections of a file with the present content of the model; new assets come first, new tables last."""
    info = _choose_info(model, native)
    assets = {section.type: section for section in asset_sections(model)}
    wanted = {section.type: section for section in tables}
    if info is not None:
        wanted[MODEL_INFO] = info
    found: set[int] = set()
    kept: list[NewSection] = []
    loose = TENSOR_DATA not in wanted and native.get(TENSOR_INDEX) is None  # their bytes belong to no tensor
    repeated = set(map(id, native.repeated))
    again: list[NewSection] = []  # behind all others, so that they come after the first of their type
    for section in sections:
        if section.type in SECTION_NAMES and id(section) in repeated:
            if section.type in assets or section.type == MODEL_INFO:
                again.append(NewSection(section.type, section.version, section.payload))
            continue
        if section.type not in SECTION_NAMES or (loose and section.type in _TABLES):
            kept.append(NewSection(section.type, section.version, section.payload))
            continue
        new = assets.get(section.type) or wanted.get(section.type)
        if new is not None and section.type not in found:
            found.add(section.type)
            kept.append(NewSection(section.type, section.version, new.payload))
    early = [section for type, section in assets.items() if type not in found]
    if MODEL_INFO in wanted and MODEL_INFO not in found:
        early.append(wanted[MODEL_INFO])
    late = [section for type, section in wanted.items() if type not in found and type != MODEL_INFO]
    late.sort(key=lambda section: _TABLES.index(section.type))
    return [*early, *kept, *late, *again] or [info_section(ModelInfo())]


def _sort_sections(native: McfNative) -> list[Section]:
    return sorted(native.sections, key=lambda section: section.offset)


def _choose_info(model: Model, native: McfNative) -> NewSection | None:
    """ModelInfo: the stored bytes if the metadata is unchanged since the file was read, else new ones."""
    section = native.get(MODEL_INFO)
    if section is not None and model.metadata.entries == _read_back(native).entries:
        return NewSection(MODEL_INFO, section.version, section.payload)
    if section is not None and not native.reads_model_info:
        raise ContentError("mcf: ModelInfo cannot be read as metadata, and new metadata would replace what it holds")
    return info_section(ModelInfo.of(model.metadata)) if model.metadata else None


def _read_back(native: McfNative) -> Metadata:
    """Read the metadata that reading the file has given."""
    info = native.model_info if native.reads_model_info else None
    return Metadata() if info is None else info.metadata()


def _sort_by_offset(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors in the order of their payloads in their files, then those that are in no file, by name."""
    sources: dict[int, int] = {}

    def key(tensor: Tensor) -> tuple[int, int, str]:
        if not isinstance(tensor.payload, SourceRange):
            return len(tensors), 0, tensor.name
        return sources.setdefault(id(tensor.payload.source), len(sources)), tensor.payload.offset, tensor.name

    return sorted(tensors, key=key)


def _ranges_of(data: Section | None, tensors: Sequence[Tensor]) -> list[SourceRange]:
    """The payloads that lie in the file of the TensorData section ``data``."""
    if data is None or not isinstance(data.payload, SourceRange):
        return []
    source = data.payload.source
    payloads = [tensor.payload for tensor in tensors]
    return [payload for payload in payloads if isinstance(payload, SourceRange) and payload.source is source]


def _infer_alignment(ranges: Sequence[SourceRange], start: int) -> int:
    """Infer the alignment that gives payloads their offsets again, in a TensorData section that begins at ``start``.

    Up to 64 it is the largest one that fits, above 64 the smallest: offsets may be multiples of more by accident.
    """
    spans = _find_spans(ranges)
    common = gcd(*(first for first, _ in spans))
    if common % BLOCK_ALIGN:
        return gcd(BLOCK_ALIGN, common)
    align, most = BLOCK_ALIGN, min(common & -common, _LARGEST)
    while align <= most:
        ends = (start, *(last for _, last in spans))
        if all(first == end + -end % align for (first, _), end in zip(spans, ends, strict=False)):
            return align
        align *= 2
    return BLOCK_ALIGN


def _find_spans(ranges: Sequence[SourceRange]) -> list[tuple[int, int]]:
    """Find where the payloads lie, those that share bytes as one: first and last byte, in order."""
    spans: list[tuple[int, int]] = []
    for payload in sorted(ranges, key=lambda payload: payload.offset):
        first, last = payload.offset, payload.offset + payload.size
        if spans and first < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def parse_alignment(asked: Any) -> int | None:
    """Parse the option ``tensor_align`` as a number; None for "auto". 0 means 64, as in the format's own packer."""
    if asked in (None, "auto"):
        return None
    value = parse_number(asked) or BLOCK_ALIGN
    if value < 1 or value & (value - 1) or value > _LARGEST:
        raise UnsupportedError(f"mcf: tensor_align is auto or a power of two, not {asked!r}")
    return value
