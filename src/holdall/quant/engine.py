"""The inner loops: in C where the kernels were compiled, else their twins in reference.py. Both give the same bits."""

from __future__ import annotations

from holdall import kernels

if kernels.NATIVE:
    from holdall.kernels._native import dequantize_blocks, dequantize_flat, quantize_blocks, quantize_flat
else:
    from holdall.quant.reference import dequantize_blocks, dequantize_flat, quantize_blocks, quantize_flat

__all__ = ["dequantize_blocks", "dequantize_flat", "quantize_blocks", "quantize_flat"]
