"""Progress bars, colours and interrupts on a real terminal show no secret of a URL either."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import holdall
from tests.remote.servers import range_server

PASSWORD, TOKEN, SIGNATURE = "sesame-8f3a", "tok-77c1e", "sig-5d2b9"
SECRETS = (PASSWORD, TOKEN, SIGNATURE)
SOURCE = Path(holdall.__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of 12 MB, so that progress is made in steps, and another one that differs."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(5)
    values = {f"w{number}": rng.standard_normal((512, 512), np.float32) for number in range(12)}
    holdall.save(folder / "m.npz", values)
    holdall.save(folder / "other.safetensors", {**values, "w0": values["w1"]})
    return folder


@pytest.fixture
def url(files):
    data = (files / "m.npz").read_bytes()
    with range_server({"/m.npz": data}) as server:
        host = server.url.removeprefix("http://")
        query = f"token={TOKEN}&X-Amz-Signature={SIGNATURE}"
        yield f"http://user:{PASSWORD}@{host}/m.npz?{query}#{TOKEN}", server


def run_on_terminal(arguments, *, interrupt=None) -> tuple[int, str]:
    """Run a command whose output and errors are a terminal. ``interrupt`` is called with the process once it runs."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "holdall", *map(str, arguments)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        if interrupt is not None:
            interrupt(process)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that the other side is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
        code = process.wait(60)
    os.close(ours)
    return code, shown.decode("utf-8", "replace")


def list_commands(url, files, out):
    other = files / "other.safetensors"
    return {
        "verifying": ["verify", url],
        "statistics of": ["verify", url, "--stats"],
        "comparing": ["diff", url, other],
        "converting to": ["convert", url, out / "a.safetensors"],
        "quantizing into": ["quantize", url, out / "q.mcf", "--method", "int8", "--report", out / "q.html"],
        "extracting": ["extract", url, "--all", out / "all"],
    }


@pytest.mark.parametrize(
    "label", ["verifying", "statistics of", "comparing", "converting to", "quantizing into", "extracting"]
)
def test_a_progress_bar_names_the_url_without_its_secrets(url, files, tmp_path, label):
    code, shown = run_on_terminal(list_commands(url[0], files, tmp_path)[label])
    assert code == (1 if label == "comparing" else 0), shown
    assert label in shown, "there was a bar"
    if label in ("verifying", "statistics of", "comparing"):
        assert f"{label} {url[1].url}/m.npz" in shown
    assert [secret for secret in SECRETS if secret in shown] == []


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("label", ["verifying", "converting to"])
def test_an_interrupt_shows_none(url, files, tmp_path, label, debug):
    address, server = url
    server.stall = 20
    server.fault = lambda path, start, stop: "stall" if start > 1 << 20 and stop < len(server.files[path]) else None

    def interrupt(process):
        end = time.monotonic() + 30
        while not [asked for asked in server.log.requests if int(asked[2][6:].split("-")[0]) > 1 << 20]:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)

    code, shown = run_on_terminal([*debug, *list_commands(address, files, tmp_path)[label]], interrupt=interrupt)
    assert code == 130, shown
    assert "interrupted" in shown
    assert [secret for secret in SECRETS if secret in shown] == []


def test_errors_on_a_terminal_show_none(url, files, tmp_path):
    address, _ = url
    missing = address.replace("/m.", "/nothing.")
    commands = [["info", missing], ["ls", missing], ["info", address, "--bad"], [address], ["diff", address, missing]]
    said = ""
    for command in commands:
        for debug in ([], ["--debug"]):
            code, shown = run_on_terminal([*debug, *command])
            assert code in (1, 2), shown
            said += shown
    assert "is not there" in said and [secret for secret in SECRETS if secret in said] == []
