"""Requests and bytes: what opening, one tensor and all tensors take, format by format."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.format import registry
from tests.remote import shelf

PAGE = Path(__file__).resolve().parents[2] / "docs" / "remote.md"
INDEXED = ["safetensors", "aero", "hashed aero", "mcf", "embd", "oinf"]
FORMATS = [name for name in registry.names() if registry.find(name).writes] + ["sequential weights", "hashed aero"]
SCANNED = {"sequential weights", "npz", "torch", "onnx"}  # no index in one place: stated, not bounded
MB = 1_000_000


def index_bytes(model: holdall.Model) -> int:
    """All that is not payload."""
    return sum(source.size for source in model.sources) - model.nbytes


@pytest.fixture(scope="module")
def costs(folder) -> dict[str, shelf.Cost]:
    from tests.remote.servers import range_server

    with range_server(shelf.served(folder[0])) as running:
        return {name: shelf.measure(running, path) for name, path in folder[1].items()}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_takes_three_requests(costs, name):
    assert costs[name].open_requests <= 3


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in SCANNED])
def test_opening_moves_the_index_and_little_more(costs, folder, name):
    with holdall.open(folder[0] / folder[1][name]) as model:
        assert costs[name].open_bytes <= index_bytes(model) + MB


@pytest.mark.parametrize("name", FORMATS)
def test_a_tensor_moves_its_bytes_and_little_more(costs, name):
    assert costs[name].tensor_extra <= MB


@pytest.mark.parametrize("name", FORMATS)
def test_many_tensors_take_few_requests(costs, name):
    assert costs[name].all_requests <= 20  # for 2002 tensors


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_states_what_was_measured(costs, name):
    cost = costs[name]
    row = re.search(rf"^\| {re.escape(name)} \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert row is not None, f"docs/remote.md has no row for {name}"
    if name in SCANNED:
        return
    stated = [cell.strip() for cell in row[1].split("|")]
    assert stated[0] == str(cost.open_requests)
    assert float(stated[1]) == pytest.approx(cost.open_bytes / 1000, rel=0.05, abs=5)
    assert stated[2] == str(cost.tensor_requests)
    assert stated[3] == str(cost.all_requests)


@pytest.mark.parametrize("name", FORMATS)
def test_everything_arrives_as_it_is(server, folder, name):
    path = folder[1][name]
    with holdall.open(folder[0] / path) as here, holdall.open(f"{server.url}/{path}") as there:
        assert list(there) == list(here)
        assert dict(there.metadata) == dict(here.metadata)
        for tensor in there.fetch():
            assert bytes(tensor.raw()) == bytes(here[tensor.name].raw()), tensor.name
        some = ["model.layers.7.attention.weight", shelf.BIG]
        for tensor in there.fetch(some):
            np.testing.assert_array_equal(tensor.numpy(), here[tensor.name].numpy())
            np.testing.assert_array_equal(there[tensor.name][3:5, ::2], here[tensor.name][3:5, ::2])


def test_a_tensor_without_bytes_sends_nothing(server, folder):
    with holdall.open(f"{server.url}/{folder[1]['oinf']}") as model:
        server.log.clear()
        assert model["none"].numpy().shape == (0, 4)
        assert not server.log.requests
