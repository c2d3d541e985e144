"""Small models of every format over HTTP equal those on a disk. With tiny buffers they take many requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.format import registry
from holdall.testing.zoo import sample_values
from tests.remote import shelf
from tests.remote.servers import range_server

NAMES = [name for name in registry.names() if registry.find(name).writes and name not in shelf.MAIN]
VALUES = {f"w{number}": sample_values("f32", (3, 5 + number), number) for number in range(9)}
VARIANTS = [*((name, {}) for name in NAMES), *((name, options) for _, name, options in shelf.VARIANTS)]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_small_models_over_http(tmp_path: Path, name: str, options: dict[str, object]) -> None:
    path = tmp_path / "model"
    values = {key: np.nan_to_num(value) for key, value in VALUES.items()}
    holdall.save(path, values, format=name, **options)
    with range_server({"/model": path.read_bytes()}) as server, holdall.open(f"{server.url}/model") as model:
        assert [tensor.name for tensor in model.fetch()] == list(model)
        for key, value in values.items():
            found = model[key]
            assert found.payload is not None
            assert b"".join(list(found.payload.chunks(7))) == found.payload.read() == bytes(found.raw())
            np.testing.assert_array_equal(found.numpy().reshape(value.shape), value)
            np.testing.assert_array_equal(found[1:].reshape(2, -1), value[1:])
        assert holdall.verify(f"{server.url}/model", level="strict").ok
        holdall.convert(f"{server.url}/model", tmp_path / "copy.oinf")
    with holdall.open(tmp_path / "copy.oinf") as model:
        for key, value in values.items():
            np.testing.assert_array_equal(model[key].numpy().reshape(value.shape), value)
