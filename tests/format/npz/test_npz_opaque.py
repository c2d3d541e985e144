"""Arrays that numpy has and holdall does not decode: texts, dates, records. They are copied from npz to npz."""

import ast
import io
import time
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import ContentError
from holdall.format.npz.literals import LiteralError, parse_literal
from holdall.model.encodings import Opaque
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor

RECORD = np.dtype([("a", "<f4"), ("b", ">i8", (2, 3)), ("c", [("d", "|S5"), ("e", "<U2")])])
ARRAYS = {
    "numbers": np.arange(12, dtype=np.float32).reshape(3, 4),
    "bytes": np.array([b"abc", b"d"]),
    "texts": np.array([["ä", "bc"], ["", "\U0001f600"]]),
    "big-endian": np.array(["ab", "c"]).astype(">U2"),
    "one": np.array(b"csr"),
    "dates": np.array(["2020-01-02", "NaT"], "datetime64[D]"),
    "spans": np.array([1, 2], "timedelta64[ms]"),
    "records": np.frombuffer(bytes(range(198)), np.uint8).view(np.uint8)[: 2 * RECORD.itemsize].view(RECORD),
    "void": np.frombuffer(b"12345678", "V4"),
    "fortran": np.asfortranarray(np.array([["a", "b", "c"], ["d", "e", "f"]])),
    "none": np.zeros(0, "S7"),
    "many": np.arange(600_000).astype("S9"),  # beyond every buffer
    "long double": np.arange(3, dtype=np.longdouble),
}


def same(path, expected=ARRAYS):
    with np.load(path, allow_pickle=False) as found:
        for name, array in expected.items():
            assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
            assert found[name].tobytes() == array.tobytes(), name
        return set(found.files) - set(expected)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_they_survive_every_way_from_npz_to_npz(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, **ARRAYS)
    holdall.edit(path, set={"note": "mine"})
    assert same(path) == {"__metadata__"}
    holdall.edit(path, rename={"texts": "words"}, unset=["note"])
    words = {("words" if name == "texts" else name): array for name, array in ARRAYS.items()}
    assert same(path, words) == set()
    holdall.convert(path, tmp_path / "b.npz", rename=["s/words/texts/"], metadata={"k": 1})
    assert same(tmp_path / "b.npz") == {"__metadata__"}
    with holdall.open(tmp_path / "b.npz") as model:
        holdall.save(tmp_path / "c.npz", model)
    assert same(tmp_path / "c.npz") == {"__metadata__"}
    assert holdall.verify(tmp_path / "c.npz", level="strict").ok
    holdall.convert(tmp_path / "c.npz", tmp_path / "d.npz", exclude=["numbers"])
    assert same(tmp_path / "d.npz", {name: array for name, array in ARRAYS.items() if name != "numbers"})


def test_sparse_matrices_as_scipy_saves_them(tmp_path):
    chance = np.random.default_rng(1)
    parts = {
        "indices": chance.integers(0, 60, 300, np.int32),
        "indptr": np.arange(0, 306, 6, np.int32),
        "format": np.array(b"csr"),
        "shape": np.array([50, 60]),
        "data": chance.standard_normal(300),
    }
    np.savez_compressed(tmp_path / "m.npz", **parts)
    holdall.edit(tmp_path / "m.npz", set={"made by": "tests"})
    with np.load(tmp_path / "m.npz") as found:
        for name, array in parts.items():
            assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name


