"""What holds for all commands: exit codes, sentences on stderr, quiet pipes, clean text."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import holdall
from tests.cli.conftest import LAUNCH, SRC

READING = ("info", "ls", "verify", "explain")

# A module that takes a minute to import. A signal that arrives between two lines is seen at the next turn of a loop;
# one long sleep could begin before that, and nothing would end it.
SLOW = "import time\nprint('ready', flush=True)\nfor _ in range(600):\n    time.sleep(0.1)\n"


@pytest.mark.parametrize("name", READING)
def test_fine_is_0_and_json_parses(cli, model_path, name):
    assert cli(name, model_path).exit_code == 0
    shown = cli(name, model_path, "--json")
    assert shown.exit_code == 0
    assert [json.loads(line) for line in shown.output.splitlines()]


@pytest.mark.parametrize("name", READING)
def test_wrong_usage_is_2(cli, model_path, name):
    assert cli(name).exit_code == 2
    assert cli(name, model_path, "--no-such-option").exit_code == 2
    shown = cli(name, model_path, "--format", "nonsense")
    assert shown.exit_code == 2
    assert "there is no format 'nonsense'" in shown.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["extract", "mask", "-o", "-", "--json"], "--output - goes without --json"),
        (["ls", "--tree", "--json"], "--tree goes with none of --long, --json and --stats"),
        (["ls", "--tree", "--long"], "--tree goes with none of --long, --json and --stats"),
        (["ls", "--tree", "--stats"], "--tree goes with none of --long, --json and --stats"),
        (["ls", "--long", "--stats"], "--stats and --long do not go together; --json --stats has all"),
        (["explain", "--table", "nosuch"], "has no table 'nosuch'"),
        (["extract", "mask", "-o", ""], "'-o' / '--output': the name of a file is empty"),
    ],
    ids=str,
)
def test_words_that_do_not_go_together_are_2(cli, model_path, words, message):
    shown = cli(words[0], model_path, *words[1:])
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert message in shown.stderr


@pytest.mark.parametrize("words", [["info"], ["ls"], ["verify"], ["convert", "x.oinf"], ["diff", "x.oinf"]], ids=str)
def test_an_empty_name_is_2(cli, words):
    shown = cli(*words, "")
    assert shown.exit_code == 2
    assert "the name of a file is empty" in shown.stderr


def test_an_unknown_command_is_2(cli):
    assert cli("frobnicate").exit_code == 2


ODD = ["empty", "folder", "cut", "missing", "text", "fifo"]


@pytest.fixture(params=ODD)
def odd_path(request, tmp_path, broken_path):
    path = tmp_path / "odd thing.oinf"
    match request.param:
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "cut":
            path.write_bytes(broken_path.read_bytes())
        case "text":
            path = tmp_path / "odd thing.txt"
            path.write_text("hello\n")
        case "fifo":
            os.mkfifo(path)
    return path


# `info` shows what is left of a file that was cut, so that it is not asked here.
OPENING = [("info", ["empty", "folder", "missing", "text", "fifo"]), ("ls", ODD), ("extract", ODD)]


@pytest.mark.parametrize(
    ("odd_path", "name"), [(kind, name) for name, kinds in OPENING for kind in kinds], indirect=["odd_path"]
)
def test_what_cannot_be_opened_is_1_or_3_and_one_sentence(cli, odd_path, name):
    shown = cli(name, odd_path, *(["w"] if name == "extract" else []))
    assert shown.exit_code == (3 if odd_path.is_dir() or odd_path.suffix == ".txt" else 1)
    assert shown.stdout == ""
    (line,) = shown.stderr.splitlines()
    assert line.startswith("holdall: ")
    assert "odd thing" in line
    assert "Traceback" not in shown.output


@pytest.mark.parametrize("name", ["verify", "explain"])
def test_what_is_wrong_is_1(cli, odd_path, name):
    shown = cli(name, odd_path)
    foreign = odd_path.suffix == ".txt" or (odd_path.is_dir() and name == "verify")
    assert shown.exit_code == (3 if foreign else 1)
    assert "odd thing" in shown.output
    assert "Traceback" not in shown.output


def test_a_name_with_spaces(cli, model_path, tmp_path):
    path = tmp_path / "a name with spaces"
    path.write_bytes(model_path.read_bytes())
    assert cli("info", path).exit_code == 0


def test_several_files_go_on_after_one_that_fails(cli, model_path, tmp_path):
    shown = cli("info", tmp_path / "missing.oinf", model_path)
    assert shown.exit_code == 1
    assert "model.oinf" in shown.stdout
    assert "missing.oinf: No such file or directory" in shown.stderr


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_traceback(cli, tmp_path, how):
    missing = tmp_path / "missing.oinf"
    given = ("--debug",) if how == "option" else ()
    shown = cli(*given, "info", missing, env={"HOLDALL_DEBUG": "1"} if how == "environment" else {})
    assert isinstance(shown.exception, FileNotFoundError)


def test_a_bug_is_one_sentence_too(cli, model_path, monkeypatch):
    def bug(*arguments, **options):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("holdall.operations.examine.examine", bug)
    shown = cli("info", model_path)
    assert shown.exit_code == 1
    assert shown.stderr == "holdall: this should not happen: ZeroDivisionError: surprise (--debug shows where)\n"


def test_untrusted_has_tight_limits_and_no_map(cli, tmp_path, monkeypatch):
    path = tmp_path / "deep.oinf"
    holdall.save(path, [holdall.Tensor("deep", holdall.Tensor.of("x", np.zeros(1, np.int8)).dtype, (1,) * 100, None)])
    assert cli("ls", path).exit_code == 0
    shown = cli("ls", "--untrusted", path)
    assert shown.exit_code == 3
    assert "above the limit of 64" in shown.stderr

    def refuse(*arguments, **options):
        raise AssertionError("mapped")

    monkeypatch.setattr("mmap.mmap", refuse)
    good = tmp_path / "good.oinf"
    holdall.save(good, {"w": np.arange(10)})
    assert cli("extract", "--untrusted", good, "w", "-o", tmp_path / "w.npy", "--slice", "2:4").exit_code == 0
    assert np.load(tmp_path / "w.npy").tolist() == [2, 3]


def safetensors_named(path, name):
    header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\1")


@pytest.mark.parametrize("name", ["a\x1b[31mb", "x\u202ey", "two\nlines", "bell\x07", "\x9b31m", "del\x7f"])
def test_names_from_files_cannot_steer_the_terminal(cli, tmp_path, name):
    pytest.importorskip("holdall.format.safetensors")
    path = tmp_path / "evil.safetensors"
    safetensors_named(path, name)
    for arguments in (["ls"], ["ls", "--tree"], ["info"], ["explain"], ["verify"]):
        shown = cli(*arguments, path)
        bad = [c for c in shown.output if not c.isprintable() and c != "\n"]
        assert not bad, (arguments, shown.output)
    assert json.loads(cli("ls", "--json", path).output)["name"] == name


def test_paths_cannot_steer_the_terminal_either(cli, tmp_path):
    shown = cli("info", tmp_path / "a\x1b[2Jb.oinf")
    assert shown.exit_code == 1
    assert "\x1b" not in shown.output
    assert "\\x1b[2Jb.oinf: No such file" in shown.stderr


def test_a_closed_pipe_is_quiet(command, tmp_path):
    path = tmp_path / "many.oinf"
    holdall.save(path, {f"tensor.{n}": np.zeros(1, np.int8) for n in range(20_000)}, fsync=False)
    process = command("ls", path, run=False)
    assert process.stdout.readline().startswith(b"name")
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


def test_ctrl_c_is_one_line_and_130(command, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    process = command("from-dataclass", "slow:X", "x.oinf", run=False, cwd=tmp_path)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"holdall: interrupted\n")


def test_ctrl_c_inside_a_lock_is_one_line_and_130_too(cli, model_path, monkeypatch):
    """Python's locks may answer an interrupt with a RuntimeError of their own."""

    def interrupt(*arguments, **options):
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    monkeypatch.setattr("holdall.operations.examine.examine", interrupt)
    shown = cli("info", model_path)
    assert (shown.exit_code, shown.stderr) == (130, "holdall: interrupted\n")


