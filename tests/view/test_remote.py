"""A model at a URL: opened as a local one, with what was fetched at the top of every page."""

from __future__ import annotations

import re
import time

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


@pytest.fixture
def both(remote, tmp_path):
    """The addresses of two models behind a server that counts; the second has another small tensor."""
    server, values = remote
    holdall.save(tmp_path / "other.safetensors", {"large": values, "small": np.ones(12, np.float32)})
    server.files["/other.safetensors"] = (tmp_path / "other.safetensors").read_bytes()
    return server, [f"{server.url}/{name}.safetensors" for name in ("model", "other")], values


@pytest.mark.parametrize("local", [False, True])
def test_two_models_are_fetched_when_a_user_asks_for_the_comparison(browser, look, both, tmp_path, local):
    server, (first, second), values = both
    base = look(tmp_path / "model.safetensors" if local else first, second, page="compare")
    browser.find_text("those of remote files fetched", "#compare-progress")
    time.sleep(2)  # pages ask every 0.7 seconds, and nothing may come of it
    browser.open(base)
    browser.choose("#treemap-by", "difference")
    browser.find_text("begins with the button of the page", "#treemap-key")
    time.sleep(2)
    assert server.log.sent < 2 << 20 < values.nbytes
    browser.click("#treemap-key a")
    browser.click("#compare-start")
    browser.find_text("1 tensor equal, 1 different or without a partner", "#compare-progress")
    assert server.log.sent >= values.nbytes * (1 if local else 2)
    assert not browser.find("#compare-start").is_displayed()
    browser.find_text("small", "#compare-grid")
