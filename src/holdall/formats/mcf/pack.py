"""Packing a Hugging Face folder exactly as the format's own packer does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from holdall.dtypes import DTYPES, DType
from holdall.errors import ContentError
from holdall.formats.mcf import gojson
from holdall.formats.mcf.layout import ASSETS, BLOCK_ALIGN, CHAT_TEMPLATE, PACK_ORDER
from holdall.formats.mcf.modelinfo import ARCHITECTURES, ModelInfo
from holdall.formats.mcf.outline import Outline, Part, info_part, tables
from holdall.formats.mcf.survey import survey
from holdall.metadata import Entry, Metadata
from holdall.model import Model
from holdall.payload import Held, Made
from holdall.sizes import tuned
from holdall.tensor import Tensor

__all__ = ["CASTS", "cast", "info_of", "left_out", "packed", "tokenizer_config"]

CASTS = {name: DTYPES[name] for name in ("f16", "bf16")}  # what the packer can cast to

_BLOCK = tuned(1 << 20)  # elements that are cast at a time
_FLOATS = ("f32", "f16", "bf16", "f64")
_ARCH_WORDS = ("llama", "mistral", "qwen", "gemma", "smollm3")  # granite is never recognized
_KEPT = ("holdall.", "mcf.")  # metadata that is meant for the file; the rest (a folder's own) the packer drops


def left_out(model: Model) -> dict[str, str]:
    """The metadata that packing drops, with the reason."""
    reason = "the packer drops the metadata of a folder's weights; arrange=plain keeps it"
    return {key: reason for key in model.metadata if not key.startswith(_KEPT)}


def packed(
    model: Model,
    tensors: Sequence[Tensor],
    align: int | None,
    *,
    records: bool,
    dedup: bool,
    resources: bool,
    model_name: str | None,
) -> Outline:
    """The file for a folder: resources, ModelInfo, tensors in the order of their names."""
    parts = list(_resources(model)) if resources else []
    parts.append(info_part(info_of(model, folder_name(model) if model_name is None else model_name)))
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    multiple = BLOCK_ALIGN if align is None else align
    return Outline(
        [*parts, *tables(tensors, records=records)],
        ordered,
        multiple,
        aligned_flag=multiple == BLOCK_ALIGN,
        same=survey(ordered) if dedup else None,
        aliases=dedup,
    )


def folder_name(model: Model) -> str:
    """The base name of the folder that the model came from; "" when it came from none."""
    if not model.sources:
        return ""
    path = os.path.abspath(model.sources[0].name)  # noqa: PTH100 - names of sources are text
    folder = path if model.sources[0].is_folder else os.path.dirname(path)  # noqa: PTH120
    return os.path.basename(folder)  # noqa: PTH119


# -- resources ----------------------------------------------------------------------------------------------------


def _resources(model: Model) -> Iterator[Part]:
    for type in PACK_ORDER:
        name = ASSETS[type]
        if name not in model.assets:
            continue
        payload = model.assets.payload(name)
        if name == "tokenizer_config.json":
            template = model.assets.get(CHAT_TEMPLATE)
            payload = Held(tokenizer_config(payload.read(), template))
        yield Part(type, 1, payload)


def tokenizer_config(data: bytes, template: bytes | None) -> bytes:
    """tokenizer_config.json written anew, with the text of chat_template.jinja where it has no template of its own.

    >>> tokenizer_config(b'{"b": 1.0}', b" hello ")
    b'{"b":1,"chat_template":"hello"}'
    """
    try:
        config = gojson.parse(data)
        if not isinstance(config, dict):
            raise ValueError("it is not an object")
        if not config:
            return data
        own = config.get("chat_template")
        text = gojson.text_of(template or b"").strip(gojson.SPACE)
        if text and not (isinstance(own, str) and own.strip(gojson.SPACE)):
            config["chat_template"] = text
        return gojson.dump(config)
    except (ValueError, RecursionError) as error:
        raise ContentError(f"mcf: tokenizer_config.json cannot be packed: {error}") from None


# -- ModelInfo ----------------------------------------------------------------------------------------------------


def info_of(model: Model, name: str) -> ModelInfo:
    """ModelInfo from the folder's config.json; the name alone where that is missing or not an object."""
    given = ModelInfo.of({key: value for key, value in model.metadata.items() if key.startswith(_KEPT)})
    try:
        config = gojson.parse(model.assets["config.json"]) if "config.json" in model.assets else None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        return ModelInfo(model_name=name, extras=given.extras)
    extras = [*given.extras.entries, Entry("hf.config_json_present", 1)]
    kind = config.get("model_type")
    if isinstance(kind, str) and kind:
        extras.append(Entry("hf.model_type", kind))
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and scaling:
        extras.append(Entry("hf.rope_scaling", "present"))
    return ModelInfo(
        arch=_arch(kind),
        vocab_size=_whole(config.get("vocab_size")),
        hidden_size=_whole(config.get("hidden_size")),
        layer_count=_whole(config.get("num_hidden_layers")),
        head_count=_whole(config.get("num_attention_heads")),
        head_count_kv=_whole(config.get("num_key_value_heads")),
        context_length=_whole(config.get("max_position_embeddings")),
        rope_freq_base=_float(config.get("rope_theta")),
        model_name=name,
        extras=Metadata(extras),
    )


def _arch(kind: Any) -> int:
    """The first architecture whose name is in ``kind``."""
    lower = kind.lower() if isinstance(kind, str) else ""
    return next((ARCHITECTURES.index(word) for word in _ARCH_WORDS if word in lower), 0)


def _whole(value: Any) -> int:
    """A size out of config.json: the fraction is cut off, and what is no u32 counts as 0."""
    return int(value) if isinstance(value, float) and 0 <= value <= 0xFFFFFFFF else 0


def _float(value: Any) -> float:
    return value if isinstance(value, float) and isfinite(value) else 0.0


# -- tensors ------------------------------------------------------------------------------------------------------


def cast(tensor: Tensor, target: DType) -> Tensor:
    """``tensor`` as f16 or bf16, rounded as the packer rounds; one that is of this type already stays as it is.

    Numbers round to nearest even. NaN is where packers differ: f16 keeps only its sign, bf16 treats its bits
    like those of a number.
    """
    if tensor.dtype == target:
        return tensor
    if str(tensor.dtype) not in _FLOATS:
        raise ContentError(f"mcf: tensor {tensor.name!r}: {tensor.dtype} cannot be cast to {target}; only floats can")
    name = str(tensor.dtype)

    def make() -> Iterator[memoryview]:
        for block in tensor.blocks(_BLOCK):
            yield _rounded(_single(block, name), target.name).data

    return Tensor(tensor.name, target, tensor.shape, Made(target.nbytes(tensor.shape), make, tensor.payloads))


def _single(block: Any, name: str) -> Any:
    """A block of floats as float32."""
    import numpy as np

    from holdall import kernels

    if name in ("f32", "f64"):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(block, np.float32)
    single = np.empty(block.size, np.float32)
    kernels.widen(name, np.ascontiguousarray(block).view(np.uint8), single)
    return single


def _rounded(single: Any, name: str) -> Any:
    """The bytes of a block of float32 in the small type."""
    import numpy as np

    from holdall import kernels

    bits = single.view(np.uint32)
    if name == "bf16":
        half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        return ((bits + half) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
    out = np.empty(single.size, np.uint16)
    kernels.narrow("f16", single, out.view(np.uint8))
    nan = np.isnan(single)
    out[nan] = (bits[nan] >> np.uint32(16) & np.uint32(0x8000)) | np.uint32(0x7E00)
    return out.view(np.uint8)
