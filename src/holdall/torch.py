"""Weight files as torch tensors: four verbs, for every format. torch is imported here and nowhere else.

from holdall.torch import load_file, save_file

state = load_file("model.aero", device="cuda")
save_file(model.state_dict(), "model.safetensors", metadata={"step": "1000"})
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DTYPES, DType
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.fronts import FORMAT, bytes_of, open_to_load, save_to

if TYPE_CHECKING:
    import torch

    from holdall.tensor import Tensor

__all__ = ["load", "load_file", "load_into", "save", "save_file", "to_torch"]

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
    path: str | os.PathLike[str], device: str | torch.device | None = None, *, check: bool = False, **options: Any
) -> dict[str, torch.Tensor]:
    """Every tensor of a file on ``device``, in memory of its own: safe to modify, also where the file shares bytes.

    ``device="meta"`` gives types and shapes without reading a payload. ``check=True`` proves the hashes that the file
    states meanwhile: HashError when one is wrong. ``options`` are those of :func:`holdall.open`; quantized tensors are
    decoded.
    """
    return _loaded(path, device, check, options)


def load(
    data: bytes | bytearray | memoryview,
    device: str | torch.device | None = None,
    *,
    check: bool = False,
    **options: Any,
) -> dict[str, torch.Tensor]:
    """Every tensor of a file that is in memory."""
    return _loaded(data, device, check, options)


def load_into(
    module: torch.nn.Module, path: str | os.PathLike[str], *, strict: bool = True, check: bool = False, **options: Any
) -> list[str]:
    """Copy the tensors of a file into the parameters and buffers of ``module``; returns the names that were not met.

    Shapes and dtypes must be those of the module: a value is never rounded on its way. With ``strict``, MissingError
    when the module or the file has a name that the other lacks. ``check`` and ``options`` are as in :func:`load_file`.
    """
    import torch

    own = module.state_dict(keep_vars=True)
    with open_to_load(path, check, options) as model, torch.no_grad():
        unmet = [name for name in own if name not in model] + [name for name in model if name not in own]
        if unmet and strict:
            raise MissingError(f"{len(unmet)} names are in the file or in the module only: {', '.join(unmet[:5])}")
        met = [tensor for tensor in model.tensors if tensor.name in own]
        for tensor in met:
            wanted = own[tensor.name]
            if tuple(wanted.shape) != tensor.shape or wanted.dtype != _torch_type(tensor):
                had = f"{wanted.dtype}{list(wanted.shape)}"
                raise ContentError(
                    f"tensor {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}, the module's is {had}"
                )
        for tensor in met:
            own[tensor.name].copy_(to_torch(tensor))
    return unmet


def save_file(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write tensors to ``path``; ``options`` are those of :func:`holdall.save`, ``format=`` among them.

    Tensors of any device and stride are written by their values. Tensors that are the same memory stay one where the
    format can say so, and are written once each where it cannot.
    """
    save_to(path, _tensors(tensors), metadata, options)


def save(
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, Any] | None = None,
    format: str = FORMAT,
    **options: Any,
) -> bytes:
    """The file that :func:`save_file` would write, as bytes."""
    return bytes_of(_tensors(tensors), metadata, format, options)


def to_torch(tensor: Tensor, device: str | torch.device | None = None) -> torch.Tensor:
    """The values of ``tensor`` in memory of their own, on ``device``; safe to modify in place."""
    import numpy as np
    import torch

    kind = _torch_type(tensor)
    if device is not None and torch.device(device).type == "meta":
        return torch.empty(tensor.shape, dtype=kind, device="meta")
    array = tensor.numpy()
    if not array.size:
        return torch.empty(tensor.shape, dtype=kind, device=device)
    own = np.array(array.reshape(-1).view(np.uint8))  # as bytes: numpy and torch differ in what types they have
    return torch.from_numpy(own).view(kind).reshape(array.shape).to(device)


def _torch_type(tensor: Tensor) -> torch.dtype:
    """The type of the decoded tensor: encodings decode to float32, integers below a byte to whole ones."""
    import torch

    dtype = tensor.dtype
    name = _WIDE.get(dtype.name, dtype.name) if isinstance(dtype, DType) else "f32"
    kind = getattr(torch, _NAMES.get(name, ""), None)
    if not isinstance(kind, torch.dtype):
        raise UnsupportedError(f"tensor {tensor.name!r}: this version of torch has no {dtype}")
    return kind


def _loaded(
    what: Any, device: str | torch.device | None, check: bool, options: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    with open_to_load(what, check, options) as model:
        return {tensor.name: to_torch(tensor, device) for tensor in model.tensors}


def _tensors(tensors: Mapping[str, torch.Tensor]) -> Iterator[Tensor]:
    """torch tensors as holdall has them; those that are the same memory share a payload."""
    import torch

    from holdall.payload import Held, Payload
    from holdall.tensor import Tensor

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
            if flat.stride(0) != 1:  # a single element out of many is contiguous too
                flat = flat.clone(memory_format=torch.contiguous_format)
            payload = Held(flat.view(torch.uint8).numpy() if flat.numel() else b"")
            shared[key] = payload
        yield Tensor(name, DTYPES[names[tensor.dtype]], tuple(tensor.shape), payload)
