"""``holdall embed``."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.runtime.test_embedder import expected
from tests.runtime.tiny import CONFIG, TEXTS, VOCAB, folder_model, tensors


@pytest.fixture
def cli(monkeypatch):
    monkeypatch.delenv("HOLDALL_DEBUG", raising=False)

    def call(*arguments, **options):
        return CliRunner().invoke(main, ["embed", *map(str, arguments)], prog_name="holdall", **options)

    return call


@pytest.fixture
def file(tmp_path):
    holdall.save(tmp_path / "folder", folder_model(), format="hf", fsync=False)
    holdall.convert(tmp_path / "folder", tmp_path / "model.oinf", carry=True, fsync=False)
    return tmp_path / "model.oinf"


def vectors(shown):
    assert shown.exit_code == 0, shown.output
    answer = json.loads(shown.stdout)
    return np.array(answer["embeddings"])


def test_json(cli, file):
    shown = cli(file, *TEXTS, "--json", "--batch-size", 2)
    assert np.abs(vectors(shown) - expected()).max() < 2e-6
    assert list(json.loads(shown.stdout)) == ["texts", "embeddings"]
    assert json.loads(shown.stdout)["texts"] == TEXTS
    assert shown.stderr == "holdall: 1 text cut at 12 tokens (--max-length sets another length)\n"


def test_texts_from_files_and_stdin(cli, file, tmp_path):
    (tmp_path / "texts.txt").write_bytes("The cats sit.\r\n\ncafé\n".encode())
    got = vectors(cli(file, "a mat", "-i", tmp_path / "texts.txt", "-i", "-", "--json", input="on\nlast"))
    want = expected(["a mat", "The cats sit.", "", "cafe", "on", "last"])
    assert np.abs(got - want).max() < 2e-6
    assert np.abs(vectors(cli(file, "--json", input="a mat\n")) - want[:1]).max() < 2e-6
    assert vectors(cli(file, "--json", input="")).shape == (0,)
    shown = cli(file, input=b"\xff")
    assert (shown.exit_code, "stdin: byte 0 is not UTF-8" in shown.stderr) == (1, True)


def test_npy(cli, file, tmp_path):
    shown = cli(file, "a mat", "cat", "-o", tmp_path / "out.npy")
    assert shown.output == f"{tmp_path}/out.npy: 2 vectors of 24\n"
    assert np.abs(np.load(tmp_path / "out.npy") - expected(["a mat", "cat"])).max() < 2e-6
    piped = cli(file, "a mat", "cat", "-o", "-")
    assert np.load(io.BytesIO(piped.stdout_bytes)).tobytes() == np.load(tmp_path / "out.npy").tobytes()


def test_similarity(cli, file):
    shown = cli(file, "a mat", "cat", "a mat", "--similarity")
    header, *rows = shown.stdout.splitlines()
    assert header.split() == ["1", "2", "3", "text"]
    cells = [row.split()[:4] for row in rows]
    assert cells[0][0] == "1"
    assert cells[0][1] == cells[0][3] == "1.0000"
    want = expected(["a mat", "cat"])
    assert abs(float(cells[0][2]) - want[0] @ want[1]) < 1e-4
    answer = json.loads(cli(file, "a mat", "cat", "--similarity", "--json").stdout)
    assert abs(answer["similarity"][1][0] - want[0] @ want[1]) < 1e-5
    assert cli(file, *["x"] * 201, "--similarity").exit_code == 2


def test_for_people(cli, file):
    shown = cli(file, "a\x1b[31m mat").stdout
    assert shown.startswith("a\\x1b[31m mat ")
    assert shown.endswith(" ... (24)\n")


def test_what_is_missing_is_said_and_can_be_given(cli, tmp_path):
    bare = tmp_path / "bare.safetensors"
    holdall.save(bare, tensors(), fsync=False)
    shown = cli(bare, "a mat")
    assert shown.exit_code == 1
    assert "bare.safetensors: to embed texts, the model lacks the vocabulary (a vocab.txt: --vocab" in shown.stderr
    assert "and the number of attention heads (num_attention_heads, of a config.json: --config" in shown.stderr
    (tmp_path / "vocab.txt").write_bytes(VOCAB.to_text())
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {t: n for n, t in enumerate(VOCAB)}}}))
    for vocab in ("vocab.txt", "tokenizer.json"):
        given = ("--vocab", tmp_path / vocab, "--config", tmp_path / "config.json")
        assert np.abs(vectors(cli(bare, "a mat", "--json", *given)) - expected(["a mat"])).max() < 2e-6
    shown = cli(bare, "a", "--vocab", tmp_path / "config.json", "--config", tmp_path / "config.json")
    assert (shown.exit_code, "there is no vocabulary in it" in shown.stderr) == (1, True)
    (tmp_path / "list.json").write_text("[]")
    shown = cli(bare, "a", "--config", tmp_path / "list.json")
    assert (shown.exit_code, "a configuration is a JSON object" in shown.stderr) == (1, True)
    assert cli(bare, "a", "--vocab", tmp_path / "nothing.txt").exit_code == 1


def test_options(cli, file):
    shown = cli(file, "cat cat cat", "--json", "--max-length", 4, "--budget", "4kB", "--untrusted")
    assert np.abs(vectors(shown) - expected(["cat cat"])).max() < 2e-6
    assert "1 text cut at 4 tokens" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "out.txt"), ("-o", "-", "--json"), ("-o", "-", "--similarity"), ("--budget", "many"),
        ("--batch-size", 0), ("--threads", 0), ("--top-k", 3), ("--top-k", 0, "--against", "x"),
        ("--tokens", "--similarity"), ("--tokens", "-o", "x.npy"), ("-i", "-", "--against", "-"),
        ("-o", "-", "--against", "x"),
    ],
)  # fmt: skip
def test_wrong_usage(cli, file, arguments):
    assert cli(file, "a", *arguments).exit_code == 2


def test_weights_that_are_not_finite(cli, tmp_path):
    broken = tensors()
    broken["encoder.layer.1.output.dense.bias"][0] = np.nan
    holdall.save(tmp_path / "x.weights", broken, metadata={"num_attention_heads": "3"}, vocab=VOCAB, fsync=False)
    shown = cli(tmp_path / "x.weights", "a", "--json")
    assert (shown.exit_code, "finite numbers only" in shown.stderr) == (1, True)


NOTES = ["on the mat", "a cat", "cats", "", "the cat sits", "a cat", "mat"]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_the_nearest_texts_of_a_file(cli, file, tmp_path, count):
    (tmp_path / "notes.txt").write_text("\n".join(NOTES) + "\n")
    queries, want = ["cat", "the mat"], expected(["cat", "the mat"]) @ expected(NOTES).T
    options = ("--against", tmp_path / "notes.txt", "--top-k", count, "--json")
    answer = json.loads(cli(file, *queries, *options).stdout)
    assert answer["texts"] == queries and len(answer["embeddings"]) == 2
    for found, cosines in zip(answer["nearest"], want, strict=True):
        order = sorted(range(len(NOTES)), key=lambda row: (-round(cosines[row], 5), row))[:count]
        assert [row["line"] - 1 for row in found] == order
        assert [row["text"] for row in found] == [NOTES[row] for row in order]
        assert np.abs(np.array([row["cosine"] for row in found]) - cosines[order]).max() < 2e-6


def test_the_nearest_for_people_and_by_default(cli, file, tmp_path):
    (tmp_path / "notes.txt").write_text("\n".join(NOTES))
    shown = cli(file, "a cat", "--against", tmp_path / "notes.txt").stdout.splitlines()
    assert shown[0] == "a cat" and len(shown) == 6
    assert [line.split()[:2] for line in shown[1:3]] == [["+1.0000", "2"], ["+1.0000", "6"]]
    piped = cli(file, "a cat", "--against", "-", "--top-k", 1, input="mat\na cat\n").stdout.splitlines()
    assert piped[1].split() == ["+1.0000", "2", "a", "cat"]
    assert cli(file, "a cat", "--against", tmp_path / "none.txt").exit_code == 1
    (tmp_path / "empty.txt").write_text("")
    assert json.loads(cli(file, "cat", "--against", tmp_path / "empty.txt", "--json").stdout)["nearest"] == [[]]
    out = tmp_path / "out.npy"
    cli(file, "cat", "mat", "--against", tmp_path / "notes.txt", "-o", out)
    assert np.load(out).shape == (2, 24)


def test_vectors_that_are_not_normalized(cli, file):
    plain = vectors(cli(file, *TEXTS, "--json"))
    longer = vectors(cli(file, *TEXTS, "--json", "--no-normalize"))
    lengths = np.linalg.norm(longer, axis=1, keepdims=True)
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).max() < 1e-6 and np.abs(lengths - 1).min() > 1e-3
    assert np.abs(longer / lengths - plain).max() < 1e-6
    similar, same = (json.loads(cli(file, *TEXTS, "--json", "--similarity", *option).stdout)["similarity"]
                     for option in ((), ("--no-normalize",)))  # fmt: skip
    assert np.abs(np.array(similar) - same).max() < 1e-6


def test_tokens_and_what_they_decode_to(cli, file):
    answer = json.loads(cli(file, "The cats sit.", "on dog", "--tokens", "--json").stdout)
    assert answer["texts"] == ["The cats sit.", "on dog"]
    assert answer["tokens"] == [
        {"ids": [2, 8, 9, 10, 11, 6, 3], "tokens": ["[CLS]", "the", "cat", "##s", "sit", ".", "[SEP]"],
         "decoded": "the cats sit."},
        {"ids": [2, 12, 1, 3], "tokens": ["[CLS]", "on", "[UNK]", "[SEP]"], "decoded": "on"},
    ]  # fmt: skip
    shown = cli(file, "The cats sit.", "--tokens", "--max-length", 4)
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["The", "cats", "sit."], ["ids", "2", "8", "9", "3"], ["tokens", "[CLS]", "the", "cat", "[SEP]"],
        ["decoded", "the", "cat"],
    ]  # fmt: skip
    assert "1 text cut at 4 tokens" in shown.stderr


THREADS = """
import os, sys
from holdall.cli import main
main(["embed", *sys.argv[1:]], standalone_mode=False)
print(len(os.listdir("/proc/self/task")), file=sys.stderr)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux lists them")
def test_threads_change_no_number_and_numpy_adds_none(file):
    seen = {}
    for threads in ("1", "2", "3"):
        arguments = [file, *TEXTS, "--batch-size", "1", "--threads", threads, "-o", "-"]
        ran = subprocess.run([sys.executable, "-c", THREADS, *map(str, arguments)], capture_output=True, check=True)
        seen[threads] = ran.stdout
        if threads == "1":
            assert ran.stderr.split()[-1] == b"1"
    assert len(set(seen.values())) == 1
    assert np.load(io.BytesIO(seen["1"])).shape == (len(TEXTS), 24)
