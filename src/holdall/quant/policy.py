"""Which tensors are quantized, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from holdall.errors import UnsupportedError
from holdall.model.encodings import Encoding, Opaque
from holdall.model.table import form_of
from holdall.quant.methods import WEIGHTS, Method, find_method

if TYPE_CHECKING:
    from holdall.model.forms import Form
    from holdall.model.tensor import Tensor

__all__ = ["Choice", "MethodRule", "NameFacts", "Policy", "parse_rule"]

FLOATS = ("f32", "f16", "bf16")

# Small and sensitive tensors, which no matrix product uses.
SPARED = ("*norm*", "*bias*", "*.ln_*", "*layer_scale*", "*position_ids*")

# Matrices whose error reaches the output directly (the error of queries and keys passes a softmax first), and the small
# tables that are added to every token; by their names in BERT, Llama, GPT-2 and GGUF.
SENSITIVE = (
    *("*.value.weight", "*.intermediate.dense.weight", "*layer.*[0-9].output.dense.weight"),
    *("*.v_proj.weight", "*.gate_proj.weight", "*.up_proj.weight", "*.down_proj.weight"),
    *("*.c_attn.weight", "*.c_fc.weight", "*.mlp.c_proj.weight"),
    *("*.attn_v.weight", "*.ffn_gate.weight", "*.ffn_up.weight", "*.ffn_down.weight"),
    *("*position_embeddings.weight", "*token_type_embeddings.weight", "*wpe.weight"),
    *("*position_embd.weight", "*token_types.weight"),
)


@dataclass(frozen=True, slots=True)
class MethodRule:
    """Tensors whose name matches ``pattern`` get ``method``; None leaves them unchanged.

    >>> parse_rule("*.embed*=q8")
    MethodRule(pattern='*.embed*', method='q8')
    """

    pattern: str
    method: str | None


# Of a name: the pattern that excludes it, the rule that it follows, and why it is spared; None where there is none.
NameFacts: TypeAlias = tuple[str | None, MethodRule | None, str | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """What happens to one tensor, and why."""

    method: Method | None
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Chooses matrices of floats, but no norms, biases or other tensors. The first rule that matches a name counts.

    Methods that take any rank (int8, int4) also take tensors of rank 3 and more; vectors only when they are named.

    ``include`` replaces the list of names that are spared by default, ``exclude`` adds to it. ``min_size`` is in
    elements. ``sensitive`` is the method for :data:`SENSITIVE` matrices that no rule names. ``every`` chooses as
    the reference quantizer does: all matrices of floats, whatever their name and size.

    >>> Policy("k6", sensitive="q8").rule_for("blk.0.attn_v.weight")
    MethodRule(pattern='*.attn_v.weight', method='q8')
    """

    method: str = "k4"
    rules: Sequence[MethodRule] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    min_size: int = 0
    every: bool = False
    sensitive: str | None = None
    domain: int = WEIGHTS

    def __post_init__(self) -> None:
        for name in (self.method, self.sensitive, *(rule.method for rule in self.rules)):
            if name is not None:
                find_method(name)

    def rule_for(self, name: str) -> MethodRule | None:
        """The rule that a tensor of this name follows, if any."""
        found = next((rule for rule in self.rules if fnmatchcase(name, rule.pattern)), None)
        if found is None and self.sensitive is not None:
            pattern = _first_match(name, SENSITIVE)
            return None if pattern is None else MethodRule(pattern, self.sensitive)
        return found

    def choose(self, tensor: Tensor) -> Choice:
        """Choose the method for ``tensor``, or why it stays unchanged."""
        return self.choose_form(self.read_name(tensor.name), form_of(tensor))

    def read_name(self, name: str) -> NameFacts:
        """What follows from the name of a tensor."""
        spared = None
        if self.include:
            spared = None if _first_match(name, self.include) is not None else "not included"
        elif (pattern := _first_match(name.lower(), SPARED)) is not None:
            spared = f"spared by {pattern}"
        return _first_match(name, self.exclude), self.rule_for(name), spared

    def choose_form(self, facts: NameFacts, form: Form) -> Choice:
        """Choose the method for a tensor of this form whose name has these ``facts``; see :meth:`choose`."""
        excluded, rule, spared = facts
        if isinstance(form.dtype, Opaque):
            return Choice(None, f"is {form.dtype}, which holdall does not decode")
        if isinstance(form.dtype, Encoding):
            return Choice(None, f"is {form.dtype} already")
        if form.dtype.name not in FLOATS:
            return Choice(None, f"{form.dtype} is not quantized")
        if form.size is None:
            return Choice(None, "has no data")
        if excluded is not None:
            return Choice(None, f"excluded by {excluded}")
        if rule is not None and rule.method is None:
            return Choice(None, f"rule {rule.pattern}=none")
        method = find_method(self.method if rule is None or rule.method is None else rule.method)
        rank = len(form.shape)
        if not method.fits(form.shape) or (rule is None and not self._takes_rank(rank)):
            return Choice(None, f"rank {rank}" if 0 not in form.shape else "empty")
        if rule is None and not self.every:
            reason = spared or self._reason_to_spare(form, method)
            if reason:
                return Choice(None, reason)
        unnamed = "matrix" if rank == 2 else f"rank {rank}"
        return Choice(method, unnamed if rule is None else f"rule {rule.pattern}")

    def _takes_rank(self, rank: int) -> bool:
        """Whether this rank is chosen: always 2, from 3 on unless ``every``, and below 2 only with ``include``."""
        return rank == 2 or (not self.every and (rank > 2 or bool(self.include)))

    def _reason_to_spare(self, form: Form, method: Method) -> str:
        """Why tensors of this form that no rule names stay unchanged; empty if they are quantized."""
        count = prod(form.shape)
        if count < self.min_size:
            return f"{count} elements"
        if method.nbytes(form.shape, self.domain) >= (form.size or 0):
            return f"{method.name} would not be smaller"
        return ""


def _first_match(name: str, patterns: Sequence[str]) -> str | None:
    if not patterns or not _may_match(name, *_divide(tuple(patterns))):  # most names match none of them
        return None
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def _may_match(name: str, inner: Sequence[str], others: re.Pattern[str] | None) -> bool:
    return any(text in name for text in inner) or (others is not None and others.match(name) is not None)


@lru_cache(maxsize=16)
def _divide(patterns: tuple[str, ...]) -> tuple[list[str], re.Pattern[str] | None]:
    """Divide patterns into the texts of those such as ``*norm*``, and a regular expression for all others."""
    inner = {pattern: pattern[1:-1] for pattern in patterns if re.fullmatch(r"[*][^*?[]+[*]", pattern)}
    others = [translate(pattern) for pattern in patterns if pattern not in inner]
    return list(inner.values()), re.compile("|".join(others)) if others else None


def parse_rule(text: str) -> MethodRule:
    """Parse a rule written as ``PATTERN=METHOD``; the method ``none`` leaves the tensors unchanged."""
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UnsupportedError(f"a rule looks like '*.embed*=q8', not {text!r}")
    return MethodRule(pattern, None if name.strip().lower() == "none" else find_method(name).name)


def parse_rules(rules: Iterable[str | MethodRule]) -> tuple[MethodRule, ...]:
    """Rules from texts or rule objects."""
    return tuple(rule if isinstance(rule, MethodRule) else parse_rule(rule) for rule in rules)
