"""Lazy changes to tensors on their way from one file to another: choosing, renaming, casting, transposing.

Nothing is read here. A changed tensor gets a payload that is made, block by block, when the sink asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DTYPES, FINITE, DType, float_info, named
from holdall.errors import ContentError, UnsupportedError
from holdall.payload import Made
from holdall.sizes import tuned
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Changes", "cast", "dequantized", "parse_cast", "parse_rename", "transposed"]

_BLOCK = tuned(16 << 20)  # bytes of the larger side of a block on its way through a cast or a transposition


@dataclass(frozen=True, slots=True)
class Changes:
    """What to do to each tensor; the empty one changes nothing.

    Patterns are shell globs over names as they are in the source. ``cast`` pairs a pattern with a dtype, the
    first match counts; the empty pattern means every tensor of floats. ``rename`` is a list of (regular expression,
    replacement, how often), applied in order.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    rename: Sequence[tuple[str, str, int]] = ()
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
        for pattern, replacement, often in self.rename:
            renamed = re.sub(pattern, replacement, renamed, count=often)
        return renamed

    def idle(self, names: Sequence[str], chosen: Sequence[str]) -> list[str]:
        """The patterns and rules that no tensor answers to, of all or of the chosen: most likely a slip of the pen."""
        globs = [
            *(("include", pattern, names) for pattern in self.include),
            *(("exclude", pattern, names) for pattern in self.exclude),
            *(("cast", pattern, chosen) for pattern, _ in self.cast if pattern),
            *(("transpose", pattern, chosen) for pattern in self.transpose),
        ]
        found = [f"{what} {p!r}" for what, p, among in globs if not any(fnmatchcase(name, p) for name in among)]
        known = set(chosen)
        found += [f"rename {old!r}" for old in self.names if old not in known]
        for pattern, _, _ in self.rename:
            if not any(re.search(pattern, name) for name in chosen):
                found.append(f"rename {pattern!r}")
        return found

    def apply(self, tensor: Tensor, tell: Callable[[str], None] = lambda text: None) -> Tensor:
        """The tensor as asked for, with its bytes still to be made; ``tell`` hears of values beyond the new type."""
        name = tensor.name
        if any(fnmatchcase(name, pattern) for pattern in self.dequantize) and not isinstance(tensor.dtype, DType):
            tensor = dequantized(tensor)
        if any(fnmatchcase(name, pattern) for pattern in self.transpose):
            tensor = transposed(tensor)
        for pattern, dtype in self.cast:
            if fnmatchcase(name, pattern) if pattern else _is_float(tensor):
                tensor = cast(tensor, named(dtype), tell)
                break
        return tensor.replace(name=self.new_name(name))


def _is_float(tensor: Tensor) -> bool:
    return isinstance(tensor.dtype, DType) and tensor.dtype.kind == "float"


