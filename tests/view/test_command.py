"""The command: what it prints, how it ends, and what it says where the extra is not installed."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest

import holdall
from tests.cli.conftest import command as command
from tests.cli.conftest import terminal as terminal
from tests.view.sparse import write_sparse
from tests.view.test_guard import ask, call
from tests.view.test_tensor import shown_region, wait_for_tensor
from tests.view.test_tensors import names

WHOLE = ("tensor-region.data", [0, 16384, 0, 16384])


@pytest.fixture
def model(tmp_path):
    holdall.save(tmp_path / "model.oinf", {"w": np.ones((2, 2), np.float32)})
    return tmp_path / "model.oinf"


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_server_answers_until_it_is_ended(command, model, ending, code):
    process = command("view", model, "--no-browser", run=False)
    address = process.stdout.readline().decode().strip()
    assert address.startswith("http://127.0.0.1:") and "?token=" in address
    from urllib.error import HTTPError

    with pytest.raises(HTTPError, match="403"):
        urlopen(address.split("?")[0])
    process.send_signal(ending)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code and err == b""


def test_an_end_while_a_page_waits_for_its_heat_map_says_nothing(command, tmp_path):
    """The threads that read have no pool any more when the process ends."""
    write_sparse(tmp_path / "a.safetensors", 1, 16384, 16384)
    process = command("view", tmp_path / "a.safetensors", "--no-browser", run=False)
    address = urlsplit(process.stdout.readline().decode().strip())
    server = SimpleNamespace(port=address.port)
    cookie = ask(server, f"/?{address.query}").headers["Set-Cookie"].split(";")[0]
    callbacks = json.loads(ask(server, "/_dash-dependencies", Cookie=cookie).body)
    heat = next(each for each in callbacks if "tensor-heat.figure" in each["output"])

    def draw():
        with suppress(OSError, HTTPException):
            call(server, cookie, heat, *WHOLE)

    page = threading.Thread(target=draw)
    page.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    page.join()
    assert process.returncode == 0 and err == b""


def test_another_port_can_be_asked_for(command, model):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = command("view", model, "--no-browser", "--port", port, run=False)
    assert process.stdout.readline().decode().startswith(f"http://127.0.0.1:{port}/")
    second = command("view", model, "--no-browser", "--port", port)
    assert second.returncode == 1 and f"port {port} of 127.0.0.1 is taken".encode() in second.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


@pytest.mark.parametrize("options", [(), ("--no-browser",)])
def test_a_browser_is_opened_unless_none_is_wanted(cli, model, monkeypatch, options):
    import webbrowser

    from holdall.viewer.server import ViewServer

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(ViewServer, "run", lambda self: self._server.server_close())
    monkeypatch.setattr("holdall.cli.view._prepare_end", lambda: None)  # it is meant for a process that ends
    result = cli("view", model, *options)
    assert result.exit_code == 0, result.output
    address = result.output.splitlines()[0]
    assert opened == ([] if options else [address]) and address.startswith("http://127.0.0.1:")


def test_a_file_that_is_not_there_is_one_sentence(cli, tmp_path):
    result = cli("view", tmp_path / "none.oinf", "--no-browser")
    assert result.exit_code == 1 and "No such file" in result.output + result.stderr


def test_a_file_of_no_known_format_is_one_sentence(cli, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"nothing that is known")
    result = cli("view", tmp_path / "a.bin", "--no-browser")
    assert result.exit_code in (1, 3) and result.output + result.stderr


def test_without_the_extra_the_message_names_it(model):
    code = (
        "import sys; sys.modules['dash'] = None; import holdall\n"
        f"try: holdall.view({str(model)!r})\nexcept holdall.UnsupportedError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'holdall[view]'" in done.stdout


def test_info_on_a_terminal_ends_with_the_viewer(terminal, command, model):
    shown, code = terminal(120, "info", model)
    assert code == 0
    assert shown.rstrip().splitlines()[-1].strip() == f"`holdall view {model}` shows it in the browser"
    assert b"holdall view" not in command("info", model).stdout


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory as Linux states it")
def test_forty_gigabytes_are_shown_in_little_memory(browser, command, tmp_path):
    path = tmp_path / "large.safetensors"
    write_sparse(path, 400, 2500, 10_000)
    assert path.stat().st_size > 40 * 10**9
    process = command("view", path, "--no-browser", run=False)
    address = process.stdout.readline().decode().strip()
    browser.open(address)
    browser.find("#treemap g.slice")
    browser.find_text("40.0 GB", ".facts")
    browser.find_text("The structure was checked", "#findings")  # so much is verified when it is asked for
    base = address.split("?")[0]
    browser.open(base + "tensors")
    browser.wait(lambda: "layers.0.w" in (names(browser) or ()))
    browser.open(base + "tensor?row=399")
    wait_for_tensor(browser)
    browser.find_text("each cell stands for", "#tensor-scale")
    browser.click("#tensor-in")
    browser.wait(lambda: shown_region(browser)[0] == "625:1875")
    browser.open(base + "bytes?at=39999999999")
    browser.find_text("layers.399.w", "#bytes-meaning")
    status = Path(f"/proc/{process.pid}/status").read_text()
    browser.open("about:blank")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == b""
    assert int(re.search(r"VmHWM:\s+([0-9]+) kB", status)[1]) < 400 * 1024
