"""Quantization: arrays, tensors and whole models, eight methods, three modes, and how much it costs.

>>> import numpy as np, holdall
>>> weights = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
>>> q = holdall.quant.quantize(weights, "k4")
>>> holdall.quant.measure(weights, q).snr_db > 20
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported when first used: a reader that needs the encodings does not pay for the rest.
_HOMES = {
    "MCF": "encodings",
    "METHODS": "methods",
    "Choice": "policy",
    "Measures": "measures",
    "Method": "methods",
    "MethodRule": "policy",
    "Policy": "policy",
    "QuantPlan": "plan",
    "Quantization": "plan",
    "Quantized": "arrays",
    "dequantize_model": "model",
    "encoding_of": "encodings",
    "find_method": "methods",
    "measure": "measures",
    "plan_model": "plan",
    "quantize": "arrays",
    "quantize_model": "model",
    "quantize_tensor": "model",
}

__all__ = ["MCF", "METHODS", "Choice", "Measures", "Method", "MethodRule", "Policy", "QuantPlan", "Quantization"]
__all__ += ["Quantized", "dequantize_model", "encoding_of", "find_method", "measure", "plan_model", "quantize"]
__all__ += ["quantize_model", "quantize_tensor"]

if TYPE_CHECKING:
    from holdall.quant.arrays import Quantized, quantize
    from holdall.quant.encodings import MCF, encoding_of
    from holdall.quant.measures import Measures, measure
    from holdall.quant.methods import METHODS, Method, find_method
    from holdall.quant.model import dequantize_model, quantize_model, quantize_tensor
    from holdall.quant.plan import Quantization, QuantPlan, plan_model
    from holdall.quant.policy import Choice, MethodRule, Policy


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdall.quant' has no attribute {name!r}")
    value = getattr(import_module(f"holdall.quant.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