def parse_cast(rules: str | Iterable[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    """Cast rules from ``"bf16"`` (every tensor of floats), ``["*.norm*=f32", "bf16"]`` or ``{"*.norm*": "f32"}``.

    >>> parse_cast(["*.norm*=f32", "bf16"])
    [('*.norm*', 'f32'), ('', 'bf16')]
    """
    if isinstance(rules, Mapping):
        pairs = list(rules.items())
    else:
        texts = [rules] if isinstance(rules, str) else rules
        parts = (text.rpartition("=") for text in texts)
        pairs = [(pattern, dtype) for pattern, _, dtype in parts]
    for _, dtype in pairs:
        if dtype not in DTYPES:
            raise UnsupportedError(f"there is no dtype {dtype!r} to cast to; the dtypes are {' '.join(DTYPES)}")
    return pairs


def parse_rename(rules: Iterable[str]) -> list[tuple[str, str, int]]:
    """Rename rules written as ``s/old/new/``, as in sed: the first match, or with a ``g`` at the end all of them.

    Any character can stand for the slash.

    >>> parse_rename(["s/^model[.]//", "s|/|.|g"])
    [('^model[.]', '', 1), ('/', '.', 0)]
    """
    pairs = []
    for rule in rules:
        parts = rule[2:].split(rule[1]) if len(rule) > 3 and rule[0] == "s" else []
        if len(parts) != 3 or parts[2] not in ("", "g") or not parts[0]:
            raise UnsupportedError(f"a rename rule looks like s/old/new/, not {rule!r}")
        try:
            re.sub(parts[0], parts[1], "")  # also reads the replacement, whose groups may not exist
        except (re.error, IndexError) as error:
            raise UnsupportedError(f"the rename rule {rule!r} is no regular expression: {error}") from None
        pairs.append((parts[0], parts[1], 0 if parts[2] else 1))
    return pairs


def cast(tensor: Tensor, dtype: DType, tell: Callable[[str], None] = lambda text: None) -> Tensor:
    """``tensor`` in another dtype. Floats round to nearest even; an integer that would become another number stops it.

    ``tell`` hears how many values are beyond the new type, once the tensor has been made.
    """
    if tensor.dtype == dtype:
        return tensor
    if not isinstance(tensor.dtype, DType):
        raise ContentError(f"tensor {tensor.name!r} is {tensor.dtype}: dequantize it before casting")
    if tensor.payload is None:
        return Tensor(tensor.name, dtype, tensor.shape, None)
    source = tensor.dtype
    count = _BLOCK * 8 // max(source.bits, dtype.bits, 32)

    def make() -> Iterator[memoryview]:
        beyond = first = 0
        for block in tensor.blocks(count):
            values = source.widened(block)
            try:
                stored = dtype.encode(values)
                if dtype.kind in ("float", "complex") and values.dtype.kind in "iub":
                    _refuse_other_integers(values, dtype, stored, first)
            except ContentError as error:
                raise ContentError(f"tensor {tensor.name!r}: {error}") from None
            beyond += _beyond(values, dtype, stored)
            yield stored
            first += values.size
        if beyond:
            noun = "value is" if beyond == 1 else "values are"
            become = "held at its largest" if dtype.name in FINITE else "now infinite or NaN"
            tell(f"tensor {tensor.name!r}: {beyond} {noun} beyond {dtype} and {become}")

    return Tensor(tensor.name, dtype, tensor.shape, Made(dtype.nbytes(tensor.shape), make, tensor.payloads))


def _refuse_other_integers(values: NDArray[Any], dtype: DType, stored: memoryview, first: int) -> None:
    """ContentError for an integer that a cast to floats would change."""
    import numpy as np

    back = dtype.decode_flat(stored, 0, values.size).real.astype(np.float64)
    exact = np.abs(back) < 2.0**63  # what the comparison can tell, infinities apart
    exact[exact] = back[exact].astype(np.int64) == values.astype(np.int64, copy=False)[exact]
    if not exact.all():
        at = int((~exact).argmax())
        raise ContentError(f"element {first + at} is {values[at]}, which {dtype} does not hold")


def _beyond(values: NDArray[Any], dtype: DType, stored: memoryview) -> int:
    """How many numbers a cast to floats makes infinite, infinities NaN, or holds at the largest there is."""
    import numpy as np

    if values.dtype.kind not in "fcV" or dtype.kind not in ("float", "complex"):
        return 0
    largest = float(float_info(dtype.numpy).max)
    signed = dtype.name != "f8_e8m0"  # which has no zero either
    if signed and largest >= float(float_info(values.dtype).max):
        return 0
    if values.dtype.itemsize == 1:
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):  # of complex numbers
        over = np.abs(values) > largest
    if signed and not over.any():
        return 0
    if dtype.name in FINITE:  # it has refused what is not finite
        return int(over.sum())
    back = dtype.decode_flat(stored, 0, values.size)
    return int(((np.isfinite(values) & ~np.isfinite(back)) | (np.isinf(values) & np.isnan(back))).sum())


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

    return Tensor(tensor.name, dtype, shape, Made(dtype.nbytes(shape), make, tensor.payloads))


def dequantized(tensor: Tensor) -> Tensor:
    """An encoded tensor as float32."""
    f32 = DTYPES["f32"]

    def make() -> Iterator[memoryview]:
        for block in tensor.blocks(_BLOCK // 4):
            yield f32.encode(block)

    return Tensor(tensor.name, f32, tensor.shape, Made(f32.nbytes(tensor.shape), make, tensor.payloads))