def test_other_targets_say_what_is_not_decoded_and_the_ways_out(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.zeros(3), t=np.array([b"abc"]))
    said = (
        r"safetensors cannot hold 1 tensor: 't' npy\.\|S3\[1\] \(no npy\.\|S3, which holdall does not decode\)\. "
        r"Ways out with holdall convert: --exclude, --carry"
    )
    with pytest.raises(ContentError, match=said):
        holdall.convert(tmp_path / "a.npz", tmp_path / "b.safetensors")
    holdall.convert(tmp_path / "a.npz", tmp_path / "b.safetensors", exclude=["t"])
    holdall.convert(tmp_path / "a.npz", tmp_path / "c.safetensors", carry=True)
    holdall.restore(tmp_path / "c.safetensors", tmp_path / "d.npz")
    assert (tmp_path / "d.npz").read_bytes() == (tmp_path / "a.npz").read_bytes()


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [("npy.|O", (1,), 8), ("npy.<U3", (2,), 7), ("npy.<U3'", (1,), 12), ("npy.[('a', '|O')]", (1,), 8),
     ("npy.structured", (1,), 4), ("ggml.99", (1,), 4), ("npy.<f4", (1,), 4), ("npy.\xe4", (1,), 4)],
)  # fmt: skip
def test_a_type_that_could_not_be_read_again_is_refused(name, shape, size):
    tensor = Tensor("w", Opaque(name, size), shape, InMemory(bytes(size)))
    with pytest.raises(ContentError, match="tensor 'w'"):
        holdall.save("never.npz", Model([tensor]))


