"""Whatever the settings of an untrusted model say, its weights are decoded or an error of holdall is raised."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
import holdall.numpy
from tests.packed.layouts import read_content, write_content

MODELS = (
    *("fp8-blocks", "fp8-rows", "ct-int4-zeros", "ct-fp8-blocks", "ct-nvfp4", "ct-mixed", "gptq-3", "gptq-act-order"),
    *("awq-32", "bnb-nf4-nested", "bnb-int8", "mxfp4-experts", "nvfp4-stated", "mlx-3", "mlx-own-settings"),
)
JUNK: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 10**30, 1.5, "x", [], {}, [[]], [{}], {"a": []}, [10**30, 10**30])


def list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, as the keys that lead to it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from list_places(inner, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value at a place."""
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


def decode(path: Path) -> None:
    with suppress(holdall.HoldallError):
        holdall.numpy.load_file(path, decode=True)


@pytest.mark.parametrize("name", MODELS)
def test_no_setting_brings_out_another_error(name: str, tmp_path: Path) -> None:
    content = read_content(name)
    folder = write_content(content, tmp_path / "m")
    for place in list_places(content.config):
        for junk in JUNK:
            (folder / "config.json").write_text(json.dumps(put(content.config, place, junk)))
            decode(folder)


def test_no_description_of_four_bits_brings_out_another_error(tmp_path: Path) -> None:
    content = read_content("bnb-nf4-nested")
    name = content.find(".quant_state.bitsandbytes__nf4")
    state = json.loads(content.tensors[name].tobytes())
    for number, (place, junk) in enumerate((place, junk) for place in list_places(state) for junk in (*JUNK, 1e308)):
        data = json.dumps(put(state, place, junk)).encode()
        changed = copy.copy(content)
        changed.tensors = content.tensors | {name: np.frombuffer(data, np.uint8)}
        decode(write_content(changed, tmp_path / str(number)))


@pytest.mark.parametrize("name", MODELS)
def test_no_shape_of_a_part_brings_out_another_error(name: str, tmp_path: Path) -> None:
    content = read_content(name)
    number = 0
    for part, values in sorted(content.tensors.items())[:8]:
        for changed in (values.reshape(-1)[:0], values.reshape(-1), values[None], values.reshape(-1)[:1]):
            other = copy.copy(content)
            other.tensors = content.tensors | {part: np.ascontiguousarray(changed)}
            number += 1
            decode(write_content(other, tmp_path / str(number)))
