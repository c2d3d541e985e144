"""No page can lose what a user does: the rule of holdall.viewer.events holds for every callback."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.viewer import events
from tests.view.test_bytes import row_at
from tests.view.test_tensor import shown_region, wait_for_tensor

VALUES = {"value"}
ADDRESS = {"place.pathname", "place.search"}  # two parts of one value


@pytest.fixture(scope="module")
def callbacks():
    """Inputs, states and outputs of each callback of all pages, those in the browser too."""
    from holdall.viewer.app import make_app
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

    window = Window([Subject(holdall.Model()), Subject(holdall.Model())])
    app = make_app(window)
    app._setup_server()
    found = []
    for each in app._callback_list:
        parts = [{f"{item['id']}.{item['property']}" for item in each[kind]} for kind in ("inputs", "state")]
        outputs = {re.sub(r"@[0-9a-f]+$", "", part) for part in each["output"].strip(".").split("...")}
        found.append((*parts, outputs))
    assert len(found) > 25 and len(app.callback_map) == len(found)
    return found


def find_breach(inputs, states, outputs, written):
    """What a callback does against the rule."""
    timers = {name for name in inputs if name.endswith(".n_intervals")}
    made = inputs & written
    values = {name for name in inputs if name.rpartition(".")[2] in VALUES} | (inputs & ADDRESS)
    happenings = inputs - timers - made - values
    if timers and len(inputs) > 1:
        return f"the timers {sorted(timers)} stand beside {sorted(inputs - timers)}"
    if happenings and len(happenings) < len(inputs):
        return f"the events {sorted(happenings)} stand beside {sorted(inputs - happenings)}"
    if happenings and states & outputs and not any(name.endswith("-seen.data") for name in states & outputs):
        return f"{sorted(states & outputs)} change with events that are not counted"
    return ""


def test_events_share_no_callback_with_timers_and_with_what_callbacks_write(callbacks):
    written = set().union(*(outputs for _, _, outputs in callbacks))
    assert [breach for each in callbacks if (breach := find_breach(*each, written))] == []


@pytest.mark.parametrize(
    ("inputs", "states", "outputs", "message"),
    [
        ({"a.n_clicks", "beat.n_intervals"}, set(), {"b.data"}, "the timers"),
        ({"a.value", "beat.n_intervals"}, set(), {"b.data"}, "the timers"),
        ({"a.n_clicks", "field.value"}, set(), {"b.data"}, "the events"),
        ({"a.n_clicks", "heat.data"}, set(), {"b.data"}, "the events"),
        ({"a.n_clicks"}, {"b.data"}, {"b.data"}, "are not counted"),
        ({"a.n_clicks"}, {"b.data", "b-seen.data"}, {"b.data", "b-seen.data"}, ""),
        ({"a.value", "heat.data"}, set(), {"b.data"}, ""),
    ],
)
def test_every_breach_is_found(inputs, states, outputs, message):
    found = find_breach(inputs, states, outputs, {"heat.data", "field.value"})
    assert found.startswith(message) or found.endswith(message)
    assert bool(found) == bool(message)


def test_no_callback_asks_what_triggered_it():
    for path in Path(events.__file__).parent.rglob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"ctx", "callback_context"}, path.name


def test_events_are_dealt_with_once():
    listed = [(1, "in", None), (2, "rows", "0:4"), (3, "in", None)]
    assert events.list_new(listed, 0) == ([("in", None), ("rows", "0:4"), ("in", None)], 3)
    assert events.list_new(listed, 2) == ([("in", None)], 3)
    assert events.list_new(None, 0) == ([], 0)


@pytest.fixture
def slow(monkeypatch):
    """What a user does on a tensor and on bytes is answered after a third of a second, and drawn after another."""
    from holdall.viewer.pages import bytes as bytes_page
    from holdall.viewer.pages import tensor as tensor_page
    from holdall.viewer.pooling import Pooling

    def delay(function):
        def call(*arguments):
            time.sleep(0.3)
            return function(*arguments)

        return call

    for place, name in (
        (Pooling, "look"),
        (bytes_page, "read_page"),
        (bytes_page, "list_new"),
        (tensor_page, "list_new"),
    ):
        monkeypatch.setattr(place, name, delay(getattr(place, name)))


def test_no_click_is_lost_while_the_page_is_busy(browser, look, slow, tmp_path):
    holdall.save(tmp_path / "a.oinf", {"a": np.zeros((4096, 4096), np.int8)})
    base = look(tmp_path / "a.oinf", page="tensor?row=0")
    wait_for_tensor(browser)
    for step in ("in", "in", "left", "in"):
        browser.click(f"#tensor-{step}")
    browser.wait(lambda: shown_region(browser) == ("1792:2304", "1280:1792"), "four steps")
    browser.type("#tensor-top", "0:1024")
    browser.find("#tensor-top").send_keys("\n")
    for step in ("out", "down", "down"):
        browser.click(f"#tensor-{step}")
    browser.wait(lambda: shown_region(browser) == ("1536:3072", "1024:2048"), "a field and three steps")
    browser.open(base + "bytes")
    browser.wait(lambda: row_at(browser, 0))
    for step in ["next"] * 5 + ["previous"]:
        browser.click(f"#bytes-{step}")
    browser.wait(lambda: row_at(browser, 4 * 512), "five pages on and one back")
    browser.type("#bytes-place", "0x4000")
    browser.find("#bytes-place").send_keys("\n")
    browser.click("#bytes-next")
    browser.wait(lambda: row_at(browser, 0x4200), "an offset and one page on")
