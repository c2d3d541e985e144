"""bitsandbytes: int8 with a scale for each row, and NF4 or FP4 with scales for blocks of the flattened weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdall.binary.documents.json import DocumentError, decode
from holdall.limits import DEFAULT_LIMITS
from holdall.model.dtypes import DTYPES
from holdall.model.tensor import Tensor
from holdall.packed.decoders import Looked, RowCodes
from holdall.packed.finder import Finder, row_part, whole_part
from holdall.packed.weight import Part

__all__ = ["find_bitsandbytes"]

# The numbers of the codes, by the type that the name and the description of a weight say.
_TABLES = {
    "nf4": (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
    "fp4": tuple(sign * each / 12 for sign in (1, -1) for each in (0, 0.0625, 8, 12, 4, 6, 2, 3)),
}
_STATES = tuple(f".quant_state.bitsandbytes__{kind}" for kind in _TABLES)
_RANK = 64  # axes of an array, at most
_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_PER_CODE = 7.874015718698502e-3  # 1 / 127: the largest code stands for the scale of its row
_STATE_BYTES = 1 << 16  # of the JSON that describes a weight


def find_bitsandbytes(finder: Finder) -> None:
    """Find the weights of both kinds."""
    for name, weight in finder.list_names(*_STATES):
        _add_four_bits(finder, name, weight)
    for name, stem in finder.list_names(".SCB"):
        _add_int8(finder, finder.model[name], stem)


def _add_int8(finder: Finder, scales: Tensor, stem: str) -> None:
    codes = finder.get(f"{stem}.weight")
    if not finder.has_form(codes, f"{stem}.weight", scales.name, {"i8"}, None):
        return
    assert codes is not None
    if codes.ndim != 2:
        finder.report(codes.name, "shape", f"is {list(codes.shape)}, and should be a matrix")
        return
    layout = finder.get(f"{stem}.weight_format")
    extra = [layout.name] if layout is not None else []
    if layout is not None and not finder.has_form(layout, layout.name, codes.name, {"u8"}, None):
        return
    if layout is not None and (layout.count != 1 or layout.numpy().reshape(-1)[0]):
        finder.report(layout.name, "layout", "does not say that the weight is stored by rows")
        return
    if finder.has_form(scales, scales.name, codes.name, {"f32"}, (codes.shape[0],)):
        parts = [(codes, row_part(codes)), (scales, row_part(scales))]
        decoder = RowCodes(0, (1, max(1, codes.shape[1])), factor=_PER_CODE)
        plain = finder.choose_plain(None) if finder.config else "f16"
        finder.add(codes.name, "int8", codes.shape, parts, decoder, plain=plain, extra=extra)


def _add_four_bits(finder: Finder, name: str, weight: str) -> None:
    kind = name.rpartition("_")[2]
    state = _read_state(finder, finder.model[name], kind)
    codes = finder.get(weight)
    if state is None or not finder.has_form(codes, weight, name, {"u8", "i8", "bf16", "f16", "f32"}, None):
        return
    assert codes is not None
    shape, block, plain = state["shape"], state["blocksize"], _DTYPES[state["dtype"]]
    count = 1
    for each in shape:
        count *= each
    scales, table = finder.get(f"{weight}.absmax"), finder.get(f"{weight}.quant_map")
    nested = "nested_blocksize" in state
    block = max(1, min(block, count))
    blocks = -(-count // block)
    good = finder.has_form(table, f"{weight}.quant_map", weight, {"f32"}, (16,))
    good &= finder.has_form(scales, f"{weight}.absmax", weight, {"u8"} if nested else {"f32"}, (blocks,))
    if codes.nbytes != -(-count // 2):
        finder.report(weight, "shape", f"has {codes.nbytes} bytes, and {list(shape)} takes {-(-count // 2)}")
        good = False
    if not good or table is None or scales is None:
        return
    rows, row = (shape[0], count // shape[0]) if count else (0, 0)
    alone = bool(row) and row % block == 0 and row % 2 == 0  # a row begins with a byte and with a scale
    data = Tensor(codes.name, DTYPES["u8"], (codes.nbytes,), codes.payload)

    def part(tensor: Tensor, each: int) -> Part:
        dtype = whole_part(tensor).dtype
        return Part(dtype, 1, rows, row // each, 1) if alone else whole_part(tensor)

    parts = [(data, part(data, 2)), (scales, part(scales, block))]
    values = tuple(table.numpy().tolist())
    if not np.allclose(values, _TABLES[kind], rtol=1e-6, atol=1e-9):
        finder.report(table.name, "state", f"has other numbers than {kind}, which the description of {weight!r} says")
        return
    extra = [name, table.name]
    decoder = Looked(values, block, not alone)
    if nested:
        outer, inner = finder.get(f"{weight}.nested_absmax"), finder.get(f"{weight}.nested_quant_map")
        good = finder.has_form(inner, f"{weight}.nested_quant_map", weight, {"f32"}, (256,))
        inside = max(1, min(state["nested_blocksize"], blocks))
        count_outer = -(-blocks // inside)
        good &= finder.has_form(outer, f"{weight}.nested_absmax", weight, {"f32"}, (count_outer,))
        if not good or outer is None or inner is None:
            return
        parts += [(inner, whole_part(inner)), (outer, whole_part(outer))]
        decoder = Looked(values, block, not alone, inside, state["nested_offset"])
    finder.add(weight, kind, shape, parts, decoder, plain=plain, extra=extra, alone=alone)


def _read_state(finder: Finder, tensor: Tensor, kind: str) -> dict[str, Any] | None:
    """Read the JSON that describes a weight; None, with a problem, if it is not as bitsandbytes writes it."""
    if not finder.has_form(tensor, tensor.name, tensor.name, {"u8"}, None):
        return None
    if tensor.nbytes > _STATE_BYTES:
        finder.report(tensor.name, "state", f"has {tensor.nbytes} bytes, and {_STATE_BYTES} are read")
        return None
    try:
        state: Any = decode(bytes(tensor.raw()), unique=True).value
    except DocumentError as error:
        finder.report(tensor.name, "state", f"is no JSON: {error}")
        return None
    good = isinstance(state, dict) and type(state.get("blocksize")) is int and state["blocksize"] > 0
    shape: Any = state.get("shape") if good else None
    good = isinstance(shape, list) and len(shape) > 0 and all(type(each) is int and each >= 0 for each in shape)
    good = good and isinstance(state.get("dtype"), str) and state["dtype"] in _DTYPES
    if good and "nested_blocksize" in state:
        size, offset = state["nested_blocksize"], state.get("nested_offset")
        good = type(size) is int and size > 0 and type(offset) is float
    if not good:
        finder.report(tensor.name, "state", "has no shape, blocksize and dtype as bitsandbytes writes them")
        return None
    rank = min(_RANK, (finder.model.limits or DEFAULT_LIMITS).rank)
    if len(shape) > rank:
        finder.report(tensor.name, "state", f"has a shape of {len(shape)} axes, and at most {rank} are read")
        return None
    if state.get("quant_type") != kind:
        finder.report(tensor.name, "state", f"has the quant_type {state.get('quant_type')!r}, and is called {kind}")
        return None
    return dict(state)
