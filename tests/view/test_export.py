"""The page that is sent around, and the page in a notebook."""

from __future__ import annotations

import re

import numpy as np
import pytest

import holdall
from tests.view.test_hostile import MARKS, assert_harmless


@pytest.fixture
def model(tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
    path = tmp_path / "model.safetensors"
    holdall.save(path, {"h.0.w": values, "h.1.w": values * 2}, metadata={"license": "mit", "long": "x" * 5000})
    return path


def test_the_page_opens_from_disk_without_a_network(browser, cli, model, tmp_path):
    page = tmp_path / "page.html"
    result = cli("view", model, "--export", page, "--tensor", "h.0.*")
    assert result.exit_code == 0 and "page.html: " in result.output
    assert page.stat().st_size < 20_000_000
    browser.open(page.as_uri())
    browser.find_text("model.safetensors", "h1")
    browser.find("#figure-0 g.slice")
    browser.find("#figure-1 .heatmaplayer image")
    browser.find_text("h.1.w", "#page")
    with holdall.open(model) as opened:
        largest = opened["h.1.w"].numpy().max()
    browser.find_text(f"{largest:.3g}", "#page")
    assert browser.run("return document.querySelectorAll('[src], link[rel=stylesheet]').length") == 0
    assert "https://" not in re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)


def test_hostile_content_is_text_on_the_page(browser, cli, tmp_path):
    tensors = {mark: np.ones((3, 3), np.float32) for mark in MARKS if len(mark) < 10_000}
    holdall.save(tmp_path / "h.safetensors", tensors, metadata={mark[:500]: mark for mark in MARKS})
    result = cli("view", tmp_path / "h.safetensors", "--export", tmp_path / "p.html", "--tensor", "</script>*")
    assert result.exit_code == 0, result.output
    browser.open((tmp_path / "p.html").as_uri())
    browser.find("#figure-0 g.slice")
    browser.find_text("<img src=x onerror=window.hit=1>", "#page")
    assert_harmless(browser)


def test_a_tensor_without_statistics_leaves_no_figure_without_a_place(browser, model, tmp_path, monkeypatch):
    from holdall.operations import stats
    from holdall.viewer.export import write_export
    from holdall.viewer.subject import Subject

    def refuse(*_):
        raise holdall.UnsupportedError("the elements have no order")

    monkeypatch.setattr(stats, "tensor_stats", refuse)
    subject = Subject.examine(str(model))
    write_export(tmp_path / "p.html", subject, ["h.0.w"])
    subject.close()
    browser.open((tmp_path / "p.html").as_uri())
    browser.find("#figure-0 g.slice")
    browser.find_text("the elements have no order", "#page")


def test_a_model_with_very_many_tensors_stays_below_the_limit(tmp_path, monkeypatch):
    from holdall.viewer import export
    from holdall.viewer.subject import Subject

    monkeypatch.setattr(export, "_MOST", 6_000_000)
    tensors = {f"layer.{n}.{'x' * 300}": np.zeros(1, np.int8) for n in range(4000)}
    tensors["large"] = np.zeros(1000, np.int8)
    holdall.save(tmp_path / "m.safetensors", tensors)
    subject = Subject.examine(str(tmp_path / "m.safetensors"))
    page = export.render_export(subject)
    subject.close()
    assert len(page.encode()) <= 6_000_000
    assert "smaller tensors left out" in page and "<td>large</td>" in page


@pytest.mark.long
def test_forty_heat_maps_fit_and_say_what_they_show(browser, cli, tmp_path):
    random = np.random.default_rng(0)
    tensors = {f"h.{n}.w": random.normal(size=(200, 400)).astype(np.float32) for n in range(40)}
    tensors["h.7.w"][3, 4] = np.nan
    tensors["h.7.w"][5, 6] = -1e30
    holdall.save(tmp_path / "m.safetensors", tensors)
    result = cli("view", tmp_path / "m.safetensors", "--export", tmp_path / "p.html", "--tensor", "h.*")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "p.html").stat().st_size <= 20_000_000
    browser.open((tmp_path / "p.html").as_uri())
    with holdall.open(tmp_path / "m.safetensors") as opened:
        at = 1 + 2 * list(opened).index("h.7.w")
    cells = "const data = document.getElementById(arguments[0]).data; return data && data[0].z.map(row => [...row])"
    z = np.array(browser.wait(lambda: browser.run(cells, f"figure-{at}")), float)
    expected = tensors["h.7.w"]
    known = np.isfinite(expected)
    assert np.isnan(z[3, 4]) and np.allclose(z[known], expected[known], rtol=2**-8)
    browser.find("#figure-1 .heatmaplayer image")


