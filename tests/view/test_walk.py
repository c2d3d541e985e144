"""Every page over every format, a hundred thousand rows, and the pictures of the documentation."""

from __future__ import annotations

import json
import os
import re
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.format import registry
from holdall.testing.zoo import ZOO
from tests.view.test_overview import open_tile
from tests.view.test_tensor import cells, set_field, wait_for_tensor
from tests.view.test_tensors import names

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


_ANIMALS = 3  # models of a format that are walked through: each takes some ten seconds of a busy machine


def walk(browser, base, model):
    """Look at each page of a model that is compared with itself."""
    browser.open(base)
    browser.find_text("Metadata", "#page")
    browser.find_text("Findings", "#page")
    if len(model.tensors):
        browser.find("#treemap g.slice")
    browser.open(base + "tensors")
    browser.find_text(model.tensors.names[0][:20].strip() if len(model.tensors) else "no tensors", "#page")
    for row in range(min(2, len(model.tensors))):
        browser.open(f"{base}tensor?row={row}")
        tensor = model.tensors[row]
        if tensor.has_data and tensor.count:
            wait_for_tensor(browser)
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
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "größe"]
# What a model has a vocabulary of, by the formats that hold one.
LINES = {"vocab.txt": "\n".join([*TOKENS, ""]).encode()}
VOCABULARIES = {
    "embd": {"assets": LINES},
    "hf": {"assets": {"config.json": b'{"model_type": "bert"}\n', **LINES}},
    "mcf": {"assets": {"vocab.json": json.dumps({token: id for id, token in enumerate(TOKENS)}).encode()}},
    "gguf": {"metadata": {"tokenizer.ggml.tokens": TOKENS}},
}


@pytest.mark.parametrize(
    "format", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in registry.names()]
)
def test_the_pages_show_a_model_of_each_format(browser, look, tmp_path, format):
    random = np.random.default_rng(0)
    tensors = {f"h.{n}.w": random.normal(size=(40, 32)).astype(np.float32) for n in range(2)}
    path = tmp_path / f"model{(registry.find(format).suffixes or ('',))[0]}"
    content = holdall.Model([holdall.Tensor.of(*each) for each in tensors.items()], **VOCABULARIES.get(format, {}))
    holdall.save(path, content, format=format)
    with holdall.open(path) as model:
        base = look(path)
        open_tile(browser, "h", "h")
        row = list(model).index("h.1.w")
        browser.open(f"{base}tensor?row={row}")
        browser.find_text("each cell is one element", "#tensor-scale")
        set_field(browser, "#tensor-top", "30:40")
        set_field(browser, "#tensor-left-edge", "5:15")
        shown = browser.wait(lambda: cells(browser))
        assert shown[0][0][0] == "30, 5" and shown[9][9][0] == "39, 14"
        assert [[np.float32(text) for _, text in row] for row in shown] == model["h.1.w"][30:40, 5:15].tolist()
        browser.open(base + "bytes?at=3")
        browser.find_text("belongs to", "#bytes-meaning")
        browser.click("#bytes-grid [row-id='00000000'] [col-id='b7']")
        browser.find_text("0x7 (7)", "#bytes-meaning")
        assert (model.vocab is not None) == (format in VOCABULARIES)
    assert ("Vocabulary" in browser.find("#nav").text) == (format in VOCABULARIES)
    if format in VOCABULARIES:
        browser.open(base + "vocabulary")
        browser.find_text("6 tokens", "#tokens-count")
        browser.find_text("größe", "#tokens")
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


def save_animal(animal, format, folder):
    """A file of one model of the zoo; None if the format cannot hold it."""
    path = folder / f"{animal}-{format}" / f"model{(registry.find(format).suffixes or ('',))[0]}"
    path.parent.mkdir()
    try:
        holdall.save(path, ZOO[animal](), format=format)
    except ContentError:
        return None
    return path


def rotate(items, first):
    items = list(items)
    return items[first % len(items) :] + items[: first % len(items)]


