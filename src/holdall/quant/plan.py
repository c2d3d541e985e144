"""What quantizing a model will do, as data: the request, and the plan that follows from it for one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from holdall.errors import ContentError
from holdall.quant.arrays import check_mode, clip_bounds
from holdall.quant.methods import find_method
from holdall.quant.policy import MethodRule, NameFacts, Policy, parse_rules
from holdall.quant.record import DOMAINS, Domain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from holdall.model.model import Model
    from holdall.model.table import TensorTable

__all__ = ["PlannedTensor", "QuantPlan", "Quantization", "plan_model"]


@dataclass(frozen=True, slots=True)
class Quantization:
    """What is asked for: which tensors, by which method, in which mode.

    ``rules`` are texts such as ``"*.embed*=q8"``, the first match counts. ``sensitive`` is the method for the matrices
    where errors do most harm (:data:`holdall.quant.policy.SENSITIVE`), unless a rule says otherwise. ``clip`` cuts all
    values to (low, high) first; ``clips`` has such bounds by tensor name, and counts before it. ``importance`` has one
    weight for each column, by tensor name. ``domain`` "activations" stores a zero point too, for int8 and int4.

    >>> Quantization("k6", sensitive="q8").policy.rule_for("blk.0.attn_v.weight").method
    'q8'
    """

    method: str = "k4"
    mode: str = "best"
    rules: Iterable[str | MethodRule] = ()
    sensitive: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    min_size: int = 0
    clip: tuple[float, float] | None = None
    importance: Mapping[str, ArrayLike] = field(default_factory=dict)
    threads: int | None = None
    domain: Domain = "weights"
    clips: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = parse_rules(self.rules)
        object.__setattr__(self, "rules", rules)
        for name in (self.method, self.sensitive, *(rule.method for rule in rules)):
            if name is not None:
                check_mode(find_method(name), self.mode, self.domain)
        for name, bounds in self.clips.items():
            try:
                clip_bounds(0, 0, bounds, self.domain)
            except ContentError as error:
                raise ContentError(f"tensor {name!r}: {error}") from None

    def clip_for(self, name: str) -> tuple[float, float] | None:
        """The bounds to which the values of the tensor called ``name`` are cut; None for none."""
        return self.clips.get(name, self.clip)

    @property
    def policy(self) -> Policy:
        """Which tensors are chosen. Mode ``reference`` without other choices takes every matrix, as the reference."""
        rules = parse_rules(self.rules)
        chosen = rules or self.sensitive or self.include or self.exclude or self.min_size
        every = self.mode == "reference" and not chosen
        return Policy(
            self.method,
            rules,
            tuple(self.include),
            tuple(self.exclude),
            self.min_size,
            every,
            self.sensitive,
            DOMAINS[self.domain],
        )


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """What happens to one tensor, and why. Without a ``method`` it stays the same."""

    name: str
    shape: tuple[int, ...]
    method: str | None
    reason: str
    nbytes: int
    planned_nbytes: int


@dataclass(frozen=True, slots=True)
class QuantPlan:
    """What happens to each tensor of one model.

    ``unmatched`` are the patterns of the request that match no tensor, each after the name of its option: most likely
    they are misspelt.
    """

    request: Quantization
    tensors: tuple[PlannedTensor, ...]
    unmatched: tuple[tuple[str, str], ...] = ()

    @property
    def methods(self) -> dict[str, str]:
        """The method of each tensor that is quantized, by name."""
        return {tensor.name: tensor.method for tensor in self.tensors if tensor.method is not None}


def plan_model(model: Model, request: Quantization) -> QuantPlan:
    """Decide what ``request`` does to each tensor of ``model``. No values are read.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> model = model_of({"w": np.ones((4, 64), np.float32), "b": np.ones(4, np.float32)})
    >>> [(t.name, t.method, t.reason) for t in plan_model(model, Quantization("q8")).tensors]
    [('w', 'q8', 'matrix'), ('b', None, 'rank 1')]
    """
    policy = request.policy
    patterns = [
        *(("rule", rule.pattern) for rule in policy.rules),
        *(("include", pattern) for pattern in policy.include),
        *(("exclude", pattern) for pattern in policy.exclude),
    ]
    names = model.tensors.names
    unmatched = [(option, p) for option, p in patterns if not any(fnmatchcase(name, p) for name in names)]
    return QuantPlan(request, tuple(_plan_tensors(model.tensors, policy)), tuple(unmatched))


def _plan_tensors(table: TensorTable, policy: Policy) -> Iterator[PlannedTensor]:
    """Plan each tensor. What holds for one holds for all of its form whose names say the same."""
    forms = table.forms()
    known: dict[tuple[int, NameFacts], tuple[tuple[int, ...], str | None, str, int, int]] = {}
    for name, code in zip(table.names, forms.codes.tolist(), strict=True):
        key = code, policy.read_name(name)
        if key not in known:
            form, choice = forms.kinds[code], policy.choose_form(key[1], forms.kinds[code])
            method, size = choice.method, form.size or 0
            planned: tuple[str | None, str, int, int] = (None, choice.reason, size, size)
            if method is not None:
                planned = (method.name, choice.reason, size, method.nbytes(form.shape, policy.domain))
            known[key] = (form.shape, *planned)
        yield PlannedTensor(name, *known[key])
