"""The table of pre-tokenizers of byte-level BPE: how tokenizer.json states each, and what llama.cpp calls it.

llama.cpp knows a pre-tokenizer by a name in ``tokenizer.ggml.pre`` and has its regular expressions in its code. A
wrong name splits words otherwise and gives other ids without a message, so only what equals a row gets a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from holdall.base.text import shorten
from holdall.errors import UnsupportedError
from holdall.recipes.tokenizers.components import describe, split_steps

__all__ = ["ROWS", "PreTokenizer", "find_pre_tokenizer", "pre_tokenizer_of"]


def _split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}


def _digits(*, individual: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": individual}


_BYTES = _byte_level(use_regex=False)
_GPT2 = _byte_level(use_regex=True)  # the regular expression of GPT-2 is part of ByteLevel
_EACH_DIGIT = _digits(individual=True)
_PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_END}"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA_3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}"
_QWEN_2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_MARKS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_CASED_END = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_END}"
_HAN = "[一-龥ࠀ-一가-퟿]+"
# Characters that Unicode normalization replaces are written by number: an editor must not change them.
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffcℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
    "ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
_DEEPSEEK_3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    + _END
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One row: the name, the steps as tokenizer.json has them, and what else a tokenizer of this kind states.

    ``nfc``: the text is normalized to NFC first, which llama.cpp leaves out. ``ignore_merges``: a word that is a token
    is taken whole. ``unlike`` says where the regular expressions of llama.cpp only come close.
    """

    name: str
    steps: tuple[Mapping[str, Any], ...]
    nfc: bool = False
    ignore_merges: bool = False
    unlike: str = ""


_CASE = "llama.cpp tells upper from lower case among ASCII letters only, and parts words at combining marks"

ROWS: tuple[PreTokenizer, ...] = (
    PreTokenizer("gpt-2", (_GPT2,)),
    PreTokenizer("olmo", (_GPT2,), nfc=True),
    PreTokenizer("smollm", (_EACH_DIGIT, _GPT2)),
    PreTokenizer("command-r", (_EACH_DIGIT, _GPT2), nfc=True),
    PreTokenizer("llama-bpe", (_split(_LLAMA_3), _BYTES), ignore_merges=True),
    PreTokenizer("smaug-bpe", (_split(_LLAMA_3), _BYTES)),
    PreTokenizer("qwen2", (_split(_QWEN_2), _BYTES), nfc=True),
    PreTokenizer("deepseek-r1-qwen", (_split(_QWEN_2), _BYTES)),
    PreTokenizer(
        "qwen35",
        (
            _split(
                rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
                rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{_END}"
            ),
            _BYTES,
        ),
        nfc=True,
    ),
    PreTokenizer(
        "deepseek-llm",
        (
            *(_split(r"[\r\n]"), _split(_DEEPSEEK_LETTERS), _split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), _split(r"\s+$")),
            *(_split(_HAN), _EACH_DIGIT, _BYTES),
        ),
    ),
    PreTokenizer(
        "deepseek-coder",
        (_split(r"[\r\n]"), _split(r"\s?\p{L}+"), _split(r"\s?\p{P}+"), _split(_HAN), _EACH_DIGIT, _BYTES),
    ),
    PreTokenizer("deepseek-v3", (_split(r"\p{N}{1,3}"), _split("[一-龥぀-ゟ゠-ヿ]+"), _split(_DEEPSEEK_3), _BYTES)),
    PreTokenizer("falcon", (_PUNCTUATION, _GPT2, _digits(individual=False), _split("[0-9][0-9][0-9]"))),
    PreTokenizer("bloom", (_split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), _BYTES)),
    PreTokenizer(
        "tekken", (_split(rf"{'|'.join(_CASED)}|\p{{N}}|{_CASED_END}"), _BYTES), ignore_merges=True, unlike=_CASE
    ),
    PreTokenizer(
        "gpt-4o",
        (_split("|".join([*(f"{word}{_CONTRACTIONS}?" for word in _CASED), rf"\p{{N}}{{1,3}}|{_CASED_END}"])), _BYTES),
        unlike=_CASE,
    ),
    PreTokenizer(
        "seed-coder",
        (_split(rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+{_END}"), _BYTES),
    ),
)


def find_pre_tokenizer(normalizer: Any, pre_tokenizer: Any, *, ignore_merges: bool) -> PreTokenizer:
    """Find the row that has these parts of a tokenizer.json; UnsupportedError that shows them if there is none.

    >>> find_pre_tokenizer(None, {"type": "ByteLevel", "add_prefix_space": False}, ignore_merges=False).name
    'gpt-2'
    """
    normal = split_steps(normalizer, "normalizer")
    nfc = [dict(step) for step in normal] == [{"type": "NFC"}]
    steps = split_steps(pre_tokenizer, "pre_tokenizer")
    for row in ROWS:
        if (nfc or not normal) and row.nfc == nfc and row.ignore_merges == ignore_merges and _same(row.steps, steps):
            return row
    found = f"pre-tokenizer {describe(steps)}, normalizer {describe(normal)}"
    found += ", ignore_merges" if ignore_merges else ""
    raise UnsupportedError(f"tokenizer.json: llama.cpp has no name for this way to part words: {shorten(found, 1500)}")


def _same(row: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]) -> bool:
    return len(row) == len(steps) and all(_fold(a) == _fold(b) for a, b in zip(row, steps, strict=True))


def _fold(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the step in NFC: programs that save a tokenizer.json may have normalized what stands in it."""
    pattern = step.get("pattern")
    if not isinstance(pattern, Mapping) or not isinstance(pattern.get("Regex"), str):
        return step
    return {**step, "pattern": {"Regex": normalize("NFC", pattern["Regex"])}}


def pre_tokenizer_of(name: str) -> PreTokenizer:
    """Return the row that llama.cpp calls ``name``.

    >>> pre_tokenizer_of("qwen2").nfc
    True
    """
    for row in ROWS:
        if row.name == _OTHER_NAMES.get(name, name):
            return row
    raise UnsupportedError(f"tokenizer.ggml.pre is {shorten(name, 60)!r}; known are {', '.join(r.name for r in ROWS)}")


# Names with the same regular expressions in llama.cpp, for files of other programs; holdall writes none of them.
_OTHER_NAMES = {
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), "llama-bpe"),
    **dict.fromkeys(("dbrx", "glm4", "chatglm-bpe"), "smaug-bpe"),
    **dict.fromkeys(("phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "exaone4"), "gpt-2"),
    **dict.fromkeys(("a.x-4.0", "mellum", "trillion", "granite-docling", "roberta-bpe", "jais"), "gpt-2"),
    **dict.fromkeys(("starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), "smollm"),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "megrez", "grok-2", "kormo"), "deepseek-r1-qwen"),
    **dict.fromkeys(("mpt",), "olmo"),
    **dict.fromkeys(("hunyuan-dense", "joyai-llm"), "deepseek-v3"),
    **dict.fromkeys(("llama4", "kanana2", "talkie", "minimax-m2"), "gpt-4o"),
}
