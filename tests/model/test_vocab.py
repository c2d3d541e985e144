import pytest

import holdall
from holdall.model.vocab import Vocab

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hel", "##lo", "world", ",", "hel"]


def test_look_up():
    vocab = Vocab(TOKENS)
    assert (vocab[5], vocab.id("hel"), len(vocab), list(vocab)) == ("hel", 5, 10, TOKENS)
    assert "world" in vocab and "World" not in vocab
    assert vocab.special == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    with pytest.raises(holdall.MissingError, match="no token"):
        vocab.id("absent")


def test_text():
    vocab = Vocab(["a", "", "\u2028", "b\x85"])
    assert vocab.to_text() == "a\n\n\u2028\nb\x85\n".encode()
    assert Vocab.from_text(vocab.to_text()) == vocab
    assert Vocab.from_text("a\r\nb\r\n").tokens == ("a", "b")
    assert Vocab.from_text("a\nb").tokens == ("a", "b")
    assert Vocab.from_text(b"").tokens == ()
    for token in ("a\nb", "a\r"):
        with pytest.raises(holdall.ContentError, match="line end"):
            Vocab([token]).to_text()
    with pytest.raises(holdall.ContentError, match="byte 1"):
        Vocab.from_text(b"a\xff")


def test_wordpiece():
    pytest.importorskip("tokenizers")
    tokenizer = Vocab(TOKENS).wordpiece(max_length=6)
    assert tokenizer.encode("Hello, wörld xyz").tokens == ["[CLS]", "hel", "##lo", ",", "world", "[SEP]"]
    assert tokenizer.encode("xyz").ids == [2, 1, 3]
    with pytest.raises(holdall.ContentError, match="cls, sep"):
        Vocab(["[UNK]"]).wordpiece()
