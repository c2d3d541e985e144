"""A set of version 0.2 states where its parts are; they are fetched from there when the caller says so."""

from __future__ import annotations

import json

import numpy as np
import pytest

import holdall
from tests.remote.servers import range_server

CONTENT = {f"t{n}": np.full((3, n), n, "<f4") for n in range(1, 12)}


@pytest.fixture
def made(tmp_path):
    """The document of a set, and its other files as a server has them."""
    folder = tmp_path / "made.aeroset"
    holdall.save(folder, CONTENT, max_shard_bytes=200, part_shards=1, base_url="http://host/parts")
    document = json.loads((folder / "model.aeroset.json").read_text())
    return document, {f"/parts/{path.name}": path.read_bytes() for path in folder.glob("*.aero")}


def check(model):
    assert {name: model[name].numpy().tolist() for name in model} == {n: v.tolist() for n, v in CONTENT.items()}


@pytest.mark.shows("A44")
def test_a_local_document_whose_parts_are_elsewhere(made, tmp_path):
    document, files = made
    with range_server(files) as server:
        path = tmp_path / "model.aeroset.json"
        path.write_text(json.dumps({**document, "base_url": f"{server.url}/parts"}))
        with pytest.raises(holdall.FormatError):
            holdall.open(path)
        assert server.log.requests == []
        with holdall.open(path, follow=server.url) as model:
            check(model)
        assert holdall.verify(path, follow=server.url).ok


@pytest.mark.shows("A45")
@pytest.mark.parametrize("stated", ["base_url", "urls"])
def test_a_remote_document_whose_parts_are_at_another_origin(made, stated):
    document, files = made
    with range_server(files) as parts, range_server({}) as server:
        if stated == "urls":
            del document["base_url"]
            for row in (*document["parts"], document["global_tidx"]):
                row["path"] = f"{parts.url}/parts/{row['path']}"
        else:
            document["base_url"] = f"{parts.url}/parts/"
        server.files["/set/model.aeroset.json"] = json.dumps(document).encode()
        url = f"{server.url}/set/model.aeroset.json"
        with pytest.raises(holdall.FormatError):
            holdall.open(url)
        assert parts.log.requests == []
        with holdall.open(url, follow=parts.url) as model:
            check(model)


@pytest.mark.shows("A45")
def test_a_part_that_is_not_the_stated_one_is_refused(made):
    document, files = made
    name = next(name for name in files if name.endswith("part-001.aero"))
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    with range_server(files) as parts, range_server({}) as server:
        document["base_url"] = f"{parts.url}/parts"
        server.files["/set/model.aeroset.json"] = json.dumps(document).encode()
        with holdall.open(f"{server.url}/set/model.aeroset.json", follow=parts.url) as model:
            with pytest.raises(holdall.FormatError) as caught:
                [tensor.numpy() for tensor in model.tensors]
            assert caught.value.rule == "aeroset.sha256"
