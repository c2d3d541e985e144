"""The server answers its own pages on this machine, and refuses everything else."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest

import holdall


@pytest.fixture
def server(serve, tmp_path):
    holdall.save(tmp_path / "a.oinf", {"w": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return serve(tmp_path / "a.oinf")


def ask(server, path="/", method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.body = answer.read()
    connection.close()
    return answer


def cookie_of(server):
    answer = ask(server, f"/?{urlsplit(server.url).query}")
    assert answer.status == 303 and answer.headers["Location"] == "/"
    return answer.headers["Set-Cookie"]


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(server):
    cookie = cookie_of(server)
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and server.token in cookie
    assert ask(server, Cookie=cookie.split(";")[0]).status == 200


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/_dash-dependencies", "/assets/view.css", "/tensors", "/none"])
def test_nothing_is_served_without_the_token(server, path):
    assert ask(server, path).status == 403
    assert ask(server, f"{path}?token=wrong").status == 403
    assert ask(server, path, Cookie=f"holdall-{server.port}=wrong").status == 403
    assert ask(server, f"{path}?token=", Cookie=cookie_of(server).split(";")[0]).status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil.example:{port}", ""]
)
def test_another_host_is_refused(server, host):
    given = {"Cookie": cookie_of(server).split(";")[0], "Host": host.format(port=server.port)}
    assert ask(server, **given).status == 403


def test_a_connection_that_a_browser_keeps_ends_with_the_server(server):
    """Browsers open connections ahead; the next server at this port must not be answered for by this one."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as ahead:
        assert ask(server).status == 403  # so the server has taken the connection before
        server.close()
        ahead.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):  # how an end looks when the request had arrived
            assert ahead.recv(1) == b""


def test_a_page_of_another_origin_is_refused(server):
    cookie = cookie_of(server).split(";")[0]
    own = f"http://127.0.0.1:{server.port}"
    for origin in (
        "https://evil.example",
        "null",
        f"http://127.0.0.1:{server.port + 1}",
        f"http://localhost:{server.port}",
    ):
        assert ask(server, Cookie=cookie, Origin=origin).status == 403, origin
        body = '{"output": "status.children"}'
        refused = ask(server, "/_dash-update-component", "POST", body, Cookie=cookie, Origin=origin)
        assert refused.status == 403
    assert ask(server, Cookie=cookie, Origin=own).status == 200


def test_the_policy_allows_no_other_origin_and_no_inline_script_without_a_hash(server):
    answer = ask(server, Cookie=cookie_of(server).split(";")[0])
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'" and policy["base-uri"] == "'none'"
    allowed = policy["script-src"].split()
    assert allowed[0] == "'self'" and len(allowed) > 1
    assert all(each.startswith("'sha256-") for each in allowed[1:])
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/assets/../server.py", "/assets/%2e%2e/server.py", "/assets//etc/passwd", "/static/../app.py",
             "/_dash-component-suites/dash/../flask/app.py", "/_dash-component-suites/os/os.py"],
)  # fmt: skip
def test_no_path_leads_to_another_file(server, path):
    answer = ask(server, path, Cookie=cookie_of(server).split(";")[0])
    assert answer.status in (400, 404, 500) or b"react-entry-point" in answer.body
    assert b"def " not in answer.body and b"root:" not in answer.body


def test_a_server_listens_on_this_machine_alone(server):
    assert server._server.server_address[0] == "127.0.0.1"
    assert urlsplit(server.url).hostname == "127.0.0.1"


@pytest.mark.parametrize("path", ["//evil.example/x", "/%5cevil.example", "/%0d%0aX-Evil:1", "/%c3%a9"])
def test_the_token_leads_to_no_other_place(server, path):
    answer = ask(server, f"{path}?{urlsplit(server.url).query}")
    assert answer.status == 303 and "X-Evil" not in answer.headers
    assert re.match("/(?![/\\\\])", answer.headers["Location"])


def test_a_port_that_is_taken_is_an_error_that_names_it(server):
    from holdall.viewer.server import ViewServer

    with pytest.raises(OSError, match=f"port {server.port}"):
        ViewServer(server.window, server.port)


MADE_UP = [5, 2, -1, True, 0.5, None, "1", "../../etc/passwd", {}, [], [0], [5, 0], [0, 99], [-1, 0], [0, -1],
           ["../../etc/passwd", 0], [0, "../../etc/passwd"], [0, 0, 0], [1 << 70, 0], 1 << 70]  # fmt: skip
