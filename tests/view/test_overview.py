"""The first page: facts, a treemap that opens on click, metadata, assets and findings."""

from __future__ import annotations

import time

import numpy as np
import pytest

import holdall


@pytest.fixture
def model(tmp_path):
    random = np.random.default_rng(1)
    tensors = {"embed.weight": random.normal(size=(200, 64)).astype(np.float32)}
    for layer in range(4):
        tensors[f"h.{layer}.attn.weight"] = random.normal(size=(64, 64)).astype(np.float32)
        tensors[f"h.{layer}.mlp.weight"] = random.normal(size=(64, 256)).astype(np.float16)
    path = tmp_path / "model.oinf"
    holdall.save(path, tensors, metadata={"license": "apache-2.0", "note": "word." * 400, "steps": 12})
    return path


def tiles(browser):
    return browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#treemap .js-plotly-plot');"
        "return plot && plot.querySelector('.slice') && plot.data[0].labels"
    ))  # fmt: skip


def open_tile(browser, label, expected):
    """Click a tile until the figure begins with ``expected``: tiles move while they are drawn, and a click misses."""
    for _ in range(10):
        box = browser.wait(lambda: browser.run(
            "const found = [...document.querySelectorAll('#treemap g.slice')].find(g =>"
            " g.textContent.startsWith(arguments[0])); if (!found) return null;"
            "const box = found.querySelector('path').getBoundingClientRect(); return [box.x, box.y]", label,
        ))  # fmt: skip
        browser.click_at(box[0] + 8, box[1] + 8)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            if tiles(browser)[0] == expected:
                return
            time.sleep(0.05)
    raise AssertionError(f"a click on {label!r} did not lead to {expected!r}: {tiles(browser)}")


def test_the_page_says_what_the_model_is(browser, look, model):
    look(model)
    browser.find_text("oinf", ".facts")
    browser.find_text("9", ".facts")
    browser.find_text("f16, f32", ".facts")  # those with most bytes first
    browser.find_text("attention", "#page")
    browser.find_text("apache-2.0", "#metadata")
    browser.find_text("Nothing is wrong. All hashes, padding and values were checked", "#findings")


def test_the_treemap_opens_a_branch_and_leads_to_a_tensor(browser, look, model):
    look(model)
    assert "h" in tiles(browser)
    open_tile(browser, "h", "h")
    browser.find_text("h", "#treemap-steps")
    assert sorted(tiles(browser)[1:5]) == ["0", "1", "2", "3"]
    open_tile(browser, "2", "h.2")
    open_tile(browser, "h.2", "h")  # the frame leads back
    browser.click("#treemap-steps button")
    browser.wait(lambda: tiles(browser)[0] == "model.oinf")


def test_the_treemap_takes_the_colour_of_a_statistic(browser, look, model):
    look(model)
    colors = browser.wait(
        lambda: browser.run("return document.querySelector('#treemap .js-plotly-plot').data[0].marker.colors")
    )
    browser.choose("#treemap-by", "std")
    browser.find_text("the standard deviation", "#treemap-key")
    browser.wait(
        lambda: browser.run("return document.querySelector('#treemap .js-plotly-plot').data[0].marker.colors") != colors
    )


def test_metadata_is_searched_and_long_values_are_folded(browser, look, model):
    look(model)
    browser.find("#metadata details summary")
    assert not browser.find("#metadata details pre").is_displayed()
    browser.click("#metadata details summary")
    assert browser.find("#metadata details pre").is_displayed()
    browser.type("#metadata-search", "licen")
    browser.wait(lambda: "steps" not in browser.find("#metadata").text)
    browser.find_text("apache-2.0", "#metadata")
    browser.type("#metadata-search", "nothing like it")
    browser.find_text("No entry matches.", "#metadata")


def test_a_damaged_file_shows_its_findings_with_their_place(browser, look, model):
    data = bytearray(model.read_bytes())
    data[5] = 99
    model.write_bytes(data)
    look(model)
    browser.find_text("version", "#findings")
    assert browser.find("#findings .badge.error").text == "error"
    assert browser.find("#findings a").get_attribute("href").endswith("/bytes?at=5&file=0&of=0")


def test_assets_are_listed_and_shown(browser, look, tmp_path):
    path = tmp_path / "a.mcf"
    model = holdall.Model([holdall.Tensor.of("w", np.ones(4, np.float32))], assets={"merges.txt": b"[PAD]\na\n"})
    holdall.save(path, model)
    look(path)
    browser.click("section button.small")
    browser.find_text("[PAD]\na", "pre.value")


def test_a_model_without_tensors_says_so(browser, look, tmp_path):
    holdall.save(tmp_path / "empty.oinf", {})
    look(tmp_path / "empty.oinf")
    browser.find_text("This model has no tensors.", "#page")
    browser.find_text("There is no metadata.", "#page")


def test_types_are_listed_in_one_order(model, tmp_path):
    from holdall.viewer.export import render_export
    from holdall.viewer.subject import Subject

    subject = Subject.examine(str(model))
    page = render_export(subject)
    subject.close()
    assert "<dd>f16, f32</dd>" in page
    assert page.index("<td>f16</td>") < page.index("<td>f32</td>")
