"""Lazy changes to tensors on their way from one file to another: choosing, renaming, casting, transposing.

Nothing is read here. A changed tensor gets a payload that is made, block by block, when the sink asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from holdall.dtypes import DTYPES, DType, named
from holdall.errors import ContentError, UnsupportedError
from holdall.payload import Made
from holdall.tensor import Tensor

__all__ = ["Changes", "cast", "dequantized", "parse_cast", "parse_rename", "transposed"]

_BLOCK = 16 << 20  # bytes of the larger side of a block on its way through a cast or a transposition


@dataclass(frozen=True, slots=True)
class Changes:
    """What to do to each tensor; the empty one changes nothing.

    Patterns are shell globs over names as they are in the source. ``cast`` pairs a pattern with a dtype, the
    first match counts. ``rename`` is a list of (regular expression, replacement), applied in order.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    rename: Sequence[tuple[str, str]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    cast: Sequence[tuple[str, str]] = ()
    transpose: Sequence[str] = ()
    dequantize: Sequence[str] = ()

    def __bool__(self) -> bool:
        return any((self.include, self.exclude, self.rename, self.names, self.cast, self.transpose, self.dequantize))

    def chooses(self, name: str) -> bool:
        """Whether the tensor called ``name`` is wanted."""
        if self.include and not any(fnmatchcase(name, pattern) for pattern in self.include):
            return False
        return not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def new_name(self, name: str) -> str:
        """What the tensor called ``name`` is called afterwards."""
        renamed = self.names.get(name, name)
        for pattern, replacement in self.rename:
            renamed = re.sub(pattern, replacement, renamed)
        return renamed

    def apply(self, tensor: Tensor) -> Tensor:
        """The tensor as asked for, with its bytes still to be made."""
        name = tensor.name
        if any(fnmatchcase(name, pattern) for pattern in self.dequantize) and not isinstance(tensor.dtype, DType):
            tensor = dequantized(tensor)
        if any(fnmatchcase(name, pattern) for pattern in self.transpose):
            tensor = transposed(tensor)
        for pattern, dtype in self.cast:
            if fnmatchcase(name, pattern):
                tensor = cast(tensor, named(dtype))
                break
        return tensor.replace(name=self.new_name(name))


def parse_cast(rules: str | Iterable[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    """Cast rules from ``"bf16"``, ``["*.norm*=f32", "bf16"]`` or ``{"*.norm*": "f32"}``.

    >>> parse_cast(["*.norm*=f32", "bf16"])
    [('*.norm*', 'f32'), ('*', 'bf16')]
    """
    if isinstance(rules, Mapping):
        pairs = list(rules.items())
    else:
        texts = [rules] if isinstance(rules, str) else rules
        parts = (text.rpartition("=") for text in texts)
        pairs = [(pattern or "*", dtype) for pattern, _, dtype in parts]
    for _, dtype in pairs:
        if dtype not in DTYPES:
            raise UnsupportedError(f"there is no dtype {dtype!r} to cast to; the dtypes are {' '.join(DTYPES)}")
    return pairs


def parse_rename(rules: Iterable[str]) -> list[tuple[str, str]]:
    """Rename rules written as ``s/old/new/``, with any character for the slash.

    >>> parse_rename(["s/^model[.]//"])
    [('^model[.]', '')]
    """
    pairs = []
    for rule in rules:
        parts = rule[2:].split(rule[1]) if len(rule) > 3 and rule[0] == "s" else []
        if len(parts) != 3 or parts[2] or not parts[0]:
            raise UnsupportedError(f"a rename rule looks like s/old/new/, not {rule!r}")
        try:
            re.sub(parts[0], parts[1], "")  # also reads the replacement, whose groups may not exist
        except (re.error, IndexError) as error:
            raise UnsupportedError(f"the rename rule {rule!r} is no regular expression: {error}") from None
        pairs.append((parts[0], parts[1]))
    return pairs


def cast(tensor: Tensor, dtype: DType) -> Tensor:
    """``tensor`` in another dtype. Floats round to nearest even; integers must fit, or the writing stops."""
    if tensor.dtype == dtype:
        return tensor
    if not isinstance(tensor.dtype, DType):
        raise ContentError(f"tensor {tensor.name!r} is {tensor.dtype}: dequantize it before casting")
    if tensor.payload is None:
        return Tensor(tensor.name, dtype, tensor.shape, None)
    source = tensor.dtype
    count = _BLOCK * 8 // max(source.bits, dtype.bits, 32)

    def make() -> Iterator[memoryview]:
        for block in tensor.blocks(count):
            try:
                yield dtype.encode(source.widened(block))
            except ContentError as error:
                raise ContentError(f"tensor {tensor.name!r}: {error}") from None

    return Tensor(tensor.name, dtype, tensor.shape, Made(dtype.nbytes(tensor.shape), make))


def transposed(tensor: Tensor) -> Tensor:
    """``tensor`` with its axes in reverse order, row blocks made one at a time."""
    if not isinstance(tensor.dtype, DType):
        raise ContentError(f"tensor {tensor.name!r} is {tensor.dtype}: dequantize it before transposing")
    dtype, shape = tensor.dtype, tensor.shape[::-1]
    if len(shape) < 2 or tensor.payload is None:
        return tensor.replace(shape=shape)
    row_bytes = max(1, tensor.count // max(1, shape[0]) * max(1, dtype.bits // 8))
    rows = max(8, _BLOCK // row_bytes // 8 * 8)  # blocks of a packed type end on a byte

    def make() -> Iterator[memoryview]:
        for start in range(0, shape[0], rows):
            block = tensor[..., start : start + rows]
            yield dtype.encode(block.transpose())

    return Tensor(tensor.name, dtype, shape, Made(dtype.nbytes(shape), make))


def dequantized(tensor: Tensor) -> Tensor:
    """An encoded tensor as float32."""
    f32 = DTYPES["f32"]

    def make() -> Iterator[memoryview]:
        for block in tensor.blocks(_BLOCK // 4):
            yield f32.encode(block)

    return Tensor(tensor.name, f32, tensor.shape, Made(f32.nbytes(tensor.shape), make))
