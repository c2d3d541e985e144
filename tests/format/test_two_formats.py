"""A file that other programs read as a second format is refused, unless the format is named."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import holdall
from holdall.format import registry
from holdall.format.second_pickle import is_pickle
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.source import source_of
from tests.format.torch.by_hand import make_legacy, make_zip
from tests.golden import golden

try:
    import torch
except ImportError:  # then holdall says what is a file of torch
    torch = None
onnx = pytest.importorskip("onnx")
gguf = pytest.importorskip("gguf")

NAMES = [row.name for row in registry.BUILT_IN]
SETS = ("aeroset", "hf")
WEIGHTS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}
EVIL = {"w": np.full((3, 4), 666, np.float32)}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One small file of every format; of a set, its main file."""
    folder, found = tmp_path_factory.mktemp("two"), dict[str, bytes]()
    for name in NAMES:
        holdall.save(folder / name, WEIGHTS, format=name, fsync=False)
        path = folder / name
        if path.is_dir():
            options = {"max_shard_size": "8B"} if name == "hf" else {}
            holdall.save(folder / f"{name}-set", {**WEIGHTS, "v": WEIGHTS["w"]}, format=name, fsync=False, **options)
            path = next((folder / f"{name}-set").glob("*.json"))
        found[name] = path.read_bytes()
    return found


def zip_at(lead: bytes, arrays: dict[str, np.ndarray] = EVIL, *, kind: str = "npz", moved: bool = True) -> bytes:
    """A zip of numpy's or PyTorch's behind ``lead``; ``moved``: its offsets count from the front of the file."""
    made = io.BytesIO()
    if kind == "npz":
        np.savez(made, **arrays)  # type: ignore[arg-type]
    else:
        made.write(make_zip(arrays))
    if not moved:
        return lead + made.getvalue()
    out = io.BytesIO(lead)
    out.seek(0, io.SEEK_END)
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(out, "a") as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that come twice, where the lead is a zip
        for entry in old.infolist():
            new.writestr(entry, old.read(entry))
    return out.getvalue()


# -- what other programs take -----------------------------------------------------------------------------------------


def takes_npz(data: bytes, path: Path) -> bool:
    for read in (lambda: np.load(io.BytesIO(data)), lambda: np.lib.npyio.NpzFile(io.BytesIO(data))):
        try:
            found = read()
            if not isinstance(found, np.lib.npyio.NpzFile) or any(found[name].dtype for name in found.files):
                return True
        except Exception:
            continue
    return False


def takes_torch(data: bytes, path: Path) -> bool:
    if torch is None:
        return by_holdall("torch")(data, path)
    try:
        torch.load(path, weights_only=True)
        return True
    except Exception:
        pass
    try:
        return "data.pkl" in torch._C.PyTorchFileReader(io.BytesIO(data)).get_all_records()
    except RuntimeError:
        return False


def takes_json(key: str) -> Callable[[bytes, Path], bool]:
    def takes(data: bytes, path: Path) -> bool:
        try:
            return key in json.loads(data)
        except ValueError:
            return False

    return takes


def takes_by_library(read: Callable[[bytes, Path], object]) -> Callable[[bytes, Path], bool]:
    def takes(data: bytes, path: Path) -> bool:
        try:
            return bool(read(data, path))
        except Exception:
            return False

    return takes


def by_holdall(name: str) -> Callable[[bytes, Path], bool]:
    def takes(data: bytes, path: Path) -> bool:
        try:
            with holdall.open(data, format=name):
                return True
        except holdall.HoldallError:
            return False

    return takes


TAKES: dict[str, Callable[[bytes, Path], bool]] = {
    **{name: by_holdall(name) for name in NAMES},  # of five there is no other library
    "npz": takes_npz,
    "torch": takes_torch,
    "safetensors": takes_by_library(lambda data, path: safetensors.deserialize(data) is not None),
    "gguf": takes_by_library(lambda data, path: gguf.GGUFReader(path) is not None),
    "onnx": takes_by_library(lambda data, path: onnx.load_from_string(data).HasField("graph")),
    "aeroset": takes_json("parts"),
    "hf": takes_json("weight_map"),
}  # fmt: skip


