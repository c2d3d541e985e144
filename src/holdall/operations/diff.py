"""Where two models differ, whatever their containers.

Tensors are paired by name, the remaining ones by content. Pairs of the same dtype and shape are first compared byte for
byte; only those that differ are decoded and measured. Everything is streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdall.base.parallel import map_in_order
from holdall.base.progress import Progress, ignore_count
from holdall.base.text import plural
from holdall.errors import UnsupportedError
from holdall.format import registry
from holdall.format.proof import Prover, proofs_of
from holdall.model.equal_tensors import hash_payload, same_bytes
from holdall.model.growth import limit_passes
from holdall.model.metadata import drop_carried_keys, same_value
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.distance import Distance, measure_distance
from holdall.operations.open_save import open_model
from holdall.operations.paired_tables import PairedTables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.limits import Limits
    from holdall.source import Openable

__all__ = ["Difference", "Distance", "TensorDifference", "compare_pair", "diff", "name_of"]

_SHOWN = 200  # letters of a value

Verdict = Literal["equal", "different", "dtype", "shape", "only a", "only b", "renamed", "data"]


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """One pair of tensors, or one without a partner."""

    name: str
    verdict: Verdict
    detail: str = ""
    distance: Distance | None = None


@dataclass(slots=True)
class Difference:
    """Everything that differs between two models; false when nothing does.

    >>> bool(Difference("a", "b"))
    False
    """

    a: str
    b: str
    equal: int = 0  # tensors with the same bytes
    tensors: list[TensorDifference] = field(default_factory=list)
    metadata: list[tuple[str, Any, Any]] = field(default_factory=list)  # key, in a, in b; None if it is missing
    assets: list[tuple[str, str]] = field(default_factory=list)  # name, and "only a", "only b" or "different"
    requires_grad: list[tuple[str, bool, bool]] = field(default_factory=list)  # tensor, its mark in a, and in b
    native: list[tuple[str, str]] = field(default_factory=list)  # what only their format has: name, and how it differs

    def __bool__(self) -> bool:
        return bool(self.tensors or self.metadata or self.assets or self.requires_grad or self.native)

    def __str__(self) -> str:
        if not self:
            return f"{self.a} and {self.b} are equal: {plural(self.equal, 'tensor')}"
        other = f"{len(self.metadata)} of metadata, {len(self.assets)} of assets"
        if self.requires_grad:
            other += f", {len(self.requires_grad)} of requires_grad"
        if self.native:
            other += f", {len(self.native)} of their format's own content"
        differ = plural(len(self.tensors), "tensor")
        return f"{self.a} and {self.b} differ in {differ}, {other}; {plural(self.equal, 'tensor')} equal"


def diff(
    a: Openable | Model,
    b: Openable | Model,
    *,
    measure: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    follow: str | Collection[str] = (),
    progress: Progress | None = None,
    check: bool = True,
) -> Difference:
    """Compare two models, or files of any formats. ``measure=False`` says only whether tensors are equal.

    Marks of trained tensors are compared where both formats store them, and what only a format has, such as size
    variables, a vocabulary or chunks of other programs, where both files have that format. The hashes that the
    files state of their tensors are checked too; a mismatch raises HashError. ``check=False`` skips this. What cannot
    be read is never called different: the error of reading is raised.

    >>> import holdall, numpy as np
    >>> holdall.save("a.oinf", {"w": np.zeros(4, np.float32)})
    >>> holdall.save("b.oinf", {"w": np.array([0, 0, 0, 2], np.float32)})
    >>> holdall.diff("a.oinf", "b.oinf").tensors[0].distance.max
    2.0
    """
    with ExitStack() as stack:
        opening = partial(
            open_model, mmap=False, limits=limits, allowed=allowed, follow=follow, check=None if check else False
        )
        left, right = (x if isinstance(x, Model) else stack.enter_context(opening(x)) for x in (a, b))
        for model in (left, right):
            limit_passes(model)
        proofs = [*proofs_of(left), *proofs_of(right)] if check else []
        left, right = _join_packed(left, right)
        with Prover(proofs) as prover:
            return _Comparison(left, right, measure, progress, prover).run()


def _join_packed(left: Model, right: Model) -> tuple[Model, Model]:
    """Return the models by their weights if these are packed differently; else what is stored is compared exactly."""
    from holdall.packed import find_weights

    found = find_weights(left), find_weights(right)
    schemes = [None if each is None else each.scheme.name for each in found]
    if schemes[0] == schemes[1]:
        return left, right
    joined = (model if each is None else each.join() for model, each in zip((left, right), found, strict=True))
    return next(joined), next(joined)


class _Comparison:
    """The comparison of two open models."""

    def __init__(self, a: Model, b: Model, measure: bool, progress: Progress | None, prover: Prover) -> None:
        self.a, self.b = a, b
        self.prover = prover
        self.measure = measure
        self.progress = progress
        self.total = a.nbytes
        self.done = 0
        self._tables = PairedTables(a.tensors, b.tensors)
        self._partners = self._tables.partners

    def run(self) -> Difference:
        found = Difference(name_of(self.a), name_of(self.b))
        is_shared = self._partners >= 0
        for equal, others in map_in_order(self._compare_block, self._tables.divide(is_shared.nonzero()[0])):
            self.prover.raise_failure()
            found.equal += equal
            found.tensors += others
        only_a = [self.a.tensors[row] for row in (~is_shared).nonzero()[0].tolist()]
        is_lone = np.ones(len(self.b.tensors), np.bool_)
        is_lone[self._partners[is_shared]] = False
        only_b = [self.b.tensors[row] for row in is_lone.nonzero()[0].tolist()]
        found.tensors += _match_by_content(only_a, only_b)
        found.metadata = _compare_metadata(self.a, self.b)
        found.assets = _compare_assets(self.a, self.b)
        found.requires_grad = _compare_marks(self.a, self.b)
        found.native = _compare_native(self.a, self.b)
        return found

    def _compare_block(self, rows: NDArray[np.intp]) -> tuple[int, list[TensorDifference]]:
        """Compare the tensors in ``rows``. Returns how many are equal, and what is found of the others."""
        self.prover.raise_failure()
        rest = rows if len(rows) == 1 else self._tables.drop_equal(rows)
        self._count(int(self.a.tensors.forms().sizes()[rows].sum()) - int(self.a.tensors.forms().sizes()[rest].sum()))
        others = [found for found in map(self._compare, rest.tolist()) if found.verdict != "equal"]
        return len(rows) - len(others), others

    def _count(self, size: int) -> None:
        """Report that ``size`` more bytes have been compared."""
        self.done += size
        if self.progress is not None:
            self.progress(self.done, self.total)

    def _compare(self, row: int) -> TensorDifference:
        self.prover.raise_failure()
        a, b = self.a.tensors[row], self.b.tensors[int(self._partners[row])]
        rest = a.nbytes

        def count(size: int) -> None:
            nonlocal rest
            size = min(size, rest)  # what differs is read twice
            rest -= size
            self._count(size)

        try:
            return compare_pair(a, b, measure=self.measure, on_bytes=count)
        finally:
            self._count(rest)


def compare_pair(
    a: Tensor, b: Tensor, *, measure: bool = True, on_bytes: Callable[[int], object] = ignore_count
) -> TensorDifference:
    """Compare two tensors: by their bytes, and with ``measure`` by the distance of values that differ.

    ``on_bytes`` gets the number of bytes of each piece of ``a`` that was compared; what it raises ends the work.
    An error of reading is raised: what cannot be read is not known to differ.
    """
    if a.has_data != b.has_data:
        return TensorDifference(a.name, "data", f"{'a' if a.has_data else 'b'} has data, the other only declares it")
    if a.shape != b.shape:
        return TensorDifference(a.name, "shape", f"{list(a.shape)} became {list(b.shape)}")
    retyped = str(a.dtype) != str(b.dtype)
    if not a.has_data:
        detail = f"{a.dtype} became {b.dtype}"
        return TensorDifference(a.name, "dtype", detail) if retyped else TensorDifference(a.name, "equal")
    assert a.payload is not None and b.payload is not None
    if not retyped and same_bytes(a.payload, b.payload, on_bytes):
        return TensorDifference(a.name, "equal")
    distance, unmeasured = None, ""
    try:
        distance = measure_distance(a, b, on_bytes) if measure else None
    except UnsupportedError as error:  # the bytes differ, and nothing decodes them
        unmeasured = f"cannot be measured: {error}"
    if retyped:
        detail = "; ".join(filter(None, (f"{a.dtype} became {b.dtype}", unmeasured)))
        return TensorDifference(a.name, "dtype", detail, distance)
    if distance is not None and distance.different == 0:
        return TensorDifference(a.name, "different", "equal values in other bits (-0.0, NaN payloads)", distance)
    return TensorDifference(a.name, "different", unmeasured, distance)


def name_of(model: Model) -> str:
    """The name of the model's file."""
    return model.sources[0].name if model.sources else "<memory>"


