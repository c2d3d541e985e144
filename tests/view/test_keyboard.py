"""Every page by keyboard: Tab reaches what can be done, and Enter does it."""

from __future__ import annotations

import numpy as np
import pytest

import holdall
from tests.view.test_bytes import row_at
from tests.view.test_tensor import shown_region, wait_for_tensor
from tests.view.test_tensors import names

FOCUS = (
    "const e = document.activeElement; return e && [e.tagName, e.id, e.innerText || '', e.getAttribute('col-id'),"
    " e.getAttribute('href')]"
)


@pytest.fixture
def model(tmp_path):
    tensors = {f"h.{n}.w": np.arange(4096, dtype=np.float32).reshape(64, 64) for n in range(5)}
    holdall.save(tmp_path / "model.oinf", tensors)
    return tmp_path / "model.oinf"


def tab_to(browser, wanted, most=60):
    """Press Tab until the focus is where ``wanted`` says."""
    for _ in range(most):
        browser.press("TAB")
        focus = browser.run(FOCUS)
        if focus and wanted(*focus):
            return
    raise AssertionError(f"Tab does not reach it; the focus is on {browser.run(FOCUS)}")


def test_links_of_the_pages_and_steps_of_the_treemap(browser, look, model):
    look(model)
    browser.find("#treemap g.slice")
    tab_to(browser, lambda tag, id, text, *_: tag == "A" and text == "Tensors")
    browser.press("ENTER")
    browser.find_text("5 tensors", "#tensors-count")


def test_rows_of_the_table_lead_to_a_tensor(browser, look, model):
    look(model, page="tensors")
    browser.wait(lambda: names(browser))
    tab_to(browser, lambda tag, id, text, column, *_: column == "name")
    browser.press("DOWN")
    browser.press("DOWN")
    browser.press("SPACE")
    browser.find_text("h.1.w", "h1")


def test_buttons_and_fields_of_a_tensor(browser, look, model):
    look(model, page="tensor?row=0")
    wait_for_tensor(browser)
    tab_to(browser, lambda tag, id, *_: id == "tensor-in")
    browser.press("ENTER")
    browser.wait(lambda: shown_region(browser) == ("16:48", "16:48"))
    tab_to(browser, lambda tag, id, *_: id == "tensor-top")
    browser.type("#tensor-top", "0:4")
    browser.press("ENTER")
    browser.wait(lambda: shown_region(browser) == ("0:4", "16:48"))


def test_bytes_are_reached_by_their_offset(browser, look, model):
    look(model, page="bytes")
    browser.wait(lambda: row_at(browser, 0))
    tab_to(browser, lambda tag, id, *_: id == "bytes-place")
    browser.type("#bytes-place", "0x400")
    browser.press("ENTER")
    browser.find_text("0x400 (1,024)", "#bytes-meaning")
    tab_to(browser, lambda tag, id, *_: id == "bytes-next")
    browser.press("ENTER")
    browser.find_text("0x600 (1,536)", "#bytes-meaning")
