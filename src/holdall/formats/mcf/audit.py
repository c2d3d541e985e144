"""What verification looks at beyond the tables: ModelInfo, and the zeros inside quantized payloads."""

from __future__ import annotations

from holdall.check import Check
from holdall.format import Tick
from holdall.formats.mcf.sections import McfNative
from holdall.model import Model

__all__ = ["audit"]


def audit(model: Model, check: Check, tick: Tick) -> None:
    """ModelInfo at level full; payloads at level strict."""
    assert isinstance(model.native, McfNative)
    with check.scope():
        model.native.parse_model_info(check)
    for tensor in model.tensors:
        tick(tensor.nbytes)
