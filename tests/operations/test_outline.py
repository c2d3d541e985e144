"""Documents that explain opens, beside the libraries that made them: json, zlib, zstd, numpy and gguf."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from base64 import urlsafe_b64decode

import msgspec
import numpy as np
import pytest

import holdall
from holdall.binary.compression import import_zstd
from holdall.format.outline import outline_by_name, outline_text
from holdall.format.zip.outline import open_deflated
from holdall.limits import Limits
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.examine import examine
from holdall.operations.explain import list_records
from holdall.operations.outline import Opener
from holdall.source import BytesSource

TENSORS = {f"layer.{n}.weight": np.full((n + 1, 3), n, np.float32) for n in range(40)}


def open_all(path, name: str, most: int = 100_000) -> list:
    with examine(path) as seen:
        opener = Opener(seen, most)
        records = [record for owner in seen.ledger.owners if owner.name == name for record in list_records(owner)]
        return [(record, opener.open(record)) for record in records]


def check_values(items, data: bytes, load) -> None:
    """Compare every value and count with what ``load`` makes of the bytes that the item names."""
    for item in items:
        parsed = load(data[item.start : item.stop])
        assert parsed == item.value if item.count is None else len(parsed) == item.count


def test_a_safetensors_header_parses_at_the_stated_offsets_of_the_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    safetensors.save_file(TENSORS, path, {"note": "é" * 50})
    data = path.read_bytes()
    ((_, opened),) = open_all(path, "json")
    assert (opened.outline.syntax, opened.outline.packing, opened.more, opened.stopped) == ("JSON", "", False, None)
    check_values(opened.items, data, json.loads)
    names = {item.name: item for item in opened.items if item.depth == 1}
    assert set(names) == {*TENSORS, "__metadata__"}
    assert all(data[item.key : item.key + len(name) + 2] == f'"{name}"'.encode() for name, item in names.items())


def test_chunks_of_aero_are_expanded(tmp_path):
    path = tmp_path / "x.aero"
    holdall.save(path, TENSORS, metadata={"a": "b"}, control_hash=True, page_hash=True)
    data = path.read_bytes()
    found = {record.label: (record, opened) for record, opened in open_all(path, "chunk")}
    assert {"meta.json", "manifest", "tensors", "control.integrity"} < set(found)
    assert {opened.outline.packing for _, opened in found.values()} == {"", "zstd"}
    for name, (record, opened) in found.items():
        stored = data[record.start : record.start + record.size]
        packed = stored.startswith(b"\x28\xb5\x2f\xfd")
        document = import_zstd().decompress(stored) if packed else stored
        assert opened.outline.packing == ("zstd" if packed else "")
        assert (opened.stored, opened.outline.size) == (len(stored), len(document))
        base = 0 if packed else record.start
        whole = document if packed else data
        load = json.loads if name == "meta.json" else msgspec.msgpack.decode
        assert opened.items[0].start == base
        assert not any(whole[opened.items[0].stop : base + len(document)])  # some are padded with zeros
        check_values(opened.items, whole, load)
    names = [item.value for item in found["tensors"][1].items if item.name == "name"]
    assert sorted(names) == sorted(TENSORS)


def test_deflated_entries_of_npz_are_inflated(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, **TENSORS)
    data = path.read_bytes()
    found = open_all(path, "deflated")
    assert len(found) == len(TENSORS)
    for record, opened in found:
        inflated = zlib.decompress(data[record.start : record.start + record.size], -zlib.MAX_WBITS)
        assert opened.outline.size == len(inflated)
        fields = {item.name: inflated[item.start : item.stop] for item in opened.items}
        array = np.load(io.BytesIO(inflated))
        assert fields["elements"] == array.tobytes()
        (text,) = (item.value for item in opened.items if item.name == "header")
        assert fields["header"] == text.encode()
        assert str(array.shape) in text
        assert b"".join(fields.values()) == inflated
        np.testing.assert_array_equal(array, TENSORS[record.label])


def test_a_deflated_pickle_is_opened(tmp_path):
    torch = pytest.importorskip("torch")
    import pickletools

    out = io.BytesIO()
    torch.save({"w": torch.ones(3), "text": "x" * 500}, out)
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(out) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
        pickle = plain.read(next(name for name in plain.namelist() if name.endswith("/data.pkl")))
    (opened,) = (opened for record, opened in open_all(path, "deflated") if record.label.endswith("/data.pkl"))
    assert (opened.outline.packing, opened.outline.size) == ("deflate", len(pickle))
    expected = [(at, op.name, argument) for op, argument, at in pickletools.genops(pickle)]
    assert [(item.start, item.name, item.value) for item in opened.items] == expected


def test_metadata_of_gguf_are_opened_by_field(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("s", "é" * 10)
    writer.add_uint32("n", 7)
    writer.add_float32("f", 1.5)
    writer.add_bool("b", True)
    writer.add_array("texts", ["a", "", "ccc"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_tensor("w", np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fields = gguf.GGUFReader(path).fields
    data = path.read_bytes()
    found = open_all(path, "metadata")
    assert len(found) == 7
    for record, opened in found:
        field = fields[record.label]
        assert record.start == field.offset
        key, kind, *values = opened.items
        assert (key.value, kind.value) == (record.label, int(field.types[0]))
        if values[0].count is not None:
            head, *values = values
            assert head.count == len(values) == len(field.data)
        places = [part for part in field.data]  # noqa: C416 - indexes into the parts of the field
        for item, place in zip(values, places, strict=True):
            assert data[item.start : item.stop] == bytes(field.parts[place])
        shown = [item.value for item in values]
        assert shown == field.contents() or shown == [field.contents()]


def test_a_carried_skeleton_is_expanded(tmp_path):
    path, target = tmp_path / "x.oinf", tmp_path / "x.safetensors"
    holdall.save(path, TENSORS)
    holdall.convert(path, target, carry=True)
    with examine(target) as seen:
        text = seen.model.metadata["holdall.skeleton"]
        opened = Opener(seen, 100_000).open_carried()
    letters = text.split(".")[3]
    document = import_zstd().decompress(urlsafe_b64decode(letters + "=" * (-len(letters) % 4)))
    assert (opened.stored, opened.outline.size) == (len(text), len(document))
    check_values(opened.items, document, msgspec.msgpack.decode)
    assert opened.items[1].value == "oinf"
    with examine(path) as seen:
        assert Opener(seen).open_carried() is None


def test_a_broken_stream_shows_what_came_before_and_why_it_stopped():
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    whole = b"".join(b"line %d\n" % n for n in range(5000))
    good = packer.compress(whole) + packer.flush(zlib.Z_SYNC_FLUSH)
    with examine(b"?") as seen:
        opener = Opener(seen, 10_000)
        for bad, why in (b"\xff" * 9, "invalid block type"), (b"", "the deflated bytes end too early"):
            source = BytesSource(b"12345" + good + bad)
            opened = opener.show(open_deflated(source, 5, source.size, Limits(), outline_text), len(good + bad))
            assert why in opened.stopped.message
            assert (opened.outline.size, opened.stopped.offset, opened.more) == (len(whole), len(whole), False)
            assert [item.value for item in opened.items] == whole.decode().splitlines(keepends=True)


def test_a_bomb_is_expanded_no_further_than_the_limits_allow(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, w=np.zeros(8 << 20, np.uint8))
    ((record, opened),) = open_all(path, "deflated")
    assert record.size < 20_000
    assert opened.outline.size == 2 << 20
    assert (opened.outline.whole, opened.more, opened.stopped) == (False, True, None)


def test_all_documents_share_a_budget():
    with examine(make_archive(100)) as seen:
        opener = Opener(seen, 5)
        (owner,) = (owner for owner in seen.ledger.owners if owner.name == "deflated")
        opened = [opener.open(record) for record in list_records(owner)]
    assert sum(len(each.items) for each in opened if each is not None) == 5 * 20
    assert None in opened


@pytest.mark.parametrize("shift", range(3))
def test_text_is_known_by_its_beginning(shift):
    text = ("x" * shift + "模" * 3000).encode()  # the part that is looked at ends inside a letter
    assert outline_by_name("merges", BytesSource(text), 0, len(text)).syntax == "text"
    assert outline_by_name("merges", BytesSource(text[:50] + b"\xff" + text), 0, len(text)).syntax == "bytes"
    assert outline_by_name("merges", BytesSource(text[:50] + b"\0" + text), 0, len(text)).syntax == "bytes"


def make_archive(count: int) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **{f"w{n}": np.ones(5) for n in range(count)})
    return out.getvalue()


class CountingSource(BytesSource):
    """Counts the bytes that are read."""

    count = 0

    def read(self, offset: int, size: int) -> bytes:
        self.count += size
        return super().read(offset, size)

    def chunks(self, offset: int, size: int, *more):
        self.count += size
        return super().chunks(offset, size, *more)


@pytest.mark.parametrize("format", ["safetensors", "torch", "onnx", "npz", "gguf", "mcf"])
def test_payloads_are_not_read(format, tmp_path):
    path = tmp_path / "x"
    tensors = {"w": np.zeros((2048, 1024), np.float32), "b": np.ones(3, np.float32)}
    holdall.save(path, tensors, metadata={"a": "b"}, format=format)
    source = CountingSource(path.read_bytes())
    assert source.size > 8 << 20
    with examine(source) as seen:
        opener = Opener(seen)
        opened = [opener.open(record) for owner in seen.ledger.owners for record in list_records(owner)]
    assert any(opened)
    assert source.count < 1 << 20


def test_metadata_of_oinf_are_opened_by_part(tmp_path):
    path = tmp_path / "x.oinf"
    values = {
        "text": "abc",
        "number": 300,
        "float": 1.5,
        "flag": True,
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    }
    holdall.save(path, {"w": np.ones(2, np.float32)}, metadata=values)
    data = path.read_bytes()
    found = {record.label: opened for record, opened in open_all(path, "metadata") if opened is not None}
    assert set(found) == set(values)
    parts = {key: {item.name: item.value for item in opened.items} for key, opened in found.items()}
    assert (parts["text"]["length"], parts["text"]["text"]) == (3, "abc")
    assert [parts[key]["value"] for key in ("number", "float", "flag")] == [300, 1.5, True]
    elements = next(item for item in found["array"].items if item.name == "elements")
    assert data[elements.start : elements.stop] == values["array"].tobytes()
    assert elements.value == list(range(6))
    assert [parts["array"][f"dim {axis}"] for axis in (0, 1)] == [2, 3]
    for opened in found.values():
        assert all(a.stop == b.start for a, b in zip(opened.items, opened.items[1:], strict=False))
        assert sum(item.stop - item.start for item in opened.items) == opened.stored


def test_sections_of_mcf_are_opened(tmp_path):
    path = tmp_path / "x.mcf"
    config = json.dumps({"model_type": "bert", "layers": [1, [2], 3]}, indent=1).encode()
    model = Model([Tensor.of("w", np.ones((2, 3), np.float32))], metadata={"k": "é", "n": 7, "f": 0.5},
                  assets={"config.json": config, "merges.txt": b"a b\nc d\n"})  # fmt: skip
    holdall.save(path, model)
    data = path.read_bytes()
    ((record, opened),) = open_all(path, "config.json")
    assert data[record.start : record.start + record.size] == config
    check_values(opened.items, data, json.loads)
    ((_, merges),) = open_all(path, "merges.txt")
    assert [item.value for item in merges.items] == ["a b\n", "c d\n"]
    ((_, dims),) = open_all(path, "dims")
    assert [item.value for item in dims.items] == [2, 3]
    items = [item for _, opened in open_all(path, "model info texts") if opened is not None for item in opened.items]
    shown = {item.value: data[item.start : item.stop] for item in items}
    assert shown == {"k": b"k", "n": b"n", "f": b"f", "é": "é".encode(), 7: b"\7\0\0\0", 0.5: b"\0\0\0?"}


def test_names_are_parted_as_the_tables_say(tmp_path):
    for format in ("embd", "mcf"):
        path = tmp_path / format
        holdall.save(path, TENSORS, format=format)
        data = path.read_bytes()
        ((_, opened),) = open_all(path, "tensor names")
        assert sorted(item.value for item in opened.items) == sorted(TENSORS)
        assert all(data[item.start : item.stop] == item.value.encode() for item in opened.items)


def test_an_index_of_a_folder_is_opened(tmp_path):
    holdall.save(tmp_path / "folder", TENSORS, format="hf")
    index = tmp_path / "folder" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(TENSORS, "model.safetensors")}, indent=2))
    ((_, opened),) = open_all(index, "json")
    check_values(opened.items, index.read_bytes(), json.loads)
    assert {item.name for item in opened.items if item.depth == 2} == set(TENSORS)
