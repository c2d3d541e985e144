"""holdall tensors as torch tensors. torch is imported here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.dtypes import DType
from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

    from holdall.tensor import Tensor

__all__ = ["to_torch"]

# Types that numpy has only through ml_dtypes cross over as bytes.
_BY_BYTES = {
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "f8_e8m0": "float8_e8m0fnu",
}


def to_torch(tensor: Tensor, device: str | torch.device | None = None) -> torch.Tensor:
    """The values of ``tensor`` in memory of their own, on ``device``; safe to modify in place."""
    import numpy as np
    import torch

    array = tensor.numpy()
    name = _BY_BYTES.get(tensor.dtype.name) if isinstance(tensor.dtype, DType) else None
    if name is not None:
        kind = getattr(torch, name, None)
        if kind is None:
            raise UnsupportedError(f"tensor {tensor.name!r}: this version of torch has no {name}")
        flat = torch.from_numpy(np.array(array.reshape(-1).view(np.uint8)))
        return flat.view(kind).reshape(array.shape).to(device)
    if array.dtype.kind == "V":
        raise UnsupportedError(f"tensor {tensor.name!r}: torch has no {tensor.dtype}")
    return torch.from_numpy(np.array(array)).to(device)
