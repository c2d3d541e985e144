"""Writing Hugging Face folders: safetensors files of a bounded size, an index, and the assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.errors import ContentError, FormatError
from holdall.format.hf.index import HfNative
from holdall.format.hf.layout import INDEX_SUFFIX, SUFFIX, find_stem, shard_name
from holdall.format.hf_assets import config_of
from holdall.format.refusals import refuse
from holdall.format.safetensors.sharded import plan_index
from holdall.format.safetensors.write import add_framework, check_tensors, plan_file
from holdall.format.sharding import parse_size, split_by_size
from holdall.format.weight_files import is_weights
from holdall.model.model import Model
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import split_contained

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["asset_breach", "plan"]

_LONGEST = 255  # bytes of a file's name on every common file system
_SHOWN = 80  # letters of a name in a message


def plan(model: Model, options: Mapping[str, Any]) -> FolderPlan:
    """Plan the folder that holds ``model``."""
    out = FolderPlan()
    for name in model.assets:
        refuse("hf", asset_breach(name))
        out.files[name] = Plan()
        out.files[name].stream(model.assets.payload(name))
    stem = _find_stem(model)
    shards, entries = _split(model, options["max_shard_size"], stem), add_framework(model.metadata.entries)
    check_tensors(model.tensors)
    for file, rows in shards.items():
        out.files[file] = plan_file(model.tensors, rows, entries, options)
    if list(shards) != [stem + SUFFIX]:
        parts = {file: [model.tensors.tensor(row) for row in rows.tolist()] for file, rows in shards.items()}
        stated = model.native.index_metadata if isinstance(model.native, HfNative) else {}
        out.files[stem + INDEX_SUFFIX] = plan_index(parts, stated)
    return out


def _find_stem(model: Model) -> str:
    """Return how the files of weights begin; a configuration that cannot be parsed is no reason not to write."""
    try:
        return find_stem(config_of(model.assets))
    except FormatError:
        return find_stem(None)


def _split(model: Model, size: Any, stem: str) -> dict[str, NDArray[np.intp]]:
    """Return the rows of the tensors of each file."""
    if size == "keep":
        return _keep_files(model, stem)
    try:
        most = parse_size(size)
    except ContentError as error:
        raise ContentError(f"hf: max_shard_size is keep, or {error}") from None
    starts = split_by_size(model.tensors.forms().sizes().tolist(), most)
    parts = np.split(np.arange(len(model.tensors), dtype=np.intp), starts)
    if len(parts) == 1:
        return {stem + SUFFIX: parts[0]}
    return {shard_name(stem, number, len(parts)): part for number, part in enumerate(parts, 1)}


def _keep_files(model: Model, stem: str) -> dict[str, NDArray[np.intp]]:
    """Return the rows of the tensors of each file that the folder had; new tensors go into the last one."""
    native = model.native
    if not isinstance(native, HfNative) or not native.files:
        raise ContentError("hf: max_shard_size=keep needs a model that comes from a folder")
    shards: dict[str, list[int]] = {file: [] for file in native.files}
    for row, name in enumerate(model.tensors.names):
        shards[native.weight_map.get(name, native.files[-1])].append(row)
    kept = {file: np.array(rows, np.intp) for file, rows in shards.items() if rows}
    return kept or {stem + SUFFIX: np.empty(0, np.intp)}


def asset_breach(name: str) -> str | None:
    """Why a folder cannot hold an asset called ``name``; None when it can."""
    try:
        parts = split_contained(name)
    except FormatError as error:
        return error.message
    if len(parts) > 2:
        return f"the asset {name!r} lies deeper than one subfolder"
    if any(len(part.encode()) > _LONGEST for part in parts):
        return f"the asset {name[:_SHOWN]!r}: a file name takes at most {_LONGEST} bytes"
    if any(part.startswith(".") for part in parts):
        return f"the asset {name!r} would be a hidden file"
    if is_weights(name):
        return f"the asset {name!r} would be taken for a file of weights"
    return None
