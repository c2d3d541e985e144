from __future__ import annotations

import json

import numpy as np
import pytest

import holdall


def test_a_good_file_is_ok(cli, model_path):
    for level in ("structure", "full", "strict"):
        shown = cli("verify", model_path, "--level", level)
        assert (shown.exit_code, shown.output) == (0, f"{model_path}: ok (oinf, level {level})\n")


@pytest.mark.shows("O47")
def test_findings_have_rule_place_and_numbers(cli, broken_path):
    shown = cli("verify", broken_path)
    assert shown.exit_code == 1
    assert "not ok: 1 error (oinf, level full)" in shown.output
    assert "oinf.header.file_size at byte 0x3d" in shown.output


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_a_damaged_file_is_not_ok_whatever_is_listed(cli, broken_path, cap):
    shown = cli("verify", broken_path, "--limit", f"findings_per_rule={cap}")
    assert shown.exit_code == 1
    assert "not ok: 1 error (oinf, level full)" in shown.output
    assert ("… and 1 more of oinf.header.file_size" in shown.output) == (cap == 0)
    assert not holdall.verify(broken_path, limits=holdall.Limits(findings_per_rule=cap)).ok
    info = cli("info", broken_path, "--limit", f"findings_per_rule={cap}")
    assert info.exit_code == 1
    assert "1 error; `holdall verify` lists them" in info.output
    problems = cli("info", "--json", broken_path, "--limit", f"findings_per_rule={cap}")
    assert json.loads(problems.output)["problems"] == {"error": 1, "unread": 0, "warning": 0, "note": 0}


def test_a_file_of_no_format_is_an_error_whatever_is_listed(cli, tmp_path):
    (tmp_path / "other").write_bytes(bytes(range(256)))
    shown = cli("info", str(tmp_path / "other"), "--limit", "findings_per_rule=0")
    assert shown.exit_code == 1
    assert "findings_per_rule=0 lists no finding" in shown.output


def test_json_is_the_report(cli, model_path, broken_path):
    good, bad = (json.loads(line) for line in cli("verify", "--json", model_path, broken_path).output.splitlines())
    assert good == {
        "path": str(model_path), "format": "oinf", "level": "full", "ok": True, "verdict": "ok",
        "checked": None, "unchecked": None,
        "findings": [], "suppressed": {},
    }  # fmt: skip
    assert bad["ok"] is False
    assert list(bad["findings"][0]) == ["rule", "severity", "offset", "message", "hint", "inner", "file"]
    assert bad["findings"][0]["offset"] == 0x3D


def test_strict_only_breaches_depend_on_the_level(cli, model_path):
    data = bytearray(model_path.read_bytes())
    data[9] = 1  # header flags
    model_path.write_bytes(data)
    assert cli("verify", model_path).exit_code == 0
    report = holdall.verify(model_path, level="strict")
    shown = cli("verify", model_path, "--level", "strict")
    assert shown.exit_code == (0 if report.ok else 1)
    assert "oinf.header.zero at byte 0x9" in shown.output


def test_every_bad_golden_file_gets_findings_or_is_strict_only(cli, golden):
    folder = golden("oinf") / "bad"
    for path in sorted(folder.glob("*.oinf")):
        label = path.with_suffix(".reason.txt").read_text().split()[0]
        shown = cli("verify", path, "--level", "strict")
        assert "Traceback" not in shown.output, path
        assert shown.exit_code in (0, 1), path
        if label == "[must-reject]":
            assert shown.exit_code == 1, path


@pytest.mark.shows("O52")
def test_stats_of_each_tensor(cli, model_path):
    shown = cli("verify", "--stats", model_path).output
    assert "layers.0.b: bf16[3]: 3 elements" in shown
    assert "min -2, max 1, mean -0.166667, median 0.5, std 1.31233" in shown
    assert "0 .. 299.9  ██████████████████████████████ 300" in shown
    rows = json.loads(cli("verify", "--stats", "--json", model_path).output)["stats"]
    assert [row["name"] for row in rows] == ["layers.0.b", "layers.0.w", "layers.1.w", "mask", "wide"]
    assert list(rows[0]) == [
        "name", "dtype", "shape", "count", "nan", "inf", "zeros", "min", "max", "mean", "median", "std", "histogram",
        "preview", "nbytes",
    ]  # fmt: skip
    assert sum(count for _, _, count in rows[4]["histogram"]) == 3000


