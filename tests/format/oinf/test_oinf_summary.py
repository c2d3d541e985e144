"""``verify --stats`` shows all that the published verifier prints of a file."""

import io
import json
import re
from contextlib import redirect_stdout

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import oinf
from holdall.cli import main
from tests.format.oinf import corpus
from tests.format.oinf.test_oinf_golden import printable

verifier = pytest.importorskip("oinf_verify")


def run(*arguments):
    ran = CliRunner().invoke(main, list(map(str, arguments)))
    assert ran.exit_code == 0, ran.output
    return ran.output


def published(path):
    """What the published verifier prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        verifier.parse_file(str(path))
    return out.getvalue()


def ours(text):
    """Their spelling of a type as holdall spells it."""
    text = re.sub(r"^(\S+: )f8\b", r"\1f8_e5m2", text)
    return re.sub(r"^(\S+: )str = ", r"\1string = ", text).strip()


@pytest.mark.parametrize("name", list(printable()))
def test_every_fact_of_the_published_verifier_is_there(name, tmp_path):
    path = tmp_path / "one.oinf"
    with holdall.open(corpus.file(name)) as model:
        holdall.save(path, model, version=1, fsync=False)
    # they print f8 NaNs as infinities, and all dims of a shape
    skipped = {"gen_v1_meta_scalars": "m.f8.3: f8 = inf", "gen_v1_declared_all": "deep: i8[1, 1"}.get(name, " ")
    shown = [line.strip() for line in run("verify", "--stats", path).splitlines()]
    rows = {row["name"]: row for row in json.loads(run("verify", "--stats", "--json", path))["stats"]}
    tensor = None
    for line in filter(None, published(path).splitlines()):
        stats = re.match(r"- \[nbytes: \d+, min: (.*), max: (.*), mean: (.*), median: (.*), std: (.*)]", line)
        if line.startswith(skipped):
            continue
        if stats:
            names = ("min", "max", "mean", "median", "std")
            found = [rows[tensor][name] for name in names]
            assert found == pytest.approx([float(value) for value in stats.groups()], rel=1e-5, abs=1e-7)
        elif line.startswith("- hist"):
            counts = [int(count) for count in re.findall(r"], (\d+)\)", line)]
            assert [count for _, _, count in rows[tensor]["histogram"]] == [count for count in counts if count]
        elif " := " in line:
            assert line in shown
        elif line.endswith(" -- uninitialized"):
            head = ours(line.removesuffix(" -- uninitialized"))
            assert f"{head}: no data" in shown or f"{head}: 0 elements, 0 bytes" in shown
        elif " = " in line:  # a metadata value as it is; of a tensor the values follow, and so do rows of both
            tensor, value = line.split(":")[0], line.split(" = ", 1)[1].strip()
            assert ours(line) in shown or value == "{" or value in shown or f"{{ {value} }}" in shown
        elif line not in ("}", "..."):
            row = line.removesuffix(" ,").strip("{}")
            assert any(row in one for one in shown)


def test_a_summary(tmp_path):
    model = oinf.model(
        {
            "w": np.arange(60, dtype=np.float32).reshape(5, 12) / 2,
            "q": oinf.TensorSpec([[1, 2], [3, 4]], "i4", quant=oinf.QuantParams.per_channel(1, [0.5, 2], [1, 0])),
            "d": oinf.Uninitialized("bf16", (2, 3)),
        },
        sizevars={"B": 4},
        metadata={"mode": "fast", "on": True, "eps": 1e-5, "bits": oinf.Bitset([1, 0, 1]), "table": list(range(100))},
    )
    holdall.save(tmp_path / "m.oinf", model)
    lines = run("verify", "--stats", tmp_path / "m.oinf").splitlines()[1:]
    assert [line for line in lines if "█" not in line] == [
        "  B := 4",
        "  bits: bitset[3] = 05",
        "  eps: f32 = 1e-05",
        '  mode: string = "fast"',
        "  on: bool = true",
        "  table: i8[100] = { 0, 1, 2, 3, 4, ..., 95, 96, 97, 98, 99 }",
        "  d: bf16[2, 3]: no data",
        "  q: i4[2, 2]: 4 elements, 2 bytes",
        "    quant: asymmetric, per_channel of axis 1, scale { 0.5, 2 }, zero_point { 1, 0 }",
        "    { 1, 2 }",
        "    { 3, 4 }",
        "    min 1, max 4, mean 2.5, median 2.5, std 1.11803",
        "  w: f32[5, 12]: 60 elements, 1 zero, 240 bytes",
        "    { 0, 0.5, 1, 1.5, 2, ..., 3.5, 4, 4.5, 5, 5.5 }",
        "    { 6, 6.5, 7, 7.5, 8, ..., 9.5, 10, 10.5, 11, 11.5 }",
        "    ...",
        "    min 0, max 29.5, mean 14.75, median 14.75, std 8.65905",
    ]
    facts = json.loads(run("verify", "--stats", "--json", tmp_path / "m.oinf"))
    assert facts["sizevars"] == {"B": 4} and facts["metadata"]["mode"] == "fast"
    assert facts["stats"][1]["preview"] == [[1, 2], [3, 4]] and facts["stats"][2]["nbytes"] == 240
    assert facts["stats"][2]["preview"][0] == [0, 0.5, 1, 1.5, 2, "...", 3.5, 4, 4.5, 5, 5.5]


def test_other_formats_have_one_too(tmp_path):
    values = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    holdall.save(tmp_path / "m.safetensors", {"w": values}, metadata={"a": "b"})
    assert '  a: string = "b"' in run("verify", "--stats", tmp_path / "m.safetensors")
    holdall.convert(tmp_path / "m.safetensors", tmp_path / "m.mcf", quantize="q8")
    with holdall.open(tmp_path / "m.mcf") as model:
        first = model["w"].numpy()[0]
    assert f"    {{ {', '.join(f'{value:.6g}' for value in first[:5].tolist())}, ..., " in run(
        "verify", "--stats", tmp_path / "m.mcf"
    )
