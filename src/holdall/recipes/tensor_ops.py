"""The operations of recipes on tensors, each with its inverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from holdall.base.text import list_text, plural
from holdall.errors import ContentError
from holdall.model import casts
from holdall.model.dtypes import DTYPES, DType
from holdall.model.tensor import Tensor
from holdall.recipes import norms, pieces
from holdall.recipes.expressions import Misuse

__all__ = ["OPERATIONS", "How", "Lost", "Operation"]

_NAMED = 5  # tensors of one sentence
_LARGEST = float.fromhex("0x1.fffffep127")  # number of an f32

Change = Callable[..., list[Tensor]]  # (tensors, how, *arguments) -> tensors


@dataclass(slots=True)
class Lost:
    """What operations lose: nothing makes it again on the way back."""

    left_out: list[str] = field(default_factory=list)  # names
    folded: int = 0  # norms
    cast: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # before and after, which may be exact
    rounded: dict[str, int] = field(default_factory=dict)  # values of a tensor that are others after there and back

    def join(self, other: Lost) -> Lost:
        """Return what is lost by this, and then by ``other``."""
        return Lost(
            [*self.left_out, *other.left_out],
            self.folded + other.folded,
            [*self.cast, *other.cast],
            {**self.rounded, **other.rounded},
        )

    def describe(self) -> list[str]:
        """Say what is lost, without the casts.

        >>> Lost(left_out=["a", "b"], rounded={"norm.weight": 3}).describe()
        ['2 tensors left out: a, b', "3 values rounded by a sum, which do not come back bit for bit: in 'norm.weight'"]
        """
        count = plural(len(self.left_out), "tensor")
        texts = [f"{count} left out: {list_text(self.left_out)}"] if self.left_out else []
        if self.folded:
            texts.append(f"{plural(self.folded, 'norm')} folded, which come back as norms that only add")
        if self.rounded:
            names = list_text([repr(name) for name in self.rounded], most=_NAMED)
            count = plural(sum(self.rounded.values()), "value")
            texts.append(f"{count} rounded by a sum, which do not come back bit for bit: in {names}")
        return texts


@dataclass(frozen=True, slots=True)
class How:
    """What an operation knows beside its arguments.

    ``main`` is the dtype of most of the model's bytes, ``parts`` are the parts to make, and ``lost`` takes notes.
    """

    main: str
    parts: int
    lost: Lost = field(default_factory=Lost)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: how many arguments it takes, what it does on the way there, and what on the way back.

    ``forward`` and ``back`` get the tensors of one line of a recipe, and the values of the arguments.
    """

    arguments: tuple[int, int]  # at least, at most
    forward: Change
    back: Change
    help: str


def _each(change: Callable[..., Tensor]) -> Change:
    """Make an operation on each tensor from one on a single tensor."""
    return lambda tensors, how, *arguments: [change(tensor, how, *arguments) for tensor in tensors]


