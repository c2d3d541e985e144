"""npz and npy compared with numpy, and hostile files."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, FormatError, LimitError, UnsupportedError
from holdall.format.npz.layout import CODE_OF
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.testing import ZOO
from holdall.testing.compare import restrict_to
from holdall.testing.zoo import sample_values


def npy(text: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy file with any header."""
    head = text.encode("latin-1")
    width = "<H" if version == (1, 0) else "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(width, len(head)) + head + data


def described(descr: str = "'<f4'", fortran: str = "False", shape: str = "(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_dtype_and_order_that_numpy_writes(save, order, tmp_path):
    arrays = {}
    for name in CODE_OF:
        values = sample_values(name, (3, 4, 5)).astype(np.dtype(CODE_OF[name]).newbyteorder(order))
        arrays |= {name: values, f"{name}.fortran": np.asfortranarray(values), f"{name}.scalar": values[0, 0, 0]}
        arrays |= {f"{name}.empty": values[:0], f"{name}.column": np.asfortranarray(values[:, :1, :1])}
    path = tmp_path / "m.npz"
    save(path, **arrays)
    with holdall.open(path) as model, holdall.open(path, mmap=False) as read:
        assert list(model) == list(arrays)
        for key, array in arrays.items():
            little = np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("<"))
            assert str(model[key].dtype) == key.partition(".")[0] and model[key].shape == array.shape
            assert bytes(model[key].raw()) == little.tobytes(order="C") == bytes(read[key].raw()), key
        assert np.array_equal(model["i32.fortran"][1:, ::2], arrays["i32.fortran"][1:, ::2])
    assert holdall.verify(path, level="strict").findings == []


def test_numpy_loads_the_whole_zoo(tmp_path):
    for title, make in ZOO.items():
        model = restrict_to(make(), holdall.formats()["npz"])
        if model is None:
            continue
        path = tmp_path / f"{title}.npz"
        holdall.save(path, model, fsync=False)
        with np.load(path, allow_pickle=False) as loaded:
            assert [name for name in loaded.files if name != "__metadata__"] == list(model)
            for name in model:
                assert loaded[name].tobytes() == model[name].numpy().tobytes()
                assert loaded[name].shape == model[name].shape and loaded[name].dtype == model[name].numpy().dtype
            if model.metadata:
                assert json.loads(loaded["__metadata__"].tobytes()) == dict(model.metadata)
        assert zipfile.ZipFile(path).testzip() is None
        with holdall.open(path) as back:
            assert all(tensor.offset % 64 == 0 for tensor in back.tensors)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_a_lone_npy_array(version, tmp_path):
    values = np.arange(6, dtype=np.int16).reshape(2, 3)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, values, version=version)
    with holdall.open(tmp_path / "a.npy") as model:
        assert model.format == "npz" and list(model) == ["array"]
        assert np.array_equal(model["array"].numpy(), values)
    assert holdall.verify(tmp_path / "a.npy", level="strict").findings == []


def test_an_empty_npz(tmp_path):
    np.savez(tmp_path / "m.npz")
    assert len(holdall.open(tmp_path / "m.npz")) == 0


def test_types_without_numbers_are_carried(tmp_path):
    arrays = {
        "text": np.array(["a", "bcd"]),
        "bytes": np.array(b"xyz"),
        "time": np.zeros(2, "<M8[s]"),
        "record": np.zeros(2, [("a", "<f4"), ("b", "<i2", (3,))]),
        "long": np.zeros(2, np.longdouble),
    }
    np.savez(tmp_path / "m.npz", **arrays)
    with holdall.open(tmp_path / "m.npz") as model:
        for name, array in arrays.items():
            assert bytes(model[name].raw()) == array.tobytes(), name
            with pytest.raises(UnsupportedError):
                model[name].numpy()
        assert str(model["text"].dtype) == "npy.<U3"