def _match_by_content(only_a: list[Tensor], only_b: list[Tensor]) -> Iterator[TensorDifference]:
    """Tensors without a partner of the same name: renamed when one on the other side has the same bytes."""
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
    assert tensor.payload is not None
    return hash_payload(tensor.payload)


def _compare_metadata(a: Model, b: Model) -> list[tuple[str, Any, Any]]:
    left, right = dict(drop_carried_keys(a.metadata)), dict(drop_carried_keys(b.metadata))
    keys = [*left, *(key for key in right if key not in left)]
    return [(key, left.get(key), right.get(key)) for key in keys if not same_value(left.get(key), right.get(key))]


def _compare_assets(a: Model, b: Model) -> list[tuple[str, str]]:
    found = [(name, "only a") for name in a.assets if name not in b.assets]
    found += [(name, "only b") for name in b.assets if name not in a.assets]
    found += [(name, "different") for name in a.assets if name in b.assets and a.assets[name] != b.assets[name]]
    return found


def _compare_marks(a: Model, b: Model) -> list[tuple[str, bool, bool]]:
    """The tensors of both models whose marks differ; none unless both formats store them."""
    if not all(model.format and registry.find(model.format).holds.requires_grad for model in (a, b)):
        return []
    left, right = (
        dict(zip(model.tensors.names, model.tensors.find_trained().tolist(), strict=True)) for model in (a, b)
    )
    return [(name, mark, right[name]) for name, mark in left.items() if right.get(name, mark) != mark]


