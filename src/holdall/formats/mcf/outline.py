"""What a file to be written consists of, before anything has a place: sections in order, tensors in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from holdall.errors import ContentError, FormatError, UnsupportedError
from holdall.formats.mcf.layout import (
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
from holdall.formats.mcf.modelinfo import ModelInfo
from holdall.formats.mcf.sections import McfNative, Section
from holdall.formats.mcf.survey import survey
from holdall.metadata import Metadata
from holdall.model import Model
from holdall.payload import Held, Payload, Range
from holdall.quant.encodings import McfEncoding
from holdall.tensor import Tensor

__all__ = ["Outline", "Part", "alignment", "asset_parts", "info_part", "kept", "newly_quantized", "plain"]
__all__ += ["requantized", "shared", "tables"]

_TABLES = (TENSOR_DATA, TENSOR_INDEX, QUANT_INFO)  # sections that the writer makes itself


@dataclass(frozen=True, slots=True)
class Part:
    """A section to be written; those that the writer makes itself have no payload yet."""

    type: int
    version: int = 1
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """A file in outline. ``tensors`` are in the order of their payloads.

    ``same`` leads from a tensor to an earlier one with the same content, whose bytes it shares; with
    ``aliases`` tensors that share bytes where they come from share them here too.
    """

    parts: Sequence[Part]
    tensors: Sequence[Tensor]
    align: int = BLOCK_ALIGN
    minor: int = 1
    flags: int = 0
    aligned_flag: bool | None = None  # bit 0 of the flags; None: set when every payload starts on a multiple of 64
    same: Mapping[int, int] | None = None
    aliases: bool = True
    pad_end: bool = False  # TensorData ends with the padding for another tensor


def tables(tensors: Sequence[Tensor], *, records: bool) -> list[Part]:
    """The sections of the tensors, in the order of the format's own writers."""
    found = [Part(TENSOR_DATA), Part(TENSOR_INDEX)] if tensors else []
    return [*found, Part(QUANT_INFO)] if records else found


def asset_parts(model: Model) -> list[Part]:
    """The model's assets as sections; ContentError for one that MCF has no section for."""
    unknown = [name for name in model.assets if name not in ASSETS.values()]
    if CHAT_TEMPLATE in unknown:
        raise ContentError(f"mcf: {CHAT_TEMPLATE} is no section; arrange=pack merges it into tokenizer_config.json")
    if unknown:
        known = ", ".join(ASSETS.values())
        raise ContentError(f"mcf: there is no section for the asset {unknown[0]!r}; there is one for {known}")
    return [Part(type, 1, model.assets.payload(ASSETS[type])) for type in PACK_ORDER if ASSETS[type] in model.assets]


def info_part(info: ModelInfo) -> Part:
    """ModelInfo as a section."""
    return Part(MODEL_INFO, 1, Held(info.encode()))


def plain(model: Model, tensors: Sequence[Tensor], align: int | None, *, records: bool) -> Outline:
    """A file from any model: assets, ModelInfo for metadata, tensors in the order of their names."""
    parts = asset_parts(model)
    if model.metadata or not (tensors or parts):  # a file has at least one section
        parts.append(info_part(ModelInfo.of(model.metadata)))
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    return Outline([*parts, *tables(tensors, records=records)], ordered, BLOCK_ALIGN if align is None else align)


def kept(model: Model, native: McfNative, tensors: Sequence[Tensor], align: int | None, *, records: bool) -> Outline:
    """An MCF file again: its sections and payloads in the order in which they lie in it."""
    ordered = _by_place(tensors)
    sections = sorted(native.sections, key=lambda section: section.offset)
    old = native.get(TENSOR_DATA)
    mine = _ranges_of(old, tensors)
    natural = gcd(BLOCK_ALIGN, *_bases(mine)) if mine else BLOCK_ALIGN
    end = max((payload.offset + payload.size for payload in mine), default=0)
    return Outline(
        _carried(model, native, sections, tensors, records),
        ordered,
        natural if align is None else align,
        flags=native.flags & ~ALIGNED64,
        aligned_flag=None if align is not None or native.flags & ALIGNED64 else False,
        pad_end=old is not None and bool(mine) and end < old.offset + old.size,
    )


def requantized(model: Model, native: McfNative, tensors: Sequence[Tensor]) -> Outline:
    """A file as the reference quantizer writes it: other sections in directory order, tensors by name, no aliases."""
    others = [section for section in native.sections if section.type not in _TABLES]
    parts = _carried(model, native, others, tensors, records=bool(tensors))
    return Outline(parts, sorted(tensors, key=lambda tensor: tensor.name), aligned_flag=True, aliases=False)