def test_headers_of_other_writers():
    data = np.arange(2, dtype="<f4").tobytes()
    texts = [
        "{'shape': (2L,), 'descr': \"<f4\", 'fortran_order': False}",
        "  {u'descr':'<f4','fortran_order':False,'shape':(2,)}  \n\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
    ]
    for text in texts:
        assert holdall.open(npy(text, data))["array"].numpy().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (npy(described("'|O'")), "npz.npy.object"),
        (npy(described("'O'")), "npz.npy.object"),
        (npy(described("[('a', '<f4'), ('b', '|O')]")), "npz.npy.object"),
        (npy(described("[('a', [('b', 'O')])]")), "npz.npy.object"),
        (npy("__import__('os').system('x')"), "npz.npy.header"),
        (npy(described(shape="__import__('os')")), "npz.npy.header"),
        (npy(described(shape="(1+1,)")), "npz.npy.header"),
        (npy(described(shape="(-1,)")), "npz.npy.header"),
        (npy(described(shape="2")), "npz.npy.shape"),
        (npy(described(shape="(2)")), "npz.npy.shape"),
        (npy(described(shape="('a',)")), "npz.npy.shape"),
        (npy(described(shape="(True,)")), "npz.npy.shape"),
        (npy(described(shape="(99999999999999999999,)")), "npz.npy.shape"),
        (npy(described(shape="(" * 2000)), "npz.npy.header"),
        (npy(described(shape="[" * 10 + "]" * 10)), "npz.npy.shape"),
        (npy(described(fortran="1")), "npz.npy.header"),
        (npy(described("'<q9'")), "npz.npy.descr"),
        (npy(described("7")), "npz.npy.descr"),
        (npy(described("[]")), "npz.npy.descr"),
        (npy("{'descr': '<f4', 'fortran_order': False}"), "npz.npy.header"),
        (npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}"), "npz.npy.header"),
        (npy("{}"), "npz.npy.header"),
        (npy(""), "npz.npy.header"),
        (npy(described(), bytes(7)), "npz.npy.size"),
        (npy(described(), bytes(9)), "npz.npy.size"),
        (npy(described(shape="(9223372036854775807, 9223372036854775807)"), bytes(8)), "npz.npy.size"),
        (npy(described(), bytes(8))[:40], "npz.npy.short"),
        (npy(described(), bytes(8), (4, 0)), "npz.npy.version"),
        (npy(described(), bytes(8))[:9], "npz.npy.short"),
    ],
)
def test_hostile_arrays(data, rule):
    for what in (data, zipped({"a.npy": data}), zipped({"a.npy": data}, zipfile.ZIP_DEFLATED)):
        with pytest.raises(FormatError) as caught:
            holdall.open(what, format="npz")
        assert caught.value.rule == rule, caught.value
        assert not holdall.verify(what, format="npz").ok


def test_entries_that_are_not_arrays():
    good = npy(described(), bytes(8))
    with pytest.raises(FormatError, match="does not end in"):
        holdall.open(zipped({"a.npy": good, "b.txt": b"x"}))
    with pytest.raises(FormatError) as caught:
        holdall.open(zipped({"a.npy": good, "../b.npy": good}))
    assert caught.value.rule == "zip.name.path"
    with pytest.raises(FormatError) as caught:
        holdall.open(zipped({"a.npy": good, "b.npy": b"x"}))
    assert caught.value.rule == "npz.npy.magic"


def test_bombs():
    zeros = npy(described(shape=f"({1 << 27},)"), bytes(4 << 27))
    with pytest.raises(LimitError, match="ratio"):
        holdall.open(zipped({"a.npy": zeros}, zipfile.ZIP_DEFLATED))
    allowed = holdall.Limits(decompression_ratio=2000)
    assert holdall.open(zipped({"a.npy": zeros}, zipfile.ZIP_DEFLATED), limits=allowed)["a"].nbytes == 4 << 27
    small = zipped({"a.npy": npy(described(shape="(1000,)"), bytes(4000))}, zipfile.ZIP_DEFLATED)
    size = struct.pack("<I", len(npy(described(shape="(1000,)"), bytes(4000))))
    for lie in (100, 1 << 20):
        assert not holdall.verify(small.replace(size, struct.pack("<I", lie))).ok


@pytest.mark.parametrize("beyond", [0, 1, 14, 19, 100, 257, 258, 259])
def test_zeros_that_end_just_beyond_a_buffer(beyond):
    """The last match reaches over the end of the buffer, and the input ends before the output."""
    for size in ((4 << 20) + beyond, (8 << 20) + beyond):
        data = io.BytesIO()
        zeros = np.zeros(size - 128, np.uint8)  # behind a header of 128 bytes
        np.savez_compressed(data, a=zeros)
        limits = holdall.Limits(decompression_ratio=2000)
        assert holdall.verify(data.getvalue(), limits=limits).ok
        with holdall.open(data.getvalue(), limits=limits) as model:
            assert np.array_equal(model["a"].numpy(), zeros)


