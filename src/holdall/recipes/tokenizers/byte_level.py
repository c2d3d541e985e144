"""Byte-level BPE, from GPT-2 to Llama 3 and Qwen: characters stand for bytes, and merges join them."""

from __future__ import annotations

from holdall.errors import UnsupportedError
from holdall.recipes.tokenizers.folder_files import FolderTokenizer
from holdall.recipes.tokenizers.pieces import Pieces, mark_types, read_merges, read_vocabulary
from holdall.recipes.tokenizers.pre_tokenizers import find_pre_tokenizer

__all__ = ["BYTE_LETTERS", "make_byte_level", "refuse_variants"]

_NOT_NFC = "llama.cpp does not normalize text to NFC: text that is not in NFC gets other ids"
_STRIPS = "llama.cpp does not strip the white space beside an added token (lstrip, rstrip, single_word)"


def _byte_letters() -> str:
    """The letter of each byte: itself if it can be seen, else the next one from 256 on, as GPT-2 counts them."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = iter(range(256, 512))
    return "".join(chr(byte if byte in seen else next(hidden)) for byte in range(256))


BYTE_LETTERS = _byte_letters()
# The bytes 0xC0, 0xC1 and those from 0xF5 on are in no UTF-8.
_LETTERS_OF_TEXT = [letter for byte, letter in enumerate(BYTE_LETTERS) if byte not in (0xC0, 0xC1) and byte < 0xF5]


def make_byte_level(folder: FolderTokenizer) -> Pieces:
    """Make what GGUF calls ``gpt2`` of a byte-level BPE tokenizer."""
    refuse_variants(folder)
    model = folder.model
    row = find_pre_tokenizer(
        folder.document.get("normalizer"),
        folder.document.get("pre_tokenizer"),
        ignore_merges=model.get("ignore_merges") is True,
    )
    tokens = read_vocabulary(folder)
    pieces = Pieces("gpt2", tokens, mark_types(tokens, folder.added), row.name)
    pieces.merges = [" ".join(pair) for pair in read_merges(folder)]
    missing = [letter for letter in _LETTERS_OF_TEXT if letter not in model["vocab"]]
    if missing:
        pieces.notes.append(f"{len(missing)} bytes have no token: llama.cpp drops them and parts words there")
    if row.nfc:
        pieces.notes.append(_NOT_NFC)
    if row.unlike:
        pieces.notes.append(row.unlike)
    if any(token.strips for token in folder.added):
        pieces.notes.append(_STRIPS)
    return pieces


def refuse_variants(folder: FolderTokenizer) -> None:
    """Refuse the kinds of BPE that llama.cpp does not have: random merges, and marks at the ends of words."""
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if folder.model.get(option):
            raise UnsupportedError(f"tokenizer.json: the BPE model has a {option}, and llama.cpp knows no such BPE")