def shared(outline: Outline, dedup: str) -> Outline:
    """``outline`` with its payloads shared as the option ``dedup`` asks; by itself it shares what its source shares."""
    if dedup == "auto":
        return outline
    same = survey(outline.tensors) if dedup == "content" else None
    return replace(outline, same=same, aliases=dedup != "none")


def newly_quantized(native: McfNative, tensors: Sequence[Tensor]) -> bool:
    """Whether some quantized payload does not come out of the file that ``native`` is of."""
    data = native.get(TENSOR_DATA)
    quantized = [tensor.payload for tensor in tensors if isinstance(tensor.dtype, McfEncoding)]
    return len(_ranges_of(data, tensors, quantized=True)) < len(quantized)


def _carried(
    model: Model, native: McfNative, sections: Sequence[Section], tensors: Sequence[Tensor], records: bool
) -> list[Part]:
    """The sections of a file with what has changed in the model since: new assets first, new tables last."""
    info = _info(model, native)
    assets = {part.type: part for part in asset_parts(model)}
    wanted = {part.type: part for part in tables(tensors, records=records)}
    if info is not None:
        wanted[MODEL_INFO] = info
    found: dict[int, Part] = {}
    parts: list[Part] = []
    for section in sections:
        if section.type not in SECTION_NAMES:
            parts.append(Part(section.type, section.version, section.payload))
            continue
        new = assets.get(section.type) or wanted.get(section.type)
        if new is not None and section.type not in found:
            found[section.type] = Part(section.type, section.version, new.payload)
            parts.append(found[section.type])
    early = [part for type, part in assets.items() if type not in found]
    if MODEL_INFO in wanted and MODEL_INFO not in found:
        early.append(wanted[MODEL_INFO])
    late = [part for type, part in wanted.items() if type not in found and type != MODEL_INFO]
    return [*early, *parts, *sorted(late, key=lambda part: _TABLES.index(part.type))] or [info_part(ModelInfo())]


def _info(model: Model, native: McfNative) -> Part | None:
    """ModelInfo: its own bytes while nobody has changed the metadata that came from it."""
    section = native.get(MODEL_INFO)
    if section is not None and model.metadata.entries == _read_back(native).entries:
        return Part(MODEL_INFO, section.version, section.payload)
    return info_part(ModelInfo.of(model.metadata)) if model.metadata else None


def _read_back(native: McfNative) -> Metadata:
    try:
        info = native.model_info
    except FormatError:
        info = None
    return Metadata() if info is None else info.metadata()


# -- the order of payloads ----------------------------------------------------------------------------------------


def _by_place(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Payloads in the order in which they lie in their files, those that lie in none at the end by name."""
    sources: dict[int, int] = {}

    def key(tensor: Tensor) -> tuple[int, int, str]:
        if not isinstance(tensor.payload, Range):
            return len(tensors), 0, tensor.name
        return sources.setdefault(id(tensor.payload.source), len(sources)), tensor.payload.offset, tensor.name

    return sorted(tensors, key=key)


def _ranges_of(data: Section | None, tensors: Sequence[Tensor], *, quantized: bool = False) -> list[Range]:
    """The payloads that lie in the TensorData section of the file itself."""
    if data is None or not isinstance(data.payload, Range):
        return []
    source = data.payload.source
    return [
        tensor.payload
        for tensor in tensors
        if isinstance(tensor.payload, Range)
        and tensor.payload.source is source
        and (isinstance(tensor.dtype, McfEncoding) or not quantized)
    ]


def _bases(ranges: Sequence[Range]) -> list[int]:
    """Where stretches of payloads begin that share no bytes with the one before."""
    bases: list[int] = []
    end = 0
    for payload in sorted(ranges, key=lambda payload: payload.offset):
        if payload.offset >= end:
            bases.append(payload.offset)
        end = max(end, payload.offset + payload.size)
    return bases


def alignment(asked: Any) -> int | None:
    """The option ``tensor_align`` as a number; None for "auto". 0 means 64, as for the format's own packer."""
    if asked in (None, "auto"):
        return None
    try:
        value = int(asked) or BLOCK_ALIGN
    except (TypeError, ValueError):
        value = -1
    if value < 1 or value & (value - 1) or value > 1 << 30:
        raise UnsupportedError(f"mcf: tensor_align is auto or a power of two, not {asked!r}")
    return value
