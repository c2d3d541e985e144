"""What explain opens in MCF files: sections of Hugging Face files, names, and dims."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.format.mcf.layout import ASSETS, KV, MODEL_INFO, MODELINFO
from holdall.format.mcf.modelinfo import F32, TEXT
from holdall.format.mcf.sections import McfNative, Section
from holdall.format.outline import Outline, Place, outline_by_name, outline_names, outline_numbers, stop_at

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of a section that is a file, or of a part of the index without fields."""
    if place.name in ASSETS.values():
        return outline_by_name(place.name, source, place.start, place.stop)
    match place.name:
        case "dims":
            return outline_numbers(source, place.start, place.stop)
        case "tensor names":
            return outline_names(() if model is None else model, source, place.start, place.stop)
        case "model info texts":
            return _outline_info(place, source, model)
    return None


def _outline_info(place: Place, source: Source, model: Model | None) -> Outline | None:
    """The names, keys and values of ModelInfo that lie in ``place``."""
    section = model.native.get(MODEL_INFO) if model is not None and isinstance(model.native, McfNative) else None
    if section is None:
        return None

    def walk(since: int) -> Iterator[Item]:
        for start, name, kind in sorted(_locate_texts(section)):
            if place.start <= start < place.stop:
                item = _read_text(source, start, place.stop, name, kind)
                if item.stop > since:
                    yield item

    return Outline("texts and values", walk, place.stop - place.start)


def _locate_texts(section: Section) -> Iterator[tuple[int, str, int]]:
    """Where the head and the entries of ModelInfo say that texts and values are, and the type of each."""
    data = section.data
    head = MODELINFO.read(data, 0)
    for name in ("model_name", "base_model"):
        yield section.offset + getattr(head, f"{name}_off"), name, TEXT
    for row in range(head.kv_count):
        entry = KV.read(data, head.kv_off + row * KV.size)
        yield section.offset + entry.key_off, f"key {row}", TEXT
        yield section.offset + entry.value_off, f"value {row}", entry.type


def _read_text(source: Source, start: int, stop: int, name: str, kind: int) -> Item:
    head = source.read(start, min(4, stop - start))
    if kind != TEXT:
        value = struct.unpack("<f" if kind == F32 else "<I", head)[0] if len(head) == 4 else None
        return Item(start, start + len(head), 0, name, "f32" if kind == F32 else "u32", value, head)
    size = int.from_bytes(head, "little")
    if size > stop - start - 4:
        raise stop_at(start, f"{name}: {size} bytes do not fit the {stop - start - 4} that are left")
    held = source.read(start + 4, min(size, LONGEST))
    text, whole = held.decode("utf-8", "backslashreplace"), size <= LONGEST
    return Item(start + 4, start + 4 + size, 0, name, "text", text, held[:SHOWN], start, whole=whole)
