"""Every golden file, against what is expected of it."""

import hashlib
import zlib

import numpy as np
import pytest

import holdall
from tests.format.embd import corpus

WARNED = {
    "metadata_missing_keys": "embd.model.keys",
    "relative_alignment_only": "embd.data.align",
    "vocab_size_contradiction": "embd.model.vocab_size",
}
REFUSED = {"draft_100_byte_entries"}
STRICT = {"reserved_flag_bit", "shared_payload"}
SUMS = {"data_bit_flip", "file_checksum_field", "metadata_bit_flip"}  # found by reading everything


def number(value):
    return float(value) if isinstance(value, str) else value


@pytest.mark.shows("E26", "E38")
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", corpus.GOOD + [name for name in corpus.ODD if name not in REFUSED])
def test_content(name, mmap):
    want = corpus.expected(name)
    sequential = want["format"] == "embd-sequential"
    with holdall.open(corpus.file(name), mmap=mmap) as model:
        assert (model.format, model.version) == ("embd", (1,) if sequential else tuple(want["version"]))
        assert [[e.key, e.value] for e in model.metadata.entries] == (want["metadata"] or [])
        check_vocab(model.vocab, want["vocab"])
        assert list(model) == [row["name"] for row in want["tensors"]]
        for row in want["tensors"]:
            tensor = model[row["name"]]
            assert str(tensor.dtype) == corpus.dtype_name(row["dtype"])
            assert (list(tensor.shape), tensor.offset, tensor.nbytes) == (row["shape"], row["offset"], row["nbytes"])
            assert hashlib.sha256(tensor.raw()).hexdigest() == row["sha256"]
            if "values" in row:
                values = np.array([number(value) for value in row["values"]]).astype(tensor.dtype.numpy)
                np.testing.assert_array_equal(tensor.numpy().reshape(-1), values)


def check_vocab(vocab, want):
    if want is None or (want["token_count"] == 0 and "special" not in want):
        assert vocab is None
        return
    assert len(vocab) == want["token_count"]
    assert list(vocab.tokens[:8]) == want["first_tokens"]
    assert list(vocab.tokens[-8:]) == want["last_tokens"]
    assert hashlib.sha256("\n".join(vocab).encode()).hexdigest() == want["sha256_of_newline_joined_utf8"]
    if "special" in want:
        assert vocab.special == corpus.special(want)


@pytest.mark.parametrize("name", corpus.GOOD + corpus.ODD)
def test_verdicts(name):
    path = corpus.file(name)
    report, strict = holdall.verify(path), holdall.verify(path, level="strict")
    assert report.ok == (name not in REFUSED), report.findings
    assert strict.ok == (name not in REFUSED | STRICT), strict.findings
    if name in WARNED:
        assert WARNED[name] in [finding.rule for finding in report.findings]


def test_the_draft_layout_is_named():
    with pytest.raises(holdall.FormatError, match="draft layout") as caught:
        holdall.open(corpus.file("draft_100_byte_entries"))
    assert caught.value.rule == "embd.header.draft"


@pytest.mark.parametrize("name", corpus.BAD)
def test_bad(name):
    path = corpus.FOLDER / "bad" / f"{name}.weights"
    report = holdall.verify(path)
    assert not report.ok
    if name in SUMS:
        holdall.open(path).close()
        assert holdall.verify(path, level="structure").ok
        assert {finding.rule.rpartition(".")[2] for finding in report.findings} & {"data_checksum", "file_checksum"}
        return
    with pytest.raises(holdall.UnsupportedError if name == "compressed_flag" else holdall.FormatError):
        holdall.open(path, format="embd")


def test_the_compressed_flag_is_refused_because_the_document_reserves_it():
    golden = (corpus.FOLDER / "bad" / "compressed_flag.weights").read_bytes()
    minimal = bytearray(corpus.file("minimal").read_bytes())
    minimal[8] |= 8  # bit 3 of flags
    minimal[56:60] = zlib.crc32(minimal[:56]).to_bytes(4, "little")
    says = (
        "embd: the flag COMPRESSED is set, which the format's document reserves: "
        "it names no algorithm, so that the data cannot be decoded"
    )
    for data in (golden, bytes(minimal)):
        with pytest.raises(holdall.UnsupportedError) as caught:
            holdall.open(data)
        assert str(caught.value).endswith(says)
        (finding,) = holdall.verify(data, level="strict").findings
        assert (finding.rule, finding.offset, finding.message) == ("embd.header.compressed", 8, says)


@pytest.mark.parametrize("name", corpus.GOOD)
def test_an_opened_model_is_written_back_byte_for_byte(name, tmp_path):
    with holdall.open(corpus.file(name)) as model:
        holdall.save(tmp_path / "again.weights", model, fsync=False)
    assert (tmp_path / "again.weights").read_bytes() == corpus.file(name).read_bytes()


@pytest.mark.shows("E01", "E43")
@pytest.mark.parametrize("name", [n for n in corpus.GOOD if n not in ("data_order_differs", "long_strings")])
def test_the_same_content_gives_the_same_bytes(name, tmp_path):
    want = corpus.expected(name)
    if want["format"] == "embd-sequential":
        options = {"layout": "sequential"}
        if any(0 in row["shape"] for row in want["tensors"]):
            with pytest.raises(holdall.ContentError, match="dim of 0"):
                holdall.save(tmp_path / "new.weights", corpus.rebuild(name), **options)
            return
    else:
        options = {"align": bool(want["flags"] & 2), "checksums": bool(want["flags"] & 4)}
    holdall.save(tmp_path / "new.weights", corpus.rebuild(name), vocab=corpus.vocab(name), fsync=False, **options)
    assert (tmp_path / "new.weights").read_bytes() == corpus.file(name).read_bytes()


@pytest.mark.parametrize("name", corpus.GOOD)
def test_through_safetensors_and_back(name, tmp_path):
    holdall.convert(corpus.file(name), tmp_path / "x.safetensors", carry=True, fsync=False)
    holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.weights", fsync=False)
    assert (tmp_path / "back.weights").read_bytes() == corpus.file(name).read_bytes()