def _size(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Misuse(f"{what} is {value!r}, not a whole number")
    return value


def _measure(tensor: Tensor, axis: Any) -> int:
    """Return the length of ``axis``; 0 if the tensor has no such axis."""
    return tensor.shape[axis] if _size(axis, "the axis") < len(tensor.shape) else 0


def _sizes(values: Any, what: str) -> list[int]:
    if not isinstance(values, list):
        raise Misuse(f"{what} are {values!r}, not a list of numbers")
    return [_size(value, what) for value in values]


def _permute(tensor: Tensor, how: How, heads: Any) -> Tensor:
    return pieces.interleave(tensor, _size(heads, "the number of heads"), 2)


def _permute_back(tensor: Tensor, how: How, heads: Any) -> Tensor:
    return pieces.interleave(tensor, _size(heads, "the number of heads"), 2, back=True)


def _transpose(tensor: Tensor, how: How) -> Tensor:
    return casts.transpose(tensor)


def _reshape(tensor: Tensor, how: How, before: Any, after: Any) -> Tensor:
    old, new = _sizes(before, "the dimensions"), _sizes(after, "the dimensions")
    if tensor.shape != tuple(old):
        raise ContentError(f"tensor {tensor.name!r} {tensor.dtype}{list(tensor.shape)} should have the shape {old}")
    if prod(old) != prod(new):
        raise ContentError(f"tensor {tensor.name!r}: the shape {old} cannot become {new}")
    return tensor.replace(shape=tuple(new))


def _reshape_back(tensor: Tensor, how: How, before: Any, after: Any) -> Tensor:
    return _reshape(tensor, how, after, before)


def _cast(tensor: Tensor, how: How, dtype: Any) -> Tensor:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise Misuse(f"there is no dtype {dtype!r} to cast to")
    made = casts.cast(tensor, DTYPES[dtype])
    how.lost.cast.append((tensor, made))
    return made


def _cast_back(tensor: Tensor, how: How, dtype: Any) -> Tensor:
    """Return the tensor as the dtype of most others, from which it was cast, if that changes no value."""
    target = DTYPES.get(how.main)
    if target is None or tensor.dtype == target or not _is_exact(tensor, target):
        return tensor
    return casts.cast(tensor, target)


def _is_exact(tensor: Tensor, target: DType) -> bool:
    """Whether all values of ``tensor`` are values of ``target``. It reads them."""
    import numpy as np

    if not isinstance(tensor.dtype, DType) or tensor.dtype.kind != "float" or target.kind != "float":
        return False
    if tensor.payload is None:
        return True
    narrow = casts.cast(tensor, target)
    for before, after in zip(tensor.blocks(), narrow.blocks(), strict=True):
        wide = np.promote_types(np.float32, before.dtype if before.dtype.kind == "f" else np.float32)
        if not np.array_equal(before.astype(wide), after.astype(wide), equal_nan=True):
            return False
    return True


def _take_one(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) != 1:
        raise Misuse(f"one tensor is taken apart, and there are {len(tensors)}")
    return tensors[0]


def _concatenate(tensors: Sequence[Tensor], how: How, axis: Any, sizes: Any = None) -> list[Tensor]:
    joined = pieces.concatenate(tensors, _size(axis, "the axis"))
    found = [tensor.shape[axis] for tensor in tensors]
    wanted = found[:1] * len(found) if sizes is None else _sizes(sizes, "the sizes")
    if sizes is not None:
        pieces.split(joined, axis, wanted)  # the way back works
    if found != wanted:
        raise ContentError(f"tensor {tensors[0].name!r} and those joined with it have {found} places, not {wanted}")
    return [joined]


def _split(tensors: Sequence[Tensor], how: How, axis: Any, sizes: Any) -> list[Tensor]:
    return [
        part for each in tensors for part in pieces.split(each, _size(axis, "the axis"), _sizes(sizes, "the sizes"))
    ]


def _split_equal(tensors: Sequence[Tensor], how: How, axis: Any, sizes: Any = None) -> list[Tensor]:
    if sizes is not None:
        return _split(tensors, how, axis, sizes)
    tensor, count = _take_one(tensors), how.parts
    length = _measure(tensor, axis)
    if not count or length % count:
        raise ContentError(f"tensor {tensor.name!r} {list(tensor.shape)} cannot be split into {count} equal parts")
    return pieces.split(tensor, axis, [length // count] * count)


def _roll(tensor: Tensor, how: How, axis: Any, places: Any) -> Tensor:
    length, places = _measure(tensor, axis), _size(places, "the places")
    if places > length:
        raise ContentError(f"tensor {tensor.name!r} {list(tensor.shape)} has no {places} places in dimension {axis}")
    first, last = pieces.split(tensor, axis, [length - places, places])
    return pieces.concatenate([last, first], axis)


def _roll_back(tensor: Tensor, how: How, axis: Any, places: Any) -> Tensor:
    return _roll(tensor, how, axis, max(_measure(tensor, axis) - _size(places, "the places"), 0))


def _stack(tensors: Sequence[Tensor], how: How) -> list[Tensor]:
    return [pieces.concatenate(tensors, 0, stacked=True)]


def _unstack(tensors: Sequence[Tensor], how: How) -> list[Tensor]:
    tensor = _take_one(tensors)
    if not tensor.shape:
        raise ContentError(f"tensor {tensor.name!r} has no dimensions, and cannot be taken apart")
    parts = pieces.split(tensor, 0, [1] * tensor.shape[0])
    return [part.replace(shape=part.shape[1:]) for part in parts]


def _add(tensor: Tensor, how: How, constant: Any) -> Tensor:
    if abs(_number(constant, "the constant")) > _LARGEST:
        raise Misuse(f"the constant is {constant!r}, which f32 does not hold")
    rounded = pieces.count_rounded(tensor, constant)
    if rounded:
        how.lost.rounded[tensor.name] = rounded
    return pieces.add(tensor, constant)


def _add_back(tensor: Tensor, how: How, constant: Any) -> Tensor:
    return _add(tensor, how, -_number(constant, "the constant"))


def _fold_norm(tensors: Sequence[Tensor], how: How, eps: Any) -> list[Tensor]:
    if len(tensors) != 5:
        raise Misuse(f"a norm and its convolution are five tensors, and there are {len(tensors)}")
    how.lost.folded += 1
    return norms.fold(tensors, _epsilon(eps))


def _unfold_norm(tensors: Sequence[Tensor], how: How, eps: Any) -> list[Tensor]:
    if len(tensors) != 2:
        raise Misuse(f"a norm is made of a weight and a bias, and there are {len(tensors)} tensors")
    weight, bias = tensors
    return norms.unfold(weight, bias, _epsilon(eps))


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misuse(f"{what} is {value!r}, not a number")
    return float(value)


def _epsilon(value: Any) -> float:
    number = _number(value, "the epsilon")
    if not 0 <= number < 1:
        raise Misuse(f"the epsilon is {value!r}, not a number from 0 to below 1")
    return number


def _keep(tensors: Sequence[Tensor], how: How) -> list[Tensor]:
    return list(tensors)


OPERATIONS = {
    "permute": Operation((1, 1), _each(_permute), _each(_permute_back),
                         "permute(heads): interleave the two halves of each head's rows, for rotary embeddings"),
    "transpose": Operation((0, 0), _each(_transpose), _each(_transpose), "transpose: reverse the axes"),
    "reshape": Operation((2, 2), _each(_reshape), _each(_reshape_back), "reshape([before], [after])"),
    "cast": Operation((1, 1), _each(_cast), _each(_cast_back),
                      "cast('f32'); back to the dtype of most of the model's bytes, if no value changes"),
    "add": Operation((1, 1), _each(_add), _each(_add_back), "add(constant)"),
    "concatenate": Operation((1, 2), _concatenate, _split_equal,
                             "concatenate(axis) or concatenate(axis, [sizes]): join several tensors"),
    "split": Operation((2, 2), _split, _concatenate,
                       "split(axis, [sizes]): one tensor becomes several"),
    "roll": Operation((2, 2), _each(_roll), _each(_roll_back),
                      "roll(axis, places): the last places of an axis become the first"),
    "stack": Operation((0, 0), _stack, _unstack, "stack: one tensor for each number becomes one with a dimension more"),
    "unstack": Operation((0, 0), _unstack, _stack, "unstack: the inverse of stack"),
    "fold_norm": Operation((1, 1), _fold_norm, _unfold_norm,
                           "fold_norm(epsilon): a convolution and its batch norm become one weight and one bias"),
    "duplicate": Operation((0, 0), _keep, _keep, "duplicate: another copy of a tensor that another line takes"),
    "drop": Operation((0, 0), _keep, _keep, "drop: leave the tensor out"),
}  # fmt: skip
