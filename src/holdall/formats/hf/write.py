"""Writing Hugging Face folders: safetensors files of a size that people can download, an index, the assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.errors import ContentError, FormatError
from holdall.formats.hf.index import HfNative
from holdall.formats.hf.layout import INDEX, SINGLE, is_weights, shard_name
from holdall.formats.safetensors.sharded import index_plan
from holdall.formats.safetensors.write import plan_file, with_framework
from holdall.model import Model
from holdall.plan import FolderPlan, Plan
from holdall.sharding import by_size, parse_size
from holdall.source import contained
from holdall.tensor import Tensor

__all__ = ["asset_breach", "plan"]


def plan(model: Model, options: Mapping[str, Any]) -> FolderPlan:
    """The folder that holds ``model``."""
    out = FolderPlan()
    for name in model.assets:
        wrong = asset_breach(name)
        if wrong:
            raise ContentError(f"hf: {wrong}")
        out.files[name] = Plan()
        out.files[name].stream(model.assets.payload(name))
    shards, entries = _shards(model, options["max_shard_size"]), with_framework(model.metadata.entries)
    for file, tensors in shards.items():
        out.files[file] = plan_file(tensors, entries, options)
    if list(shards) != [SINGLE]:
        out.files[INDEX] = index_plan(shards, model.native.index_metadata if isinstance(model.native, HfNative) else {})
    return out


def _shards(model: Model, size: Any) -> dict[str, list[Tensor]]:
    """The tensors by file."""
    if size == "keep":
        return _as_before(model)
    try:
        parts = by_size(model.tensors, parse_size(size))
    except ContentError as error:
        raise ContentError(f"hf: max_shard_size is keep, or {error}") from None
    if len(parts) == 1:
        return {SINGLE: parts[0]}
    return {shard_name(number, len(parts)): part for number, part in enumerate(parts, 1)}


def _as_before(model: Model) -> dict[str, list[Tensor]]:
    """The files that the folder had; a tensor that it did not have joins the last one."""
    native = model.native
    if not isinstance(native, HfNative) or not native.files:
        raise ContentError("hf: max_shard_size=keep needs a model that comes from a folder")
    shards: dict[str, list[Tensor]] = {file: [] for file in native.files}
    for tensor in model.tensors:
        shards[native.weight_map.get(tensor.name, native.files[-1])].append(tensor)
    return {file: tensors for file, tensors in shards.items() if tensors} or {SINGLE: []}


def asset_breach(name: str) -> str | None:
    """Why a folder cannot hold an asset called ``name``, or would not give it back; None when it can."""
    try:
        parts = contained(name)
    except FormatError as error:
        return error.message
    if len(parts) > 2:
        return f"the asset {name!r} lies deeper than one subfolder"
    if any(part.startswith(".") for part in parts):
        return f"the asset {name!r} would be a hidden file"
    if is_weights(name):
        return f"the asset {name!r} would be taken for a file of weights"
    return None
