"""The tokenization of BERT: cleans, splits at white space and punctuation, then takes the longest known pieces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

from holdall.errors import MissingError
from holdall.model.vocab import Vocab

__all__ = ["WordPiece"]

_LONGEST_WORD = 100  # a word of more letters is unknown
_NEVER = "(?!)"  # a pattern without a match; an empty one would match everywhere
_REMEMBERED = 1 << 16  # the pieces of at most this many words are remembered

# Each ideograph is a word.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip

# What decoding closes up, as the tokenizers package does.
_CLOSED_UP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip

_CONTROLS = ("Cc", "Cf", "Co", "Cs")  # without Cn, so that letters newer than the Unicode tables stay


class _Letters(dict[int, str]):
    """A table for str.translate that computes each letter when it is first met."""

    def __init__(self, become: Callable[[str], str]) -> None:
        self._become = become

    def __missing__(self, code: int) -> str:
        found = self[code] = self._become(chr(code))
        return found


def _clean(letter: str) -> str:
    """Turn white space into a blank, and drop controls and U+FFFD."""
    if letter in "\t\n\r":
        return " "
    if letter == "\ufffd" or unicodedata.category(letter) in _CONTROLS:
        return ""
    return " " if letter.isspace() else letter


def _clean_and_space(letter: str) -> str:
    """Clean a letter, and put spaces around ideographs."""
    return f" {letter} " if any(low <= ord(letter) <= high for low, high in _IDEOGRAPHS) else _clean(letter)


def _is_punctuation(letter: str) -> bool:
    symbol = letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " "
    return symbol or unicodedata.category(letter).startswith("P")


_CLEAN = _Letters(_clean)
_CLEAN_SPACED = _Letters(_clean_and_space)
_LOWER = _Letters(lambda letter: letter.lower())  # letter by letter: str.lower() treats a final sigma differently
_BARE = _Letters(lambda letter: "" if unicodedata.category(letter) == "Mn" else letter)
_APART = _Letters(lambda letter: f" {letter} " if _is_punctuation(letter) else letter)


class WordPiece:
    """Turns texts into ids as the ``tokenizers`` package does for BERT: CLS, at most ``max_length`` - 2 pieces, SEP.

    ``lowercase`` also drops accents, unless ``strip_accents`` says otherwise. Special tokens that are spelled out in
    a text get their ids.

    >>> vocab = Vocab(["[UNK]", "[CLS]", "[SEP]", "cat", "##s", "!"])
    >>> WordPiece(vocab).encode("Cats! [SEP] dog")
    [1, 3, 4, 5, 2, 0, 2]
    """

    def __init__(
        self,
        vocab: Vocab,
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        ideographs: bool = True,
        max_length: int | None = None,
    ) -> None:
        missing = [name for name in ("unk", "cls", "sep") if not 0 <= vocab.special.get(name, -1) < len(vocab)]
        if missing:
            raise MissingError(f"the vocabulary has no special token {', '.join(missing)}: WordPiece needs it")
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.ideographs = ideographs
        self.max_length = max_length
        self._unknown, self._cls, self._sep = (vocab.special[name] for name in ("unk", "cls", "sep"))
        self._ids = {token: id for id, token in reversed(list(enumerate(vocab)))}  # the first of equal tokens wins
        self._longest = max(map(len, vocab), default=0)
        self._special = {vocab[id]: id for id in vocab.special.values() if 0 <= id < len(vocab) and vocab[id]}
        spelled = sorted(self._special, key=len, reverse=True)
        self._marks = re.compile(f"({'|'.join(map(re.escape, spelled)) or _NEVER})")
        self._words: dict[str, tuple[int, ...]] = {}
        self._tokens = vocab.tokens

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, cut to ``max_length``."""
        return self.encode_counted(text)[0]

    def encode_counted(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a text, and how many there are without the cut."""
        ids = [self._cls]
        for place, part in enumerate(self._marks.split(text)):
            if place % 2:
                ids.append(self._special[part])
                continue
            for word in self.words(part):
                ids += self._words.get(word) or self._split_word(word)
        count = len(ids) + 1
        if self.max_length is not None:
            del ids[max(1, self.max_length - 1) :]
        ids.append(self._sep)
        return ids, count

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return a text that has these ids, as the ``tokenizers`` package writes it.

        Pieces of a word are joined, marks such as the full stop follow their word without a space, and so do endings
        such as n't. Case and accents that encoding drops do not come back. Special tokens are left out unless
        ``skip_special`` is False.

        >>> pieces = WordPiece(Vocab(["[UNK]", "[CLS]", "[SEP]", "cat", "##s", "!"]))
        >>> pieces.decode([1, 3, 4, 5, 2]), pieces.decode([1, 3, 2], skip_special=False)
        ('cats!', '[CLS] cat [SEP]')
        """
        parts: list[str] = []
        for id in ids:
            if not 0 <= id < len(self._tokens):
                raise MissingError(f"there is no token of id {id}: the vocabulary has {len(self._tokens)}")
            token = self._tokens[id]
            if skip_special and token in self._special:
                continue
            part = token if not parts else token[2:] if token.startswith("##") else f" {token}"
            for spaced, close in _CLOSED_UP:
                part = part.replace(spaced, close)
            parts.append(part)
        return "".join(parts)

    def words(self, text: str) -> list[str]:
        """Return the cleaned words and punctuation marks of a text.

        >>> WordPiece(Vocab(["[UNK]", "[CLS]", "[SEP]"])).words("Ça\\u200b va, 東京?")
        ['ca', 'va', ',', '東', '京', '?']
        """
        text = text.translate(_CLEAN_SPACED if self.ideographs else _CLEAN)
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text).translate(_BARE)
        if self.lowercase:
            text = text.translate(_LOWER)
        return text.translate(_APART).split()

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Split a word into the longest pieces of the vocabulary, from the left; unknown if one is missing."""
        ids: list[int] = []
        start = 0 if len(word) <= _LONGEST_WORD else None
        while start is not None and start < len(word):
            start = self._take_longest_piece(word, start, ids)
        found = (self._unknown,) if start is None else tuple(ids)
        if len(self._words) >= _REMEMBERED:
            self._words.clear()
        self._words[word] = found
        return found

    def _take_longest_piece(self, word: str, start: int, ids: list[int]) -> int | None:
        """Append the id of the longest piece at ``start``; return where it ends, or None if there is none."""
        prefix = "##" if start else ""
        for end in range(min(len(word), start + self._longest), start, -1):
            id = self._ids.get(prefix + word[start:end])
            if id is not None:
                ids.append(id)
                return end
        return None
