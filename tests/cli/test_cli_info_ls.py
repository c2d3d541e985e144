from __future__ import annotations

import json

import numpy as np
import pytest

import holdall
from holdall import oinf


def test_info_fits_one_screen_and_says_the_essentials(cli, model_path):
    shown = cli("info", model_path).output
    assert len(shown.splitlines()) < 40
    for part in ("oinf 1", "5 holding 24.1 kB", "3.05k (3,046)", "bf16", "arch", "mlp", "wide", "no problems"):
        assert part in shown, part


def test_info_json_has_its_documented_keys(cli, model_path):
    facts = json.loads(cli("info", "--json", model_path).output)
    assert list(facts) == [
        "path", "format", "version", "size", "files", "tensors", "parameters", "nbytes", "dtypes", "sizevars",
        "metadata", "assets", "largest", "kinds", "tied",
        "beside", "problems",
    ]  # fmt: skip
    assert facts["size"] == model_path.stat().st_size
    assert (facts["format"], facts["version"], facts["tensors"], facts["parameters"]) == ("oinf", [1], 5, 3046)
    assert facts["metadata"] == {"arch": "mlp", "depth": 2}
    assert facts["largest"][0] == {"name": "wide", "dtype": "i64", "shape": [3000], "nbytes": 24000}
    assert sum(row["nbytes"] for row in facts["dtypes"]) == facts["nbytes"]
    assert facts["problems"] == {"error": 0, "unread": 0, "warning": 0, "note": 0}


def test_info_of_a_damaged_index_shows_the_rest_and_fails(cli, model_path):
    data = bytearray(model_path.read_bytes())
    at = data.index(b"layers.0.b") + 12  # its dtype, after the padding
    data[at] = 99
    model_path.write_bytes(data)
    shown = cli("info", model_path)
    assert shown.exit_code == 1
    assert "1 error; `holdall verify` lists them" in shown.output
    assert "dtype 99 is unknown" in shown.output
    assert "arch" in shown.output
    assert json.loads(cli("info", "--json", model_path).output)["problems"]["error"] == 1


def test_info_json_of_a_damaged_file_says_what_is_wrong(cli, broken_path):
    shown = cli("info", "--json", broken_path)
    facts = json.loads(shown.stdout)
    assert shown.exit_code == 1
    assert facts["problems"]["error"] == 1
    assert facts["first_problem"]["rule"] == "oinf.header.file_size"
    assert "bytes, the file has" in facts["first_problem"]["message"]


@pytest.mark.parametrize("what", ["empty", "folder"])
def test_info_json_of_what_no_format_has(cli, tmp_path, what):
    path = tmp_path / "odd.oinf"
    path.touch() if what == "empty" else path.mkdir()
    shown = cli("info", "--json", path)
    facts = json.loads(shown.stdout)
    kind, code = ("error", 1) if what == "empty" else ("unread", 3)
    assert shown.exit_code == code
    assert list(facts) == ["path", "format", "size", "problems", "first_problem"]
    assert (facts["path"], facts["format"], facts["size"], facts["problems"][kind]) == (str(path), None, 0, 1)
    assert "is an empty file" in facts["first_problem"]["message"] or what == "folder"


@pytest.mark.parametrize("format", ["safetensors", "embd"])  # embd splits what is long
def test_info_names_a_carried_original_and_does_not_show_it(cli, tmp_path, format):
    source, target = tmp_path / "a.npz", tmp_path / "b"
    np.savez(source, **{f"w{n}": np.arange(n + 2.0) for n in range(50)})
    holdall.convert(source, target, format=format, carry=True)
    with holdall.open(target) as model:
        size = sum(len(value) for key, value in model.metadata.items() if key.startswith("holdall."))
    shown = cli("info", target)
    assert f"carries its npz original ({size:,} bytes)\n" in shown.output
    assert shown.output.count("holdall.skeleton") == 1
    assert len(json.loads(cli("info", "--json", target).output)["metadata"]["holdall.skeleton"]) > 100


def test_info_of_a_folder_counts_the_files_whose_bytes_it_counts(cli, tmp_path):
    folder = tmp_path / "hub"
    holdall.save(folder, {"w": np.ones((40, 100), np.float32)}, format="hf")
    (folder / "config.json").write_text("{}" + " " * 1000)
    size = (folder / "model.safetensors").stat().st_size
    shown = cli("info", folder)
    assert f"({size:,} bytes)\n" in shown.output
    facts = json.loads(cli("info", "--json", folder).output)
    assert (facts["size"], facts["files"], facts["assets"]) == (size, 1, {"config.json": 1002})


