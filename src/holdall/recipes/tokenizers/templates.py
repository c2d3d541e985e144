"""Parts of tokenizer.json that are made: added tokens, and the post-processor that puts special ones around a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["make_added", "make_template"]


def make_added(id: int, content: str, *, special: bool) -> dict[str, Any]:
    """Make the row of an added token, with all members that the library wants to be stated.

    >>> make_added(3, "<s>", special=True)["special"]
    True
    """
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, **flags, "special": special}


def make_template(
    before: str | None, after: str | None, ids: Mapping[str, int], *, once: bool, kinds: bool = True
) -> dict[str, Any] | None:
    """Make the post-processor; None if nothing is put around a text.

    Of two texts, each gets the token ``before`` it, or with ``once``, as BERT has it, only the first. With ``kinds``
    the second differs from the first by its type.

    >>> make_template("<s>", None, {"<s>": 1}, once=False)["single"]
    [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}]
    """
    if before is None and after is None:
        return None
    single = [*_place(before, 0), {"Sequence": {"id": "A", "type_id": 0}}, *_place(after, 0)]
    again = None if once else before
    kind = int(kinds)
    pair = [*single, *_place(again, kind), {"Sequence": {"id": "B", "type_id": kind}}, *_place(after, kind)]
    names = [name for name in (before, after) if name is not None]
    known = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known}


def _place(name: str | None, kind: int) -> list[dict[str, Any]]:
    return [] if name is None else [{"SpecialToken": {"id": name, "type_id": kind}}]
