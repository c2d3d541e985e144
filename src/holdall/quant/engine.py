"""The inner loops: in C if the kernels were compiled, else those of reference.py. Both give the same bits."""

from __future__ import annotations

from holdall.binary import kernels

if kernels.NATIVE:
    from holdall.binary.kernels._native import dequantize_blocks, dequantize_flat, quantize_blocks, quantize_flat
else:
    from holdall.quant.reference import dequantize_blocks, dequantize_flat, quantize_blocks, quantize_flat

__all__ = ["dequantize_blocks", "dequantize_flat", "quantize_blocks", "quantize_flat"]