def look_at_animal(browser, look, path):
    """Walk through all pages of a model, and look at its export."""
    with holdall.open(path) as model:
        walk(browser, look(path, path), model)
    look_at_export(browser, path, path.parent / "page.html")
    browser.open("about:blank")


HELD_BY_NONE = {"dtype-bitset"}  # no format holds bits of a set as elements of their own
STRANGE = ("declared", "dtype-t1", "dtype-f6_e2m3")  # of no other test of these pages


def test_every_animal_but_one_is_held_by_some_format(tmp_path):
    """So that the animals below are all that any format can hold."""
    homeless = {animal for animal in ZOO if not any(save_animal(animal, each, tmp_path) for each in registry.names())}
    assert homeless == HELD_BY_NONE


@pytest.mark.parametrize(
    "animal",
    [pytest.param(name, marks=() if name in STRANGE else pytest.mark.long) for name in ZOO if name not in HELD_BY_NONE],
)
def test_every_page_shows_each_animal_of_the_zoo(browser, look, tmp_path, animal):
    """In one of the formats that can hold it: the next animal begins with the next format."""
    formats = rotate(registry.names(), list(ZOO).index(animal))
    found = (save_animal(animal, format, tmp_path) for format in formats)
    look_at_animal(browser, look, next(path for path in found if path is not None))


@pytest.mark.long
@pytest.mark.parametrize("format", registry.names())
def test_every_page_shows_some_animals_in_each_format(browser, look, tmp_path, format):
    first = _ANIMALS * registry.names().index(format)  # each format begins with others
    found = (save_animal(animal, format, tmp_path) for animal in rotate(ZOO, first))
    paths = list(islice((path for path in found if path is not None), _ANIMALS))
    assert len(paths) == _ANIMALS
    for path in paths:
        look_at_animal(browser, look, path)


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
    holdall.convert(path, "plain.mcf", quantize="q4")
    with holdall.open("plain.mcf") as model:
        content = holdall.Model(model.tensors, metadata=model.metadata, **VOCABULARIES["mcf"])
        holdall.save("small-gpt.mcf", content)
    return path


# What each page says when it is complete.
SHOWN = {"overview": "Nothing is wrong. All", "tensors": "statistics: complete", "bytes": "belongs to",
         "tensor": "The elements are stored as f32", "compare": "tensors equal", "vocabulary": "[MASK]"}  # fmt: skip


def shoot_still(browser, path):
    """Keep a picture of the page once it no longer changes, and give its bytes."""
    before, shown = b"", browser.driver.get_screenshot_as_png()
    for _ in range(40):
        if shown == before:
            break
        time.sleep(0.25)
        before, shown = shown, browser.driver.get_screenshot_as_png()
    assert shown == before, f"{path.name} never comes to rest"
    path.write_bytes(shown)
    return shown


@pytest.mark.long
def test_a_picture_of_each_page(browser, look, realistic):
    """The pictures are for people to look at; HOLDALL_PICTURES=1 makes those of the documentation anew."""
    shown = set(PICTURES.iterdir() if os.environ.get("HOLDALL_PICTURES") == "1" else ())
    base = look(realistic, realistic.with_suffix(".mcf"))
    with holdall.open(realistic) as model:
        row = list(model).index("h.3.mlp.c_fc.weight")
        offset = model["h.3.mlp.c_fc.weight"].offset
    pages = {"overview": "", "tensors": "tensors", "tensor": f"tensor?row={row}", "bytes": f"bytes?at={offset}",
             "compare": "compare", "vocabulary": "vocabulary?of=1"}  # fmt: skip
    try:
        for name, page in pages.items():
            found = set()
            for dark in (False, True):
                browser.darken(dark)
                browser.open(base + page)
                browser.find_text(SHOWN[name], "#page")
                path = Path(f"view-{name}{'-dark' * dark}.png")
                found.add(shoot_still(browser, PICTURES / path if PICTURES / path in shown else path))
            assert len(found) == 2 and min(map(len, found)) > 10_000, name
    finally:
        browser.darken(False)
