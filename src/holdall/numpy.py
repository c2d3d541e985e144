"""Loads and saves weight files of every format as numpy arrays.

>>> import numpy as np
>>> from holdall.numpy import load, load_file, save, save_file
>>> save_file({"w": np.ones((2, 2), np.float32)}, "example.oinf", metadata={"mode": "fast"})
>>> load_file("example.oinf")["w"].tolist()
[[1.0, 1.0], [1.0, 1.0]]
>>> load(save({"b": np.arange(3)}, format="npz"))["b"].tolist()
[0, 1, 2]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdall.operations.array_io import map_copies, open_to_load, save_to, save_to_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from holdall.model.tensor import Tensor

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(
    path: str | os.PathLike[str], *, check: bool = False, decode: bool = False, **options: Any
) -> dict[str, NDArray[Any]]:
    """Load every tensor of a file as a copy that is safe to modify.

    ``options`` are those of :func:`holdall.open`. Types that numpy lacks (bf16, f8) are those of ml_dtypes; quantized
    tensors are decoded. ``check=True`` checks the hashes that the file states, and raises HashError if one is wrong.
    ``decode=True`` gives plain arrays for weights that are made of several tensors: FP8 with scales, GPTQ and others.
    ``holdall.open(path)[name].numpy()`` gives views of the file instead of copies.
    """
    return _load(path, check, decode, options)


def load(
    data: bytes | bytearray | memoryview, *, check: bool = False, decode: bool = False, **options: Any
) -> dict[str, NDArray[Any]]:
    """Load every tensor of a file that is in memory."""
    return _load(data, check, decode, options)


def save_file(
    tensors: Mapping[str, ArrayLike],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write arrays to ``path``; ``options`` are those of :func:`holdall.save`, ``format=`` among them.

    A :class:`holdall.Model` is written with its metadata and all else that it holds; a format that has no place for
    its size variables or other content of its own format is refused.
    """
    save_to(path, tensors, _to_tensors, metadata, options)


def save(
    tensors: Mapping[str, ArrayLike],
    metadata: Mapping[str, Any] | None = None,
    format: str | None = None,
    **options: Any,
) -> bytes:
    """Return the file that :func:`save_file` would write: safetensors, or the format of a model, unless it is named."""
    return save_to_bytes(tensors, _to_tensors, metadata, format, options)


def _load(what: Any, check: bool, decode: bool, options: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    with open_to_load(what, check, options, decode) as model:
        return map_copies(lambda tensor, values: values, model)


def _to_tensors(tensors: Mapping[str, ArrayLike]) -> Iterator[Tensor]:
    from holdall.model.model import model_of

    return iter(model_of(tensors).tensors)
