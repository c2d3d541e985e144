"""Loads and saves weight files of every format as jax arrays. No other module imports jax.

from holdall.jax import load_file, save_file

parameters = load_file("model.oinf")
save_file(parameters, "model.safetensors")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.operations.array_io import map_copies, open_to_load, save_to, save_to_bytes

if TYPE_CHECKING:
    import jax
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(
    path: str | os.PathLike[str], device: jax.Device | None = None, *, check: bool = False, **options: Any
) -> dict[str, jax.Array]:
    """Load every tensor of a file as an array on ``device``; ``options`` are those of :func:`holdall.open`.

    ``check=True`` checks the hashes that the file states, and raises HashError if one is wrong.
    """
    return _load(path, device, check, options)


def load(
    data: bytes | bytearray | memoryview, device: jax.Device | None = None, *, check: bool = False, **options: Any
) -> dict[str, jax.Array]:
    """Load every tensor of a file that is in memory."""
    return _load(data, device, check, options)


def save_file(
    tensors: Mapping[str, jax.Array],
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
    tensors: Mapping[str, jax.Array],
    metadata: Mapping[str, Any] | None = None,
    format: str | None = None,
    **options: Any,
) -> bytes:
    """Return the file that :func:`save_file` would write: safetensors, or the format of a model, unless it is named."""
    return save_to_bytes(tensors, _to_tensors, metadata, format, options)


def _load(what: Any, device: jax.Device | None, check: bool, options: Mapping[str, Any]) -> dict[str, jax.Array]:
    with open_to_load(what, check, options) as model:
        return map_copies(lambda tensor, values: _to_jax(tensor, values, device), model)


def _to_jax(tensor: Tensor, array: NDArray[Any], device: jax.Device | None) -> jax.Array:
    """Put ``array`` on the device: a copy, since jax may keep its memory, which must not be the file's."""
    import jax

    made: jax.Array = jax.device_put(array, device)
    if made.dtype != array.dtype:
        message = f"tensor {tensor.name!r}: jax would make {made.dtype} of {array.dtype}"
        raise UnsupportedError(f"{message}: call jax.config.update('jax_enable_x64', True) first")
    return made


def _to_tensors(tensors: Mapping[str, jax.Array]) -> Iterator[Tensor]:
    import numpy as np

    from holdall.model.tensor import Tensor

    return (Tensor.of(name, np.asarray(array)) for name, array in tensors.items())
