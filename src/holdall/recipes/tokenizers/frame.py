"""The special tokens of a tokenizer: which ids they have, and which are put around a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdall.base.text import shorten
from holdall.errors import ContentError
from holdall.format.gguf import SPECIAL_WORDS
from holdall.recipes.tokenizers.components import split_steps
from holdall.recipes.tokenizers.folder_files import FolderTokenizer

__all__ = ["find_special_ids", "find_stated_ids", "find_stop_ids", "read_frame"]


def find_special_ids(folder: FolderTokenizer, tokens: Sequence[str]) -> dict[str, int]:
    """Find the id of each special token by name ("bos"), by its spelling or else by the number in config.json.

    A tokenizer that says it has no such token has none; but without an end of text a runtime never stops, or stops at a
    token of its own choice, so that one is taken from where it can be found.
    """
    ids = {token: id for id, token in enumerate(tokens)}
    found = {}
    for name in SPECIAL_WORDS:
        spelled = folder.special.get(name)
        if spelled is not None:
            if spelled in ids:
                found[name] = ids[spelled]
            continue
        if f"{name}_token" in folder.config and name != "eos":
            continue
        found |= find_stated_ids(folder, len(tokens), name)
    return found


def find_stated_ids(folder: FolderTokenizer, count: int, *names: str) -> dict[str, int]:
    """Find the first id below ``count`` that config.json or generation_config.json states for each of the ``names``."""
    found: dict[str, int] = {}
    for name in names:
        for config in (folder.model_config, folder.generation_config):
            for id in _read_ids(config, name, count)[:1]:
                found.setdefault(name, id)
    return found


def find_stop_ids(folder: FolderTokenizer, count: int) -> list[int]:
    """Find the ids below ``count`` that end a text: those of generation_config.json, else those of config.json."""
    return _read_ids(folder.generation_config, "eos", count) or _read_ids(folder.model_config, "eos", count)


def _read_ids(config: Mapping[str, Any], name: str, count: int) -> list[int]:
    stated = config.get(f"{name}_token_id")
    ids = stated if isinstance(stated, list) else [stated]
    return list(dict.fromkeys(id for id in ids if type(id) is int and 0 <= id < count))


def read_frame(folder: FolderTokenizer, tokens: Sequence[str], ids: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Read which tokens are put before and after a text, by id.

    The post-processor of tokenizer.json decides, as in transformers. Where it has no say, add_bos_token and
    add_eos_token of tokenizer_config.json do: folders of older days rely on a class that reads them.
    """
    found = _read_post_processor(folder, tokens)
    if found is not None:
        return found
    stated = {name: folder.config.get(f"add_{name}_token") is True and name in ids for name in ("bos", "eos")}
    return [ids["bos"]] if stated["bos"] else [], [ids["eos"]] if stated["eos"] else []


def _read_post_processor(folder: FolderTokenizer, tokens: Sequence[str]) -> tuple[list[int], list[int]] | None:
    for step in split_steps(folder.document.get("post_processor"), "post_processor"):
        kind = step["type"]
        if kind in ("BertProcessing", "RobertaProcessing"):
            return [_check_id(step.get("cls"), tokens)], [_check_id(step.get("sep"), tokens)]
        if kind == "TemplateProcessing":
            return _read_template(step, tokens)
        if kind != "ByteLevel":
            raise ContentError(f"tokenizer.json: the post-processor {shorten(kind, 40)!r} is unknown")
    return None


def _check_id(pair: Any, tokens: Sequence[str]) -> int:
    if isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int and 0 <= pair[1] < len(tokens):
        return pair[1]
    raise ContentError("tokenizer.json: the post-processor names no token and id of the vocabulary")


def _read_template(step: Mapping[str, Any], tokens: Sequence[str]) -> tuple[list[int], list[int]]:
    before: list[int] = []
    after: list[int] = []
    place = before
    known = step.get("special_tokens")
    for item in step["single"] if isinstance(step.get("single"), list) else ():
        special = item.get("SpecialToken") if isinstance(item, Mapping) else None
        if not isinstance(special, Mapping):
            place = after
            continue
        name = special.get("id")
        row = known.get(name) if isinstance(known, Mapping) and isinstance(name, str) else None
        for id in row["ids"] if isinstance(row, Mapping) and isinstance(row.get("ids"), list) else [None]:
            place.append(_check_id([name, id], tokens))
    return before, after
