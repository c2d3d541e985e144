"""Packs a Hugging Face folder exactly as the format's own packer does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import ContentError
from holdall.format.hf_assets import folder_name
from holdall.format.mcf import gojson
from holdall.format.mcf.file_plan import FilePlan, NewSection, find_equal_plain, info_section, table_sections
from holdall.format.mcf.layout import ASSETS, BLOCK_ALIGN, CHAT_TEMPLATE, PACK_ORDER
from holdall.format.mcf.modelinfo import ARCHITECTURES, ModelInfo
from holdall.model.arranged_table import ArrangedTable
from holdall.model.dtypes import DTYPES, DType
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import Computed, InMemory
from holdall.model.table import TensorTable
from holdall.model.tensor import Tensor

__all__ = ["CASTS", "cast", "encode_tokenizer_config", "info_of", "merged_assets", "omitted_metadata", "plan_packed"]

CASTS = {name: DTYPES[name] for name in ("f16", "bf16")}  # the types to which the packer can cast

_BLOCK = buffer_size(1 << 20)  # elements that are cast at a time
_FLOATS = ("f32", "f16", "bf16", "f64")
_ARCH_WORDS = ("llama", "mistral", "qwen", "gemma", "smollm3")  # the packer never recognizes granite
_TOKENIZER_CONFIG = "tokenizer_config.json"
_F32_MAX = (2 - 2**-23) * 2.0**127
_KEPT = ("holdall.", "mcf.")  # keys meant for the file; the packer drops all other metadata of a folder


def omitted_metadata(model: Model) -> dict[str, str]:
    """The keys that packing drops, each with the reason."""
    reason = "the packer drops the metadata of a folder's weights; arrange=plain keeps it"
    return {key: reason for key in model.metadata if not key.startswith(_KEPT)}


def merged_assets(assets: Mapping[str, bytes]) -> dict[str, str]:
    """The template whose text the packed tokenizer_config.json has, with its place in it."""
    text = _read_template(assets.get(CHAT_TEMPLATE))
    packed = gojson.parse(encode_tokenizer_config(assets.get(_TOKENIZER_CONFIG), assets[CHAT_TEMPLATE])) if text else {}
    if not text or packed["chat_template"] != text:
        return {}
    return {CHAT_TEMPLATE: f"its text is chat_template in {_TOKENIZER_CONFIG}"}


def plan_packed(
    model: Model,
    tensors: TensorTable,
    align: int | None,
    *,
    folder: Model,
    records: bool,
    dedup: bool,
    model_name: str | None,
) -> FilePlan:
    """Plan the file for a folder: resources, ModelInfo, tensors sorted by name.

    ``folder`` is the model with the documents that the folder has. ModelInfo describes those, as in the packer, also
    when others are stored.
    """
    sections = list(_make_resource_sections(model))
    sections.append(info_section(info_of(folder, folder_name(folder) if model_name is None else model_name)))
    ordered = ArrangedTable.by_name(tensors)
    multiple = BLOCK_ALIGN if align is None else align
    return FilePlan(
        [*sections, *table_sections(tensors, records=records)],
        ordered,
        multiple,
        aligned_flag=multiple == BLOCK_ALIGN,
        same=find_equal_plain(ordered) if dedup else None,
        aliases=dedup,
    )


def _make_resource_sections(model: Model) -> Iterator[NewSection]:
    for type in PACK_ORDER:
        name = ASSETS[type]
        if name == _TOKENIZER_CONFIG:
            data = encode_tokenizer_config(model.assets.get(name), model.assets.get(CHAT_TEMPLATE))
            if data:
                yield NewSection(type, 1, InMemory(data))
        elif name in model.assets:
            yield NewSection(type, 1, model.assets.payload(name))


def encode_tokenizer_config(data: bytes | None, template: bytes | None) -> bytes:
    """tokenizer_config.json as the packer writes it, with the text of chat_template.jinja if it has no template.

    Either may be missing. Empty bytes mean that there is no section.

    >>> encode_tokenizer_config(b'{"b": 1.0}', b" hello ")
    b'{"b":1,"chat_template":"hello"}'
    >>> encode_tokenizer_config(None, b" hello ")
    b'{"chat_template":"hello"}'
    """
    text = _read_template(template)
    try:
        config = gojson.parse(data) if data else {}
        if config is None and text:  # the packer crashes here
            raise ValueError(f"it is null, which has no place for the text of {CHAT_TEMPLATE}")
        if config is not None and not isinstance(config, dict):
            raise ValueError("it is not an object")
        own = config.get("chat_template") if config else None
        if config is not None and text and not (isinstance(own, str) and own.strip(gojson.SPACE)):
            config["chat_template"] = text
        return gojson.dump(config) if config else data or b""
    except (ValueError, RecursionError) as error:
        raise ContentError(f"mcf: {_TOKENIZER_CONFIG} cannot be packed: {error}") from None


def _read_template(template: bytes | None) -> str:
    return gojson.text_of(template or b"").strip(gojson.SPACE)


def info_of(model: Model, name: str) -> ModelInfo:
    """ModelInfo from config.json, or with the name alone if that is missing or not an object."""
    given = ModelInfo.of({key: value for key, value in model.metadata.items() if key.startswith(_KEPT)})
    config = _read_config(model.assets.get("config.json"))
    if config is None:
        return ModelInfo(model_name=name, extras=given.extras)
    extras = [*given.extras.entries, Entry("hf.config_json_present", 1)]
    kind = config.get("model_type")
    if isinstance(kind, str):
        extras.append(Entry("hf.model_type", kind))
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and scaling:
        extras.append(Entry("hf.rope_scaling", "present"))
    return ModelInfo(
        arch=_find_arch(kind),
        vocab_size=_to_u32(config.get("vocab_size")),
        hidden_size=_to_u32(config.get("hidden_size")),
        layer_count=_to_u32(config.get("num_hidden_layers")),
        head_count=_to_u32(config.get("num_attention_heads")),
        head_count_kv=_to_u32(config.get("num_key_value_heads")),
        context_length=_to_u32(config.get("max_position_embeddings")),
        rope_freq_base=_to_float(config.get("rope_theta")),
        model_name=name,
        extras=Metadata(extras),
    )


def _read_config(data: bytes | None) -> dict[str, Any] | None:
    """Read config.json as the packer does: null counts as an empty object; None if it is missing or no object."""
    try:
        config = [] if data is None else gojson.parse(data)
    except ValueError:
        return None
    if config is None:
        return {}
    return config if isinstance(config, dict) else None


def _find_arch(kind: Any) -> int:
    """Find the number of the first architecture whose name is in ``kind``; 0 if there is none."""
    lower = kind.lower() if isinstance(kind, str) else ""
    return next((ARCHITECTURES.index(word) for word in _ARCH_WORDS if word in lower), 0)


def _to_u32(value: Any) -> int:
    """Return a size in config.json without its fraction; 0 for a value that is not a u32."""
    return int(value) if isinstance(value, float) and 0 <= value <= 0xFFFFFFFF else 0


def _to_float(value: Any) -> float:
    """Return a number of config.json; 0 for one that is beyond f32."""
    return value if isinstance(value, float) and abs(value) <= _F32_MAX else 0.0


def cast(tensor: Tensor, target: DType) -> Tensor:
    """Return ``tensor`` as f16 or bf16, rounded as the packer rounds; a tensor of that type is returned unchanged.

    Numbers round to nearest even. Of a NaN, f16 keeps only the sign, and bf16 rounds the bits like those of a number.
    """
    if tensor.dtype == target:
        return tensor
    if str(tensor.dtype) not in _FLOATS:
        raise ContentError(f"mcf: tensor {tensor.name!r}: {tensor.dtype} cannot be cast to {target}; only floats can")
    name = str(tensor.dtype)

    def make() -> Iterator[memoryview]:
        for block in tensor.blocks(_BLOCK):
            yield _round_to(_to_float32(block, name), target.name).data

    return Tensor(tensor.name, target, tensor.shape, Computed(target.nbytes(tensor.shape), make, tensor.payloads))


def _to_float32(block: Any, name: str) -> Any:
    """Return a block of floats as float32."""
    import numpy as np

    from holdall.binary import kernels

    if name in ("f32", "f64"):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(block, np.float32)
    single = np.empty(block.size, np.float32)
    kernels.widen(name, np.ascontiguousarray(block).view(np.uint8), single)
    return single


def _round_to(single: Any, name: str) -> Any:
    """Return a block of float32 as the bytes of the smaller type."""
    import numpy as np

    from holdall.binary import kernels

    bits = single.view(np.uint32)
    if name == "bf16":
        half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        return ((bits + half) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
    out = np.empty(single.size, np.uint16)
    kernels.narrow("f16", single, out.view(np.uint8))
    nan = np.isnan(single)
    out[nan] = (bits[nan] >> np.uint32(16) & np.uint32(0x8000)) | np.uint32(0x7E00)
    return out.view(np.uint8)
