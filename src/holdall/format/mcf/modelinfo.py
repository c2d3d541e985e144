"""ModelInfo, the section that describes a model: fixed fields, two names, and keys with u32, f32 or text values."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any

from holdall.base.check import Check, figure
from holdall.base.utf8 import is_utf8, utf8_breach
from holdall.errors import ContentError
from holdall.format.mcf import rules
from holdall.format.mcf.layout import ALIGN, KV, MODELINFO
from holdall.format.refusals import check_entries
from holdall.model.metadata import Entry, Metadata

__all__ = ["ARCHITECTURES", "F32", "MODEL_NAME", "ROPE_TYPES", "TEXT", "ModelInfo", "decode", "metadata_breach"]

ARCHITECTURES = ("unknown", "llama", "mistral", "qwen", "gemma", "granite", "smollm3")
ROPE_TYPES = ("none", "standard", "linear", "yarn")

_VERSION = 1
_PREFIX = "mcf."  # begins the metadata keys of the fixed fields
MODEL_NAME = f"{_PREFIX}model_name"  # the key of the name
_NUMBERS = ("vocab_size", "hidden_size", "layer_count", "head_count", "head_count_kv", "context_length",
            "train_context")  # fmt: skip
_FLOATS = ("rope_freq_base", "rope_scale")
_NAMES = ("model_name", "base_model")
_CHOICES = {"arch": ARCHITECTURES, "rope_type": ROPE_TYPES}
U32, F32, TEXT = 1, 2, 3  # types of a value


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The fields of the section. ``extras`` are its key/value entries, as metadata of the kinds u32, f32 and string.

    >>> ModelInfo(model_name="tiny", arch=1).arch_name
    'llama'
    """

    arch: int = 0
    vocab_size: int = 0
    hidden_size: int = 0
    layer_count: int = 0
    head_count: int = 0
    head_count_kv: int = 0
    context_length: int = 0
    train_context: int = 0
    rope_type: int = 0
    rope_freq_base: float = 0.0
    rope_scale: float = 0.0
    model_name: str | bytes = ""  # bytes if the stored name is not UTF-8
    base_model: str | bytes = ""
    extras: Metadata = field(default_factory=Metadata)

    @property
    def arch_name(self) -> str:
        """The name of the architecture, or its number if it is unknown."""
        return ARCHITECTURES[self.arch] if self.arch < len(ARCHITECTURES) else str(self.arch)

    @property
    def rope_type_name(self) -> str:
        """The name of the rope type, or its number if it is unknown."""
        return ROPE_TYPES[self.rope_type] if self.rope_type < len(ROPE_TYPES) else str(self.rope_type)

    def metadata(self) -> Metadata:
        """The fixed fields that are set, under keys such as ``mcf.vocab_size``, then the extras."""
        entries = []
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if name == "extras" or not value:
                continue
            choices = _CHOICES.get(name, ())
            shown = choices[value] if choices and value < len(choices) else value
            entries.append(Entry(_PREFIX + name, shown))
        return Metadata([*entries, *self.extras.entries])

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> ModelInfo:
        """The section that holds ``metadata``; raises ContentError for an entry that it cannot hold."""
        fixed: dict[str, Any] = {}
        extras: list[Entry] = []
        for key, value in check_entries("mcf", Metadata(metadata).entries, metadata_breach).items():
            name = key.removeprefix(_PREFIX)
            if key == name or not _is_fixed(name):
                extras.append(Entry(key, value))
            elif isinstance(value, str) and name in _CHOICES:
                fixed[name] = _CHOICES[name].index(value)
            else:
                fixed[name] = value
        return cls(**fixed, extras=Metadata(extras))

    def encode(self) -> bytes:
        """Encode the bytes of the section, with keys in byte order."""
        out = bytearray(MODELINFO.size)
        numbers = {name: getattr(self, name) for name in ("arch", "rope_type", *_NUMBERS)}
        floats = {name: _check_finite(name, getattr(self, name)) for name in _FLOATS}
        places = {f"{name}_off": _put_text(out, _encode_text(getattr(self, name))) for name in _NAMES}
        table = bytearray()
        for key, value in sorted((key.encode(), value) for key, value in self.extras.items()):
            key_off = _put_text(out, key)
            kind, value_off = _put_value(out, key.decode(), value)
            table += KV.pack(key_off=key_off, type=kind, pad=0, value_off=value_off)
        head = {"version": _VERSION, "flags": 0, "pad": 0, "kv_pad": 0}
        out[: MODELINFO.size] = MODELINFO.pack(
            **head, **numbers, **floats, **places, kv_count=len(self.extras), kv_off=len(out)
        )
        out += table
        return bytes(out)


