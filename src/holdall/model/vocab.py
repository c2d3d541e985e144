"""Vocabularies: tokens by id, ids by token, and which of them are special."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.once import computed_once
from holdall.errors import ContentError, MissingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["SPECIAL_TOKENS", "Vocab"]

# The special tokens of BERT, by the name that ``Vocab.special`` has for each.
SPECIAL_TOKENS: Mapping[str, str] = {
    "pad": "[PAD]",
    "unk": "[UNK]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}


class Vocab(Sequence[str]):
    """The tokens of a model, in order of their ids. Looking up a token that is there twice gives the first id.

    ``special`` maps "pad", "unk", "cls", "sep" and "mask" to the ids that the file states, even an id without a token.
    If it is left out, they are looked up by their usual spelling.

    >>> vocab = Vocab(["[PAD]", "[UNK]", "a", "##b"])
    >>> vocab[2], vocab.id("##b"), vocab.special
    ('a', 3, {'pad': 0, 'unk': 1})
    """

    def __init__(self, tokens: Sequence[str], special: Mapping[str, int] | None = None) -> None:
        self.tokens: tuple[str, ...] = tuple(tokens)
        self._special = None if special is None else dict(special)

    @computed_once
    def _ids(self) -> dict[str, int]:
        last = len(self.tokens) - 1
        return {token: last - back for back, token in enumerate(reversed(self.tokens))}

    @property
    def special(self) -> dict[str, int]:
        """The ids of the special tokens by name."""
        if self._special is None:
            self._special = {name: self._ids[token] for name, token in SPECIAL_TOKENS.items() if token in self._ids}
        return self._special

    @property
    def is_lowercase(self) -> bool:
        """Whether texts are made small before they are looked up: no token but special ones has a capital.

        >>> Vocab(["[PAD]", "a"]).is_lowercase, Vocab(["[PAD]", "A"]).is_lowercase
        (True, False)
        """
        special = set(self.special.values())
        return not any(token != token.lower() for id, token in enumerate(self) if id not in special and token.isalpha())

    def id(self, token: str) -> int:
        """The id of ``token``: the first that has this text."""
        try:
            return self._ids[token]
        except KeyError:
            raise MissingError(f"there is no token {token!r} among the {len(self)}") from None

    def __getitem__(self, id: Any) -> Any:
        return self.tokens[id]

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocab):
            return NotImplemented
        return self.tokens == other.tokens and self.special == other.special

    def __hash__(self) -> int:
        return hash(self.tokens)

    def __repr__(self) -> str:
        return f"<Vocab of {len(self)} tokens>"

    @classmethod
    def from_text(cls, data: bytes | str, special: Mapping[str, int] | None = None) -> Vocab:
        """The vocabulary of a ``vocab.txt``: one token on each line, the line number from 0 is its id.

        >>> Vocab.from_text("[PAD]\\na\\n").tokens
        ('[PAD]', 'a')
        """
        if isinstance(data, bytes):
            try:
                data = data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ContentError(f"vocab.txt: byte {error.start} is not UTF-8") from None
        lines = data.split("\n")  # not splitlines, which also splits at characters that a token may have
        if not lines[-1]:
            lines.pop()
        if lines and all(line.endswith("\r") for line in lines):
            lines = [line[:-1] for line in lines]
        return cls(lines, special)

    def to_text(self) -> bytes:
        """Return the ``vocab.txt`` that holds these tokens; ContentError for a token with a line end in it."""
        for id, token in enumerate(self.tokens):
            if "\n" in token or token.endswith("\r"):
                raise ContentError(f"vocab.txt cannot hold token {id}, {token!r}: it has a line end in it")
        return "".join(f"{token}\n" for token in self.tokens).encode()

    def wordpiece(self, *, lowercase: bool = True, max_length: int | None = None) -> Tokenizer:
        """A WordPiece tokenizer of the ``tokenizers`` package, with the normalization, CLS and SEP of BERT.

        ``max_length`` truncates longer texts. Needs ``holdall[tokenizers]``.
        """
        try:
            from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
            from tokenizers.models import WordPiece
        except ImportError as error:
            raise ImportError("wordpiece() needs the tokenizers package: pip install holdall[tokenizers]") from error
        spelled = {name: self[id] for name, id in self.special.items() if 0 <= id < len(self)}
        missing = [name for name in ("unk", "cls", "sep") if name not in spelled]
        if missing:
            raise ContentError(f"a WordPiece tokenizer needs the special tokens {', '.join(missing)}")
        tokenizer = Tokenizer(WordPiece(self._ids, unk_token=spelled["unk"], max_input_chars_per_word=100))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.BertProcessing(
            (spelled["sep"], self.special["sep"]), (spelled["cls"], self.special["cls"])
        )
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.add_special_tokens(list(dict.fromkeys(spelled.values())))
        if max_length is not None:
            tokenizer.enable_truncation(max_length)
        return tokenizer
