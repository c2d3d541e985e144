"""Weights that are made of several tensors: codes in one, their scales in others.

Such a tensor has no values of its own: cast, transposed or quantized alone it becomes a weight that is wrong. Readers
of such checkpoints find the parts by their names, and so does this module; the names are those that the quantizers'
own libraries write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall import registry
from holdall.dtypes import DTYPES
from holdall.errors import FormatError

if TYPE_CHECKING:
    from holdall.model import Model

__all__ = ["packed_weights"]

_INTEGERS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind in ("int", "uint"))
_SMALL_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float" and dtype.bits <= 8)
_CODES = _INTEGERS | _SMALL_FLOATS
_NARROW = frozenset(name for name in _CODES if DTYPES[name].bits <= 8)
_BYTES = frozenset(name for name in _NARROW if DTYPES[name].bits == 8)
_WORDS = frozenset(("u32",))

_SETTINGS = ("quantization_config", "compression_config", "quantization")  # the last by MLX


@dataclass(frozen=True, slots=True)
class _Part:
    """``STEM + ending`` is a part of the weight ``STEM + weight`` when that one has one of ``dtypes``; None: any."""

    ending: str
    weight: str
    dtypes: frozenset[str] | None
    scales: bool = False


_PARTS = (
    # FP8 and int8 of DeepSeek, compressed-tensors, FBGEMM, ModelOpt, ComfyUI, EETQ; fused experts have no ".weight".
    _Part("_scale_inv", "", _NARROW, True),
    _Part("_scale", "", _NARROW, True),
    _Part("_scales", "", _NARROW, True),
    _Part("_scale_2", "", _NARROW, True),
    _Part("_global_scale", "", _NARROW, True),
    _Part("_zero_point", "", _NARROW),
    _Part(".scale_weight", ".weight", _NARROW, True),
    _Part(".scale", ".weight", _BYTES, True),
    # compressed-tensors
    _Part("_scale", "_packed", _CODES, True),
    _Part("_global_scale", "_packed", _CODES, True),
    _Part("_zero_point", "_packed", _CODES),
    _Part("_shape", "_packed", _CODES),
    _Part("_g_idx", "_packed", _CODES),
    # GPTQ, AWQ
    _Part(".scales", ".qweight", _CODES, True),
    _Part(".qzeros", ".qweight", _CODES),
    _Part(".g_idx", ".qweight", _CODES),
    # bitsandbytes: 8 bits, then 4, which may be stored in any type
    _Part(".SCB", ".weight", _BYTES, True),
    _Part(".weight_format", ".weight", _BYTES),
    _Part(".absmax", "", None, True),
    _Part(".nested_absmax", "", None, True),
    _Part(".quant_map", "", None),
    _Part(".nested_quant_map", "", None),
    _Part(".quant_state.bitsandbytes__nf4", "", None),
    _Part(".quant_state.bitsandbytes__fp4", "", None),
    # MLX
    _Part(".scales", ".weight", _WORDS, True),
    _Part(".biases", ".weight", _WORDS),
    # MXFP4 of gpt-oss
    _Part("_scales", "_blocks", _CODES, True),
    # torchao, quanto, HQQ, AQLM, ExLlamaV2, ONNX Runtime
    _Part("_scale", "_qdata", _CODES, True),
    _Part("_zero_point", "_qdata", _CODES),
    _Part("._scale", "._data", _CODES, True),
    _Part("._shift", "._data", _CODES),
    _Part(".scale", ".W_q", _CODES, True),
    _Part(".zero", ".W_q", _CODES),
    _Part(".scales", ".codes", _CODES, True),
    _Part(".codebooks", ".codes", _CODES),
    _Part(".q_scale", ".q_weight", _CODES, True),
    _Part(".q_groups", ".q_weight", _CODES),
    _Part("_scale", "_quantized", _CODES, True),
    _Part("_zero_point", "_quantized", _CODES),
)

_ENDINGS: dict[str, list[_Part]] = {}
for _part in _PARTS:
    _ENDINGS.setdefault(_part.ending, []).append(_part)
_ANY_ENDING = tuple(_ENDINGS)


def packed_weights(model: Model) -> dict[str, str]:
    """The tensors of ``model`` that are parts of one weight made of several, each with the reason, in file order.

    So are tensors whose format keeps the scales elsewhere, and, where the model's configuration says that it is
    quantized, all integers and floats of 8 bits. Tensors of an encoding such as ``ggml.q4_0`` are whole by themselves.

    >>> import numpy as np
    >>> from holdall.model import model_of
    >>> packed_weights(model_of({"w.qweight": np.zeros((4, 8), np.int32), "w.scales": np.ones((1, 8), np.float16)}))
    {'w.qweight': "is scaled by 'w.scales'", 'w.scales': "scales 'w.qweight'"}
    """
    found = _by_name(model)
    for name, reason in _by_config(model).items():
        found.setdefault(name, reason)
    if model.format is not None:
        for name, reason in registry.find(model.format).bound_values(model).items():
            found.setdefault(name, reason)
    return {name: found[name] for name in model.tensors.names if name in found} if found else {}


def _by_name(model: Model) -> dict[str, str]:
    """The parts that names show. Few names of an ordinary model end like one, and only their types are looked at."""
    found: dict[str, str] = {}
    for name in model.tensors.names:
        if not name.endswith(_ANY_ENDING):
            continue
        for part in (part for ending, parts in _ENDINGS.items() if name.endswith(ending) for part in parts):
            weight = name.removesuffix(part.ending) + part.weight
            if weight in model and (part.dtypes is None or str(model[weight].dtype) in part.dtypes):
                found[name] = f"scales {weight!r}" if part.scales else f"is a part of {weight!r}"
                if part.scales or weight not in found:
                    found[weight] = f"is scaled by {name!r}" if part.scales else f"is one weight together with {name!r}"
    return found


def _by_config(model: Model) -> dict[str, str]:
    """What the configuration beside the weights says of them."""
    setting = _quantization(_config(model))
    if setting is None:
        return {}
    reason = f"belongs to a model whose configuration has a {setting}"
    return {tensor.name: reason for tensor in model.tensors if str(tensor.dtype) in _CODES}


def _config(model: Model) -> Any:
    try:
        return model.config
    except FormatError:  # a conversion takes the file along as it is; verifying reports it
        return None


def _quantization(config: Any) -> str | None:
    """The entry of a configuration by which it says that the model is quantized; None where it says nothing."""
    if not isinstance(config, Mapping):
        return None
    found = next((name for name in _SETTINGS if isinstance(config.get(name), Mapping) and config[name]), None)
    return found or _quantization(config.get("text_config"))
