"""Names, metadata and assets of hostile files are shown, and do nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import holdall

MARKS = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "</script><script>window.hit=1</script>",
    '<a href="https://evil.example/">click</a>',
    "<b>bold</b><br>",
    "javascript:window.hit=1",
    "{{constructor.constructor('window.hit=1')()}}",
    "%{customdata[0]}<extra></extra>",
    "[x](javascript:window.hit=1)",
    "\u202egnp.exe\u202c",
    "a\x1b[31mb\x07\x00c",
    "nul\ud7ffe\u2028line\u2029",
    "__proto__",
    "constructor",
    "../../etc/passwd",
    "params.api.constructor",
    "n" * 1_000_000,
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "h.safetensors"
    random = np.random.default_rng(0)
    names = [mark for mark in MARKS if len(mark) < 10_000]
    tensors = {f"{mark}.{at}": random.normal(size=(6, 4)).astype(np.float32) for at, mark in enumerate(names)}
    tensors |= {f"deep.{mark}.w": np.ones((2, 2), np.float32) for mark in names}
    tensors["n" * 60_000] = np.ones((2, 2), np.float32)
    metadata = {f"key {at} {mark[:3000]}": mark for at, mark in enumerate(MARKS)}
    holdall.save(path, tensors, metadata=metadata)
    return path


def assert_harmless(browser):
    assert browser.run("return window.hit") is None
    assert browser.run("return document.querySelectorAll('#page script, #page img, #page iframe').length") == 0
    links = browser.run("return [...document.querySelectorAll('a')].map(a => a.getAttribute('href') || '')")
    links += browser.run("return [...document.querySelectorAll('svg a')].map(a => a.getAttribute('xlink:href') || '')")
    assert all(link.startswith(("/", "#")) for link in links if link), links


def test_every_page_shows_hostile_names_as_text(browser, look, hostile):
    base = look(hostile)
    browser.find("#treemap g.slice")
    browser.find_text("<script>window.hit=1</script>", "#metadata")
    browser.find_text(r"\u202e", "#metadata")
    assert_harmless(browser)
    browser.type("#metadata-search", "onerror")
    browser.find_text("<img src=x onerror=window.hit=1>", "#metadata")
    assert_harmless(browser)
    browser.open(base + "tensors")
    browser.find_text("<b>bold</b>", "#tensors")
    assert_harmless(browser)
    with holdall.open(hostile) as model:
        rows = {name: row for row, name in enumerate(model)}
    for wanted in ("<script>", "<a href", "[x](java", "%{custom", "n" * 100):
        row = next(row for name, row in rows.items() if name.startswith(wanted))
        browser.open(f"{base}tensor?row={row}")
        browser.find_text("each cell is one element", "#tensor-scale")
        browser.find("#tensor-largest table")
        assert_harmless(browser)
    browser.open(base + "bytes?at=40")
    browser.find_text("belongs to", "#bytes-meaning")
    assert_harmless(browser)


def test_hostile_names_are_compared_as_text(browser, look, hostile, tmp_path):
    with holdall.open(hostile) as model:
        other = {name: model[name].numpy() + np.float32(1) for name in model}
    holdall.save(tmp_path / "b.safetensors", other)
    look(hostile, tmp_path / "b.safetensors", page="compare")
    browser.find_text("<img src=x", "#compare-grid")
    browser.find("#compare-map g.slice")
    assert_harmless(browser)


def test_hostile_assets_and_tokens_are_shown_as_text(browser, look, tmp_path):
    assets = {
        "config.json": b'{"model_type": "<script>window.hit=1</script>"}\n',
        "vocab.txt": "\n".join([*(mark for mark in MARKS if "\n" not in mark), "[UNK]"]).encode("utf-8", "replace"),
        "README.md": b"<img src=x onerror=window.hit=1>" * 10_000,
    }
    holdall.save(
        tmp_path / "f", holdall.Model([holdall.Tensor.of("w", np.ones(2, np.float32))], assets=assets), format="hf"
    )
    base = look(tmp_path / "f")
    for button in browser.find_all("section button.small"):
        button.click()
    browser.find_text("onerror", "pre.value")
    assert_harmless(browser)
    browser.open(base + "vocabulary")
    browser.find_text("<b>bold</b>", "#tokens")
    assert_harmless(browser)


def test_a_page_of_another_origin_learns_nothing(browser, serve, hostile, tmp_path):
    """Another server on this machine tries all that a page can try against the viewer."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    server = serve(hostile)
    browser.open(server.url)  # the browser has the cookie now
    browser.find("#nav a")
    seen = []

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><link rel=icon href='data:,'><p>evil</p>")

        def log_message(self, *arguments):
            seen.append(arguments)

    evil = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    browser.open(f"http://localhost:{evil.server_port}/")
    browser.driver.set_script_timeout(20)
    results = browser.driver.execute_async_script(
        """
        const done = arguments[arguments.length - 1], target = arguments[0];
        const post = {method: 'POST', credentials: 'include', mode: 'no-cors', body: '{}'};
        const tries = [
            fetch(target + '_dash-layout', {credentials: 'include'}),
            fetch(target + '_dash-layout', {credentials: 'include', mode: 'no-cors'}),
            fetch(target + '_dash-update-component', post),
        ];
        Promise.allSettled(tries).then(all => done(all.map(each =>
            each.status === 'fulfilled' ? [each.value.type, each.value.status] : ['refused', 0])));
        """,
        server.url.split("?")[0],
    )
    evil.shutdown()
    evil.server_close()
    assert all(kind in ("refused", "opaque") and status == 0 for kind, status in results), results
    browser.take_messages()  # the browser says what it refused
    list(browser.take_requests())
    browser.open("about:blank")


def test_values_that_only_a_model_in_memory_can_have_are_shown():
    """Lists nested beyond what Python recurses into, and integers of more digits than it writes."""
    from holdall.testing.zoo import AWKWARD_NAMES, AWKWARD_VALUES
    from holdall.viewer.pages import PAGES
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

    tensors = [holdall.Tensor.of(name, np.ones((2, 2), np.float32)) for name in AWKWARD_NAMES.values()]
    values = {key: make() for key, make in AWKWARD_VALUES.items()}
    window = Window([Subject(holdall.Model(tensors, metadata=each)) for each in (values, {})])
    for path in ("/", "/tensors", "/tensor", "/compare"):
        assert PAGES[path].lay_out(window, {"row": "0"}).to_plotly_json()
    window.comparison.task.start()
    window.comparison.task.wait()
    assert window.comparison.task.state == "done"
    assert len(PAGES["/compare"]._list_rest(window).children.children[1].children) == len(values)
    window.close()
