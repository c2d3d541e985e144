"""From the entries of GGUF to the files of a tokenizer in a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.base.text import shorten
from holdall.binary.documents.json import DocumentError, decode, encode
from holdall.errors import ContentError
from holdall.format.gguf import SPECIAL_WORDS
from holdall.recipes.tokenizers.documents import make_document
from holdall.recipes.tokenizers.stored import HF_JSON, KEY, Stored, read_stored

__all__ = ["tokenizer_from_gguf"]


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """Make tokenizer.json, tokenizer_config.json and the chat templates from the metadata of a GGUF file.

    >>> made = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": ["a b"],
    ...         "tokenizer.ggml.tokens": ["a", "b", "ab"], "tokenizer.ggml.eos_token_id": 0}
    >>> sorted(tokenizer_from_gguf(made)), tokenizer_from_gguf(made)["tokenizer_config.json"]
    (['tokenizer.json', 'tokenizer_config.json'], b'{"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"a"}')
    """
    stored = read_stored(metadata)
    kept = metadata.get(HF_JSON)
    files = {"tokenizer.json": _check_kept(kept) if kept is not None else encode(make_document(stored))}
    files["tokenizer_config.json"] = encode(_make_config(stored, metadata))
    return files | _list_templates(metadata)


def _check_kept(text: Any) -> bytes:
    """Return the tokenizer.json that the file keeps; raise ContentError if it is none."""
    if not isinstance(text, str):
        raise ContentError(f"{HF_JSON} is not text")
    data = text.encode(errors="surrogatepass")
    try:
        value = decode(data).value
    except DocumentError as error:
        raise ContentError(f"{HF_JSON}: {error.message} [{error.path}]") from None
    if not isinstance(value, dict) or not isinstance(value.get("model"), dict):
        raise ContentError(f"{HF_JSON} holds no tokenizer")
    return data


def _make_config(stored: Stored, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Make tokenizer_config.json: this class makes transformers take tokenizer.json as it is."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name in SPECIAL_WORDS:
        # BERT calls the tokens around a text cls and sep; GGUF has other names for them besides.
        twin = {"bos": "cls", "eos": "sep"}.get(name) if stored.model == "bert" else None
        if name in stored.ids and (twin is None or stored.ids[name] != stored.ids.get(twin)):
            config[f"{name}_token"] = stored.tokens[stored.ids[name]]
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    if isinstance(length, int) and not isinstance(length, bool):
        config["model_max_length"] = length
    return config


def _list_templates(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    files = {}
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        files["chat_template.jinja"] = _encode(template, "tokenizer.chat_template")
    names = metadata.get("tokenizer.chat_templates")
    for name in names if isinstance(names, list) else ():
        other = metadata.get(f"tokenizer.chat_template.{name}") if isinstance(name, str) else None
        if not isinstance(other, str) or not name.isascii() or not name.replace("-", "_").isidentifier():
            raise ContentError(f"tokenizer.chat_templates names {shorten(str(name), 40)!r}, which is no template")
        files[f"additional_chat_templates/{name}.jinja"] = _encode(other, f"{KEY}chat_template.{name}")
    return files


def _encode(text: str, key: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ContentError(f"{key} is not text in UTF-8") from None
