"""Packed checkpoints: weights made of several tensors, one file for each family of schemes.

:func:`find_weights` recognizes the scheme of a model and finds its weights. Only the module of that scheme is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall.base.text import plural
from holdall.errors import ContentError
from holdall.format.base import import_late
from holdall.format.packed_weights import find_packed_weights
from holdall.packed.settings import find_config, find_settings

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.packed.finder import Finder
    from holdall.packed.packed_weights import PackedWeights

__all__ = ["SCHEMES", "Scheme", "decode_weights", "find_parts", "find_weights", "join_weights", "refuse_unknown"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to pack weights: how it is recognized, and the function that finds its weights.

    ``methods`` are what the settings of a configuration call it; ``endings`` are those of names that only it has.
    """

    name: str
    title: str
    find: Callable[[Finder], None]
    methods: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()


SCHEMES = (
    Scheme("fp8", "FP8 with scales", import_late("holdall.packed.fp8", "find_fp8"), ("fp8", "fbgemm_fp8", "modelopt")),
    Scheme(
        "compressed-tensors",
        "compressed-tensors",
        import_late("holdall.packed.compressed", "find_compressed"),
        ("compressed-tensors",),
    ),
    Scheme("gptq", "GPTQ", import_late("holdall.packed.gptq", "find_gptq"), ("gptq",)),
    Scheme("awq", "AWQ", import_late("holdall.packed.gptq", "find_awq"), ("awq",)),
    Scheme(
        "bnb",
        "bitsandbytes",
        import_late("holdall.packed.bitsandbytes", "find_bitsandbytes"),
        ("bitsandbytes",),
        (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4", ".SCB"),
    ),
    Scheme("mxfp4", "MXFP4", import_late("holdall.packed.blocks", "find_mxfp4"), ("mxfp4",)),
    Scheme(
        "nvfp4",
        "NVFP4 of ModelOpt",
        import_late("holdall.packed.blocks", "find_nvfp4"),
        ("modelopt_fp4",),
        (".weight_scale_2",),
    ),
    Scheme("comfy", "FP8 of ComfyUI", import_late("holdall.packed.fp8", "find_comfy"), (), (".scale_weight",)),
    Scheme(
        "gguf",
        "GGUF in safetensors",
        import_late("holdall.packed.gguf", "find_gguf"),
        ("gguf",),
        (".qweight_type",),
    ),
    Scheme("mlx", "MLX", import_late("holdall.packed.blocks", "find_mlx"), ("mlx",)),
)


def find_weights(model: Model) -> PackedWeights | None:
    """Find the weights of ``model`` that are made of several tensors; None if it is packed by no scheme of the table.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> codes = np.array([[3, -2]], np.int8)
    >>> found = find_weights(model_of({"w.weight": codes, "w.SCB": np.array([127], np.float32)}))
    >>> found.scheme.title, found.join()["w.weight"].numpy().tolist()
    ('bitsandbytes', [[3.0, -2.0]])
    """
    stated = find_settings(find_config(model))
    scheme = _recognize(model, stated)
    if scheme is None:
        return None
    from holdall.packed.packed_weights import collect_weights

    return collect_weights(model, scheme, stated)


def join_weights(model: Model) -> Model:
    """Return ``model`` with one tensor for each weight; unchanged if it is packed by no scheme of the table."""
    found = find_weights(model)
    return model if found is None else found.join()


def decode_weights(model: Model) -> Model:
    """Return ``model`` with its packed weights decoded when they are read, in the type from which they were made.

    Parts of weights whose scheme is not recognized raise ContentError.
    """
    found = find_weights(model)
    if found is None:
        refuse_unknown(model)
        return model
    return found.decode()


def find_parts(model: Model) -> dict[str, str]:
    """Find the tensors that are a part of a weight and cannot be decoded alone, each with the reason."""
    return {name: why for name, why in find_packed_weights(model).items() if model[name].scaling is None}


def refuse_unknown(model: Model) -> None:
    """Raise ContentError if a model whose scheme is not recognized has parts of packed weights.

    They are no numbers of the model.
    """
    parts = find_parts(model)
    if parts:
        name, why = next(iter(parts.items()))
        raise ContentError(
            f"tensor {name!r} {why}, and what the configuration and the names say of it is no scheme that holdall "
            f"decodes: {plural(len(parts), 'tensor')} of {len(model)} are parts of weights, and no numbers"
        )


def _recognize(model: Model, stated: Mapping[str, Any] | None) -> Scheme | None:
    if stated is not None:
        method = str(stated.get("quant_method") or stated.get("quant_type") or "").lower()
        if method == "modelopt" and "FP4" in str(stated.get("quant_algo")).upper():
            method = "modelopt_fp4"
        if not method and "group_size" in stated and "bits" in stated:
            method = "mlx"
        return next((scheme for scheme in SCHEMES if method in scheme.methods), None)
    known = tuple(ending for scheme in SCHEMES for ending in scheme.endings)
    name = next((name for name in model.tensors.names if name.endswith(known)), None)
    if name is None:
        return None
    return next(scheme for scheme in SCHEMES if scheme.endings and name.endswith(scheme.endings))