# What pages send along with numbers of models, tensors and files, by the end of a name.
PLAUSIBLE = {"-of": 0, "-row": [0, 0], "-drawn": [0, 0], "-region": [0, 2, 0, 3], "-events": [[1, "next", None]],
             "-seen": 0, "-at": 0, "-place": "", "-by": "max", "-filled": 0, "-known": 0,
             "n_clicks": 1, "n_intervals": 1, "getRowsRequest": {"startRow": 0, "endRow": 5},
             "asset": {"type": "asset", "at": 0}, "selectedRows": [{"row": 0, "number": 0, "id": "0"}]}  # fmt: skip
NUMBERS = re.compile(r"-(of|row|at|region|start)\.data$|tensor-drawn\.data$|\"asset\".*\.id$")


def fill_in(item, changed, value):
    """One argument of a callback as the browser sends it; that of the name ``changed`` has another value."""
    name = f"{item['id']}.{item['property']}"
    pair = dict(item)
    if item["id"].startswith("{"):
        pair["id"] = {"type": json.loads(item["id"])["type"], "at": 0}
    ends = (item["id"], item["property"], name)
    plausible = next((good for end, good in PLAUSIBLE.items() if any(end in part for part in ends)), None)
    if item["id"] in ("bytes-of", "tensor-row"):
        plausible = [0, 0]
    if name == changed:
        plausible = {"type": "asset", "at": value} if '"asset"' in name else value
    return pair | {"value": plausible}


def call(server, cookie, callback, changed="", value=None):
    """The status of the answer to a callback."""
    outputs = []
    for part in callback["output"].strip(".").split("..."):
        id, _, name = part.rpartition(".")
        outputs.append({"id": {"type": "asset-text", "at": 0} if id.startswith("{") else id, "property": name})
    inputs, state = ([fill_in(item, changed, value) for item in callback[kind]] for kind in ("inputs", "state"))
    several = callback["output"].startswith("..")
    body = {"output": callback["output"], "outputs": outputs if several else outputs[0],
            "inputs": inputs, "state": state,
            "changedPropIds": [f"{callback['inputs'][0]['id']}.{callback['inputs'][0]['property']}"]}  # fmt: skip
    headers = {"Cookie": cookie, "Content_Type": "application/json"}
    return ask(server, "/_dash-update-component", "POST", json.dumps(body), **headers).status


def test_numbers_that_no_page_has_sent_are_refused(serve, tmp_path, capfd):
    """A model, a tensor, a file, a byte or a row of a table is an index in its bounds; nothing else is looked up."""
    holdall.save(tmp_path / "a.oinf", {"w": np.arange(6, dtype=np.float32).reshape(2, 3)})
    model = holdall.Model([holdall.Tensor.of("w", np.ones(4, np.float32))], assets={"merges.txt": b"a b\n"})
    holdall.save(tmp_path / "b.mcf", model)
    server = serve(tmp_path / "b.mcf", tmp_path / "a.oinf")
    server.window.comparison.task.keep()
    server.window.comparison.task.wait()
    cookie = cookie_of(server).split(";")[0]
    refused = 0
    for callback in json.loads(ask(server, "/_dash-dependencies", Cookie=cookie).body):
        if callback["clientside_function"] is not None:
            continue
        names = [f"{item['id']}.{item['property']}" for item in (*callback["inputs"], *callback["state"])]
        assert call(server, cookie, callback) in (200, 204), callback["output"]
        for name in filter(NUMBERS.search, names):
            for value in MADE_UP:
                status = call(server, cookie, callback, name, value)
                assert status in (200, 204, 400), (callback["output"], name, value)
                refused += status == 400
    assert refused > 150
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("format", ["aero", "mcf", "npz", "safetensors"])
def test_a_file_that_is_cut_while_it_is_shown_breaks_no_page(serve, tmp_path, capfd, format):
    path = tmp_path / f"a.{format}"
    tensors = {f"h.{n}.w": np.full((64, 64), n, np.float32) for n in range(4)}
    holdall.save(path, tensors, metadata={"a": "b"}, format=format)
    server = serve(path, path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 3)
    cookie = cookie_of(server).split(";")[0]
    for callback in json.loads(ask(server, "/_dash-dependencies", Cookie=cookie).body):
        if callback["clientside_function"] is None:
            assert call(server, cookie, callback) in (200, 204, 400), callback["output"]
            if callback["output"].startswith("..page.children"):
                for page in ("/", "/tensors", "/bytes", "/vocabulary", "/compare"):
                    assert call(server, cookie, callback, "place.pathname", page) == 200, page
    assert server.window.subjects[0].find_change()
    assert capfd.readouterr().err == ""
