"""A model at a URL: opened as a local one, with what was fetched at the top of every page."""

from __future__ import annotations

import re

import numpy as np
import pytest

import holdall
from tests.remote.servers import range_server
from tests.view.test_tensor import wait_for_tensor
from tests.view.test_tensors import cell


@pytest.fixture
def remote(tmp_path):
    """A model of some megabytes behind a server that counts, and its values."""
    values = np.random.default_rng(0).random((3000, 3000), np.float32)  # so large that a corner is shown first
    holdall.save(tmp_path / "model.safetensors", {"large": values, "small": np.arange(12, dtype=np.float32)})
    with range_server({"/model.safetensors": (tmp_path / "model.safetensors").read_bytes()}) as server:
        yield server, values


def test_a_model_at_a_url_is_shown_and_says_what_was_fetched(browser, look, remote):
    server, values = remote
    base = look(f"{server.url}/model.safetensors")
    browser.find_text("model.safetensors", "h1")
    browser.find_text("fetched", "#status")
    assert server.log.sent < 1 << 20
    browser.find_text("The structure was checked", "#findings")  # of a remote file bytes are read on demand
    browser.open(base + "tensors")
    browser.wait(lambda: cell(browser, "small", "type") == "f32")
    assert cell(browser, "small", "max") == ""
    browser.open(base + "tensor?row=0")
    wait_for_tensor(browser)
    browser.find_text("[0:256, 0:256]", "#tensor-code")
    browser.find_text("are not fetched for a histogram", "#page")
    fetched = float(browser.wait(lambda: re.search(r"([0-9.]+) MB fetched", browser.find("#status").text))[1])
    assert fetched < 10 and server.log.sent < values.nbytes / 2
    browser.open(base + "tensors")
    browser.click("#tensors-start")
    browser.wait(lambda: cell(browser, "small", "max") == "11")
    assert float(cell(browser, "large", "max")) == pytest.approx(values.max(), rel=5e-3)
    assert not browser.find("#tensors-start").is_displayed()
    browser.wait(lambda: float(browser.find("#status").text.split()[0]) >= 36)
