"""The documents that ``holdall explain`` opens, as lines and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdall.base.text import clean, plain, plural, shorten, value_text
from holdall.base.urls import hide_secrets_in
from holdall.cli.output import width

if TYPE_CHECKING:
    from holdall.binary.documents.outline import Item
    from holdall.operations.outline import Opened

__all__ = ["describe_opened", "opened_lines", "opened_to_json"]

_BYTES = 8  # of an item, as hex
_NAME = 26  # letters of a name with its indent
_DEEP = 10  # steps of the indent
_QUERY = re.compile(r"\?[\w.~%-]+=[^\s'\"]*")


def describe_opened(opened: Opened) -> str:
    """What a document is, and how many bytes it takes.

    A packed one has two sizes: those in the file, and those of the document.
    """
    outline = opened.outline
    if not outline.packing:
        return f"{outline.syntax}, {plural(opened.stored, 'byte')}"
    size = plural(outline.size, "byte") if outline.whole else f"more than {plural(outline.size, 'byte')}"
    size = f"{plural(outline.size, 'byte')} before the damage" if outline.fault else size
    return f"{outline.packing}, {plural(opened.stored, 'byte')}: {outline.syntax} of {size}, offsets inside it"


def opened_lines(opened: Opened) -> Iterator[str]:
    """One line for each item: offset, first bytes, name and value; then what follows, or what is wrong."""
    mark = "+" if opened.outline.packing else " "
    for item in opened.items:
        name = "  " * min(item.depth, _DEEP) + shorten(item.name or item.kind, 60)
        shown = item.data[:_BYTES].hex(" ").ljust(3 * _BYTES - 1)
        yield f" {mark}{item.start:08x}  {shown}  {name:<{_NAME}}  {_describe_value(item)}".rstrip()
    if opened.stopped is not None:
        offset = opened.stopped.offset
        place = "" if offset is None else f" at {mark.strip()}{offset:#x}"
        yield f"  stopped{place}: {clean(opened.stopped.message)}"
    elif opened.more:
        yield "  … and more; --rows N shows more, --at OFFSET what is there"


def _describe_value(item: Item) -> str:
    room = max(20, width() - 66)
    if item.count is not None:
        return f"{item.kind} of {item.count:,}"
    if item.value is None:
        if item.kind == "opcode":
            return ""
        return item.kind if item.kind in ("null", "nil") else f"{item.kind}, {plural(item.stop - item.start, 'byte')}"
    text = value_text(repr(_hide(item.value)) if isinstance(item.value, str) else item.value, room)
    if isinstance(item.value, bytes):
        dots = "…" if len(item.value) > _BYTES else ""
        size = len(item.value) if item.whole else item.stop - item.start  # what is around a long value is little
        text = f"{plural(size, 'byte')}: {item.value[:_BYTES].hex()}{dots}"
    kind = item.kind.partition(" ")[2]
    return f"{text} ({kind})" if kind else text if item.whole else f"{text}…"


def opened_to_json(opened: Opened) -> dict[str, Any]:
    """The same for programs."""
    outline, stopped = opened.outline, opened.stopped
    return {
        "syntax": outline.syntax,
        "packing": outline.packing or None,
        "stored_bytes": opened.stored,
        "bytes": outline.size,
        "whole": outline.whole,
        "offsets_in": "document" if outline.packing else "file",
        "items": [_item_to_json(item) for item in opened.items],
        "more": opened.more,
        "stopped": None if stopped is None else {"offset": stopped.offset, "message": stopped.message},
    }


def _hide(value: Any) -> Any:
    """The value without the secrets of an address or of a query in it: members of a set may be signed."""
    return _QUERY.sub("?…", hide_secrets_in(value)) if isinstance(value, str) else value


def _item_to_json(item: Item) -> dict[str, Any]:
    value = _hide(item.value)
    found = {
        "start": item.start,
        "stop": item.stop,
        "depth": item.depth,
        "name": item.name,
        "kind": item.kind,
        "value": plain(value),
        "whole": item.whole,
        "hex": item.data.hex() if value == item.value else "",
    }
    return found | {name: held for name, held in (("key", item.key), ("count", item.count)) if held is not None}