def test_stats_count_what_is_not_finite(cli, tmp_path):
    path = tmp_path / "x.oinf"
    holdall.save(path, {"w": np.array([1, np.nan, np.inf, 2], np.float32)})
    assert "w: f32[4]: 4 elements, 1 NaN, 1 inf" in cli("verify", "--stats", path).output


def test_stats_say_what_has_none(cli, tmp_path):
    path = tmp_path / "x.oinf"
    kind = holdall.Tensor.of("x", [1.0], "f32").dtype
    holdall.save(path, [holdall.Tensor("declared", kind, (2,), None)])
    assert "declared: f32[2]: no data" in cli("verify", "--stats", path).output
    assert json.loads(cli("verify", "--stats", "--json", path).output)["stats"][0]["skipped"] == "no data"


def test_progress_goes_to_a_terminal_on_stderr_only(cli, model_path, monkeypatch):
    told = []

    def spy(label):
        from contextlib import nullcontext

        return nullcontext(lambda done, total: told.append((done, total)))

    monkeypatch.setattr("holdall.cli.verify.show_progress", spy)
    cli("verify", "--level", "strict", model_path)
    assert told
    assert told[-1][1] == model_path.stat().st_size


def test_what_no_rule_is_about_is_named_in_a_file_that_is_ok(cli, tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 2)
    torch.jit.save(torch.jit.trace(net, torch.zeros(1, 2)), tmp_path / "script.pt", _extra_files={"a.txt": "x"})
    torch.save(net, tmp_path / "module.pt")
    torch.save({"a": np.ones(3), "b": torch.ones(2)}, tmp_path / "arrays.pt")
    torch.save(net.state_dict(), tmp_path / "plain.pt")
    expected = {
        "script.pt": "and its program; the inputs of a trace; the extra files of the program",
        "module.pt": "1 object (torch.nn.modules.linear.Linear)",
    }
    for name, text in expected.items():
        shown, facts = cli("verify", tmp_path / name), json.loads(cli("verify", "--json", tmp_path / name).output)
        assert shown.exit_code == 0 and facts["verdict"] == "ok"
        assert facts["unchecked"].endswith(text) and facts["checked"] == "2 tensors, and their bytes at level full"
        assert shown.output.splitlines()[-1] == f"  not checked  {facts['unchecked']}"
    for name in ("arrays.pt", "plain.pt"):
        facts = json.loads(cli("verify", "--json", tmp_path / name).output)
        assert (facts["checked"], facts["unchecked"]) == (None, None)
        assert "checked" not in cli("verify", tmp_path / name).output


@pytest.mark.parametrize("stated", [False, True])
def test_checksums_of_external_data_are_named(cli, tmp_path, stated):
    onnx = pytest.importorskip("onnx")
    holdall.save(tmp_path / "m", {"w": np.ones(500), "v": np.ones(500)}, format="onnx", external=True)
    path = tmp_path / "m" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    if stated:
        for tensor in model.graph.initializer:
            tensor.external_data.add(key="checksum", value="0" * 40)
    onnx.save(model, path)
    facts = json.loads(cli("verify", "--json", path).output)
    assert (facts["verdict"], facts["unchecked"]) == ("ok", "the 2 checksums of external data" if stated else None)


def test_a_file_that_is_read_in_part_names_both(cli, tmp_path):
    """A torch.package with a resource that is not read, and objects."""
    torch = pytest.importorskip("torch")
    from torch.package import PackageExporter

    with PackageExporter(tmp_path / "p.pt") as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "net.pkl", torch.nn.Linear(2, 2))
        exporter.save_text("model", "notes.txt", "hello")
    facts = json.loads(cli("verify", "--json", tmp_path / "p.pt").output)
    assert "torch.nn.modules.linear.Linear" in facts["unchecked"]
