"""The chunks of a file that is planned: its own, and those that are copied from the files it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from holdall.binary.documents import msgpack
from holdall.binary.documents.base import DocumentError
from holdall.format.aero.layout import OPTIONAL, PAGES, PHSH, WTSH, shard_name
from holdall.format.aero.own_content import OwnContent
from holdall.format.aero.settings import Settings
from holdall.model.payload import InMemory, Payload, SourceRange

__all__ = ["PlannedChunk", "plan_extras", "rename_extras"]


@dataclass(slots=True)
class PlannedChunk:
    """One row of the table of contents to be. The writer adds what is known only after writing."""

    fourcc: bytes
    name: str
    flags: int
    shard: int = 0
    offset: int = 0
    length: int = 0
    ulen: int = 0
    digest: bytes = b""
    extra: Payload | None = None  # the stored bytes of a chunk that is copied, or given by the caller


def plan_extras(settings: Settings, own: OwnContent) -> list[PlannedChunk]:
    """Plan the chunks that are copied from the sources, and those that the caller gives, which replace them."""
    planned: dict[tuple[bytes, str], PlannedChunk] = {}
    for native, chunk in own.chunks.values():
        stored = SourceRange(native.container.source, chunk.offset, chunk.length)
        item = PlannedChunk(chunk.fourcc.encode("latin-1"), chunk.name, chunk.flags, extra=stored)
        item.ulen, item.digest = chunk.ulen, chunk.blake3
        planned[item.fourcc, item.name] = item
    for given in settings.extras:
        item = PlannedChunk(given.fourcc, given.name, OPTIONAL, extra=given.payload)
        item.ulen = given.payload.size
        planned[item.fourcc, item.name] = item
    return list(planned.values())


def rename_extras(extras: Sequence[PlannedChunk], own: Sequence[PlannedChunk]) -> tuple[list[PlannedChunk], list[str]]:
    """Give ``extras`` names that none of the file's ``own`` chunks has; returns them, and what was renamed.

    A shard without tensors may have the number of a shard to be written. Its page hashes take its new name.
    """
    taken = {(item.fourcc, item.name) for item in own}
    used = taken | {(item.fourcc, item.name) for item in extras}
    names = {item.name: item.name for item in extras if item.fourcc == WTSH and (WTSH, item.name) not in taken}
    notes: list[str] = []
    placed: dict[int, PlannedChunk] = {}
    for place, item in sorted(enumerate(extras), key=lambda pair: pair[1].fourcc == PHSH):  # after their shards
        shard = item.name.removesuffix(PAGES)
        clashes = (item.fourcc, item.name) in taken or (item.fourcc == PHSH and (WTSH, shard) in taken)
        placed[place] = item
        if not clashes:
            continue
        follows = item.fourcc == PHSH and shard in names
        name = names[shard] + PAGES if follows else next(_list_names(item, used))
        used.add((item.fourcc, name))
        if item.fourcc == WTSH:
            names[item.name] = name
        placed[place] = _rename_pages(item, names[shard]) if follows else replace(item, name=name)
        notes.append(f"chunk {item.fourcc.decode('latin-1')} {item.name!r} is called {name!r}: its name is needed")
    return [placed[place] for place in range(len(extras))], notes


def _list_names(item: PlannedChunk, used: set[tuple[bytes, str]]) -> Iterator[str]:
    """The names that are left for a chunk."""
    names = map(shard_name, count()) if item.fourcc == WTSH else (f"{item.name}.{number}" for number in count(2))
    return (name for name in names if (item.fourcc, name) not in used)


def _rename_pages(item: PlannedChunk, shard: str) -> PlannedChunk:
    """The page hashes of a shard that is called ``shard`` now; damaged ones keep their bytes."""
    from blake3 import blake3

    assert item.extra is not None
    data = item.extra.read()
    with suppress(DocumentError):
        data = msgpack.encode({**msgpack.decode(data, padded=True), "shard_name": shard})
    digest = blake3(data).digest()
    return replace(item, name=shard + PAGES, extra=InMemory(data), ulen=len(data), digest=digest)