def test_an_npy_becomes_an_npz(tmp_path):
    array = np.arange(12).reshape(3, 4)
    np.save(tmp_path / "x.npy", array)
    report = holdall.convert(tmp_path / "x.npy", tmp_path / "y.npz")
    assert not any("copied as it is" in line for line in report.changes)
    with np.load(tmp_path / "y.npz") as found:
        assert isinstance(found, np.lib.npyio.NpzFile)
        assert np.array_equal(found["array"], array)
    holdall.convert(tmp_path / "x.npy", tmp_path / "z.npz", carry=True)
    assert isinstance(np.load(tmp_path / "z.npz"), np.lib.npyio.NpzFile)
    holdall.restore(tmp_path / "z.npz", tmp_path / "back.npy")
    assert (tmp_path / "back.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()
    np.save(tmp_path / "t.npy", np.array(["a", "bc"]))
    holdall.convert(tmp_path / "t.npy", tmp_path / "t.npz")
    assert np.load(tmp_path / "t.npz")["array"].tolist() == ["a", "bc"]
    copied = holdall.convert(tmp_path / "y.npz", tmp_path / "copy.npz")
    assert "is npz already: copied as it is" in copied.changes


def split(data):
    """Version, text of the header without its padding, and elements."""
    start = 10 if data[6] == 1 else 12
    stop = start + int.from_bytes(data[8:start], "little")
    return data[6], data[start:stop].rstrip(), data[stop:]


FIELDS = (
    "é",
    "q'",
    'q"',
    "q'\"",
    "a\\b",
    "a\nb",
    "日本",
    "\U0001f600",
    "a b",
    "\xad",
    "\u200b",
    "\x00\x7f",
    "\\N{DASH}",
)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_any_name_keep_type_and_bytes(tmp_path, field, save):
    path = tmp_path / "a.npz"
    record = np.dtype([(field, "<i4"), (("title " + field, "other"), [(field * 2, ">f8", (2,))])])
    arrays = {"x": np.frombuffer(bytes(range(60)), record), "w": np.arange(3.0), "e": np.zeros((0, 2), record)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns of version 3.0
        save(path, **arrays)
        assert holdall.verify(path, level="strict").findings == []
        holdall.edit(path, set={"k": "v"}, rename={"x": "y"})
        assert same(path, {"y": arrays["x"], "w": arrays["w"], "e": arrays["e"]}) == {"__metadata__"}
        with holdall.open(path) as model:
            assert str(model["y"].dtype) == f"npy.{record.descr!r}"
            holdall.save(tmp_path / "b.npz", {"again": model["y"]})
        assert same(tmp_path / "b.npz", {"again": arrays["x"]}) == set()
        plain = io.BytesIO()
        np.save(plain, arrays["x"])
    with np.load(tmp_path / "b.npz") as found:
        stored = found.zip.read("again.npy")
    assert split(stored) == split(plain.getvalue())  # as numpy writes them


def test_a_long_header_keeps_its_letters(tmp_path):
    record = np.dtype([(f"é{number:05}", "<i4") for number in range(3000)])
    wide = np.dtype([(f"日{number:05}", "<i4") for number in range(2000)])
    arrays = {"a": np.zeros(2, record), "b": np.ones(2, wide)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(tmp_path / "a.npz", **arrays)
    holdall.edit(tmp_path / "a.npz", set={"k": "v"})
    with np.load(tmp_path / "a.npz", max_header_size=1 << 20) as found:
        assert {name: found[name].dtype for name in arrays} == {"a": record, "b": wide}


def test_a_header_that_is_not_utf8_is_refused():
    text = b"{'descr': [('\xe9', '<i4')], 'fortran_order': False, 'shape': (1,), }"
    data = b"\x93NUMPY\3\0" + len(text).to_bytes(4, "little") + text + bytes(4)
    with pytest.raises(holdall.FormatError, match=r"the header is not UTF-8, as version 3\.0 has it") as caught:
        holdall.open(data)
    assert caught.value.offset == data.index(b"\xe9")


@pytest.mark.parametrize(
    "text",
    [r"'\n\r\t\a\b\f\v\\\'\"'", r'"\"\'"', r"'\0\12\1234\377'", r"'\x41\u00e9\U0001f600'", r"'\d\é\ '", "'a\\\nb'",
     r"u'\u00e9'", r"U'x'", r"'\N{BULLET}\N{latin small letter a}'", r"'\ud800'", r"[('a\\', '<i4')]", "''", '""'],
)  # fmt: skip
def test_texts_are_those_of_python(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of unknown escapes
        assert parse_literal(text) == ast.literal_eval(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [(r"'\x4'", r"the escape \\x that is not complete"), (r"'\u12'", r"escape \\u"), (r"'\N{}'", r"escape \\N"),
     (r"'\U00110000'", "which is no letter"), (r"'\N{NO SUCH}'", "letter 'NO SUCH', which there is not"),
     (r"'\N{KEYCAP DIGIT ONE}'", "which there is not"), ("'a\nb'", "not a literal"), (r"'a\'", "not a literal"),
     ("f'{1}'", "not a literal"), ("'a'.b", "not a literal"), ("__import__('os')", "not a literal")],
)  # fmt: skip
def test_what_python_refuses_is_refused(text, message):
    with pytest.raises((SyntaxError, ValueError)):
        ast.literal_eval(text)
    with pytest.raises(LiteralError, match=message):
        parse_literal(text)


def test_a_hostile_header_takes_no_time():
    before = time.perf_counter()
    for text in ("'" + "\\'" * 30_000, '"' * 60_001, "'a" * 30_001, "(" * 60_000, "'" + "\\" * 60_001):
        with pytest.raises(LiteralError):
            parse_literal(text)
    assert time.perf_counter() - before < 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            "convert a.npz b.npz --transpose t",
            1,
            "npy.<U3, which holdall does not decode: transposing needs its values",
        ),
        (
            "convert a.npz b.npz --cast t=f32",
            1,
            "npy.<U3, which holdall does not decode: casting needs its values",
        ),
        ("quantize a.npz b.mcf --include t", 1, "mcf cannot hold 1 tensor: 't' npy.<U3[1, 2] (no npy.<U3, which"),
        ("extract a.npz t", 0, "tensor t: holdall does not decode npy.<U3: stored bytes as .bin instead\n"),
        ("extract a.npz t -o t.npy", 1, "tensor 't': holdall does not decode npy.<U3; take the stored bytes"),
        ("extract a.npz t --slice 0:1", 1, "has no stored form; holdall does not decode it: take it whole"),
    ],
)
def test_the_reason_is_that_they_are_not_decoded(tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", t=np.array([["abc", "d"]]), w=np.zeros((64, 64), np.float32))
    done = CliRunner().invoke(main, arguments.split())
    assert (done.exit_code, said in done.output) == (code, True), done.output
    assert "dequantize" not in done.output and "already" not in done.output and "--cast" not in done.output