def test_sigterm_is_143(command, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    process = command("from-dataclass", "slow:X", "x.oinf", run=False, cwd=tmp_path)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 143


@pytest.fixture
def large_path(tmp_path):
    """Half a gigabyte of zeros that takes no room on the disk, and some time to be cast."""
    path = tmp_path / "large.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 27], "data_offsets": [0, 1 << 29]}}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (1 << 29))
    return path


def wait_for_part(folder):
    """Until the conversion is in the middle of writing."""
    for _ in range(6000):
        parts = [path for path in folder.iterdir() if path.name.endswith(".holdall.part")]
        if parts and any(path.stat().st_size > 1 << 20 for path in parts):
            return
        time.sleep(0.01)
    pytest.fail("no part was written")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_it_leave_the_old_file_and_no_part(command, large_path, tmp_path, number):
    out = tmp_path / "out"
    out.mkdir()
    (out / "x.oinf").write_bytes(b"old")
    process = command("convert", large_path, out / "x.oinf", "--cast", "bf16", run=False)
    wait_for_part(out)
    process.send_signal(number)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 128 + number
    assert [(path.name, path.read_bytes()) for path in out.iterdir()] == [("x.oinf", b"old")]


def test_a_terminal_that_is_closed_leaves_no_part(large_path, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    line = [sys.executable, "-c", LAUNCH, "convert", str(large_path), str(out / "x.oinf"), "--cast", "bf16"]
    child, ours = pty.fork()  # closing the terminal of the child sends it a SIGHUP
    if not child:
        os.execve(sys.executable, line, {**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm"})
    wait_for_part(out)
    os.close(ours)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert list(out.iterdir()) == []


def test_a_hangup_that_is_ignored_stays_so(large_path, tmp_path):
    """As nohup starts it."""
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {LAUNCH}"
    line = [sys.executable, "-c", code, "convert", str(large_path), str(tmp_path / "x.oinf"), "--cast", "bf16"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SRC)})
    wait_for_part(tmp_path)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=60)[0].startswith(b"wrote ")
    assert process.returncode == 0


def test_a_program_that_calls_it_keeps_its_signals(cli, model_path):
    """Left behind, a handler met the forked children of others, and a pool of processes could not be ended."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    for words in (["info", str(model_path)], ["info", "nothing"], ["nothing"]):
        cli(*words)
        assert [signal.getsignal(number) for number in numbers] == before


def test_a_thread_may_call_it(cli, model_path):
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(cli, "info", model_path).result()
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("way", ["module", "script"])
def test_ctrl_c_during_start_up_is_one_line_and_130(tmp_path, way):
    """While click is being imported: a click.py of our own makes that last as long as it takes."""
    (tmp_path / "click.py").write_text(SLOW)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SRC}"}
    line = [sys.executable, *(["-m", "holdall"] if way == "module" else ["-c", LAUNCH]), "--version"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"holdall: interrupted\n")


def test_the_script_is_the_module():
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    assert scripts == {"holdall": "holdall.__main__:run"}
    assert LAUNCH == "from holdall.__main__ import run; run()"


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [pytest.param("> /dev/full", ": No space left on device", marks=FULL), (">&-", " is closed")],
)
@pytest.mark.parametrize("words", [["info"], ["ls", "--json"], ["--help"], ["extract", "-o", "-", "--raw"]], ids=str)
@pytest.mark.parametrize("buffered", [True, False])
def test_output_that_cannot_be_written_is_named(model_path, redirection, reason, words, buffered):
    line = [sys.executable, "-c", LAUNCH, *words, str(model_path), *(["mask"] if "extract" in words else [])]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *line],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "" if buffered else "1"},
        timeout=60,
    )
    assert (done.returncode, done.stderr.decode()) == (1, f"holdall: standard output{reason}\n")


def test_closed_stderr_is_no_problem(model_path):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", LAUNCH, "diff", str(model_path), str(model_path)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"are equal" in done.stdout


def test_output_escapes_what_it_cannot_say(command, tmp_path):
    path = tmp_path / "模型.oinf"
    holdall.save(path, {"w": np.zeros(1)})
    done = command("info", path, extra={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert b"\\u6a21\\u578b.oinf" in done.stdout


def test_a_file_that_may_not_be_read(cli, model_path, monkeypatch):
    honest = os.open

    def refuse(path, *arguments, **options):  # root would be let in
        if os.fspath(path) == str(model_path):
            raise PermissionError(13, "Permission denied", str(model_path))
        return honest(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    for name in READING:
        shown = cli(name, model_path)
        assert shown.exit_code == 1
        assert shown.output == f"holdall: {model_path}: Permission denied\n"


def test_the_process_exits_as_documented(command, model_path, broken_path):
    assert command("verify", model_path).returncode == 0
    failed = command("verify", broken_path)
    assert failed.returncode == 1
    assert b"oinf.header.file_size" in failed.stdout
    wrong = command("verify")
    assert wrong.returncode == 2
    assert wrong.stdout == b""
    version = command("--version")
    assert version.stdout.decode().strip() == f"holdall, version {holdall.__version__}"
