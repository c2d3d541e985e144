"""Where two models differ, whatever containers they are in.

Tensors are paired by name, then those left over by content. A pair of one dtype and shape is compared byte for byte
first, which is all that equal files cost; only what differs is decoded and measured. Everything streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from math import inf, log10, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdall import kernels
from holdall.api import open_model
from holdall.dtypes import DType
from holdall.errors import HashError, HoldallError
from holdall.metadata import without_own
from holdall.model import Model
from holdall.payload import Range
from holdall.proof import Proving, proofs_of
from holdall.sizes import tuned
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.limits import Limits
    from holdall.source import Openable

__all__ = ["Difference", "Distance", "TensorDifference", "diff"]

_BLOCK = tuned(1 << 20)  # elements compared at a time
_PIECE = tuned(1 << 20)  # bytes compared at a time: both sides and the result stay in the cache
_LANES = 2  # tensors compared at a time

Verdict = Literal["equal", "different", "dtype", "shape", "only a", "only b", "renamed", "data"]


@dataclass(frozen=True, slots=True)
class Distance:
    """How far two tensors of one shape are apart. Two NaNs are equal, equal infinities too.

    ``wild`` counts the elements that differ and are not finite on one side; they are in none of the measures.
    """

    count: int
    different: int
    wild: int
    max: float
    rmse: float
    snr_db: float  # of a over a-b; inf when the finite elements are equal
    cosine: float


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """One pair of tensors, or one without a partner."""

    name: str
    verdict: Verdict
    detail: str = ""
    distance: Distance | None = None


@dataclass(slots=True)
class Difference:
    """All that differs between two models; false when nothing does.

    >>> bool(Difference("a", "b"))
    False
    """

    a: str
    b: str
    equal: int = 0  # tensors that are the same to the bit
    tensors: list[TensorDifference] = field(default_factory=list)
    metadata: list[tuple[str, Any, Any]] = field(default_factory=list)  # key, in a, in b; None where it is missing
    assets: list[tuple[str, str]] = field(default_factory=list)  # name, and what about it

    def __bool__(self) -> bool:
        return bool(self.tensors or self.metadata or self.assets)

    def __str__(self) -> str:
        if not self:
            return f"{self.a} and {self.b} are equal: {_count(self.equal, 'tensor')}"
        other = f"{len(self.metadata)} of metadata, {len(self.assets)} of assets"
        differ = _count(len(self.tensors), "tensor")
        return f"{self.a} and {self.b} differ in {differ}, {other}; {_count(self.equal, 'tensor')} equal"


def diff(
    a: Openable | Model,
    b: Openable | Model,
    *,
    measure: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    check: bool = True,
) -> Difference:
    """Compare two models, or files of any formats. ``measure=False`` says only whether tensors are equal.

    Tensors that their file states a hash of are proven meanwhile; one that does not have it raises HashError.
    ``check=False`` compares the bytes as they are.

    >>> import holdall, numpy as np
    >>> holdall.save("a.oinf", {"w": np.zeros(4, np.float32)})
    >>> holdall.save("b.oinf", {"w": np.array([0, 0, 0, 2], np.float32)})
    >>> holdall.diff("a.oinf", "b.oinf").tensors[0].distance.max
    2.0
    """
    with ExitStack() as stack:
        opened = partial(open_model, mmap=False, limits=limits, allowed=allowed, check=None if check else False)
        left, right = (x if isinstance(x, Model) else stack.enter_context(opened(x)) for x in (a, b))
        proofs = [*proofs_of(left), *proofs_of(right)] if check else []
        with Proving(proofs) as proving:
            return _Comparison(left, right, measure, progress, proving).run()


class _Comparison:
    """Two open models on their way to a Difference."""

    def __init__(
        self, a: Model, b: Model, measure: bool, progress: Callable[[int, int], None] | None, proving: Proving
    ) -> None:
        self.a, self.b = a, b
        self.proving = proving
        self.measure = measure
        self.progress = progress
        self.total = a.nbytes
        self.done = 0

    def run(self) -> Difference:
        found = Difference(_name(self.a), _name(self.b))
        names_b = set(self.b.tensors.names)
        shared = [name for name in self.a.tensors.names if name in names_b]
        with ThreadPoolExecutor(_LANES, "holdall-diff") as pool:
            for result in pool.map(self._compare, shared):
                self.proving.raise_if_failed()
                if result.verdict == "equal":
                    found.equal += 1
                else:
                    found.tensors.append(result)
        only_a = [self.a[name] for name in self.a.tensors.names if name not in names_b]
        only_b = [self.b[name] for name in self.b.tensors.names if name not in self.a]
        found.tensors += _unpaired(only_a, only_b)
        found.metadata = _metadata(self.a, self.b)
        found.assets = _assets(self.a, self.b)
        return found

    def _compare(self, name: str) -> TensorDifference:
        self.proving.raise_if_failed()
        a, b = self.a[name], self.b[name]
        try:
            return self._pair(a, b)
        except HashError:
            raise
        except HoldallError as error:
            return TensorDifference(name, "data", f"cannot be compared: {error}")
        finally:
            self.done += a.nbytes
            if self.progress is not None:
                self.progress(self.done, self.total)

    def _pair(self, a: Tensor, b: Tensor) -> TensorDifference:
        if a.has_data != b.has_data:
            return TensorDifference(
                a.name, "data", f"{'a' if a.has_data else 'b'} has data, the other only declares it"
            )
        if a.shape != b.shape:
            return TensorDifference(a.name, "shape", f"{list(a.shape)} became {list(b.shape)}")
        retyped = str(a.dtype) != str(b.dtype)
        if not a.has_data:
            detail = f"{a.dtype} became {b.dtype}"
            return TensorDifference(a.name, "dtype", detail) if retyped else TensorDifference(a.name, "equal")
        if not retyped and _same_bytes(a, b):
            return TensorDifference(a.name, "equal")
        distance = _distance(a, b) if self.measure else None
        if retyped:
            return TensorDifference(a.name, "dtype", f"{a.dtype} became {b.dtype}", distance)
        if distance is not None and distance.different == 0:
            return TensorDifference(a.name, "different", "equal values in other bits (-0.0, NaN payloads)", distance)
        return TensorDifference(a.name, "different", "", distance)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name(model: Model) -> str:
    return model.sources[0].name if model.sources else "<memory>"


def _same_bytes(a: Tensor, b: Tensor) -> bool:
    assert a.payload is not None and b.payload is not None
    if a.nbytes != b.nbytes:
        return False
    left, right = a.payload.chunks(_PIECE), b.payload.chunks(_PIECE)
    same = all(_equal(x, y) for x, y in zip(left, right, strict=True))
    if not same:
        for payload, rest in ((a.payload, left), (b.payload, right)):
            if not isinstance(payload, Range):  # what is inflated proves its checksum at its end
                deque(rest, 0)
    return same


def _equal(x: memoryview, y: memoryview) -> bool:
    """As ``x == y``, which goes byte by byte through Python objects: eight bytes at a time."""
    whole = len(x) // 8 * 8
    words = np.frombuffer(x[:whole], np.uint64), np.frombuffer(y[:whole], np.uint64)
    return bool(np.array_equal(*words)) and bytes(x[whole:]) == bytes(y[whole:])


def _distance(a: Tensor, b: Tensor) -> Distance:
    """Measured in blocks of float32; types that float32 cannot hold exactly are compared in float64."""
    different = wild = 0
    largest = squares = left = right = product = 0.0
    exact = _fits_f32(a) and _fits_f32(b)
    for x, y in _paired_blocks(a, b):
        part = kernels.distance(_as_f32(a, x), _as_f32(b, y)) if exact else _wide_distance(x, y)
        different += part[0]
        wild += part[1]
        largest = max(largest, part[2])
        squares, left, right, product = (
            total + more for total, more in zip((squares, left, right, product), part[3:], strict=True)
        )
    count = a.count
    snr = inf if squares == 0 else (-inf if left == 0 else 10 * log10(left / squares))
    scale = sqrt(left) * sqrt(right)
    cosine = product / scale if scale else (1.0 if left == right else 0.0)
    finite = max(1, count - wild)
    return Distance(count, different, wild, inf if wild else largest, sqrt(squares / finite), snr, cosine)


def _fits_f32(tensor: Tensor) -> bool:
    dtype = tensor.dtype
    return not isinstance(dtype, DType) or dtype.bits <= 16 or dtype.name == "f32"


def _as_f32(tensor: Tensor, block: NDArray[Any]) -> NDArray[np.float32]:
    wide = tensor.dtype.widened(block) if isinstance(tensor.dtype, DType) else block
    return np.ascontiguousarray(wide, np.float32)


def _wide_distance(x: NDArray[Any], y: NDArray[Any]) -> tuple[int, int, float, float, float, float, float]:
    """As kernels.distance, in the widest type there is; integers are first compared exactly."""
    kind = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    p, q = x.astype(kind), y.astype(kind)
    same = (x == y) | ((p != p) & (q != q))
    both = np.isfinite(p) & np.isfinite(q)
    p, q = np.where(both, p, 0), np.where(both, q, 0)
    apart = np.abs(p - q)
    sums = (float((apart * apart).sum()), float((np.abs(p) ** 2).sum()), float((np.abs(q) ** 2).sum()))
    product = float((p * q.conj()).real.sum())
    return int((~same).sum()), int((~same & ~both).sum()), float(apart.max(initial=0)), *sums, product


def _paired_blocks(a: Tensor, b: Tensor) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Blocks of both tensors, cut to the same sizes."""
    rest_x = rest_y = np.empty(0, np.uint8)
    blocks = zip_longest(a.blocks(_BLOCK), b.blocks(_BLOCK))
    for x, y in blocks:
        if x is not None and y is not None and not rest_x.size and not rest_y.size and x.size == y.size:
            yield x, y
            continue
        rest_x = _joined(rest_x, x)
        rest_y = _joined(rest_y, y)
        size = min(rest_x.size, rest_y.size)
        yield rest_x[:size], rest_y[:size]
        rest_x, rest_y = rest_x[size:].copy(), rest_y[size:].copy()


