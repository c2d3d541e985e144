"""Weight files as jax arrays: four verbs, for every format. jax is imported here and nowhere else.

from holdall.jax import load_file, save_file

parameters = load_file("model.oinf")
save_file(parameters, "model.safetensors")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.fronts import FORMAT, bytes_of, open_to_load, save_to

if TYPE_CHECKING:
    import jax

    from holdall.tensor import Tensor

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(
    path: str | os.PathLike[str], device: jax.Device | None = None, *, check: bool = False, **options: Any
) -> dict[str, jax.Array]:
    """Every tensor of a file as an array on ``device``; ``options`` are those of :func:`holdall.open`.

    ``check=True`` proves the hashes that the file states meanwhile: HashError when one is wrong.
    """
    return _loaded(path, device, check, options)


def load(
    data: bytes | bytearray | memoryview, device: jax.Device | None = None, *, check: bool = False, **options: Any
) -> dict[str, jax.Array]:
    """Every tensor of a file that is in memory."""
    return _loaded(data, device, check, options)


def save_file(
    tensors: Mapping[str, jax.Array],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write arrays to ``path``; ``options`` are those of :func:`holdall.save`, ``format=`` among them."""
    save_to(path, _tensors(tensors), metadata, options)


def save(
    tensors: Mapping[str, jax.Array], metadata: Mapping[str, Any] | None = None, format: str = FORMAT, **options: Any
) -> bytes:
    """The file that :func:`save_file` would write, as bytes."""
    return bytes_of(_tensors(tensors), metadata, format, options)


def _loaded(what: Any, device: jax.Device | None, check: bool, options: Mapping[str, Any]) -> dict[str, jax.Array]:
    with open_to_load(what, check, options) as model:
        return {tensor.name: _to_jax(tensor, device) for tensor in model.tensors}


def _to_jax(tensor: Tensor, device: jax.Device | None) -> jax.Array:
    import jax
    import numpy as np

    array = np.array(tensor.numpy())  # jax may keep the memory, and the file's is not ours to give
    made: jax.Array = jax.device_put(array, device)
    if made.dtype != array.dtype:
        message = f"tensor {tensor.name!r}: jax would make {made.dtype} of {array.dtype}"
        raise UnsupportedError(f"{message}: call jax.config.update('jax_enable_x64', True) first")
    return made


def _tensors(tensors: Mapping[str, jax.Array]) -> Iterator[Tensor]:
    import numpy as np

    from holdall.tensor import Tensor

    return (Tensor.of(name, np.asarray(array)) for name, array in tensors.items())
