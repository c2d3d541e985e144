"""Which tensors are quantized, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING

from holdall.encodings import Encoding
from holdall.errors import UnsupportedError
from holdall.quant.methods import Method, method_named

if TYPE_CHECKING:
    from holdall.tensor import Tensor

__all__ = ["Choice", "Policy", "Rule", "parse_rule"]

FLOATS = ("f32", "f16", "bf16")

# Small, sensitive, and not what a matrix product multiplies with.
SPARED = ("*norm*", "*bias*", "*.ln_*", "*layer_scale*", "*position_ids*")

# Where an error reaches the output unsoftened (that of queries and keys passes a softmax first), and the small tables
# that are added to every token; as BERT, Llama, GPT-2 and GGUF call them.
SENSITIVE = (
    *("*.value.weight", "*.intermediate.dense.weight", "*layer.*[0-9].output.dense.weight"),
    *("*.v_proj.weight", "*.gate_proj.weight", "*.up_proj.weight", "*.down_proj.weight"),
    *("*.c_attn.weight", "*.c_fc.weight", "*.mlp.c_proj.weight"),
    *("*.attn_v.weight", "*.ffn_gate.weight", "*.ffn_up.weight", "*.ffn_down.weight"),
    *("*position_embeddings.weight", "*token_type_embeddings.weight", "*wpe.weight"),
    *("*position_embd.weight", "*token_types.weight"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Tensors whose name matches ``pattern`` get ``method``; None leaves them as they are.

    >>> parse_rule("*.embed*=q8")
    Rule(pattern='*.embed*', method='q8')
    """

    pattern: str
    method: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """What happens to one tensor, and why."""

    method: Method | None
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Matrices of floats yes; norms, biases and everything else no. The first rule that matches a name counts.

    Methods that take any rank (int8, int4) also take tensors of rank 3 and more; vectors only when they are named.

    ``include`` replaces the list of names that are spared by default, ``exclude`` adds to it. ``min_size`` is in
    elements. ``sensitive`` is the method for :data:`SENSITIVE` matrices that no rule names. ``every`` is the reference
    quantizer's way: all matrices of floats, whatever their name and size.

    >>> Policy("k6", sensitive="q8").rule_for("blk.0.attn_v.weight")
    Rule(pattern='*.attn_v.weight', method='q8')
    """

    method: str = "k4"
    rules: Sequence[Rule] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    min_size: int = 0
    every: bool = False
    sensitive: str | None = None

    def __post_init__(self) -> None:
        for name in (self.method, self.sensitive, *(rule.method for rule in self.rules)):
            if name is not None:
                method_named(name)

    def rule_for(self, name: str) -> Rule | None:
        """The rule that a tensor of this name follows, if any."""
        sensitive = () if self.sensitive is None else (Rule(pattern, self.sensitive) for pattern in SENSITIVE)
        return next((rule for rule in chain(self.rules, sensitive) if fnmatchcase(name, rule.pattern)), None)

    def choose(self, tensor: Tensor) -> Choice:
        """The method for ``tensor``, or why it stays as it is."""
        name = tensor.name
        if isinstance(tensor.dtype, Encoding):
            return Choice(None, f"is {tensor.dtype} already")
        if tensor.dtype.name not in FLOATS:
            return Choice(None, f"{tensor.dtype} is not quantized")
        if not tensor.has_data:
            return Choice(None, "has no data")
        spared = next((pattern for pattern in self.exclude if fnmatchcase(name, pattern)), None)
        if spared is not None:
            return Choice(None, f"excluded by {spared}")
        rule = self.rule_for(name)
        if rule is not None and rule.method is None:
            return Choice(None, f"rule {rule.pattern}=none")
        method = method_named(self.method if rule is None or rule.method is None else rule.method)
        rank = len(tensor.shape)
        if not method.fits(tensor.shape) or (rule is None and not self._takes_rank(rank)):
            return Choice(None, f"rank {rank}" if 0 not in tensor.shape else "empty")
        if rule is None and not self.every:
            reason = self._spares(tensor, method)
            if reason:
                return Choice(None, reason)
        unnamed = "matrix" if rank == 2 else f"rank {rank}"
        return Choice(method, unnamed if rule is None else f"rule {rule.pattern}")

    def _takes_rank(self, rank: int) -> bool:
        """Matrices always; what else the method takes from rank 3 on, and below that when ``include`` asks for it."""
        return rank == 2 or (not self.every and (rank > 2 or bool(self.include)))

    def _spares(self, tensor: Tensor, method: Method) -> str:
        name = tensor.name
        if self.include:
            if not any(fnmatchcase(name, pattern) for pattern in self.include):
                return "not included"
        else:
            spared = next((pattern for pattern in SPARED if fnmatchcase(name.lower(), pattern)), None)
            if spared is not None:
                return f"spared by {spared}"
        if tensor.count < self.min_size:
            return f"{tensor.count} elements"
        if method.nbytes(tensor.shape) >= tensor.nbytes:
            return f"{method.name} would not be smaller"
        return ""


def parse_rule(text: str) -> Rule:
    """A rule written as ``PATTERN=METHOD``; ``none`` as the method leaves the tensors as they are."""
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UnsupportedError(f"a rule looks like '*.embed*=q8', not {text!r}")
    return Rule(pattern, None if name.strip().lower() == "none" else method_named(name).name)


def parse_rules(rules: Iterable[str | Rule]) -> tuple[Rule, ...]:
    """Rules as they come from people and from code."""
    return tuple(rule if isinstance(rule, Rule) else parse_rule(rule) for rule in rules)
