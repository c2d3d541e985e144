"""Quantization: methods, encodings, kernels, error measures, and whole models."""

from __future__ import annotations

from holdall.quant.encodings import MCF, encoding_of
from holdall.quant.methods import METHODS, Method, method_named

__all__ = ["MCF", "METHODS", "Method", "encoding_of", "method_named"]