# -- every pair, by simple means --------------------------------------------------------------------------------------


def ways(first: bytes, second: bytes) -> Iterator[tuple[str, bytes]]:
    yield "appended", first + second
    yield "appended to a multiple of 64", first + bytes(-len(first) % 64) + second
    yield "over the end", first[: len(first) - 48] + second  # the last tensor has 48 bytes
    yield "in the middle", first[: len(first) // 2] + second + first[len(first) // 2 :]
    yield "over the front", second + first[len(second) :]
    yield "over the front, from byte 4", first[:4] + second[4:] + first[len(second) :]


@pytest.mark.parametrize("first", NAMES)
def test_every_pair_is_refused_or_has_one_meaning(first: str, files: dict[str, bytes], tmp_path: Path) -> None:
    path, opened, seconds = tmp_path / "x", 0, set[str]()
    for second in NAMES:
        pieces = [files[second]]
        if second in ("npz", "torch"):
            pieces.append(zip_at(files[first], kind=second)[len(files[first]) :])
        for way, data in (made for piece in pieces for made in ways(files[first], piece)):
            path.write_bytes(data)
            meant = {name for name in NAMES if TAKES[name](data, path)}
            try:
                with holdall.open(data) as model:
                    found = str(model.format)
            except holdall.HoldallError as error:
                if isinstance(error, holdall.FormatError) and error.rule == "core.format.two":
                    seconds.add(second)
                continue
            opened += 1
            assert meant <= {found}, (way, second)
    assert opened or first in SETS, "nothing was tried"
    if first in ("aero", "gguf", "gptrs-checkpoint", "gptrs-archive"):  # these may be followed by more bytes
        assert seconds >= {"npz", "torch"}


@pytest.mark.parametrize("kind", ["npz", "torch"])
@pytest.mark.parametrize(
    "name", [name for name in NAMES if "i8" in registry.find(name).holds.dtypes and name not in SETS]
)
def test_a_zip_in_the_last_tensor_that_counts_from_the_front_of_the_file(name: str, kind: str, tmp_path: Path) -> None:
    """PyTorch's reader and NpzFile see the zip, and the format sees a tensor of bytes, all checksums right."""
    path = tmp_path / "x"

    def write(inner: bytes) -> int:
        holdall.save(path, {"z": np.frombuffer(inner, np.int8)}, format=name, fsync=False)
        with holdall.open(path, format=name) as model:
            return int(model["z"].offset or 0)

    at = write(bytes(len(zip_at(b"", kind=kind))))
    write(zip_at(bytes(at), kind=kind)[at:])
    if name in ("npz", "torch"):  # its own end record is the last one
        assert holdall.open(path).format == name
        return
    if kind == "npz" or torch is not None:  # holdall alone would say of itself that it takes no such zip
        assert TAKES[kind](path.read_bytes(), path)
    with pytest.raises(holdall.FormatError, match=f"is {name}, and {kind} too, by a zip") as caught:
        holdall.open(path)
    assert (caught.value.rule, caught.value.offset) == ("core.format.two", at)
    assert [finding.rule for finding in holdall.verify(path).findings] == ["core.format.two"]
    with holdall.open(path, format=name) as model:
        assert list(model) == ["z"]


@pytest.mark.parametrize("name", ["safetensors", "gguf", "aero", "onnx", "oinf"])
def test_a_zip_that_was_stored_whole_belongs_to_the_file(name: str, tmp_path: Path) -> None:
    """It counts from its own beginning, and neither numpy.load nor torch.load looks for it there."""
    inner, path = zip_at(b"", moved=False), tmp_path / "x"
    holdall.save(path, {"z": np.frombuffer(inner, np.int8)}, format=name, fsync=False)
    with holdall.open(path) as model:
        assert model["z"].numpy().tobytes() == inner


def test_an_asset_that_is_a_zip_belongs_to_the_file(tmp_path: Path) -> None:
    inner = zip_at(b"", moved=False)
    model = Model([Tensor.of("w", WEIGHTS["w"])], assets={"merges.txt": inner})
    holdall.save(tmp_path / "m.mcf", model, fsync=False)
    with holdall.open(tmp_path / "m.mcf") as opened:
        assert opened.assets["merges.txt"] == inner


@pytest.mark.parametrize("size", [22, 100, 65_557, 200_000])
def test_letters_of_a_zip_in_a_tensor_are_no_zip(size: int, tmp_path: Path) -> None:
    noise = np.frombuffer((b"PK\5\6PK\1\2PK\6\6PK\6\7" * (size // 16 + 1))[:size], np.int8)
    for name in ("safetensors", "gguf", "aero", "oinf"):
        holdall.save(tmp_path / name, {"z": noise}, format=name, fsync=False)
        with holdall.open(tmp_path / name) as model:
            assert model.format == name


# -- pairs that are made by hand --------------------------------------------------------------------------------------


def legacy_and_tar() -> bytes:
    """A legacy file, PyTorch's own but for one text in it, whose first 512 bytes are the header of a tar."""
    from holdall.format.torch.layout import LEGACY, MAGIC_NUMBER

    data = make_legacy({"w": np.zeros(3, np.float32)})
    rest = io.BytesIO(data)
    assert pickle.load(rest) == MAGIC_NUMBER
    start = rest.tell()
    assert data.startswith(LEGACY)
    pickle.load(rest)
    protocol = data[start : rest.tell()]
    system = pickle.load(rest)
    # A text of the third pickle fills the header up to byte 512, the checksum of the tar at byte 148 in it.
    body = bytearray(b" " * 400)
    front = data[:start] + protocol
    third = pickle.dumps({"note": body.decode(), **system}, 2)
    made = bytearray(front + third + data[rest.tell() :])
    at = made.index(bytes(body))
    assert at < 124
    made[124:136] = b"00000000000 "  # the size of the member
    made[148:156] = b" " * 8
    made[156:157] = b"0"
    made[148:156] = b"%06o\0 " % sum(made[:512])
    return bytes(made)


def test_a_legacy_file_that_is_a_tar(tmp_path: Path) -> None:
    data, path = legacy_and_tar(), tmp_path / "m.pt"
    path.write_bytes(data)
    with tarfile.open(path, "r:") as archive:
        assert archive.next() is not None
    if torch is not None:
        with pytest.raises(RuntimeError, match=r"legacy \.tar format"):  # it is read only where code may be run
            torch.load(path, weights_only=True)
    with pytest.raises(
        holdall.FormatError, match="is torch, and torch too, by the header of a tar at byte 0"
    ) as caught:
        holdall.open(path)
    assert (caught.value.rule, caught.value.offset) == ("core.format.two", 0)
    with holdall.open(path, format="torch") as model:
        assert model["w"].numpy().tolist() == [0, 0, 0]


def legacy_pickles() -> list[bytes]:
    """The pickles of a legacy file with 666 in it, and at the end its storages."""
    data, places = make_legacy({"w": np.full(2, 666, np.float32)}), [0]
    rest = io.BytesIO(data)
    for _ in range(3):
        pickle.load(rest)
        places.append(rest.tell())
    return [data[start:stop] for start, stop in pairwise([*places, len(data)])]


def onnx_and_legacy() -> bytes:
    """The magic number without its protocol is an unknown field, and texts of pickles hold the other fields."""
    from holdall.format.torch.layout import MAGIC_NUMBER

    graph = onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(np.zeros(1, np.float32), "w")])
    model = onnx.helper.make_model(graph).SerializeToString()
    _, protocol, system, content = legacy_pickles()
    front = b"\x8a\x0b" + MAGIC_NUMBER.to_bytes(11, "little") + b"." + protocol + b"\x80\2"
    size = 0x42 | 3 << 14  # of the last field: the rest of the pickles, after a text that fills it up
    more = system[2:] + content
    more = b"X" + struct.pack("<I", size - len(more) - 5) + b"a" * (size - len(more) - 5) + more
    inner = bytes(3 + 0x6C - len(front) - 5) + model + b"\x7a\xc2\x80\x03"  # the unknown field ends at byte 3 + 0x6C
    return front + b"X" + struct.pack("<I", len(inner)) + inner + more


def safetensors_and_legacy(number: bytes) -> bytes:
    """The length of the header is the opcode of a text, and metadata is such texts up to the tensor of the pickles."""
    body, n = number + b"." + b"".join(legacy_pickles()[1:]), 200
    length = 0x55 + 256 * n
    start = (
        b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"z":{"dtype":"U8","shape":[%d],"data_offsets":[4,%d]},'
        b'"__metadata__":{"x":"' % (len(body), 4 + len(body))
    )
    full = bytearray(length.to_bytes(8, "little") + start.ljust(length - 3, b"a") + b'"}}')
    at, end = 2 + n, 8 + length + 4
    while end - at > 128:
        full[at : at + 2] = b"U\x3c"
        at += 62
    full[at : at + 2] = bytes([0x55, end - at - 2])
    return bytes(full) + bytes(4) + body


NUMBER = 0x1950A86A20F9469CFC6C
SPELLINGS = {
    "short": b"\x8a\x0a" + NUMBER.to_bytes(10, "little"),
    "long": b"\x8b" + (12).to_bytes(4, "little") + NUMBER.to_bytes(12, "little"),
    "text": b"L%dL\n" % NUMBER,
    "hexadecimal": b"I%#x\n" % NUMBER,
    "remembered": b"\x8a\x0a" + NUMBER.to_bytes(10, "little") + b"q\x07N0h\x07",
    "called": b"cbuiltins\nint\n(V%d\ntR" % NUMBER,
}


@pytest.mark.parametrize("spelling", ["onnx", *SPELLINGS])
def test_a_file_that_is_a_legacy_torch_file(spelling: str, tmp_path: Path) -> None:
    if spelling == "onnx":
        name, data = "onnx", onnx_and_legacy()
        assert onnx.load_from_string(data).graph.initializer[0].name == "w"
    else:
        name, data = "safetensors", safetensors_and_legacy(SPELLINGS[spelling])
        assert safetensors.numpy.load(data)["w"].tolist() == [0]
    if torch is not None:
        assert torch.load(io.BytesIO(data), weights_only=False)["w"].tolist() == [666, 666]
    path = tmp_path / f"m.{name}"
    path.write_bytes(data)
    with pytest.raises(holdall.FormatError, match=f"is {name}, and torch too, by a pickle at byte 0") as caught:
        holdall.open(path)
    assert caught.value.rule == "core.format.two"
    with holdall.open(data, format=name) as model:
        assert model["w"].numpy().tolist() == [0]


def test_headers_of_any_length_are_no_pickle() -> None:
    """The length is the first opcode, and every byte comes first once; names have dots, which are the end of one."""
    for length in range(300, 300 + 2 * 65536, 37):
        name = b"model.layers.%d.self_attn.k_proj.weight" % length
        text = b'{"%s":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}' % name * (length // 80)
        data = length.to_bytes(8, "little") + text[:length].ljust(length) + b"abc"
        assert not is_pickle(source_of(data), data[:512]), length


def test_a_walk_through_opcodes_without_end_is_refused_soon() -> None:
    text = b'{"a":{"dtype":"U8","shape":[200000000],"data_offsets":[0,200000000]}}'
    length = 0x58 | 100 << 8  # a text of 100 bytes, the end of which is in the spaces of the header
    source = source_of(length.to_bytes(8, "little") + text.ljust(97) + b"N" * (length - 97) + bytes(1000))
    with mock.patch.object(type(source), "read", autospec=True, side_effect=type(source).read) as read:
        assert not is_pickle(source, source.read(0, 512))
        endless = source_of(b"N" * 1_000_000)
        assert is_pickle(endless, endless.read(0, 512))
    assert read.call_count < 30


def test_one_zip_with_entries_for_both(tmp_path: Path) -> None:
    out = io.BytesIO(make_zip({"w": np.zeros(3, np.float32)}))
    array = io.BytesIO()
    np.save(array, np.full(3, 666.0))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("archive/w.npy", array.getvalue())
    data = out.getvalue()
    assert np.load(io.BytesIO(data))["archive/w"][0] == 666
    with pytest.raises(holdall.FormatError, match="is torch, and npz too, by an entry of the zip at byte"):
        holdall.open(data)
    with holdall.open(data, format="torch") as model:
        assert model["w"].numpy()[0] == 0


def test_an_array_with_a_zip_behind_it_and_a_comment_behind_that() -> None:
    front = io.BytesIO()
    np.save(front, np.zeros(3))
    data = zip_at(front.getvalue())
    data = data[:-2] + struct.pack("<H", 9) + b"a comment"
    assert np.load(io.BytesIO(data)).tolist() == [0, 0, 0]
    assert np.lib.npyio.NpzFile(io.BytesIO(data))["w"][0, 0] == 666
    with pytest.raises(holdall.FormatError, match="is npz, and npz too, by a zip"):
        holdall.open(data)


def onnx_and_safetensors() -> bytes:
    """The length of the header is the beginning of a protobuf message, the braces and quotes are fields of it."""
    length = 0x05120708  # ir_version 7, and a producer of 5 bytes: four zeros and the brace
    text = b'{"_' + b'_metadata__"'.ljust(95) + b':{"y' + (b'":"' + b"v" * 60 + b'"},').ljust(121)
    at = 8 + len(text)
    text += b'"' + bytes([0xE0 | 0xF, 0xBF, 0xBF]) + b")"  # a length of four bytes, in UTF-8
    skipped = 0x6F | 0x3F << 7 | 0x3F << 14 | ord(")") << 21
    size = at + 5 + skipped
    data = size - 8 - length
    assert data >= 0
    text += b'":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (data, data)
    return length.to_bytes(8, "little") + text.ljust(length) + bytes(data)


def test_a_safetensors_file_that_is_onnx() -> None:
    data = onnx_and_safetensors()
    assert len(safetensors.deserialize(data)) == 1
    assert onnx.load_from_string(data).HasField("graph")
    with pytest.raises(holdall.FormatError, match="safetensors, and onnx too"):
        registry.detect(source_of(data))
    assert registry.choose(source_of(data), "safetensors", None).name == "safetensors"


def test_an_index_of_hugging_face_that_is_one_of_aero(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"format": "AEROSET", "weight_map": {}}')
    with pytest.raises(holdall.FormatError, match="is hf, and aeroset too, by the word AEROSET, at byte 11"):
        holdall.open(path)


def test_a_tensor_called_aeroset_makes_no_set() -> None:
    """A header of 123 bytes begins with a brace."""
    text = b'{"AEROSET":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'.ljust(123)
    with holdall.open(len(text).to_bytes(8, "little") + text + b"\1") as model:
        assert list(model) == ["AEROSET"]


def test_the_second_format_is_seen_whatever_is_allowed() -> None:
    data = zip_at(safetensors.numpy.save(WEIGHTS))
    with pytest.raises(holdall.FormatError, match="safetensors, and npz too"):
        holdall.open(data, allowed=["safetensors"])


def test_looking_takes_a_few_small_reads(files: dict[str, bytes]) -> None:
    for name in sorted(set(NAMES) - set(SETS)):
        source = source_of(files[name] if name in ("npz", "torch") else files[name] + bytes(1 << 20))
        with mock.patch.object(type(source), "read", autospec=True, side_effect=type(source).read) as read:
            assert registry.detect(source).name == name
        assert read.call_count <= 8
        assert sum(call.args[2] for call in read.call_args_list) <= 70_000


def test_no_golden_file_is_two() -> None:
    for path in sorted(golden("aero").parent.rglob("*")):
        if path.is_file() and path.suffix in (".aero", ".oinf", ".weights", ".bin", ".mcf"):
            try:
                registry.detect(source_of(path))
            except holdall.FormatError as error:
                assert error.rule != "core.format.two", path


@pytest.mark.parametrize("size", range(600, 700))
def test_letters_that_are_fields_by_chance_are_no_onnx(size):
    """A header of 633 bytes, filled up with spaces, is fields of protobuf, none of which a graph has."""
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(size)
    with holdall.open(size.to_bytes(8, "little") + header + bytes(8)) as model:
        assert model.format == "safetensors"
