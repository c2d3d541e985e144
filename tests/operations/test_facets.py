"""Vocabulary and configuration from assets."""

from __future__ import annotations

import pytest

import holdall
from holdall.format.hf_assets import config_of, vocab_of
from holdall.model.metadata import Assets


def vocab(**files: bytes) -> list[str] | None:
    found = vocab_of(Assets({f"{name}.json": data for name, data in files.items()}))
    return None if found is None else list(found)


def test_vocabularies() -> None:
    assert vocab() is None
    assert vocab(vocab=b'{"b": 1, "a": 0}') == ["a", "b"]
    assert vocab(tokenizer=b'{"model": {"vocab": {"a": 0, "b": 1}}}', vocab=b'{"x": 0}') == ["a", "b"]
    assert vocab(tokenizer=b'{"model": {"vocab": [["a", -1.5], ["b", -2]]}}') == ["a", "b"]
    added = b'{"added_tokens": [{"id": 2, "content": "</s>"}], "model": {"vocab": {"a": 0}}}'
    assert vocab(tokenizer=added) == ["a", "", "</s>"]


def test_what_is_no_vocabulary() -> None:
    assert vocab(tokenizer=b"[]") is None
    assert vocab(vocab=b'{"a": "0", "b": null, "c": -1, "d": 1.5, "e": true}') is None
    assert vocab(vocab=b'{"a": 1000000000000}') is None  # must not allocate so many tokens
    with pytest.raises(holdall.FormatError, match=r"vocab\.json"):
        vocab(vocab=b"{")


def test_configurations() -> None:
    assert config_of(Assets()) is None
    assert config_of(Assets({"config.json": b"[1]"})) is None
    assert config_of(Assets({"config.json": b'{"a": 1}'})) == {"a": 1}
