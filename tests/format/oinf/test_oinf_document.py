"""What the format's document asks for, sentence by sentence, on files that struct alone makes."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall import oinf
from holdall.params import ParamStore
from holdall.source import BytesSource
from holdall.testing import RecordingSource, run_isolated
from tests.format.oinf.build import Entry, File, Value, header, patch, string
from tests.format.oinf.document import (
    EVERYTHING,
    F32,
    OFFSETS,
    TYPES,
    U8,
    W,
    everything,
    refused,
    strict,
    written,
)


@pytest.mark.shows("O01", "O05", "O09", "O11", "O13", "O22", "O35")
def test_a_saved_file_is_the_one_that_struct_makes(tmp_path):
    assert written(tmp_path / "a.oinf", everything()) == EVERYTHING.data()


@pytest.mark.shows("O01", "O13", "O21", "O31", "O35")
def test_the_file_that_struct_makes_is_read():
    with holdall.open(EVERYTHING.data()) as model:
        assert dict(model.sizevars) == {"B": 4, "layer.D": 2**64 - 1}
        assert model.metadata["array"].tolist() == [-1, 0, 300]
        assert [int(bit) for bit in model.metadata["bits"]] == [1, 0, 1, 0, 0, 0, 0, 0, 0, 1]
        assert {key: model.metadata[key] for key in ("eps", "mode", "on")} == {
            "eps": 1e-5,
            "mode": "clamp_up",
            "on": True,
        }
        assert list(model) == ["codes", "state", "w"]
        assert model["codes"].numpy().tolist() == [1, -8, 7]
        assert model["w"].numpy().tobytes() == W.tobytes()
        assert model["w"].shape == (1, 7)
        state = model["state"]
        assert (state.shape, state.has_data, state.nbytes) == ((4, 16), False, 0)
        with pytest.raises(holdall.HoldallError, match="declared without data"):
            state.numpy()
        assert state.numpy(fill=0).tolist() == [[0.0] * 16] * 4


@pytest.mark.shows("O02")
def test_the_order_of_dicts_and_the_process_change_no_byte(tmp_path):
    assert written(tmp_path / "a.oinf", everything(-1)) == written(tmp_path / "b.oinf", everything(1))
    code = (
        "import sys; from tests.format.oinf.document import everything, written; from pathlib import Path;"
        "written(Path(sys.argv[1]), everything())"
    )
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.oinf"
        environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, path], check=True, env=environment, cwd=Path(__file__).parents[3])
        assert path.read_bytes() == EVERYTHING.data()


LARGE = np.arange(3 << 20, dtype="<u4").reshape(3, -1)  # 12 MiB, beyond every buffer
THREE = File(tensors=[Entry(name, 7, [1 << 20], row.tobytes()) for name, row in zip("abc", LARGE, strict=True)])


@pytest.mark.shows("O03", "O42", "O43")
def test_opening_reads_the_tables_and_a_tensor_its_own_range():
    source = RecordingSource(BytesSource(THREE.data()))
    with holdall.open(source) as model:
        assert source.bytes_read < 1 << 17
        start = model["a"].offset
        source.reads.clear()
        assert model["b"].numpy().tobytes() == LARGE[1].tobytes()
        assert all(start + (4 << 20) <= at and at + size <= start + (8 << 20) for at, size in source.reads)
        source.reads.clear()
        assert model["c"][10:20].tolist() == LARGE[2, 10:20].tolist()
        assert source.reads == [(start + (8 << 20) + 40, 40)]


@pytest.mark.shows("O42", "O44")
def test_a_tensor_is_loaded_at_its_first_use_and_kept():
    source = RecordingSource(BytesSource(THREE.data()))
    store = ParamStore.from_model(holdall.open(source))
    source.reads.clear()
    first = store["b"]
    assert first.tobytes() == LARGE[1].tobytes()
    assert source.bytes_read == 4 << 20  # one tensor of three
    assert store["b"] is first
    assert (source.bytes_read, store.figures().held) == (4 << 20, 4 << 20)


@pytest.mark.shows("O04", "O44")
def test_arrays_are_views_of_the_map_and_opening_makes_nothing_resident(tmp_path):
    path = tmp_path / "large.oinf"
    path.write_bytes(THREE.data())
    with holdall.open(path) as model:
        one, two = model["a"].numpy(), model["a"].numpy()
        assert np.shares_memory(one, two)
        assert not one.flags.writeable
    size = 200 << 20
    sparse = tmp_path / "sparse.oinf"
    with sparse.open("wb") as file:
        tables = File(tensors=[Entry("w", U8, [size], b"", nbytes=size)]).data()
        file.write(header(tables, file_size=len(tables) + size))
        file.truncate(len(tables) + size)

    def open_it():
        from holdall.testing.isolation import resident_bytes

        before = resident_bytes()
        model = holdall.open(sparse)
        view = model["w"].numpy()
        assert view.nbytes == size
        return resident_bytes() - before

    assert run_isolated(open_it) < 30 << 20


@pytest.mark.shows("O05", "O06")
@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("shift", [1, 4, 7])
def test_a_section_off_the_alignment_is_refused(name, shift):
    data = EVERYTHING.data()
    place = struct.unpack_from("<4Q", data, 29)[OFFSETS.index(name)]
    refused(header(data, **{name: place + shift}), "oinf.header.align")


@pytest.mark.shows("O07")
@pytest.mark.parametrize("shift", [-4, 1, 4])
def test_a_payload_off_the_alignment_is_refused(shift):
    good = File(tensors=[Entry("v", U8, [8], bytes(8)), Entry("w", U8, [8], bytes(8))]).data()
    place = struct.unpack_from("<Q", good, 53)[0] + 8 + shift
    refused(
        File(tensors=[Entry("v", U8, [8], bytes(8)), Entry("w", U8, [8], bytes(8), offset=place)]).data(),
        "oinf.tensor.place",
    )


@pytest.mark.shows("O08", "O55")
def test_padding_that_is_not_zero_is_an_error_at_strict():
    data = EVERYTHING.data()
    assert strict(data) == set()
    assert len(EVERYTHING.padding) > 15
    for at in EVERYTHING.padding:
        assert strict(patch(data, at, b"\1")), f"byte {at}"
        assert not holdall.verify(patch(data, at, b"\1"), level="strict").ok


@pytest.mark.shows("O55")
def test_a_payload_whose_padding_was_forgotten_is_caught():
    """Two tensors of 4 bytes, the second right behind the first: its offset is no multiple of 8."""
    entries = [Entry("v", U8, [4], b"1234"), Entry("w", U8, [4], b"5678")]
    start = struct.unpack_from("<Q", File(tensors=entries).data(), 53)[0]
    entries[1].offset = start + 4
    short = File(tensors=entries).data()[: start + 4] + b"5678"
    refused(header(short, file_size=len(short)), "oinf.tensor.place")
    alone = File(tensors=[Entry("v", U8, [4], b"1234")]).data()[:-4]
    assert strict(header(alone, file_size=len(alone))) == {"oinf.data.end"}


NAMES = {"sizevars": lambda name: File(sizevars=[(name, 1)]),
         "metadata": lambda name: File(metadata=[Value(name, U8, b"\1")]),
         "tensors": lambda name: File(tensors=[Entry(name, U8, [8], bytes(8))])}  # fmt: skip


@pytest.mark.shows("O10")
@pytest.mark.parametrize("table", NAMES)
def test_the_charset_of_names(table, tmp_path):
    allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
    with holdall.open(NAMES[table](allowed).data()) as model:
        held = {"sizevars": model.sizevars, "metadata": model.metadata, "tensors": model.tensors}[table]
        assert [getattr(item, "name", item) for item in held] == [allowed]
    for code in range(128):
        if chr(code) not in allowed:
            refused(NAMES[table](f"a{chr(code)}").data(), "oinf.name.charset")
            with pytest.raises(holdall.ContentError):
                given = {f"a{chr(code)}": np.zeros(1, np.uint8) if table == "tensors" else 1}
                written(tmp_path / "a.oinf", oinf.model(**{table: given}))
    refused(NAMES[table](b"a\xff").data(), "oinf.name.utf8")


@pytest.mark.shows("O11", "O12")
@pytest.mark.parametrize("length", [1, 3, 4, 5, 11, 12, 13])
def test_strings_are_padded_from_their_own_start(length, tmp_path):
    name = "n" * length
    data = written(tmp_path / "a.oinf", oinf.model(sizevars={name: 7, "o": 9}))
    assert data[72:] == string(name) + struct.pack("<Q", 7) + string("o") + struct.pack("<Q", 9)


@pytest.mark.shows("O12")
def test_an_empty_string_takes_8_bytes_and_is_no_name():
    assert string("") == bytes(8)
    data = File(metadata=[Value("k", 14, string("")), Value("l", U8, b"\7")]).data()
    with holdall.open(data) as model:
        assert dict(model.metadata) == {"k": "", "l": 7}
    for make in NAMES.values():
        refused(make("").data(), "oinf.name.charset")


@pytest.mark.shows("O14")
@pytest.mark.parametrize("magic", [b"OINF\1", b"OINX\0", b"oinf\0", b"\0FNIO"])
def test_another_magic_is_refused(magic):
    refused(patch(EVERYTHING.data(), 0, magic), "oinf.header.magic")


@pytest.mark.shows("O15")
def test_the_header_is_looked_at_before_anything_else():
    """Tables full of nonsense behind a wrong header: the header is what is reported."""
    data = EVERYTHING.data()
    nonsense = data[:72] + b"\xff" * (len(data) - 72)
    assert refused(header(nonsense, version=9), "oinf.header.version").offset == 5
    assert strict(header(data, flags=1)) == {"oinf.header.zero"}
    assert strict(header(data, reserved=1)) == {"oinf.header.zero"}


@pytest.mark.shows("O16")
@pytest.mark.parametrize("index", range(3))
def test_descending_offsets_are_refused(index):
    data = EVERYTHING.data()
    places = struct.unpack_from("<4Q", data, 29)
    refused(header(data, **{OFFSETS[index]: places[index + 1] + 8}), "oinf.header.order")


@pytest.mark.shows("O17")
@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("beyond", [8, 1 << 32, 2**64 - 8 - 1024])
def test_an_offset_outside_the_file_is_refused(name, beyond):
    data = EVERYTHING.data()
    refused(header(data, **{name: len(data) + -len(data) % 8 + beyond & ~7}), "oinf.header.order")


@pytest.mark.shows("O18", "O60")
@pytest.mark.parametrize("size", [0, 71, -1, 1, 8, 1 << 40])
def test_file_size_is_exact(size):
    data = EVERYTHING.data()
    refused(header(data, file_size=size if size in (0, 71) else len(data) + size), "oinf.header.file_size")
    refused(data + b"\0", "oinf.header.file_size")
    refused(data[:-1], "oinf.header.file_size")


@pytest.mark.shows("O26", "O27")
def test_names_come_once_in_each_table():
    for twice in (
        File(sizevars=[("B", 1), ("B", 1)]),
        File(metadata=[Value("k", U8, b"\1"), Value("k", U8, b"\1")]),
        File(tensors=[Entry("w", U8, [8], bytes(8)), Entry("w", U8, [8], bytes(8))]),
    ):
        refused(twice.data(), "oinf.name.duplicate")
    everywhere = File([("n", 2**64 - 1)], [Value("n", U8, b"\1")], [Entry("n", U8, [8], bytes(8))])
    with holdall.open(everywhere.data()) as model:
        assert (model.sizevars["n"], model.metadata["n"], model["n"].shape) == (2**64 - 1, 1, (8,))


@pytest.mark.shows("O28")
def test_size_variables_resolve_dims_and_a_missing_one_is_named():
    with holdall.open(EVERYTHING.data()) as model:
        assert model.resolve(("B", 3, "layer.D")) == (4, 3, 2**64 - 1)
        with pytest.raises(holdall.MissingError, match="'Q'"):
            model.resolve(("B", "Q"))


@pytest.mark.shows("O29", "O31")
def test_a_declared_tensor_takes_its_dims_from_size_variables(tmp_path):
    model = oinf.model({"state": oinf.Uninitialized("f32", ("B", "D"))}, sizevars={"B": 4, "D": 16})
    want = File(sizevars=[("B", 4), ("D", 16)], tensors=[Entry("state", F32, [4, 16])])
    assert written(tmp_path / "a.oinf", model) == want.data()
    with pytest.raises(holdall.ContentError, match="'Q'"):
        oinf.model({"state": oinf.Uninitialized("f32", ("Q",))})


@pytest.mark.shows("O30")
def test_values_lie_in_the_data_section_and_are_read_at_once():
    data = EVERYTHING.data()
    for outside in (72, struct.unpack_from("<Q", data, 53)[0] - 8, len(data) + 8, 2**64 - 8):
        broken = File(EVERYTHING.sizevars, [Value("k", 8, bytes(8), offset=outside)], EVERYTHING.tensors)
        refused(broken.data(), "oinf.metadata.place")
    source = RecordingSource(BytesSource(data))
    with holdall.open(source) as model:
        source.reads.clear()
        assert model.metadata["mode"] == "clamp_up"
        assert source.reads == []


@pytest.mark.shows("O32")
@pytest.mark.parametrize(("nbytes", "offset"), [(0, 128), (8, 0), (8, 128)])
def test_a_declared_tensor_has_no_place(nbytes, offset):
    refused(File(tensors=[Entry("w", U8, [8], nbytes=nbytes, offset=offset)]).data(), "oinf.tensor.declared")


@pytest.mark.shows("O33")
def test_a_bitset_tensor_is_read_as_bytes():
    data = File(tensors=[Entry("w", 13, [2, 2], bytes([1, 2, 254, 255]))]).data()
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == [[1, 2], [254, 255]]
    report = holdall.verify(data, level="strict")
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("oinf.tensor.bitset", "warning")]


@pytest.mark.shows("O35", "O36")
@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: a.astype(">f4"), lambda a: a[::-1][::-1]])
def test_rows_come_first_and_low_bytes_too(make, tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = written(tmp_path / "a.oinf", oinf.model({"w": make(values)}))
    assert data[-24:] == struct.pack("<6f", 0, 1, 2, 3, 4, 5)


@pytest.mark.shows("O37")
@pytest.mark.parametrize("tag", TYPES)
def test_a_scalar_has_no_dims_and_one_element(tag, tmp_path):
    name, values, payload = TYPES[tag]
    one = (
        payload[: len(payload) // len(values)] if tag < 18 else bytes([payload[0] & {4: 15, 2: 3, 1: 1}[int(name[1])]])
    )
    data = File(tensors=[Entry("w", tag, [], one)]).data()
    assert written(tmp_path / "a.oinf", oinf.model({"w": oinf.TensorSpec(values[0], name)})) == data
    with holdall.open(data) as model:
        assert model["w"].shape == ()
        assert model["w"].numpy() == np.array(values[0], model["w"].numpy().dtype)


@pytest.mark.shows("O41")
@pytest.mark.parametrize("dims", [[2**32, 2**32], [2**63, 2], [2**61, 8], [3, 2**62, 4]])
def test_sizes_do_not_wrap(dims):
    refused(File(tensors=[Entry("w", F32, dims, b"")]).data(), "oinf.tensor.size")
    with holdall.open(File(tensors=[Entry("w", F32, dims)]).data()) as model:
        assert model["w"].shape == tuple(dims)


@pytest.mark.shows("O45")
@pytest.mark.parametrize("table", ["n_sizevars", "n_metadata", "n_tensors"])
def test_a_table_ends_before_the_next_section(table):
    data = EVERYTHING.data()
    refused(header(data, **{table: 9}), "oinf.table.end")
    refused(header(data, **{table: 2**32 - 1}), "core.limit")  # before anything is looked for
    for make in NAMES.values():
        long = make("name").data()
        for length in (100, 2**32 - 1):
            refused(patch(long, 72, struct.pack("<I", length)), "oinf.table.end")


@pytest.mark.shows("O46", "O60")
@pytest.mark.parametrize("place", [8, 1 << 40, 2**64 - 8 - 4096])
def test_payloads_outside_the_file_are_refused(place):
    entry = Entry("w", U8, [8], bytes(8))
    entry.offset = len(File(tensors=[entry]).data()) - 8 + place & ~7
    refused(File(tensors=[entry]).data(), "oinf.tensor.place")
    entry.offset = 72  # in the tables
    refused(File(tensors=[entry]).data(), "oinf.tensor.place")
    large = Entry("w", F32, [1 << 40], bytes(8), nbytes=4 << 40)
    refused(File(tensors=[large]).data(), "oinf.tensor.place")


@pytest.mark.shows("O48")
@pytest.mark.parametrize("version", [0, 3, 255, 2**32 - 1])
def test_unknown_versions_are_refused(version):
    refused(header(EVERYTHING.data(), version=version), "oinf.header.version")


@pytest.mark.shows("O48", "O49")
def test_both_versions_are_read_and_written(tmp_path):
    two = File(EVERYTHING.sizevars, EVERYTHING.metadata, EVERYTHING.tensors, version=2).data()
    assert written(tmp_path / "a.oinf", everything(), version=2) == two
    with holdall.open(two) as model:
        assert model.version == (2,)
        assert written(tmp_path / "b.oinf", model, version=1) == EVERYTHING.data()
    with holdall.open(EVERYTHING.data()) as model:
        assert model.version == (1,)
        assert written(tmp_path / "b.oinf", model, version=2) == two


@pytest.mark.shows("O54")
def test_the_worked_example(tmp_path):
    """x: f32[4], y: u8[8], mode = "fast": 32 bytes of metadata, 2 x 44 of tensors, then three payloads."""
    x, y = np.array([1, 2, 3, 4], np.float32), np.arange(8, dtype=np.uint8)
    data = written(tmp_path / "a.oinf", oinf.model({"x": x, "y": y}, metadata={"mode": "fast"}))
    assert data == b"".join([
        struct.pack("<5s6I5Q3x", b"OINF\0", 1, 0, 0, 1, 2, 0, 72, 72, 104, 192, 224),
        b"\4\0\0\0mode", struct.pack("<IIQQ", 14, 0, 8, 192),
        b"\1\0\0\0x\0\0\0", struct.pack("<IIIQQQ", 10, 1, 1, 4, 16, 200),
        b"\1\0\0\0y\0\0\0", struct.pack("<IIIQQQ", 5, 1, 1, 8, 8, 216),
        b"\4\0\0\0fast", struct.pack("<4f", 1, 2, 3, 4), bytes(range(8)),
    ])  # fmt: skip


@pytest.mark.shows("O56", "O60")
def test_a_large_file_is_verified_without_its_payloads():
    source = RecordingSource(BytesSource(THREE.data()))
    assert holdall.verify(source, level="structure").ok
    assert source.bytes_read < 1 << 17


@pytest.mark.shows("O57")
def test_all_that_is_wrong_is_listed_with_rule_and_byte():
    """The four places where the document says to look: header, strings, payload sizes, counts of packed bytes."""
    tensors = [
        Entry("good", U8, [8], bytes(8)),
        Entry("short", F32, [4], bytes(12)),
        Entry("packed", 18, [9], bytes(4)),
    ]
    data = header(File(tensors=tensors).data(), flags=3)
    starts = [data.index(string(tensor.name)) for tensor in tensors]
    found = {(finding.rule, finding.offset) for finding in holdall.verify(data, level="strict").findings}
    assert found >= {("oinf.tensor.size", starts[1]), ("oinf.tensor.size", starts[2]), ("oinf.header.zero", 9)}
    assert ("oinf.tensor.size", starts[0]) not in found
    names = patch(data, starts[1] + 4, b"sh rt")
    assert {(f.rule, f.offset) for f in holdall.verify(names).findings} == {("oinf.name.charset", starts[1])}
    report = holdall.verify(header(data, offset_data=2**63), level="strict")
    assert [(finding.rule, finding.offset) for finding in report.findings][:1] == [("oinf.header.order", 53)]


@dataclass
class Theirs:
    """A dataclass in the words of the format's own tool; holdall knows the same words."""

    B: int
    mode: str
    eps: float
    on: bool
    table: list
    w: np.ndarray
    codes: object
    state: object
    bits: object


@pytest.mark.shows("O50", "O58")
@pytest.mark.parametrize("seed", range(5))
def test_a_dataclass_gives_the_bytes_of_the_published_tool(seed, tmp_path):
    import dataclass_to_oinf as published

    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(0, 4)).tolist())

    def describe(words):
        return Theirs(
            B=int(seed), mode="clamp_up", eps=0.5, on=bool(seed % 2), table=[1, -300, seed],
            w=np.random.default_rng(seed).standard_normal(shape).astype(np.float32),
            codes=words.TensorSpec(np.arange(-8, 8), dtype="i4"), state=words.UninitializedTensor("f16", (2, 3)),
            bits=words.Bitset([1, 0, 1]),
        )  # fmt: skip

    want = published.dataclass_to_oinf(describe(published))
    assert written(tmp_path / "a.oinf", oinf.from_dataclass(describe(oinf))) == want
