"""Every page over every format, a hundred thousand rows, and the pictures of the documentation."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.format import registry
from holdall.testing.zoo import ZOO
from tests.view.test_tensors import names

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


_ANIMALS = 3  # models of a format that are walked through: each takes some ten seconds of a busy machine


def walk(browser, base, model):
    """Look at each page of a model that is compared with itself."""
    browser.open(base)
    browser.find_text("Metadata", "#page")
    browser.find_text("Findings", "#page")
    browser.open(base + "tensors")
    browser.find_text(model.tensors.names[0][:20].strip() if len(model.tensors) else "no tensors", "#page")
    for row in range(min(2, len(model.tensors))):
        browser.open(f"{base}tensor?row={row}")
        tensor = model.tensors[row]
        if tensor.has_data and tensor.count:
            browser.wait(lambda: "each cell" in browser.text or "cannot be" in browser.text)
        else:
            browser.find_text("no elements" if tensor.has_data else "without storing", "#page")
    browser.open(base + "bytes?at=3")
    browser.wait(lambda: "belongs to" in browser.text or "is empty" in browser.text)
    browser.open(base + "compare")
    browser.find_text("0 different or without a partner", "#compare-progress")
    browser.find_text("are equal", "#compare-rest")


def look_at_export(browser, path, page):
    """Write the page that is sent around, with a heat map of each tensor, and open it."""
    from holdall.viewer.export import write_export
    from holdall.viewer.subject import Subject

    subject = Subject.examine(str(path))
    names = subject.model.tensors.names
    write_export(page, subject, [re.sub(r"[*?[]", "?", name) for name in names[:3]])
    subject.close()
    browser.open(page.as_uri())
    browser.find_text("Findings", "#page")
    if names:
        browser.find("#figure-0 g.slice")


QUICK = ("oinf", "mcf", "torch", "hf")  # the others take longer than they show


@pytest.mark.parametrize(
    "format", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in registry.names()]
)
def test_the_pages_show_a_model_of_each_format(browser, look, tmp_path, format):
    random = np.random.default_rng(0)
    tensors = {"a.w": random.normal(size=(4, 32)).astype(np.float32), "b.w": np.arange(8, dtype=np.float32)}
    path = tmp_path / f"model{(registry.find(format).suffixes or ('',))[0]}"
    holdall.save(path, tensors, format=format)
    with holdall.open(path) as model:
        base = look(path)
        browser.open(f"{base}tensor?row={list(model).index('a.w')}")
        browser.find_text("each cell is one element", "#tensor-scale")
        browser.open(base + "bytes?at=3")
        browser.find_text("belongs to", "#bytes-meaning")
    look_at_export(browser, path, tmp_path / "page.html")


@pytest.mark.parametrize("dark", [False, True])
def test_pages_follow_the_colours_of_the_system(browser, look, tmp_path, dark):
    """Text is legible on what lies under it, on every page."""
    holdall.save(tmp_path / "a.oinf", {"h.0.w": np.ones((20, 20), np.float32)}, metadata={"a": "b"})
    base = look(tmp_path / "a.oinf")
    browser.darken(dark)
    try:
        for page, text in {
            "": "Metadata",
            "tensors": "1 tensor",
            "tensor?row=0": "each cell",
            "bytes": "belongs to",
        }.items():
            browser.open(base + page)
            browser.find_text(text, "#page")
            low = browser.wait(lambda: browser.run(CONTRASTS), page)
            assert (browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(17, 22, 28)") == dark
            assert low[1] > 10 and low[0] == [], (page, low)
    finally:
        browser.darken(False)


# The texts whose colour is too near to that of the ground under them (WCAG: 4.5; 3 for what is large or disabled), and
# how many were looked at.
CONTRASTS = """
const parse = text => (text.match(/[0-9.]+/g) || []).map(Number);
const light = rgb => rgb.slice(0, 3).map(x => x / 255).map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)
    .reduce((sum, x, at) => sum + x * [.2126, .7152, .0722][at], 0);