def _joined(rest: NDArray[Any], block: NDArray[Any] | None) -> NDArray[Any]:
    if block is None:
        return rest
    return np.concatenate([rest, block]) if rest.size else block


def _unpaired(only_a: list[Tensor], only_b: list[Tensor]) -> Iterator[TensorDifference]:
    """Tensors without a partner of the same name: renamed when one of the other side has the same bytes."""
    by_content: dict[tuple[str, tuple[int, ...], bytes], list[Tensor]] = {}
    shapes = {(str(t.dtype), t.shape) for t in only_a if t.nbytes}
    for tensor in only_b:
        if tensor.nbytes and (str(tensor.dtype), tensor.shape) in shapes:
            key = (str(tensor.dtype), tensor.shape, _hash(tensor))
            by_content.setdefault(key, []).append(tensor)
    paired: set[str] = set()
    candidates = {key[:2] for key in by_content}
    for tensor in only_a:
        place = (str(tensor.dtype), tensor.shape)
        partners = by_content.get((*place, _hash(tensor)), []) if place in candidates else []
        if partners:
            partner = partners.pop(0)
            paired.add(partner.name)
            yield TensorDifference(tensor.name, "renamed", f"is called {partner.name!r} in b")
        else:
            yield TensorDifference(tensor.name, "only a", f"{tensor.dtype}{list(tensor.shape)}")
    for tensor in only_b:
        if tensor.name not in paired:
            yield TensorDifference(tensor.name, "only b", f"{tensor.dtype}{list(tensor.shape)}")


def _hash(tensor: Tensor) -> bytes:
    from blake3 import blake3

    digest = blake3()
    assert tensor.payload is not None
    for chunk in tensor.payload.chunks():
        digest.update(chunk)
    return digest.digest()


def _metadata(a: Model, b: Model) -> list[tuple[str, Any, Any]]:
    left, right = dict(without_own(a.metadata)), dict(without_own(b.metadata))
    keys = [*left, *(key for key in right if key not in left)]
    return [(key, left.get(key), right.get(key)) for key in keys if not _same_value(left.get(key), right.get(key))]


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        x, y = np.asarray(a), np.asarray(b)
        return x.shape == y.shape and bool(np.all((x == y) | ((x != x) & (y != y))))
    return bool(a == b) or (a != a and b != b)


def _assets(a: Model, b: Model) -> list[tuple[str, str]]:
    found = [(name, "only a") for name in a.assets if name not in b.assets]
    found += [(name, "only b") for name in b.assets if name not in a.assets]
    found += [(name, "different") for name in a.assets if name in b.assets and a.assets[name] != b.assets[name]]
    return found