def test_what_numpy_compresses_opens_in_proportion_to_its_file(tmp_path):
    """An array of zeros shrinks to a thousandth; beside weights of the usual kind it is no bomb."""
    weights = np.random.default_rng(0).standard_normal(1_100_000).astype(np.float32)
    np.savez_compressed(tmp_path / "m.npz", weights=weights, state=np.zeros(25_000_000, np.float32))
    with holdall.open(tmp_path / "m.npz") as model:
        assert model["state"].nbytes == 100_000_000
        assert np.array_equal(model["weights"].numpy(), weights)
    assert holdall.verify(tmp_path / "m.npz").ok
    np.savez_compressed(tmp_path / "zeros.npz", state=np.zeros(25_000_000, np.float32))
    with pytest.raises(LimitError, match="ratio"):
        holdall.open(tmp_path / "zeros.npz")


def test_a_large_array_that_hardly_shrinks_is_no_bomb(tmp_path):
    """The limit of one decompressed block, 2 GiB by default, is for what grows."""
    weights = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    np.savez_compressed(tmp_path / "m.npz", weights=weights)
    np.savez_compressed(tmp_path / "zeros.npz", weights=np.zeros_like(weights))
    tight = holdall.Limits(decompressed_bytes=20_000)
    assert np.array_equal(holdall.open(tmp_path / "m.npz", limits=tight)["weights"].numpy(), weights)
    with pytest.raises(LimitError, match="inflated bytes"):
        holdall.open(tmp_path / "zeros.npz", limits=tight)


def test_metadata_is_json_in_an_array_of_bytes(tmp_path):
    values = {"text": "größe", "number": 2**63, "list": [1, 2.5, None, True], "nested": {"a": {}}}
    holdall.save(tmp_path / "m.npz", {"w": np.ones(2)}, metadata=values)
    with holdall.open(tmp_path / "m.npz") as model:
        assert dict(model.metadata) == values and list(model) == ["w"]
    np.savez(tmp_path / "other.npz", __metadata__=np.arange(3))
    assert list(holdall.open(tmp_path / "other.npz")) == ["__metadata__"]
    broken = np.frombuffer(b"{broken", np.uint8)
    np.savez(tmp_path / "broken.npz", __metadata__=broken)
    with pytest.raises(FormatError, match="not JSON"):
        holdall.open(tmp_path / "broken.npz")
    for value in (float("nan"), 2**64, b"x", {1: 2}, "\ud800"):
        with pytest.raises(ContentError):
            holdall.save(tmp_path / "x.npz", {}, metadata={"a": value})


@pytest.mark.parametrize(
    "name", ["", "__metadata__", "a.npy", "../a", "/a", "a//b", "a\0b", "a\\b", "\ud800", "x" * 70000]
)
def test_names_that_a_zip_cannot_have(name, tmp_path):
    with pytest.raises(ContentError):
        holdall.save(tmp_path / "m.npz", {name: np.zeros(1)})


def test_types_that_numpy_lacks_travel_as_bytes_when_carried(tmp_path):
    holdall.save(tmp_path / "m.safetensors", Model([Tensor.of("w", sample_values("bf16", (2, 3)), "bf16")]))
    with pytest.raises(ContentError, match="numpy has no bf16"):
        holdall.save(tmp_path / "x.npz", holdall.open(tmp_path / "m.safetensors"))
    holdall.convert(tmp_path / "m.safetensors", tmp_path / "m.npz", carry=True)
    assert np.load(tmp_path / "m.npz")["w"].dtype == np.uint8
    holdall.restore(tmp_path / "m.npz", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_files_of_numpy_come_back_byte_for_byte(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "t": np.array("text"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "m.npz", **arrays)
        for hub in ("safetensors", "torch", "oinf"):
            holdall.convert(tmp_path / "m.npz", tmp_path / "there", format=hub, carry=True)
            holdall.restore(tmp_path / "there", tmp_path / "back.npz")
            assert (tmp_path / "back.npz").read_bytes() == (tmp_path / "m.npz").read_bytes()
