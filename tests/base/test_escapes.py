"""Escapes mean what they mean in Python, whose own decoders are asked."""

import ast
import codecs
import random
import warnings

import pytest

from holdall.base.escapes import decode_escapes

PIECES = [
    "\\",
    "x",
    "u",
    "U",
    "N",
    "{",
    "}",
    "BULLET",
    "0",
    "7",
    "9",
    "4f",
    "0041",
    "0001f600",
    "a",
    "n",
    "'",
    '"',
    "\n",
    "é",
    " ",
]


def ask(decode):
    """What Python decodes; None if it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unknown escapes
        try:
            return decode()
        except (SyntaxError, ValueError):
            return None


def decode(text, **kind):
    try:
        return decode_escapes(text, **kind)
    except ValueError:
        return None


def test_random_texts():
    chance = random.Random(5)
    known = 0
    for _ in range(20_000):
        text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 7)))
        expected = ask(lambda text=text: codecs.escape_decode(text.encode("latin-1"))[0].decode("latin-1"))
        assert decode(text, as_bytes=True) == expected, text
        text += " "  # no quote stands before the last ones
        expected = ask(lambda text=text: ast.literal_eval(f'"""{text}"""'))
        if expected is not None:
            assert decode(text) == expected, text
            known += "\\" in text
    assert known > 2000


def test_the_reason_names_the_escape():
    reasons = {
        r"\x4": r"the escape \\x that is not complete",
        "a\\": "that is not complete",
        r"\U00110000": "which is no letter",
        r"\N{NONE}": "a letter 'NONE', which there is not",
    }
    for text, said in reasons.items():
        with pytest.raises(ValueError, match=said):
            decode_escapes(text)