def test_info_cuts_long_lists(cli, tmp_path):
    path = tmp_path / "x.oinf"
    holdall.save(path, {}, metadata={f"key{n}": n for n in range(50)})
    assert "… and 30 more (--json shows all)" in cli("info", path).output
    assert len(json.loads(cli("info", path, "--json").output)["metadata"]) == 50


def names(shown):
    return [line.split()[0] for line in shown.output.splitlines()[1:]]


def test_ls_lists_in_file_order(cli, model_path):
    shown = cli("ls", model_path)
    assert shown.output.splitlines()[0].split() == ["name", "dtype", "shape", "bytes", "offset"]
    assert names(shown) == ["layers.0.b", "layers.0.w", "layers.1.w", "mask", "wide"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("name", ["layers.0.b", "layers.0.w", "layers.1.w", "mask", "wide"]),
        ("size", ["wide", "layers.0.w", "layers.1.w", "layers.0.b", "mask"]),
        ("offset", ["layers.0.b", "layers.0.w", "layers.1.w", "mask", "wide"]),
        ("dtype", ["layers.0.b", "mask", "layers.0.w", "layers.1.w", "wide"]),
    ],
)
def test_ls_sorts(cli, model_path, order, expected):
    assert names(cli("ls", model_path, "--sort", order)) == expected


def test_ls_chooses_by_glob(cli, model_path):
    assert names(cli("ls", model_path, "*.w", "mask")) == ["layers.0.w", "layers.1.w", "mask"]
    missing = cli("ls", model_path, "nothing*")
    assert missing.exit_code == 1
    assert missing.stderr == f"holdall: {model_path}: no tensor matches 'nothing*'\n"


def test_ls_json_is_one_tensor_a_line(cli, model_path):
    rows = [json.loads(line) for line in cli("ls", "--json", model_path).output.splitlines()]
    with holdall.open(model_path) as model:
        for row, tensor in zip(rows, model.tensors, strict=True):
            assert row == {
                "name": tensor.name,
                "dtype": str(tensor.dtype),
                "shape": list(tensor.shape),
                "nbytes": tensor.nbytes,
                "offset": tensor.offset,
                "elements": tensor.count,
                "has_data": True,
            }


def test_ls_long_is_exact(cli, model_path):
    with holdall.open(model_path) as model:
        offset = model["wide"].offset
    expected = ["wide", "i64", "[3000]", "3000", "24000", str(offset), str(offset + 24000)]
    assert cli("ls", "--long", model_path, "wide").output.split()[-7:] == expected


def test_ls_tree_adds_up(cli, model_path):
    assert cli("ls", "--tree", model_path).output.splitlines() == [
        "5 tensors, 3.05k elements, 24.1 kB",
        "├── layers  (3 tensors, 42, 110 B)",
        "│   ├── 0  (2 tensors, 27, 102 B)",
        "│   │   ├── b  bf16[3]  6 B",
        "│   │   └── w  f32[4, 6]  96 B",
        "│   └── 1.w  i4[3, 5]  8 B",
        "├── mask  bool[2, 2]  4 B",
        "└── wide  i64[3000]  24.0 kB",
    ]


def test_ls_tree_of_a_name_that_is_also_a_prefix_and_of_many_dots(cli, tmp_path):
    path = tmp_path / "x.oinf"
    deep = ".".join("a" * 5000)
    holdall.save(path, {"w": np.zeros(1, np.int8), "w.scale": np.zeros(2, np.int8), deep: np.zeros(3, np.int8)})
    shown = cli("ls", "--tree", path)
    assert shown.exit_code == 0
    assert "└── w  i8[1]  1 B  (2 tensors, 3, 3 B)" in shown.output
    assert "    └── scale  i8[2]  2 B" in shown.output


def test_ls_says_that_a_tensor_has_no_data(cli, tmp_path):
    path = tmp_path / "x.oinf"
    kind = holdall.Tensor.of("x", np.zeros(1, np.int8)).dtype
    holdall.save(path, [holdall.Tensor("declared", kind, (1 << 40, 1 << 40), None)])
    for more in ((), ("--long",), ("--tree",)):
        assert "no data" in cli("ls", path, *more).output
    assert json.loads(cli("ls", path, "--json").output)["offset"] is None
    assert cli("info", path).exit_code == 0


