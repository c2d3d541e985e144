"""Weight files as numpy arrays: four verbs, for every format.

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

from holdall.fronts import FORMAT, bytes_of, open_to_load, save_to
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from holdall.tensor import Tensor

__all__ = ["load", "load_file", "save", "save_file"]

_LARGE = tuned(1 << 20)  # bytes of a tensor that are worth a thread
_THREADS = min(4, os.cpu_count() or 1)


def load_file(path: str | os.PathLike[str], *, check: bool = False, **options: Any) -> dict[str, NDArray[Any]]:
    """Every tensor of a file as an array in memory of its own, safe to modify.

    ``options`` are those of :func:`holdall.open`. Types that numpy lacks (bf16, f8) are those of ml_dtypes; quantized
    tensors are decoded. ``check=True`` proves the hashes that the file states meanwhile: HashError when one is wrong.
    Arrays that are windows on the file come from ``holdall.open(path)[name].numpy()``.
    """
    return _arrays(path, check, options)


def load(data: bytes | bytearray | memoryview, *, check: bool = False, **options: Any) -> dict[str, NDArray[Any]]:
    """Every tensor of a file that is in memory."""
    return _arrays(data, check, options)


def save_file(
    tensors: Mapping[str, ArrayLike],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write arrays to ``path``; ``options`` are those of :func:`holdall.save`, ``format=`` among them."""
    save_to(path, _tensors(tensors), metadata, options)


def save(
    tensors: Mapping[str, ArrayLike], metadata: Mapping[str, Any] | None = None, format: str = FORMAT, **options: Any
) -> bytes:
    """The file that :func:`save_file` would write, as bytes."""
    return bytes_of(_tensors(tensors), metadata, format, options)


def _arrays(what: Any, check: bool, options: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    from concurrent.futures import Future, ThreadPoolExecutor

    # Fresh memory costs as much as the copy into it: with several threads both go on at the same time.
    with open_to_load(what, check, options) as model, ThreadPoolExecutor(_THREADS, "holdall-load") as pool:
        arrays = {t.name: pool.submit(_copied, t) if t.nbytes >= _LARGE else _copied(t) for t in model.tensors}
        return {name: one.result() if isinstance(one, Future) else one for name, one in arrays.items()}


def _copied(tensor: Tensor) -> NDArray[Any]:
    import numpy as np

    return np.array(tensor.numpy())


def _tensors(tensors: Mapping[str, ArrayLike]) -> Iterator[Tensor]:
    from holdall.model import model_of

    return iter(model_of(tensors).tensors)