def _compare_native(a: Model, b: Model) -> list[tuple[str, str]]:
    """Compare what only their format has; nothing if they have different formats that share no such content."""
    left, right = (registry.find(model.format) if model.format else None for model in (a, b))
    if left is None or right is None or right.name not in (left.name, *left.kin):
        return []
    x, y = left.own_values(a), right.own_values(b)
    pairs = ((name, x.get(name), y.get(name)) for name in (*x, *(name for name in y if name not in x)))
    return [(name, _describe_change(old, new)) for name, old, new in pairs if not same_value(old, new)]


def _describe_change(x: Any, y: Any) -> str:
    """Say how two values differ, without the whole of long ones."""
    if x is None or y is None:
        return "only b" if x is None else "only a"
    if isinstance(x, bytes) or isinstance(y, bytes):
        return "different"
    if isinstance(x, list) and isinstance(y, list):
        differ = (at for at, (p, q) in enumerate(zip(x, y, strict=False)) if not same_value(p, q))
        at = next(differ, min(len(x), len(y)))
        shown = [repr(z[at])[:_SHOWN] if at < len(z) else "nothing" for z in (x, y)]
        return f"{len(x)} items became {len(y)}, the first that differs is {at}: {shown[0]} became {shown[1]}"
    return f"{repr(x)[:_SHOWN]} became {repr(y)[:_SHOWN]}"
