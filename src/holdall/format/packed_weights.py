"""Finds weights that consist of several tensors: codes in one, their scales in others.

To cast, transpose or quantize one of these tensors alone would make the weight wrong. Readers of such checkpoints find
the parts by their names, and so does this module; the names are those that the libraries of the quantizers write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from holdall.errors import FormatError, HoldallError
from holdall.format import registry
from holdall.model.dtypes import DTYPES

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["PART_ENDINGS", "find_codes_by_config", "find_packed_weights"]

# Endings of names that only parts of packed weights have, of all schemes.
PART_ENDINGS = (
    *(".qweight", ".qzeros", ".g_idx", ".SCB", ".absmax", ".nested_absmax", ".quant_map", ".nested_quant_map"),
    *(".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4", ".weight_format", ".scale_weight"),
    *(".weight_packed", ".weight_scale_2", ".weight_global_scale", ".weight_zero_point"),
    *(".weight_shape", ".weight_g_idx", "_scale_inv", ".pre_quant_scale", ".qweight_type"),
)
_CONFIG = "config.json"
_CONFIG_SIZE = 16 << 20  # bytes that are read of one beside a file
_NUMBERED = re.compile(r"-[0-9]+-of-(?!0*1\b)[0-9]+\.[a-z]+$")  # the name of one file of several

_INTEGERS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind in ("int", "uint"))
_SMALL_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float" and dtype.bits <= 8)
_CODES = _INTEGERS | _SMALL_FLOATS
_NARROW = frozenset(name for name in _CODES if DTYPES[name].bits <= 8)
_BYTES = frozenset(name for name in _NARROW if DTYPES[name].bits == 8)
_WORDS = frozenset(("u32",))
_LONG = frozenset(("i64", "u64"))  # indices, such as those of positions: no scheme packs codes in them

_SETTINGS = ("quantization_config", "compression_config", "quantization")  # the last is of MLX


@dataclass(frozen=True, slots=True)
class _Pattern:
    """``STEM + ending`` is a part of the weight ``STEM + weight`` if that has one of ``dtypes``, or with None any."""

    ending: str
    weight: str
    dtypes: frozenset[str] | None
    scales: bool = False


_PATTERNS = (
    # FP8 and int8 of DeepSeek, compressed-tensors, FBGEMM, ModelOpt, ComfyUI, EETQ; fused experts have no ".weight".
    _Pattern("_scale_inv", "", _NARROW, True),
    _Pattern("_scale", "", _NARROW, True),
    _Pattern("_scales", "", _NARROW, True),
    _Pattern("_scale_2", "", _NARROW, True),
    _Pattern("_global_scale", "", _NARROW, True),
    _Pattern("_zero_point", "", _NARROW),
    _Pattern(".scale_weight", ".weight", _NARROW, True),
    _Pattern(".scale", ".weight", _BYTES, True),
    # compressed-tensors
    _Pattern("_scale", "_packed", _CODES, True),
    _Pattern("_global_scale", "_packed", _CODES, True),
    _Pattern("_zero_point", "_packed", _CODES),
    _Pattern("_shape", "_packed", _CODES),
    _Pattern("_g_idx", "_packed", _CODES),
    # GPTQ, AWQ
    _Pattern(".scales", ".qweight", _CODES, True),
    _Pattern(".qzeros", ".qweight", _CODES),
    _Pattern(".g_idx", ".qweight", _CODES),
    _Pattern(".qweight_type", ".qweight", _CODES),  # blocks of GGUF
    # bitsandbytes: 8 bits, then 4, which may be stored in any type
    _Pattern(".SCB", ".weight", _BYTES, True),
    _Pattern(".weight_format", ".weight", _BYTES),
    _Pattern(".absmax", "", None, True),
    _Pattern(".nested_absmax", "", None, True),
    _Pattern(".quant_map", "", None),
    _Pattern(".nested_quant_map", "", None),
    _Pattern(".quant_state.bitsandbytes__nf4", "", None),
    _Pattern(".quant_state.bitsandbytes__fp4", "", None),
    # MLX
    _Pattern(".scales", ".weight", _WORDS, True),
    _Pattern(".biases", ".weight", _WORDS),
    # MXFP4 of gpt-oss
    _Pattern("_scales", "_blocks", _CODES, True),
    # torchao, quanto, HQQ, AQLM, ExLlamaV2, ONNX Runtime
    _Pattern("_scale", "_qdata", _CODES, True),
    _Pattern("_zero_point", "_qdata", _CODES),
    _Pattern("._scale", "._data", _CODES, True),
    _Pattern("._shift", "._data", _CODES),
    _Pattern(".scale", ".W_q", _CODES, True),
    _Pattern(".zero", ".W_q", _CODES),
    _Pattern(".scales", ".codes", _CODES, True),
    _Pattern(".codebooks", ".codes", _CODES),
    _Pattern(".q_scale", ".q_weight", _CODES, True),
    _Pattern(".q_groups", ".q_weight", _CODES),
    _Pattern("_scale", "_quantized", _CODES, True),
    _Pattern("_zero_point", "_quantized", _CODES),
)

_ENDINGS: dict[str, list[_Pattern]] = {}
for _pattern in _PATTERNS:
    _ENDINGS.setdefault(_pattern.ending, []).append(_pattern)
_ANY_ENDING = tuple(_ENDINGS)


def find_packed_weights(model: Model) -> dict[str, str]:
    """Find the tensors of ``model`` that are only a part of a weight, each with the reason, in file order.

    They are found by name; of a file that was opened alone, whose other parts may be in files beside it, also by the
    configuration there, and by its own name. Tensors whose format stores the scales apart are included, and so are all
    8-bit floats and integers of up to 32 bits of a model whose configuration says that it is quantized. Tensors with an
    encoding such as ``ggml.q4_0`` include their scales and are left out.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> tensors = {"w.qweight": np.zeros((4, 8), np.int32), "w.scales": np.ones((1, 8), np.float16)}
    >>> find_packed_weights(model_of(tensors))
    {'w.qweight': "is scaled by 'w.scales'", 'w.scales': "scales 'w.qweight'"}
    """
    found = _find_by_name(model)
    flaw = _find_flaw(model) if found else ""
    if flaw:
        found = {name: f"{reason} ({flaw})" for name, reason in found.items()}
    for name, reason in chain(find_codes_by_config(model).items(), _find_alone(model)):
        found.setdefault(name, reason)
    if model.format is not None:
        for name, reason in registry.find(model.format).bound_values(model).items():
            found.setdefault(name, reason)
    return {name: found[name] for name in model.tensors.names if name in found} if found else {}


_LONELY = "has the name of a part of a weight, and the other parts are not here"


def _find_by_name(model: Model) -> dict[str, str]:
    """Find the parts found by name. Dtypes are read only for the few names with one of the endings."""
    found: dict[str, str] = {}
    for name in model.tensors.names:
        if name.endswith(PART_ENDINGS):
            found.setdefault(name, _LONELY)
        if not name.endswith(_ANY_ENDING):
            continue
        for pattern in chain.from_iterable(_ENDINGS[ending] for ending in _ANY_ENDING if name.endswith(ending)):
            weight = name.removesuffix(pattern.ending) + pattern.weight
            if weight in model and (pattern.dtypes is None or str(model[weight].dtype) in pattern.dtypes):
                if pattern.scales:
                    found[name], found[weight] = f"scales {weight!r}", f"is scaled by {name!r}"
                else:
                    found[name] = f"is a part of {weight!r}"
                    if found.get(weight, _LONELY) == _LONELY:
                        found[weight] = f"is one weight together with {name!r}"
    return found


def find_codes_by_config(model: Model) -> dict[str, str]:
    """Find all codes of a model whose configuration says that it is quantized."""
    setting = _quantization_key(_find_config(model))
    if setting is None:
        return {}
    reason = f"belongs to a model whose configuration has a {setting}"
    return {tensor.name: reason for tensor in model.tensors if str(tensor.dtype) in _CODES - _LONG}


def _find_alone(model: Model) -> Iterator[tuple[str, str]]:
    """Find the codes of a model without a configuration in files that belong to a quantized model.

    So says the configuration beside them. Without one, a file that is one of several is taken for such a file.
    """
    if model.format is None or registry.find(model.format).holds.assets:
        return  # its own configuration counts
    files = [source for source in model.sources if not source.is_folder]
    if not files or not any(len(form.shape) > 1 and str(form.dtype) in _CODES for form in model.tensors.forms().kinds):
        return
    stated = [_read_config_beside(source) for source in files]
    setting = next((key for key in map(_quantization_key, stated) if key), None)
    if setting is not None:
        why = f"belongs to a model whose configuration, {_CONFIG} beside the file, has a {setting}: give the folder"
        yield from ((tensor.name, why) for tensor in model.tensors if str(tensor.dtype) in _CODES - _LONG)
    elif len(files) == 1 and stated[0] is None and _NUMBERED.search(files[0].name):
        why = "is in one file of several, and its scales may be in another one: give the folder"
        for tensor in model.tensors:
            kind = str(tensor.dtype)
            if tensor.ndim > 1 and (kind in _SMALL_FLOATS or (kind in _CODES and tensor.name.endswith("weight"))):
                yield tensor.name, why


def _read_config_beside(source: Source) -> Any:
    try:
        file = source.sibling(_CONFIG)
    except (HoldallError, OSError):
        return None
    from holdall.format.hf_assets import config_of

    try:
        return config_of({_CONFIG: bytes(file.read(0, min(file.size, _CONFIG_SIZE)))})
    except (HoldallError, OSError):
        return None
    finally:
        file.close()


def _find_config(model: Model) -> Any:
    try:
        return model.config
    except FormatError:  # a conversion copies a damaged configuration unchanged, and verification reports it
        return None


def _find_flaw(model: Model) -> str:
    """Say why the configuration, which would say how weights are packed, cannot be read; empty if it can."""
    try:
        _ = model.config
    except FormatError as error:
        return f"and what says how is not known, since the configuration cannot be parsed: {error}"
    return ""


def _quantization_key(config: Any) -> str | None:
    """The key of a configuration that says the model is quantized; None if there is none."""
    if not isinstance(config, Mapping):
        return None
    found = next((name for name in _SETTINGS if isinstance(config.get(name), Mapping) and config[name]), None)
    return found or _quantization_key(config.get("text_config"))
