"""How one tensor was quantized: method, domain and clip bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdall.errors import ContentError
from holdall.quant.methods import ACTIVATIONS, METHODS, WEIGHTS

__all__ = ["DOMAINS", "Domain", "QuantRecord"]

Domain = Literal["weights", "activations"]

# The number that stands for each domain in files.
DOMAINS: dict[Domain, int] = {"weights": WEIGHTS, "activations": ACTIVATIONS}


@dataclass(frozen=True, slots=True)
class QuantRecord:
    """The record of one quantized tensor: ``tensor.native`` if the file has one.

    ``min_clip`` and ``max_clip`` are the bounds to which the quantizer clipped (float32 values). They are
    kept for reproduction and never needed to decode.

    >>> QuantRecord("k4", "weights", -0.5, 0.5).super_size
    256
    """

    method: str  # "k4"; the tensor's dtype is then "mcf.k4"
    domain: Domain
    min_clip: float
    max_clip: float

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ContentError(f"mcf: there is no method {self.method!r}; the methods are {', '.join(METHODS)}")
        if self.domain not in DOMAINS:
            raise ContentError(f"mcf: the domain is one of {', '.join(DOMAINS)}, not {self.domain!r}")
        if self.domain == "activations" and METHODS[self.method].family != "int":
            raise ContentError(f"mcf: {self.method} is for weights only; int8 and int4 also take activations")

    @property
    def block_size(self) -> int:
        """Elements that share a scale; 0 if the whole tensor does."""
        return METHODS[self.method].block

    @property
    def super_size(self) -> int:
        """Elements that share a super-scale; 0 if there is none."""
        return METHODS[self.method].super
