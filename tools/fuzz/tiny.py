"""Models of a few bytes, for seeds: together they have every dtype and every kind of content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from holdall.format import registry
from holdall.model.dtypes import DTYPES, find_dtype
from holdall.model.ggml import BLOCKS
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.quant.methods import METHODS
from holdall.testing.zoo import ZOO, sample_values

__all__ = ["models"]

_TOGETHER = 3  # dtypes in one model


def models(format: str) -> Mapping[str, Callable[[], Model]]:
    """Return the models to write for a format; each is made when it is called."""
    own = sorted(registry.find(format).holds.dtypes & set(DTYPES))
    groups = [own[at : at + _TOGETHER] for at in range(0, len(own), _TOGETHER)]
    return {
        "empty": Model,
        **{f"dtypes-{'-'.join(group)}": _dtypes(group) for group in groups},
        "shapes": _shapes,
        "declared": _declared,
        "blocks": _blocks,
        "aliases": _aliases,
        "metadata": ZOO["metadata"],
        "assets": _assets,
        "names": _names,
        **(_QUANTIZED if format == "mcf" else {}),
        **(_OINF if format == "oinf" else {}),
    }


def _of(dtype: str, shape: tuple[int, ...], name: str) -> Tensor:
    return Tensor.of(name, sample_values(dtype, shape), dtype)


def _dtypes(group: list[str]) -> Callable[[], Model]:
    return lambda: Model([_of(dtype, (8,), f"w.{dtype}") for dtype in group])


def _shapes() -> Model:
    shapes: list[tuple[int, ...]] = [(), (1,), (2, 1), (0, 3), (1, 2, 1, 1)]
    return Model([_of("f32", shape, f"s{number}") for number, shape in enumerate(shapes)])


def _declared() -> Model:
    return Model([Tensor("declared", find_dtype("f32"), (2, 2), None), _of("f32", (2,), "stored")])


def _blocks() -> Model:
    tensors: list[Tensor] = []
    for kind in (BLOCKS[2], BLOCKS[8]):
        for rows in ((), (2,), (0,)):
            payload = InMemory(bytes(kind.block_bytes * prod(rows)))
            tensors.append(Tensor(f"{kind.name}.{len(tensors)}", kind, (*rows, kind.elements), payload))
    return Model(tensors)


def _aliases() -> Model:
    payload = InMemory(bytes(8))
    return Model([Tensor(name, find_dtype("f32"), (2,), payload) for name in ("a", "b")])


def _names() -> Model:
    return Model([_of("f32", (1,), name) for name in ("größe", "a/b.c", "a b", "UPPER", "n" * 65)])


def _assets() -> Model:
    assets = {
        "config.json": b'{"hidden_size": 2, "vocab_size": 3, "model_type": "bert"}',
        "tokenizer.json": b'{"model": {"vocab": {"[PAD]": 0, "a": 1}}, "added_tokens": [{"id": 2, "content": "b"}]}',
        "vocab.txt": b"[PAD]\na\nb\n",
        "vocab.json": b'{"a": 0, "b": 1}',
    }
    return Model([_of("f32", (2,), "w")], assets=assets)


def _make_quantized(method: str) -> Callable[[], Model]:
    def make() -> Model:
        from holdall.quant.model import quantize_model

        values = np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 9)  # no whole block, an odd number of nibbles
        return quantize_model(Model([Tensor.of("w", values)]), method, rules=[f"*={method}"])  # though it grows

    return make


_QUANTIZED = {f"quantized-{method.name}": _make_quantized(method.name) for method in METHODS.values()}


def _quant_params() -> Model:
    from holdall.format.oinf.quant import QuantParams

    params = (
        QuantParams.per_tensor(0.5, 3),
        QuantParams.per_channel(0, [0.5, 0.25]),
        QuantParams.per_channel(0, [1.0, 2.0], [1, 2]),
    )
    tensors = [_of("i8", (2, 2), f"q{number}") for number in range(len(params))]
    for tensor, native in zip(tensors, params, strict=True):
        tensor.native = native
    return Model(tensors)


def _oinf_values() -> Model:
    from holdall.format.oinf.read import OinfNative
    from holdall.format.oinf.values import Bitset, StoredNaN

    values = {
        "bits": Bitset([1, 0, 1]), "nan": StoredNaN("f16", b"\x01\x7e"), "flags": np.array([True, False]),
        "array": np.array([[1, 2], [3, 4]], np.int16), "i8": np.int8(-1), "u64": np.uint64(5), "f16": np.float16(1.5),
        "f32": np.float32(2),
    }  # fmt: skip
    return Model([_of("f32", (1,), "w")], metadata=values, native=OinfNative({"B": 1, "D": 4}), format="oinf")


_OINF = {"quant-params": _quant_params, "values": _oinf_values}
