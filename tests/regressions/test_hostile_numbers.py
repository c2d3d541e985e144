"""Files that were built by hand, and what was wrong with reading them: long numbers, work done over again."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import holdall
from holdall.cli import main
from holdall.format.oinf.layout import HEADER
from holdall.model.dtypes import find_dtype
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.operations.extract import make_file_names, plan_npy
from holdall.testing.isolation import cost_of
from tests.attacks.files import external, onnx, proto

RANK = 300  # dims of 62 bits: their product has more digits than Python agrees to print


def text(value: bytes) -> bytes:
    return pack("<I", len(value)) + value + bytes(-(4 + len(value)) % 8)


def oinf(body: bytes, data: bytes = b"", **counts: int) -> bytes:
    """An OINF file with one table, which is ``body``."""
    offset = HEADER.size + len(body) + -len(body) % 8
    tables = HEADER.size if "n_tensors" in counts else offset
    fields = {"n_sizevars": 0, "n_metadata": 0, "n_tensors": 0, **counts}
    head = HEADER.pack(
        magic=b"OINF\0", version=1, flags=0, reserved=0, offset_sizevars=HEADER.size, offset_metadata=HEADER.size,
        offset_tensors=tables, offset_data=offset, file_size=offset + len(data), padding=bytes(3), **fields,
    )  # fmt: skip
    return head + body.ljust(offset - HEADER.size, b"\0") + data


def oinf_array(rank: int) -> bytes:
    value = pack("<II", 10, rank) + pack("<Q", 1 << 62) * rank
    entry = text(b"key")
    offset = HEADER.size + len(entry) + 24
    return oinf(entry + pack("<IIQQ", 15, 0, len(value), offset), value, n_metadata=1)


def oinf_declared(rank: int) -> bytes:
    return oinf(text(b"w") + pack("<III", 10, rank, 0) + pack("<Q", 1 << 62) * rank + pack("<QQ", 0, 0), n_tensors=1)


def gptrs(rank: int) -> bytes:
    index = pack("<I1sI", 1, b"w", rank) + pack("<Q", 1 << 62) * rank + pack("<IB", 0, 0) + pack("<QQ", 0, 0)
    return b"GPTRSTEN" + pack("<II", 2, 4 + len(index)) + pack("<I", 1) + index


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (gptrs(RANK), "gptrs.tensor.size"),
        (oinf_array(RANK), "oinf.metadata.size"),
        (oinf_array(40_000), "oinf.metadata.size"),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused_with_a_sentence(data: bytes, rule: str) -> None:
    """They were put into the message as they are: ValueError."""
    with pytest.raises(holdall.FormatError) as refused:
        holdall.open(data)
    assert refused.value.rule == rule
    assert {finding.rule for finding in holdall.verify(data).findings} == {rule}
    assert cost_of(lambda: holdall.verify(data)).seconds < 1


def test_external_data_of_thousands_of_digits(tmp_path: Path) -> None:
    """Of the size that dims ask for, and of the end that offset and size come to."""
    (tmp_path / "w.bin").write_bytes(bytes(16))
    for told in ({"length": "16"}, {"offset": "8"}):
        path = tmp_path / "m.onnx"
        path.write_bytes(onnx(proto(dims=((1 << 62),) * RANK, rest=external(location="w.bin", **told))))
        with pytest.raises(holdall.FormatError, match=r"about 2\^"):
            holdall.open(path)


def test_thirty_thousand_onnx_names_that_are_no_text() -> None:
    """Each began again with all that follow: 7.5 seconds."""
    data = onnx(*(proto(name=b"\xff%d" % row) for row in range(30_000)))
    report = holdall.verify(data, format="onnx")
    assert {finding.rule for finding in report.findings} == {"onnx.wire.text"}
    assert cost_of(lambda: holdall.verify(data, format="onnx")).seconds < 1


def test_ternary_tensors_that_share_their_bytes_are_looked_at_in_bounds() -> None:
    """Every one of 8,000 tensors over half the file: 10 seconds."""
    count, size = 8_000, 400_000
    row = len(text(b"0000")) + 12 + 8 + 16
    start = HEADER.size + count * row
    rows = b"".join(
        text(b"%04d" % number)
        + pack("<IIIQQQ", 24, 1, 1, 4 * (size - 8 * number), size - 8 * number, start + 8 * number)
        for number in range(count)
    )
    data = oinf(rows, bytes(size), n_tensors=count)
    report = holdall.verify(data, level="strict")
    assert "core.limit" in {finding.rule for finding in report.findings}
    assert cost_of(lambda: holdall.verify(data, level="strict")).seconds < 2


@pytest.mark.parametrize(
    "words", [["info"], ["info", "--json"], ["ls"], ["ls", "--long"], ["ls", "--tree"], ["ls", "--json"]]
)
def test_shapes_of_thousands_of_digits_can_be_listed(tmp_path: Path, words: list[str]) -> None:
    """A tensor may be declared without data, of any shape: OverflowError and ValueError."""
    path = tmp_path / "declared.oinf"
    path.write_bytes(oinf_declared(RANK))
    assert holdall.verify(path).ok
    shown = CliRunner().invoke(main, [words[0], str(path), *words[1:]])
    assert (shown.exit_code, shown.stderr) == (0, "")


def test_an_empty_tensor_of_any_rank_is_no_npy() -> None:
    """Its header does not fit: ValueError."""
    tensor = Tensor("w", find_dtype("f32"), (0,) * 4096, InMemory(b""))
    with pytest.raises(holdall.UnsupportedError, match="4096 dims, numpy at most 64"):
        plan_npy(tensor)


def test_names_of_the_same_beginning_get_file_names_in_time() -> None:
    """Each was tried against all numbers before it: 3.3 seconds for 5,500."""
    names = ["n" * 130 + str(number) for number in range(20_000)]
    found: list[str] = []
    assert cost_of(lambda: found.extend(make_file_names(names))).seconds < 1
    assert len(set(make_file_names(names))) == len(names)


def test_a_vocabulary_of_gguf_is_text_with_ids_of_32_bits(tmp_path: Path) -> None:
    """Lists were tokens, and any number an id: converting them to EMBD raised AttributeError and struct.error."""
    key = "tokenizer.ggml."
    metadata = {f"{key}tokens": ["a", "b"], f"{key}padding_token_id": -1, f"{key}unknown_token_id": 1 << 40}
    holdall.save(tmp_path / "m.gguf", {"w": np.ones((2, 2), np.float32)}, metadata=metadata)
    with holdall.open(tmp_path / "m.gguf") as model:
        assert model.vocab is not None
        assert model.vocab.special == {}
    holdall.convert(tmp_path / "m.gguf", tmp_path / "m.weights")
    holdall.save(tmp_path / "n.gguf", {"w": np.ones(2, np.float32)}, metadata={f"{key}tokens": [1, 2]})
    with holdall.open(tmp_path / "n.gguf") as model:
        assert model.vocab is None


def test_an_alignment_of_gigabytes_is_not_taken_from_a_file(tmp_path: Path) -> None:
    """Three small arrays became 8 GB."""
    arrays = {name: np.ones(2, np.float32) for name in "abc"}
    with pytest.raises(holdall.ContentError, match=r"general\.alignment is 2147483648"):
        holdall.save(tmp_path / "m.gguf", arrays, metadata={"general.alignment": 1 << 31})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["1" * 5000, "1" * 5000 + ".x", "x." + "1" * 5000, "7.x"])
@pytest.mark.parametrize("target", ["m.npz", "m.pt"])
def test_a_metadata_key_of_many_digits_is_reported_as_left_out(tmp_path: Path, key: str, target: str) -> None:
    save_file({"w": np.ones((2, 3), np.float32)}, tmp_path / "m.safetensors", metadata={key: "seven"})
    report = holdall.convert(tmp_path / "m.safetensors", tmp_path / target)
    assert [(loss.name, loss.fate) for loss in report.losses if loss.part == "metadata"] == [(key, "left out")]
