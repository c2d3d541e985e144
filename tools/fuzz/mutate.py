"""The structure-aware mutator: takes an input apart with the format's own reader, changes one thing, puts it together.

In place: one field gets a number that has hurt readers, one entry is copied over another, bytes are damaged. With a
shift: an entry is doubled or taken out, a name gets longer, a document is changed somewhere inside; offsets, sizes and
counts around it are made right. Last, checksums are mended more often than not (:mod:`tools.fuzz.mend`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from holdall.binary.compression import compress
from holdall.errors import FormatError, UnsupportedError
from tools.fuzz.anatomy import Field, FilePart, anatomy
from tools.fuzz.documents import GGUF, JSON, MSGPACK, NPY, NPZ, PICKLE, PROTOBUF, TORCH, Kind
from tools.fuzz.framing import MAIN, frame, source_of, unframe
from tools.fuzz.mend import COUNTS, MEND, SPANS, inflate
from tools.fuzz.subjects import Subject
from tools.fuzz.trees import TEXTS, change_tree, damage_bytes, number

__all__ = ["documents_of", "mutate", "put_document", "repeat_row", "splice"]

Files = dict[str, bytes]
Bytes = Callable[[bytes], bytes]  # a plain mutation of bytes, such as libFuzzer's own

_MENDED = 0.85  # how often checksums are corrected
_WHOLE: dict[str, tuple[Kind, ...]] = {
    "npz": (NPZ, NPY), "torch": (TORCH, PICKLE), "onnx": (PROTOBUF,), "gguf": (GGUF,),
}  # fmt: skip
_NAMES = ("model.safetensors", "model.safetensors.index.json", "other.aeroset.json", "m-00003-of-00003.gguf", "x")
_CHUNKS = {b"MJSN": JSON, b"MMSG": MSGPACK, b"TIDX": MSGPACK, b"IHSH": MSGPACK, b"PHSH": MSGPACK}


def mutate(data: bytes, subject: Subject, chance: random.Random, plain: Bytes | None = None) -> bytes:
    """Make another input from ``data``."""
    files = unframe(data)
    if not any(files.values()):
        return (plain or (lambda data: damage_bytes(data, chance)))(data)
    parts = _parts(data, subject.name)
    with suppress(Exception):  # a damaged input cannot always be taken apart
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            _change_in_place(files, parts, chance)
        if chance.random() < 0.6:
            _change_with_shift(files, parts, subject, chance, plain)
    if chance.random() < _MENDED and subject.name in MEND:
        MEND[subject.name](files)
    if MAIN not in files and chance.random() < 0.05:
        _change_members(files, chance)
    return frame(files)


def _change_members(files: Files, chance: random.Random) -> None:
    """Take a file out of a set, or put one in under another name or in the place of another."""
    names = list(files)
    if chance.random() < 0.3:
        del files[chance.choice(names)]
    else:
        files[chance.choice([*names, *_NAMES])] = files[chance.choice(names)]


@lru_cache(maxsize=20_000)  # libFuzzer mutates the inputs that it keeps many times
def _parts(data: bytes, name: str) -> tuple[FilePart, ...]:
    from tools.fuzz.subjects import SUBJECTS

    subject = SUBJECTS[name]
    files = unframe(data)
    try:
        return tuple(anatomy(source_of(files, subject.start), subject.format(files)))
    except (FormatError, UnsupportedError):
        return ()


# -- changes that keep every byte where it is -------------------------------------------------------------------------


def _change_in_place(files: Files, parts: tuple[FilePart, ...], chance: random.Random) -> None:
    records = [part for part in parts if part.fields]
    if not records or chance.random() < 0.1:
        name = chance.choice(list(files))
        data = bytearray(files[name])
        if data:
            at = chance.randrange(len(data))
            data[at] = chance.choice((data[at] ^ 1 << chance.randrange(8), 0, 0xFF, chance.randrange(256)))
        files[name] = bytes(data)
        return
    part = chance.choice(records)
    data = bytearray(files.get(part.member, b""))
    if chance.random() < 0.2:  # one entry over another of its size
        same = [
            other for other in records if (other.name, other.size, other.member) == (part.name, part.size, part.member)
        ]
        other = chance.choice(same)
        first, second = data[part.start : part.stop], data[other.start : other.stop]
        data[other.start : other.stop] = first
        if chance.random() < 0.5:
            data[part.start : part.stop] = second
    else:
        _new_value(data, chance.choice(list(part.fields.values())), records, chance)
    files[part.member] = bytes(data)


def _new_value(data: bytearray, field: Field, records: list[FilePart], chance: random.Random) -> None:
    start, size = field.start, field.size
    if field.kind == "array" and size:  # one item
        width = 8 if size % 8 == 0 else 4
        start, size = start + width * chance.randrange(max(1, size // width)), width
    old = int.from_bytes(data[start : start + size], "little")
    if field.kind in ("int", "array") and size <= 8:
        if chance.random() < 0.2:  # what another field says
            other = chance.choice(list(chance.choice(records).fields.values()))
            new = other.value if isinstance(other.value, int) else other.start
        else:
            new = number(chance, old)
        data[start : start + size] = (int(new) & (1 << 8 * size) - 1).to_bytes(size, "little")
    elif size:
        at = start + chance.randrange(size)
        data[at] = chance.choice((data[at] ^ 1 << chance.randrange(8), 0, 0x80, 0xFF, ord("a"), ord("/")))


# -- changes that move what follows -----------------------------------------------------------------------------------


def _change_with_shift(
    files: Files, parts: tuple[FilePart, ...], subject: Subject, chance: random.Random, plain: Bytes | None
) -> None:
    """Double or take out an entry, lengthen a text, change a document, or damage bytes."""
    choices: list[Callable[[], None]] = []
    rows = [part for part in parts if part.kind == "table"]
    texts = [(part, field) for part in parts for field in part.fields.values() if field.kind == "text"]
    documents = documents_of(files, parts, subject)
    if rows:
        choices += [lambda: _row(files, parts, chance.choice(rows), subject, chance)] * 3
    if texts:
        choices += [lambda: _text(files, parts, *chance.choice(texts), subject, chance)] * 2
    if documents:
        choices += [lambda: _document(files, parts, chance.choice(documents), subject, chance)] * 8
    choices += [lambda: _damage(files, parts, subject, chance, plain)] * 2
    chance.choice(choices)()


def _row(files: Files, parts: tuple[FilePart, ...], part: FilePart, subject: Subject, chance: random.Random) -> None:
    repeat_row(files, parts, part, chance.choice((0, 2, 2, 3, 20)), subject)


def repeat_row(files: Files, parts: tuple[FilePart, ...], part: FilePart, times: int, subject: Subject) -> None:
    """Repeat the entry ``part`` of a table, and correct its count."""
    stored = files[part.member][part.start : part.stop]
    _count(files, parts, part, times - 1, subject)
    splice(files, parts, part.member, part.start, part.stop, stored * times, subject)


def _count(files: Files, parts: tuple[FilePart, ...], part: FilePart, more: int, subject: Subject) -> None:
    owner, name = COUNTS.get(subject.tables, {}).get(part.name, ("", ""))
    for record in parts:
        if record.member == part.member and record.name == owner and name in record.fields:
            _set(files, record, name, int(str(record.fields[name].value)) + more)
            return


def _text(
    files: Files, parts: tuple[FilePart, ...], part: FilePart, field: Field, subject: Subject, chance: random.Random
) -> None:
    """Replace a text, with its counter and the padding of the field."""
    old = str(field.value).encode("utf-8", "surrogatepass")
    stored = files[part.member][field.start : field.start + field.size]
    width = max(1, stored.find(old)) if old else 4
    texts = [str(other.value) for one in parts for other in one.fields.values() if other.kind == "text"]
    new = chance.choice([*TEXTS, *texts, *texts]).encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        new = damage_bytes(new, chance)
    whole = len(new).to_bytes(8, "little")[:width] + new
    pad = 8 if subject.name == "oinf" else 1
    splice(files, parts, part.member, field.start, field.start + field.size, whole + bytes(-len(whole) % pad), subject)


def _damage(
    files: Files, parts: tuple[FilePart, ...], subject: Subject, chance: random.Random, plain: Bytes | None
) -> None:
    """Damage bytes of one part, or of a whole file, whatever they mean."""
    name = chance.choice(list(files))
    own = [part for part in parts if part.member == name]
    change = plain if plain is not None and chance.random() < 0.7 else lambda data: damage_bytes(data, chance)
    if own and chance.random() < 0.6:
        part = chance.choice(own)
        old = files[name][part.start : part.stop]
        splice(files, parts, name, part.start, part.stop, change(old), subject)
    else:
        files[name] = change(files[name])


_Document = tuple[str, int, int, Kind, FilePart | None]  # member, start, stop, kind, and the AERO entry of a chunk


def documents_of(files: Files, parts: tuple[FilePart, ...], subject: Subject) -> list[_Document]:
    """Return the documents of an input: regions that begin like JSON, chunks of AERO, or the whole file."""
    found: list[_Document] = []
    for name, data in files.items():
        found += [(name, 0, len(data), kind, None) for kind in _WHOLE.get(subject.name, ()) if data]
        if name.endswith(".json"):
            found.append((name, 0, len(data), JSON, None))
    for part in parts:
        data = files.get(part.member, b"")
        if not part.fields and data[part.start : part.start + 1] in (b"{", b"["):
            found.append((part.member, part.start, part.stop, JSON, None))
        if part.name == "toc entry":
            start, size = (int(str(part.fields[key].value)) for key in ("chunk_offset", "chunk_length"))
            kind = _CHUNKS.get(data[part.start : part.start + 4])
            if kind is not None and size and start + size <= len(data):
                found.append((part.member, start, start + size, kind, part))
    return found


def _document(
    files: Files, parts: tuple[FilePart, ...], document: _Document, subject: Subject, chance: random.Random
) -> None:
    def change(tree: Any) -> Any:
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            tree = change_tree(tree, chance)
        return tree

    put_document(files, parts, document, subject, change)


def put_document(
    files: Files, parts: tuple[FilePart, ...], document: _Document, subject: Subject, change: Callable[[Any], Any]
) -> None:
    """Change the tree of a document, and put it back in its place."""
    member, start, stop, (take, make), entry = document
    stored = files[member][start:stop]
    packed = entry is not None and stored[:4] == b"\x28\xb5\x2f\xfd"
    new = make(change(take(inflate(stored) if packed else stored)))
    if entry is not None:
        _set(files, entry, "chunk_ulen", len(new))
        new = compress(new, 1) if packed else new
    elif stored[-1:] == b" ":  # safetensors fills its header up
        new += b" " * max(0, len(stored) - len(new))
    splice(files, parts, member, start, stop, new, subject)


def _set(files: Files, part: FilePart, name: str, value: int) -> None:
    field = part.fields[name]
    data = files[part.member]
    stored = (value & (1 << 8 * field.size) - 1).to_bytes(field.size, "little")
    files[part.member] = data[: field.start] + stored + data[field.start + field.size :]


def splice(
    files: Files, parts: tuple[FilePart, ...], member: str, start: int, stop: int, new: bytes, subject: Subject
) -> None:
    """Put ``new`` in the place of ``start..stop``, and correct the offsets and sizes that this moves."""
    by = len(new) - (stop - start)
    for part in parts if by else ():
        if part.member != member:
            continue
        for where, how_long in SPANS.get(subject.tables, {}).get(part.name, ()):
            place = int(str(part.fields[where].value)) if where in part.fields else part.stop if not where else None
            size = int(str(part.fields[how_long].value)) if how_long in part.fields else 0
            if place is None:
                continue
            if where and place >= stop and place > start:
                _set(files, part, where, place + by)
            elif size and place <= start and stop <= place + size:
                _set(files, part, how_long, size + by)
    data = files[member]
    files[member] = data[:start] + new + data[stop:]
