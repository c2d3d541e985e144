"""Loads and saves weight files of every format as torch tensors. Only holdall.transformers imports torch as well.

from holdall.torch import load_file, save_file

state = load_file("model.aero", device="cuda")
save_file(model.state_dict(), "model.safetensors", metadata={"step": "1000"})
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.model.dtypes import DTYPES, DType
from holdall.model.growth import limit_gathering
from holdall.operations.array_io import map_copies, open_to_load, save_to, save_to_bytes

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["find_torch_type", "load", "load_file", "load_into", "save", "save_file", "to_torch"]

_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "f8_e8m0": "float8_e8m0fnu",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
_WIDE = {"i4": "i8", "i2": "i8", "i1": "i8", "t2": "i8", "t1": "i8", "u4": "u8", "u2": "u8", "u1": "u8", "bitset": "u8"}


def load_file(
    path: str | os.PathLike[str],
    device: str | torch.device | None = None,
    *,
    check: bool = False,
    decode: bool = False,
    **options: Any,
) -> dict[str, torch.Tensor]:
    """Load every tensor of a file as a copy on ``device``, safe to modify even if tensors of the file share bytes.

    ``device="meta"`` gives types and shapes without reading a payload. ``check=True`` checks the hashes that the file
    states, and raises HashError if one is wrong. ``options`` are those of :func:`holdall.open`; quantized tensors are
    decoded. ``decode=True`` gives plain tensors for weights that are made of several tensors: FP8 with scales, GPTQ
    and others.
    """
    return _load(path, device, check, options, decode)


def load(
    data: bytes | bytearray | memoryview,
    device: str | torch.device | None = None,
    *,
    check: bool = False,
    decode: bool = False,
    **options: Any,
) -> dict[str, torch.Tensor]:
    """Load every tensor of a file that is in memory."""
    return _load(data, device, check, options, decode)


def load_into(
    module: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    check: bool = False,
    decode: bool = False,
    **options: Any,
) -> list[str]:
    """Copy the tensors of a file into the parameters and buffers of ``module``; return the names that only one has.

    Shapes and dtypes must be those of the module, so that no value is rounded. With ``strict``, a name that only the
    file or only the module has raises MissingError. ``check``, ``decode`` and ``options`` are as in :func:`load_file`.
    """
    import torch

    own = module.state_dict(keep_vars=True)
    with open_to_load(path, check, options, decode) as model, torch.no_grad():
        unmatched = [name for name in own if name not in model] + [name for name in model if name not in own]
        if unmatched and strict:
            raise MissingError(
                f"{len(unmatched)} names are in the file or in the module only: {', '.join(unmatched[:5])}"
            )
        matched = [tensor for tensor in model.tensors if tensor.name in own]
        for tensor in matched:
            wanted = own[tensor.name]
            if tuple(wanted.shape) != tensor.shape or wanted.dtype != _torch_type(tensor):
                had = f"{wanted.dtype}{list(wanted.shape)}"
                raise ContentError(
                    f"tensor {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}, the module's is {had}"
                )
        limit_gathering(model)
        for tensor in matched:
            own[tensor.name].copy_(to_torch(tensor))
    return unmatched


def save_file(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write tensors to ``path``; ``options`` are those of :func:`holdall.save`, ``format=`` among them.

    A :class:`holdall.Model` is written with its metadata and all else that it holds; a format that has no place for
    its size variables or other content of its own format is refused.
    Tensors may be on any device and have any strides. Tensors that share memory are stored once if the format allows
    it, else once each.
    """
    save_to(path, tensors, _to_tensors, metadata, options)


def save(
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, Any] | None = None,
    format: str | None = None,
    **options: Any,
) -> bytes:
    """Return the file that :func:`save_file` would write: safetensors, or the format of a model, unless it is named."""
    return save_to_bytes(tensors, _to_tensors, metadata, format, options)


def to_torch(tensor: Tensor, device: str | torch.device | None = None) -> torch.Tensor:
    """Return a copy of the values of ``tensor`` on ``device``, safe to modify in place."""
    import torch

    if _is_meta(device):
        return torch.empty(tensor.shape, dtype=_torch_type(tensor), device="meta")
    return _wrap(tensor, tensor.copy(), device)


def _is_meta(device: str | torch.device | None) -> bool:
    import torch

    return device is not None and torch.device(device).type == "meta"


def _wrap(tensor: Tensor, own: NDArray[Any], device: str | torch.device | None) -> torch.Tensor:
    """Return the values ``own`` of ``tensor`` on ``device``; on the CPU they stay where they are."""
    import numpy as np
    import torch

    kind = _torch_type(tensor)
    if not own.size:
        return torch.empty(tensor.shape, dtype=kind, device=device)
    values = torch.from_numpy(own.reshape(-1).view(np.uint8))  # bytes, since torch has types that numpy lacks
    return values.view(kind).reshape(own.shape).to(device)


def find_torch_type(name: str) -> torch.dtype:
    """Find the type of torch called ``name``, as torch or as holdall calls it: "bfloat16" or "bf16"."""
    import torch

    kind = getattr(torch, _NAMES.get(name, name), None)
    if not isinstance(kind, torch.dtype):
        raise UnsupportedError(f"this version of torch has no type {name!r}")
    return kind


def _torch_type(tensor: Tensor) -> torch.dtype:
    """Return the type of the decoded tensor: encodings decode to float32, packed integers to bytes."""
    dtype = tensor.dtype
    try:
        return find_torch_type(_WIDE.get(dtype.name, dtype.name) if isinstance(dtype, DType) else "f32")
    except UnsupportedError:
        raise UnsupportedError(f"tensor {tensor.name!r}: this version of torch has no {dtype}") from None


def _load(
    what: Any, device: str | torch.device | None, check: bool, options: Mapping[str, Any], decode: bool
) -> dict[str, torch.Tensor]:
    with open_to_load(what, check, options, decode) as model:
        if _is_meta(device):
            return {tensor.name: to_torch(tensor, device) for tensor in model.tensors}
        return map_copies(lambda tensor, values: _wrap(tensor, values, device), model)


def _to_tensors(tensors: Mapping[str, torch.Tensor]) -> Iterator[Tensor]:
    """Turn torch tensors into tensors of holdall; those that share memory share a payload."""
    import torch

    from holdall.model.payload import InMemory, Payload
    from holdall.model.tensor import Tensor

    names = {getattr(torch, word): name for name, word in _NAMES.items() if hasattr(torch, word)}
    shared: dict[tuple[Any, ...], Payload] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ContentError(f"tensor {name!r} is a {type(tensor).__name__}, not a torch tensor: pass it as metadata")
        if tensor.dtype not in names:
            raise ContentError(f"tensor {name!r}: {tensor.dtype} cannot be stored; cast it with .to(...) first")
        if tensor.device.type == "meta":
            raise ContentError(f"tensor {name!r} is on the meta device, without values: materialize it first")
        if tensor.layout != torch.strided:
            raise ContentError(f"tensor {name!r} is {tensor.layout}: call .to_dense() first")
        key = (
            tensor.device,
            tensor.data_ptr(),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            tensor.is_conj(),
            tensor.is_neg(),
        )
        payload = shared.get(key) if tensor.numel() else None
        if payload is None:
            flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            if flat.stride(0) != 1:  # torch calls a single element contiguous whatever its stride
                flat = flat.clone(memory_format=torch.contiguous_format)
            payload = InMemory(flat.view(torch.uint8).numpy() if flat.numel() else b"")
            shared[key] = payload
        yield Tensor(name, DTYPES[names[tensor.dtype]], tuple(tensor.shape), payload)
