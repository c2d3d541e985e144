"""What schemes need to find the weights of a model: its settings, its tensors, and a list of what is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall.model.dtypes import DTYPES
from holdall.model.tensor import Tensor
from holdall.packed.decoders import words_unit
from holdall.packed.settings import find_flaw
from holdall.packed.weight import Decoder, PackedEncoding, Part, Weight

if TYPE_CHECKING:
    from holdall.model.dtypes import DType
    from holdall.model.model import Model

__all__ = ["Finder", "Problem", "column_part", "row_part", "whole_part"]

_FLOATS = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A stored tensor that breaks a rule of its scheme."""

    tensor: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"tensor {self.tensor!r} {self.text} [{self.rule}]"


@dataclass(slots=True)
class Finder:
    """Collects the weights that a scheme finds in ``model``, and what is wrong with them.

    ``settings`` is the part of the configuration that describes the scheme.
    """

    model: Model
    scheme: str
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    weights: list[Weight] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        flaw = find_flaw(self.model)
        if flaw:
            self.report("config.json", "settings", flaw)

    def list_names(self, *endings: str) -> Iterator[tuple[str, str]]:
        """List the tensors whose names have one of the ``endings``, with what is before it."""
        for name in self.model.tensors.names:
            ending = next((each for each in endings if name.endswith(each)), None)
            if ending is not None:
                yield name, name.removesuffix(ending)

    def get(self, name: str) -> Tensor | None:
        """The tensor called ``name``, if there is one."""
        return self.model.get(name)

    def report(self, tensor: str, rule: str, text: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(tensor, f"packed.{self.scheme}.{rule}", text))

    def has_form(
        self, tensor: Tensor | None, name: str, of: str, dtypes: Collection[str], shape: Sequence[int] | None
    ) -> bool:
        """Whether the part called ``name`` of the weight ``of`` is there with one of ``dtypes`` and ``shape``."""
        if tensor is None:
            self.report(of, "part", f"needs {name!r}, which is missing")
            return False
        if str(tensor.dtype) not in dtypes:
            self.report(name, "dtype", f"is {tensor.dtype}, and should be {' or '.join(sorted(dtypes))}")
            return False
        if shape is not None and tensor.shape != tuple(shape):
            self.report(name, "shape", f"is {list(tensor.shape)}, and should be {list(shape)} for {of!r}")
            return False
        return True

    def add(
        self,
        name: str,
        kind: str,
        shape: Sequence[int],
        parts: Sequence[tuple[Tensor, Part]],
        decoder: Decoder,
        *,
        plain: str,
        extra: Sequence[str] = (),
        unused: Sequence[str] = (),
        alone: bool = True,
    ) -> None:
        """Add a weight that is made of ``parts``. Its rows can be decoded ``alone``, or only all of them."""
        whole = not alone or any(tensor.payload is not None and tensor.payload.in_order for tensor, _ in parts)
        layout = tuple(part for _, part in parts)
        encoding = PackedEncoding(f"{self.scheme}.{kind}", tuple(shape), layout, decoder, plain, whole, name)
        weight = Weight(name, encoding, tuple(tensor for tensor, _ in parts), tuple(extra), tuple(unused))
        for each in weight.names:
            if each in self.taken:
                self.report(each, "shared", "belongs to two weights")
        self.taken.update(weight.names)
        self.weights.append(weight)

    def choose_plain(self, stored: DType | object) -> str:
        """Choose the dtype of plain weights: that of the configuration, else ``stored`` if that is a usual one."""
        inner = self.config.get("text_config")
        for holder in (self.config, inner if isinstance(inner, Mapping) else {}):
            for key in ("dtype", "torch_dtype"):
                stated = _FLOATS.get(str(holder.get(key)).removeprefix("torch."))
                if stated is not None:
                    return stated
        return str(stored) if str(stored) in ("bf16", "f16", "f32") else "bf16"


def row_part(tensor: Tensor, unit: int = 1) -> Part:
    """The part of a tensor whose first axis is that of the weight, with an entry for ``unit`` rows."""
    count = tensor.shape[0] if tensor.shape else 1
    return Part(_plain(tensor), 1, count, tensor.count // max(1, count), unit)


def whole_part(tensor: Tensor) -> Part:
    """The part of a tensor that all rows need."""
    return Part(_plain(tensor), 1, 1, tensor.count, 0)


def column_part(tensor: Tensor, bits: int = 32) -> Part:
    """The part of a matrix whose second axis is the first of the weight; its words hold codes of ``bits`` bits."""
    items = 1 if 32 % bits == 0 else bits
    return Part(_plain(tensor), tensor.shape[0], tensor.shape[1] // items, items, words_unit(bits))


def _plain(tensor: Tensor) -> DType:
    return DTYPES[str(tensor.dtype)]
