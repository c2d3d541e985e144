"""The inner loops, as reference.py defines them."""

from __future__ import annotations

from holdall.quant.reference import dequantize_blocks, dequantize_flat, quantize_blocks, quantize_flat

__all__ = ["dequantize_blocks", "dequantize_flat", "quantize_blocks", "quantize_flat"]