def test_maps_that_never_fit_are_refused_with_the_numbers(monkeypatch, tmp_path):
    from holdall.viewer import export
    from holdall.viewer.subject import Subject

    holdall.save(tmp_path / "m.safetensors", {"a": np.ones((500, 500), np.float32), "b": np.ones(3, np.float32)})
    subject = Subject.examine(str(tmp_path / "m.safetensors"))
    monkeypatch.setattr(export, "_MOST", 1_000_000)
    with pytest.raises(holdall.UnsupportedError, match=r"has at most 1,000,000, 1 heat map: [0-9,]+; ask for fewer"):
        export.render_export(subject, [0])
    subject.close()


def test_the_upper_half_of_a_float_is_the_nearest():
    from holdall.viewer.export import _take_upper_half

    random = np.random.default_rng(1)
    values = np.frombuffer(random.bytes(40_000), np.float32)
    values = np.concatenate([values[np.isfinite(values)], np.array([0, -0.0, np.inf, 3.4e38], np.float32)])
    wide = (_take_upper_half(values).astype(np.uint32) << 16).view(np.float32)
    import ml_dtypes

    assert np.array_equal(wide, values.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--export", "p.html", "--tensor", "none"], "there is no tensor 'none' among the 2"),
        (["--tensor", "h.0.w"], "--tensor goes with --export."),
        (["--export", "p.txt"], "does not end in .html"),
    ],
)
def test_what_cannot_be_exported_is_refused(cli, model, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = cli("view", model, *arguments)
    assert result.exit_code in (1, 2) and message in result.output + result.stderr
    assert not (tmp_path / "p.html").exists()


def test_a_notebook_shows_the_page_in_a_frame(browser, model, tmp_path):
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    with holdall.open(model) as opened:
        shown = holdall.view(opened)
        try:
            folder = tmp_path / "notebook"
            folder.mkdir()
            icon = "<link rel=icon href='data:,'>"
            (folder / "index.html").write_text(f"<!doctype html>{icon}{shown._repr_html_()}")

            class Handler(SimpleHTTPRequestHandler):
                def __init__(self, *arguments):
                    super().__init__(*arguments, directory=str(folder))

                def log_message(self, *arguments):
                    pass

            notebook = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            Thread(target=notebook.serve_forever, daemon=True).start()
            browser.open(f"http://127.0.0.1:{notebook.server_port}/")
            browser.driver.switch_to.frame(browser.find("iframe"))
            browser.find("#treemap g.slice")
            browser.click("#nav .links a:nth-child(2)")
            browser.find_text("2 tensors", "#tensors-count")
            browser.driver.switch_to.default_content()
            browser.open("about:blank")
            notebook.shutdown()
            notebook.server_close()
        finally:
            shown.close()
        assert opened["h.0.w"].shape == (300, 200)


def test_a_model_in_memory_is_shown(browser):
    model = holdall.Model([holdall.Tensor.of("w", np.arange(12, dtype=np.float32).reshape(3, 4))])
    shown = holdall.view(model)
    browser.open(shown.url)
    browser.find_text("a model in memory", "h1")
    browser.open(shown.url + "tensor?row=0")
    browser.find_text("each cell is one element", "#tensor-scale")
    browser.open("about:blank")
    shown.close()


def test_without_the_token_the_frame_is_refused():
    from urllib.error import HTTPError
    from urllib.request import urlopen

    shown = holdall.view(holdall.Model())
    with pytest.raises(HTTPError, match="403"):
        urlopen(shown.url.rsplit("/", 2)[0] + "/wrong/")
    with urlopen(shown.url) as answer:
        assert "frame-ancestors http://localhost:* http://127.0.0.1:*" in answer.headers["Content-Security-Policy"]
    shown.close()


@pytest.mark.parametrize(
    "largest", [1.7e308, *(pytest.param(small, marks=pytest.mark.long) for small in (5e-324, 1e-292))]
)
def test_numbers_near_the_ends_of_float64_are_drawn(browser, look, tmp_path, largest):
    """Plotly's axes divide by their length, which is infinite, or whose inverse is."""
    path = tmp_path / "ends.npz"
    holdall.save(path, {"w": np.outer([-1.0, 1, 0.5], np.full(40, largest)), "one": np.full((2, 2), largest)})
    base = look(path)
    for row in (0, 1):
        browser.open(f"{base}tensor?row={row}")
        browser.find_text("each cell", "#tensor-scale")
        browser.find("#tensor-histogram .bars path")
        browser.find("#tensor-rows .scatterlayer path")
        assert browser.run("return document.querySelector('#tensor-heat .js-plotly-plot').data[0].zmax") > 1e-200
    browser.find_text(str(largest), "#tensor-largest")
    export = tmp_path / "page.html"
    from holdall.viewer.export import write_export
    from holdall.viewer.subject import Subject

    subject = Subject.examine(str(path))
    write_export(export, subject, ["*"])
    subject.close()
    browser.open(export.as_uri())
    browser.find("#figure-4 .bars path")
