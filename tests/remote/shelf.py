"""One model in every format that can be written, and the requests that each takes to be read from a URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import holdall
from holdall.errors import HoldallError
from holdall.format import registry
from tests.remote.servers import RangeServer

COUNT = 2000  # small tensors: enough for an index that the first bytes do not hold
BIG = "big"

# Variants of a format that are read in another way: name, format, writer options.
VARIANTS = [
    ("model.sequential.weights", "embd", {"layout": "sequential"}),
    ("model.hashed.aero", "aero", {"tensor_hash": True, "page_hash": True, "control_hash": True}),
]
OPTIONS = {
    "aeroset": {"max_shard_bytes": 4 << 20},
    "hf": {"max_shard_size": "8MB"},
}
MAIN = {"hf": "model.safetensors.index.json", "aeroset": "model.aeroset.json"}


def tensors(count: int = COUNT) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    found = {f"model.layers.{n}.attention.weight": rng.standard_normal((32, 16), np.float32) for n in range(count)}
    return {**found, BIG: rng.standard_normal((1024, 1024), np.float32), "none": np.zeros((0, 4), np.float32)}


def put_on(folder: Path, count: int = COUNT) -> dict[str, str]:
    """Write all files; gives the main file of each, relative to ``folder``."""
    made = {}
    values = tensors(count)
    for name in registry.names():
        if not registry.find(name).writes:
            continue
        path = f"{name}/model{(registry.find(name).suffixes or ('',))[0]}"
        main = f"{name}/{MAIN[name]}" if name in MAIN else path
        options = {"max_shard_size": "1MB"} if name == "hf" and count < COUNT else OPTIONS.get(name, {})
        _save(folder / (name if name in MAIN else path), values, name, options)
        made[name] = main
    for file, name, options in VARIANTS:
        _save(folder / file, values, name, options)
        made[file.removeprefix("model.").replace(".", " ")] = file
    (folder / "hf" / "config.json").write_text('{"hidden_size": 16, "model_type": "test"}')
    (folder / "hf" / "vocab.txt").write_text("[PAD]\n[UNK]\nhold\nall\n")
    return made


def _save(path: Path, values: dict[str, np.ndarray], name: str, options: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = {key: value for key, value in values.items() if value.size}
    for content in (values, empty):  # not every format holds tensors without elements
        try:
            holdall.save(path, content, format=name, fsync=False, **options)
        except HoldallError:
            if content is empty:
                raise
            continue
        return


def served(folder: Path) -> dict[str, bytes]:
    return {f"/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass
class Cost:
    """Requests and bytes to open a file, to read its large tensor, and to read everything."""

    open_requests: int
    open_bytes: int
    tensor_requests: int
    tensor_extra: int
    all_requests: int


def measure(server: RangeServer, path: str) -> Cost:
    server.log.clear()
    with holdall.open(f"{server.url}/{path}") as model:
        opened = len(server.log.requests), server.log.sent
        server.log.clear()
        tensor = model[BIG]
        assert tensor.numpy().shape == (1024, 1024)
        one = len(server.log.requests), max(0, server.log.sent - tensor.nbytes)
        server.log.clear()
        for each in model.fetch():
            each.raw()
        return Cost(*opened, *one, len(server.log.requests))