def _is_fixed(name: str) -> bool:
    return name in _NUMBERS or name in _FLOATS or name in _NAMES or name in _CHOICES


def metadata_breach(key: str, value: Any) -> str | None:
    """Why ModelInfo cannot hold ``value`` under ``key``; None when it can.

    >>> metadata_breach("steps", 12), metadata_breach("steps", -1)
    (None, '-1 is not a whole number of 0..4294967295')
    """
    if not key:
        return "keys are not empty"
    name = key.removeprefix(_PREFIX)
    if key != name and _is_fixed(name):
        return _fixed_breach(name, value)
    return _text_breach(key) or _value_breach(value)


def _fixed_breach(name: str, value: Any) -> str | None:
    if name in _NAMES:
        return _value_breach(value) if isinstance(value, (str, bytes)) else "this field holds text"
    if name in _FLOATS:
        return _value_breach(value) if isinstance(value, float) else "this field holds a float"
    choices = _CHOICES.get(name, ())
    if isinstance(value, str):
        return None if value in choices else f"this field holds one of {', '.join(choices) or 'the whole numbers'}"
    return _value_breach(value) if isinstance(value, int) else "this field holds a whole number"


def _value_breach(value: Any) -> str | None:
    """Why ``value`` would not be read back exactly; None when it would."""
    match value:
        case bool():
            return "there is no type for true and false"
        case int():
            return None if 0 <= value < 1 << 32 else f"{figure(value)} is not a whole number of 0..4294967295"
        case float():
            return None if _is_f32(value) else f"{value!r} is not exactly a finite 32-bit float"
        case str():
            return _text_breach(value)
        case bytes():
            return "bytes that are also text would come back as text" if value and is_utf8(value) else None
    return f"there is no type for {type(value).__name__}; u32, f32, text and bytes are there"


def _text_breach(value: str) -> str | None:
    return utf8_breach(value) or (None if len(value.encode()) < 1 << 32 else "text is shorter than 4 GiB")


def _is_f32(value: float) -> bool:
    try:
        return isfinite(value) and struct.unpack("<f", struct.pack("<f", value))[0] == value
    except OverflowError:
        return False


def _check_finite(name: str, value: float) -> float:
    try:
        if isfinite(value):
            struct.pack("<f", value)
            return value
    except OverflowError:
        pass
    raise ContentError(f"mcf: {name} is {value!r}, not a finite 32-bit float")


