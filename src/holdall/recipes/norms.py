"""Batch norms that are folded into the convolution before them, and back into norms that only add.

A runtime that never trains needs one weight and one bias for both. Each step is rounded to f32, as PyTorch rounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import ContentError
from holdall.model.dtypes import DTYPES
from holdall.model.payload import Computed
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["fold", "unfold"]

_VALUES = buffer_size(1 << 20)  # values at a time


def fold(tensors: Sequence[Tensor], eps: float) -> list[Tensor]:
    """Return the weight and the bias of a convolution that does what a convolution and its norm do.

    ``tensors`` are the convolution's weight, and weight, bias, running mean and running variance of the norm, all f32.

    >>> import numpy as np
    >>> norm = {"g": 2.0, "b": 1.0, "m": 3.0, "v": 4.0}
    >>> norm = [Tensor.of(name, np.full(1, value, np.float32)) for name, value in norm.items()]
    >>> weight, bias = fold([Tensor.of("w", np.full((1, 1, 1, 1), 5, np.float32)), *norm], 0.0)
    >>> weight.numpy().tolist(), bias.numpy().tolist()
    ([[[[5.0]]]], [-2.0])
    """
    conv, *norm = tensors
    channels = conv.shape[0] if conv.shape else 0
    for each in tensors:
        if each.dtype != DTYPES["f32"]:
            raise ContentError(f"tensor {each.name!r} is {each.dtype}: a norm is folded in f32")
    for each in norm:
        if each.shape != (channels,):
            raise ContentError(
                f"tensor {each.name!r} has the shape {list(each.shape)}, and {conv.name!r} has {channels} channels"
            )
    if any(each.payload is None for each in tensors):
        return [Tensor(conv.name, conv.dtype, conv.shape, None), Tensor(norm[1].name, conv.dtype, (channels,), None)]
    inputs = tuple(payload for each in tensors for payload in each.payloads)
    norms = tuple(payload for each in norm for payload in each.payloads)
    size = conv.count // channels if channels else 0

    def make_weight() -> Iterator[memoryview]:
        import numpy as np

        scales, start = _scale(norm, eps), 0
        for block in conv.blocks(_VALUES):
            places = np.arange(start, start + block.size) // max(1, size)
            yield (block * scales[places]).data.cast("B")
            start += block.size

    def make_bias() -> Iterator[memoryview]:
        _, beta, mean, _ = (each.numpy() for each in norm)
        yield ((0 - mean) * _scale(norm, eps) + beta).data.cast("B")

    weight = Computed(4 * conv.count, make_weight, inputs)
    bias = Computed(4 * channels, make_bias, norms)
    return [Tensor(conv.name, conv.dtype, conv.shape, weight), Tensor(norm[1].name, conv.dtype, (channels,), bias)]


def _scale(norm: Sequence[Tensor], eps: float) -> NDArray[np.float32]:
    import numpy as np

    gamma, _, _, var = (each.numpy() for each in norm)
    with np.errstate(divide="ignore", invalid="ignore"):  # a variance below 0 gives NaN, as in PyTorch
        scale: Any = gamma * (np.float32(1) / np.sqrt(var + np.float32(eps)))
    return np.asarray(scale, np.float32)


def unfold(weight: Tensor, bias: Tensor, eps: float) -> list[Tensor]:
    """Return a convolution with this weight, and a norm that adds the bias: folded, they are the same bit for bit.

    >>> import numpy as np
    >>> parts = unfold(*(Tensor.of(name, np.ones(1, np.float32)) for name in "wb"), 1e-5)
    >>> [part.numpy().tolist() for part in fold(parts, 1e-5)]
    [[1.0], [1.0]]
    """
    import numpy as np

    one = np.float32(1)
    var = one - np.float32(eps)
    while var + np.float32(eps) < one:
        var = np.nextafter(var, one)
    if var + np.float32(eps) != one or bias.ndim != 1:
        raise ContentError(f"tensor {bias.name!r} {list(bias.shape)} cannot become a norm with an epsilon of {eps}")
    values = {"weight": one, "mean": np.float32(0), "var": var}
    gamma, mean, var_ = (
        Tensor.of(f"{bias.name} ({name})", np.full(bias.shape, value, np.float32)) for name, value in values.items()
    )
    return [weight, gamma, bias, mean, var_]
