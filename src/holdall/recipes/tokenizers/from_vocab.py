"""From a vocabulary to the files of a WordPiece tokenizer in a Hugging Face folder."""

from __future__ import annotations

from holdall.base.repeats import find_repeat
from holdall.binary.documents.json import encode
from holdall.model.vocab import Vocab
from holdall.recipes.tokenizers.documents import make_document
from holdall.recipes.tokenizers.pieces import CONTROL, NORMAL
from holdall.recipes.tokenizers.stored import KEY, Stored
from holdall.recipes.tokenizers.word_pieces import mark_word

__all__ = ["VOCAB_FILE", "tokenizer_from_vocab"]

VOCAB_FILE = "vocab.txt"
_NEEDED = {"cls", "sep", "unk"}  # the special tokens without which no text is divided into tokens


def tokenizer_from_vocab(vocab: Vocab) -> dict[str, bytes]:
    """Make vocab.txt, tokenizer_config.json and, if the vocabulary has what it takes, tokenizer.json.

    >>> made = tokenizer_from_vocab(Vocab(["[PAD]", "a"]))
    >>> made["vocab.txt"]
    b'[PAD]\\na\\n'
    >>> made["tokenizer_config.json"]
    b'{"tokenizer_class":"BertTokenizer","do_lower_case":true,"pad_token":"[PAD]"}'
    """
    ids = {name: id for name, id in vocab.special.items() if 0 <= id < len(vocab)}
    spelled = {f"{name}_token": vocab[id] for name, id in ids.items()}
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": vocab.is_lowercase, **spelled}
    files = {VOCAB_FILE: vocab.to_text(), "tokenizer_config.json": encode(config)}
    if ids.keys() >= _NEEDED and find_repeat(vocab.tokens) is None:
        stored = _store(vocab, ids)
        if find_repeat(stored.tokens) is None:  # a special token may be spelled as a marked one is
            files["tokenizer.json"] = encode(make_document(stored))
    return files


def _store(vocab: Vocab, ids: dict[str, int]) -> Stored:
    """Return the tokenizer as GGUF has it, from which tokenizer.json is made."""
    special = set(ids.values())
    tokens = [token if id in special else mark_word(token) for id, token in enumerate(vocab)]
    types = [CONTROL if id in special else NORMAL for id in range(len(vocab))]
    lower = vocab.is_lowercase
    flags = {f"{KEY}normalizer.lowercase": lower, f"{KEY}normalizer.strip_accents": lower}
    return Stored("bert", "default", tokens, types, None, None, {**ids, "bos": ids["cls"]}, flags)