def test_info_shows_the_uuid_and_the_chunks_of_aero(cli, tmp_path):
    uuid = "00112233-4455-6677-8899-aabbccddeeff"
    path = tmp_path / "x.aero"
    holdall.save(path, {"w": np.ones(100, np.float32)}, uuid=uuid.replace("-", ""), chunk={"NOTE:my note": b"x" * 2000})
    shown = cli("info", path).output
    rows = [line.split() for line in shown.splitlines()]
    assert ["uuid", uuid] in rows
    assert ["chunks", "name", "offset", "bytes", "uncompressed", "flags"] in rows
    assert any(row[:3] == ["NOTE", "my", "note"] and row[-3:] == ["2,000", "2,000", "optional"] for row in rows)
    native = json.loads(cli("info", "--json", path).output)["native"]
    assert native["uuid"] == uuid
    assert [chunk["fourcc"] for chunk in native["chunks"]] == ["MJSN", "MMSG", "NOTE", "TIDX", "WTSH"]
    weights = native["chunks"][-1]
    assert (weights["name"], weights["bytes"], weights["flags"]) == ("weights.shard0", 400, "mmap")
    assert path.read_bytes()[weights["offset"] :] == np.ones(100, np.float32).tobytes()


def test_info_shows_few_of_many_chunks(cli, tmp_path):
    path = tmp_path / "x.aero"
    chunks = {f"NOTE:{number}": b"" for number in range(30)}
    holdall.save(path, {"w": np.ones(100, np.float32)}, chunk=chunks)
    shown = cli("info", path).output
    assert shown.count("NOTE") == 18 and "… and 14 more (--json shows all)" in shown
    assert len(json.loads(cli("info", "--json", path).output)["native"]["chunks"]) == 34


def test_info_shows_the_parts_of_a_set(cli, tmp_path):
    arrays = {f"t{number}": np.ones(100, np.float32) for number in range(4)}
    holdall.save(tmp_path / "x", arrays, format="aeroset", max_shard_bytes=400, part_shards=2)
    parts = json.loads(cli("info", "--json", tmp_path / "x").output)["native"]["parts"]
    assert [(part["path"], part["chunks"]) for part in parts] == [("part-000.aero", 5), ("part-001.aero", 5)]
    for part in parts:
        file = tmp_path / "x" / part["path"]
        assert part["bytes"] == file.stat().st_size
        assert (
            part["uuid"].replace("-", "") == file.read_bytes()[52:68].hex()
            and part["uuid"] in cli("info", tmp_path / "x").output
        )


def test_ls_stats_are_those_of_numpy(cli, tmp_path):
    path = tmp_path / "m.oinf"
    values = np.array([[0, 1.5, np.nan], [-2, 0, np.inf]], np.float32)
    tensors = {"b": oinf.Uninitialized("f32", (4,)), "e": np.zeros(0), "w": values}
    holdall.save(path, oinf.model(tensors))
    head, *lines = cli("ls", "--stats", path).output.splitlines()
    assert head.split() == ["name", "dtype", "shape", "min", "max", "mean", "std", "zeros", "nan"]
    finite = values[np.isfinite(values)].astype(np.float64)
    figures = [f"{value:.6g}" for value in (finite.min(), finite.max(), finite.mean(), finite.std())]
    rows = {line.split()[0]: line.split()[-6:] for line in lines}
    assert rows == {"b": ["-"] * 6, "e": ["-"] * 4 + ["0", "0"], "w": [*figures, "2", "1"]}
    found = {row["name"]: row for row in map(json.loads, cli("ls", "--stats", "--json", path).output.splitlines())}
    assert found["b"]["skipped"] == "no data"
    assert [found["w"][name] for name in ("min", "max", "zeros", "nan", "inf")] == [-2, 1.5, 2, 1, 1]
    assert [found["w"][name] for name in ("mean", "std")] == pytest.approx([finite.mean(), finite.std()])
    assert found["w"]["elements"] == 6


def test_ls_stats_with_globs_and_an_order(cli, model_path):
    shown = cli("ls", "--stats", "--sort", "size", model_path, "*.w", "wide").output.splitlines()[1:]
    assert [line.split()[0] for line in shown] == ["wide", "layers.0.w", "layers.1.w"]


def test_ls_stats_say_why_there_are_none(cli, tmp_path):
    holdall.save(tmp_path / "m.safetensors", {"c": np.zeros(2, np.complex64)})
    assert cli("ls", "--stats", tmp_path / "m.safetensors").output.split()[-6:] == ["-"] * 6
    row = json.loads(cli("ls", "--stats", "--json", tmp_path / "m.safetensors").output)
    assert row["skipped"] == "tensor 'c': complex numbers have no order, hence no statistics"