def _encode_text(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _put(out: bytearray, data: bytes) -> int:
    """Append ``data``, padded to 8 bytes, and return its offset."""
    at = len(out)
    out += data + bytes(-len(data) % ALIGN)
    return at


def _put_text(out: bytearray, data: bytes) -> int:
    return _put(out, struct.pack("<I", len(data)) + data) if data else 0


def _put_value(out: bytearray, key: str, value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return U32, _put(out, struct.pack("<I", value))
    if isinstance(value, float):
        return F32, _put(out, struct.pack("<f", _check_finite(key, value)))
    if isinstance(value, str):
        return TEXT, _put_text(out, value.encode())
    # Empty bytes are stored as a text of length 0, empty text as offset 0, so that both are read back as they were.
    return TEXT, _put(out, struct.pack("<I", len(value)) + value)


def decode(data: bytes, at: int, check: Check) -> ModelInfo | None:
    """Decode the section ``data``, which starts at byte ``at`` of the file; None when it is not the structured form.

    Other programs store other content in this section: data that is too short and does not begin with version 1
    is taken for theirs.
    """
    if len(data) < MODELINFO.size:
        if data[:4] != struct.pack("<I", _VERSION):
            return None
        check.fail(rules.INFO_SIZE, at, f"mcf: ModelInfo: {len(data)} bytes cannot hold the head of {MODELINFO.size}")
    head = MODELINFO.read(data, 0)
    if head.version != _VERSION or head.flags:
        message = f"mcf: ModelInfo: version {head.version} with flags {head.flags:#x} is unknown; 1 without is known"
        check.fail(rules.INFO_VERSION, at, message)
    for name in ("pad", "kv_pad"):
        if getattr(head, name):
            check.note(rules.INFO_ZERO, at + MODELINFO.offset_of(name), f"mcf: ModelInfo: {name} is not 0")
    texts = _Texts(data, at, check)
    names: dict[str, Any] = {name: texts.text(getattr(head, f"{name}_off"), name) for name in _NAMES}
    extras = Metadata(_read_entries(head.kv_count, head.kv_off, texts))
    numbers = {name: getattr(head, name) for name in ("arch", "rope_type", *_NUMBERS, *_FLOATS)}
    return ModelInfo(**numbers, **names, extras=extras)


def _read_entries(count: int, start: int, texts: _Texts) -> Iterator[Entry]:
    data, at, check = texts.data, texts.at, texts.check
    if count and (start == 0 or start > len(data) or count > (len(data) - start) // KV.size):
        message = f"mcf: ModelInfo: {count} entries at {start} do not fit its {len(data)} bytes"
        check.fail(rules.INFO_TABLE, at + MODELINFO.offset_of("kv_count"), message)
    check.limit("metadata_entries", count, at, "mcf: ModelInfo entries")
    for number in range(count):
        place = start + number * KV.size
        row = KV.read(data, place)
        key = texts.text(row.key_off, f"the key of entry {number}")
        if not key or not isinstance(key, str):
            message = f"mcf: ModelInfo: the key of entry {number} is {'not UTF-8' if key else 'empty'}"
            check.fail(rules.INFO_KEY, at + place, message)
        if row.pad:
            check.note(rules.INFO_ZERO, at + place, f"mcf: ModelInfo: the padding of entry {key!r} is not 0")
        if row.type == TEXT:
            value = texts.text(row.value_off, f"the value of {key!r}", empty_as_bytes=True)
            yield Entry(key, value, "string")
        elif row.type in (U32, F32):
            code, kind = ("<I", "u32") if row.type == U32 else ("<f", "f32")
            yield Entry(key, struct.unpack(code, texts.part(row.value_off, 4, f"the value of {key!r}"))[0], kind)
        else:
            check.fail(rules.INFO_TYPE, at + place, f"mcf: ModelInfo: entry {key!r} is of the unknown type {row.type}")


class _Texts:
    """The counted texts of one section. Together they must not be longer than the section."""

    def __init__(self, data: bytes, at: int, check: Check) -> None:
        self.data = data
        self.at = at
        self.check = check
        self._used = 0

    def part(self, start: int, size: int, what: str) -> bytes:
        """The ``size`` bytes at ``start``."""
        if start > len(self.data) or size > len(self.data) - start:
            message = f"mcf: ModelInfo: {what}: {size} bytes at {start} run past its end at {len(self.data)}"
            self.check.fail(rules.INFO_TEXT, self.at + min(start, len(self.data)), message)
        self._used += size
        if self._used > len(self.data):  # a hostile file: texts overlap so that the same bytes are copied many times
            message = f"mcf: ModelInfo: its texts take more than its {len(self.data)} bytes"
            self.check.fail(rules.INFO_TEXT, self.at + start, message)
        return self.data[start : start + size]

    def text(self, start: int, what: str, *, empty_as_bytes: bool = False) -> str | bytes:
        """The text at ``start``, "" if that is 0; bytes if it is not UTF-8, or optionally if it is empty."""
        if start == 0:
            return ""
        (size,) = struct.unpack("<I", self.part(start, 4, what))
        found = self.part(start + 4, size, what)
        if empty_as_bytes and not found:
            return found
        try:
            return found.decode()
        except UnicodeDecodeError:
            return found