function ground(element) {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
        const color = parse(getComputedStyle(each).backgroundColor);
        if (color.length === 3 || color[3] > 0) layers.push(color);
        if (color.length === 3 || color[3] === 1) break;
    }
    return layers.reverse().reduce((under, [r, g, b, a = 1]) => [r, g, b].map((x, at) => x * a + under[at] * (1 - a)),
        [255, 255, 255]);
}
const found = [];
let count = 0;
for (const element of document.querySelectorAll('body *')) {
    const box = element.getBoundingClientRect();
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !box.width || !box.height || element.closest('svg, .skip, script, style') || element.disabled) continue;
    if (getComputedStyle(element).visibility === 'hidden') continue;
    count += 1;
    const pair = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + .05) / (pair[1] + .05);
    if (contrast < 4) found.push([element.innerText.slice(0, 30), element.className, contrast.toFixed(2)]);
}
return [found, count];
"""


@pytest.mark.long
@pytest.mark.parametrize("format", registry.names())
def test_every_page_shows_the_zoo(browser, look, tmp_path, format):
    shown = 0
    animals = list(ZOO.items())
    first = 3 * registry.names().index(format)  # each format begins with others, so that all are met by some
    for animal, make in [*animals, *animals][first % len(animals) :][: len(animals)]:
        if shown == _ANIMALS:
            break
        path = tmp_path / animal / f"model{(registry.find(format).suffixes or ('',))[0]}"
        path.parent.mkdir()
        try:
            holdall.save(path, make(), format=format)
        except ContentError:  # not every format holds everything
            continue
        with holdall.open(path) as model:
            walk(browser, look(path, path), model)
        look_at_export(browser, path, tmp_path / animal / "page.html")
        shown += 1
        browser.open("about:blank")
    assert shown == _ANIMALS


@pytest.mark.long
def test_a_hundred_thousand_rows_stay_fluent(browser, look, tmp_path):
    path = tmp_path / "many.safetensors"
    holdall.save(path, {f"h.{n // 100}.{n % 100}.w": np.full(2, n, np.float32) for n in range(100_000)})
    look(path, page="tensors")
    with holdall.open(path) as model:
        ordered = list(model)
    browser.wait(lambda: names(browser))
    steps = []

    def step(act, find):
        began = time.monotonic()
        act()
        browser.wait(find)
        steps.append(time.monotonic() - began)

    scroll = "window.dash_ag_grid.getApi('tensors').ensureIndexVisible({}, '{}')"
    step(lambda: browser.run(scroll.format(99_999, "bottom")), lambda: (names(browser) or [""])[-1] == ordered[-1])
    step(lambda: browser.run(scroll.format(50_000, "top")), lambda: ordered[50_000] in (names(browser) or ()))
    browser.find_text("statistics: complete", "#tensors-progress")
    step(lambda: browser.type("#tensors-filter", "h.77?.5.w"), lambda: (names(browser) or [""])[0] == "h.770.5.w")
    browser.type("#tensors-filter", "")
    browser.find_text("100,000 tensors", "#tensors-count")
    step(
        lambda: browser.click(".ag-header-cell[col-id='max'] .ag-header-cell-label"),
        lambda: (names(browser) or [""])[0] == "h.999.99.w",
    )
    assert max(steps) < 5, steps  # how long on a quiet machine: bench/


@pytest.fixture
def realistic(tmp_path, monkeypatch):
    """A model that looks like one, named by its file alone: the pictures show no folder."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    tensors = {"wte.weight": random.normal(0, 0.02, (5000, 256)).astype(np.float32)}
    for layer in range(12):
        scale = np.linspace(0.4, 1.6, 256)[:, None] * 0.03
        tensors[f"h.{layer}.ln_1.weight"] = np.ones(256, np.float32)
        tensors[f"h.{layer}.attn.c_attn.weight"] = (random.normal(0, 1, (256, 768)) * scale).astype(np.float32)
        tensors[f"h.{layer}.attn.c_proj.weight"] = random.normal(0, 0.03, (256, 256)).astype(np.float16)
        mlp = random.normal(0, 1, (256, 1024)) * scale
        mlp[:, 7 + 31 * layer : 9 + 31 * layer] *= 9
        tensors[f"h.{layer}.mlp.c_fc.weight"] = mlp.astype(np.float32)
        tensors[f"h.{layer}.mlp.c_proj.weight"] = random.normal(0, 0.05, (1024, 256)).astype(np.float16)
    path = Path("small-gpt.safetensors")
    holdall.save(path, tensors, metadata={"format": "pt", "license": "apache-2.0", "note": "a model for pictures"})
    holdall.convert(path, "small-gpt.mcf", quantize="q4")
    return path


# What each page says when it is complete.
SHOWN = {"overview": "Nothing is wrong", "tensors": "statistics: complete", "tensor": "The elements are stored as f32",
         "bytes": "belongs to", "compare": "tensors equal"}  # fmt: skip


@pytest.mark.skipif("HOLDALL_PICTURES" not in os.environ, reason="this is another environment: no pictures are made")
def test_pictures_for_the_documentation(browser, look, realistic):
    """HOLDALL_PICTURES=1 makes them anew; those in dark colours stay in the folder of the test."""
    PICTURES.mkdir(exist_ok=True)
    base = look(realistic, realistic.with_suffix(".mcf"))
    with holdall.open(realistic) as model:
        row = list(model).index("h.3.mlp.c_fc.weight")
        offset = model["h.3.mlp.c_fc.weight"].offset
    browser.find_text("Nothing is wrong. All", "#findings")
    places = {"overview": "", "tensors": "tensors", "tensor": f"tensor?row={row}", "bytes": f"bytes?at={offset}"}
    for name, page in (places | {"compare": "compare"}).items():
        for dark in (False, True):
            browser.darken(dark)
            browser.open(base + page)
            browser.find_text(SHOWN[name], "#page")
            if name == "tensors":
                browser.wait(lambda: names(browser))
            time.sleep(1.5)
            browser.shoot(Path(f"view-{name}-dark.png") if dark else PICTURES / f"view-{name}.png")
    browser.darken(False)
