"""Random small models, and the first file of a chain: written by holdall, or by the library of its format."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from tests.convert.oracle import FLOATS, RANGES, Truth
from tests.convert.readers import NUMPY

__all__ = ["DTYPES", "RANKS", "SUFFIX", "random_metadata", "random_model", "write_first"]

SUFFIX = {
    "oinf": ".oinf",
    "mcf": ".mcf",
    "embd": ".weights",
    "gptrs-checkpoint": ".gptrs",
    "gptrs-archive": ".gptrsten",
    "aero": ".aero",
    "aeroset": ".aeroset",
    "gguf": ".gguf",
    "safetensors": ".safetensors",
    "torch": ".pt",
    "npz": ".npz",
    "onnx": ".onnx",
    "hf": "",
}

_INTS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
_AERO = frozenset(("bf16", "f16", "f32", "f64", "bool", *_INTS))
_SAFE = frozenset((*FLOATS, *_INTS, "bool", "c64"))

# What each format can hold, from its document. Only the choice of steps depends on it, no expectation does.
DTYPES: Mapping[str, frozenset[str]] = {
    "oinf": frozenset(("f64", "f32", "f16", "bf16", "f8_e5m2", *_INTS, "i4", "i2", "u4", "u2", "bool")),
    "mcf": frozenset(("f64", "f32", "f16", "bf16", *_INTS)),
    "embd": frozenset(("f32", "f16", "bf16", "i8", "i16", "i32", "u8", "u16", "u32")),
    "gptrs-checkpoint": frozenset(("f32", "f16", "bf16", "i32")),
    "gptrs-archive": frozenset(("f32", "f16", "bf16", "i32")),
    "aero": _AERO,
    "aeroset": _AERO,
    "gguf": frozenset(("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64")),
    "safetensors": _SAFE,
    "hf": _SAFE,
    "torch": _SAFE | {"c128"},
    "npz": frozenset(("f64", "f32", "f16", *_INTS, "bool", "c64", "c128")),
    "onnx": _SAFE | {"c128", "i4", "i2", "u4", "u2"},
}
RANKS = {"embd": (1, 4), "gguf": (0, 4)}

_PLAIN = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789"
_SIZES = (1, 2, 3, 5, 7, 8, 16, 33)
_FOUR_MIB = 4 << 20


def random_model(rng: random.Random, format: str) -> dict[str, Truth]:
    """One to six tensors that ``format`` holds."""
    names = _random_names(rng, rng.randint(1, 6))
    tensors = {name: _random_tensor(rng, format) for name in names}
    if rng.random() < 0.02:
        tensors[names[-1]] = _large_tensor(rng, format)
    if len(names) > 1 and rng.random() < 0.1:  # equal tensors, for dedup
        tensors[names[0]] = tensors[names[1]]
    return tensors


def _random_names(rng: random.Random, count: int) -> list[str]:
    names: list[str] = []
    while len(names) < count:
        parts = ["".join(rng.choices(_PLAIN, k=rng.randint(1, 6))) for _ in range(rng.randint(1, 3))]
        name = rng.choice((".", ".", ".", "_", "-")).join(parts)
        odd = rng.random()
        if odd < 0.04:
            name += rng.choice((" b", "/c", "ü", "[1]", "*", "重み", "'q'", '"', "\\d"))
        elif odd < 0.06:
            name = (name * 40)[: rng.randint(60, 90)]
        if name not in names:
            names.append(name)
    return names


def _random_shape(rng: random.Random, format: str) -> tuple[int, ...]:
    if rng.random() < 0.15:
        return rng.choice(((4, 64), (3, 256), (8, 32), (1, 288)))  # matrices that quantization takes
    low, high = RANKS.get(format, (0, 4))
    rank = min(high, max(low, rng.choice((0, 1, 1, 2, 2, 2, 3, 4))))
    zero = format != "mcf" and rng.random() < 0.05
    shape = [rng.choice(_SIZES) for _ in range(rank)]
    if rank and zero:
        shape[rng.randrange(rank)] = 0
    return tuple(shape)


def _random_tensor(rng: random.Random, format: str) -> Truth:
    common = [name for name in ("f32", "f16", "bf16", "i32") if name in DTYPES[format]]
    dtype = rng.choice(common if rng.random() < 0.6 else sorted(DTYPES[format]))
    return Truth(dtype, _random_values(rng, dtype, _random_shape(rng, format)))


def _large_tensor(rng: random.Random, format: str) -> Truth:
    """A tensor larger than every buffer, by an odd number of elements."""
    dtype = rng.choice([name for name in ("f32", "f16", "i8", "u8", "i4") if name in DTYPES[format]])
    count = _FOUR_MIB // np.dtype(NUMPY[dtype]).itemsize * (2 if dtype == "i4" else 1)
    shape = (count + rng.randint(1, 99),) if rng.random() < 0.5 else (1031, count // 1031 + 3)
    return Truth(dtype, _random_values(rng, dtype, shape))


def _random_values(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    source = np.random.Generator(np.random.PCG64(rng.getrandbits(64)))
    kind = np.dtype(NUMPY[dtype])
    wild = rng.random() < 0.15
    if dtype == "bool":
        return np.asarray(source.integers(0, 2, shape)).astype(kind)
    if dtype in RANGES:
        low, high = RANGES[dtype] if wild else (max(-100, RANGES[dtype][0]), min(100, RANGES[dtype][1]))
        return np.asarray(source.integers(low, high, shape, kind, endpoint=True))
    count = int(np.prod(shape))
    if wild and dtype != "f8_e4m3":  # any bits: NaN of all kinds, infinities, the smallest numbers
        raw = np.frombuffer(source.bytes(count * kind.itemsize), kind)
        return raw.reshape(shape).copy()
    values = source.standard_normal(shape) * source.choice([1.0, 0.02, 30.0])
    if kind.kind == "c":
        values = values + 1j * source.standard_normal(shape)
    return np.asarray(values).astype(kind)


def random_metadata(rng: random.Random, most: int = 4) -> dict[str, Any]:
    """Entries of the kinds that files have."""
    makers: list[Callable[[], Any]] = [
        lambda: "".join(rng.choices("abc xyz äß重\n{}", k=rng.randint(0, 20))),
        lambda: "text",
        lambda: rng.choice((0, 1, -1, 7, 1 << 20, -(1 << 40), (1 << 63) - 1)),
        lambda: rng.choice((0.5, -2.25, 1e-3, 1e300)),
        lambda: [rng.randint(-5, 5) for _ in range(rng.randint(1, 4))],
        lambda: [rng.choice(("a", "b", "")) for _ in range(rng.randint(1, 3))],
        lambda: [0.5, 1.5],
        lambda: rng.random() < 0.5,
    ]
    keys = rng.sample(("note", "author", "general.name", "train.steps", "x-1", "layers", "größe"), rng.randint(0, most))
    return {key: rng.choice(makers)() for key in keys}


def write_first(
    rng: random.Random, path: Path, format: str, tensors: dict[str, Truth], metadata: dict[str, Any]
) -> dict[str, bytes]:
    """Write the first file of a chain. Returns its assets."""
    native = _NATIVE.get(format)
    if native is not None and rng.random() < 0.5:
        native(rng, path, tensors)
        metadata.clear()
        return {}
    assets: dict[str, bytes] = {}
    if format in ("hf", "mcf") and rng.random() < 0.5:
        assets = {"generation_config.json": b'{"max_length": 20}'}
        if format == "hf":
            assets["notes.txt"] = bytes(rng.choices(range(256), k=40))
    made = [Tensor.of(name, truth.values, truth.dtype) for name, truth in tensors.items()]
    holdall.save(path, Model(made, metadata=metadata, assets=assets), format=format, fsync=False)
    return assets


def _save_safetensors(rng: random.Random, path: Path, tensors: Mapping[str, Truth]) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.asarray(truth.values, order="C") for name, truth in tensors.items()}, path)


def _save_npz(rng: random.Random, path: Path, tensors: Mapping[str, Truth]) -> None:
    """Members have a fixed time, so that a chain is the same each time."""
    compression = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, truth in tensors.items():
            with file.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, truth.values, allow_pickle=False)


def _save_gguf(rng: random.Random, path: Path, tensors: dict[str, Truth]) -> None:
    """Matrices whose rows are whole blocks are quantized."""
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import dequantize, quantize

    writer = GGUFWriter(path, "llama")
    for name, truth in list(tensors.items()):
        if truth.dtype == "bf16":  # the writer takes bf16 only as bytes
            tensors[name] = truth = Truth("f32", truth.values.astype(np.float32))
        finite = truth.dtype == "f32" and bool(np.all(np.abs(truth.values) < 1e3))
        if finite and len(truth.shape) == 2 and truth.values.size and truth.shape[1] % 32 == 0:
            kind = rng.choice((GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q5_1))
            blocks = quantize(truth.values, kind)
            writer.add_tensor(name, blocks, raw_dtype=kind)
            tensors[name] = Truth(f"ggml.{kind.name.lower()}", dequantize(blocks, kind))
        else:
            writer.add_tensor(name, np.asarray(truth.values, order="C"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _save_torch(rng: random.Random, path: Path, tensors: dict[str, Truth]) -> None:
    """A state_dict; some tensors are views of others, or not contiguous."""
    import torch

    state = {}
    for name, truth in tensors.items():
        data = np.array(truth.values, order="C")
        kind = getattr(torch, data.dtype.name)
        # Some types have no counterpart in numpy, so the bytes are handed over.
        flat = torch.frombuffer(bytearray(data.tobytes()), dtype=kind) if data.size else torch.empty(0, dtype=kind)
        value = flat.reshape(data.shape)
        state[name] = value.t().contiguous().t() if len(data.shape) == 2 and rng.random() < 0.3 else value
    # torch does not load the newer types from a file in the old form.
    newer = any(truth.dtype in ("u16", "u32", "u64", "f8_e4m3", "f8_e5m2") for truth in tensors.values())
    torch.save(state, path, _use_new_zipfile_serialization=rng.random() < 0.8 or newer)


_NATIVE: Mapping[str, Callable[[random.Random, Path, dict[str, Truth]], None]] = {
    "safetensors": _save_safetensors,
    "npz": _save_npz,
    "gguf": _save_gguf,
    **({"torch": _save_torch} if find_spec("torch") else {}),
}
