"""What a Hugging Face folder is made of.

================================ ==================================================================================
``model.safetensors``            all tensors, or
``model.safetensors.index.json`` ``{"metadata": {"total_size": N}, "weight_map": {TENSOR: FILE}}``, and the FILEs
every other file                 an asset, unless it holds weights in another form (see ``weight_files``)
================================ ==================================================================================

In folders of the diffusers library the first two begin with ``diffusion_pytorch_model`` instead of ``model``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdall.format.safetensors.layout import INDEX_SUFFIX

__all__ = ["INDEX", "INDEX_SUFFIX", "SINGLE", "SUFFIX", "find_stem", "find_weights", "shard_name"]

SUFFIX: Final = ".safetensors"
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"


def find_stem(config: Mapping[str, Any] | None) -> str:
    """Return how the files of weights begin beside this configuration: diffusers, which states a class, has its own.

    >>> find_stem({"model_type": "llama"}), find_stem({"_class_name": "FluxTransformer2DModel"})
    ('model', 'diffusion_pytorch_model')
    """
    return "diffusion_pytorch_model" if config and "_class_name" in config else "model"


def shard_name(stem: str, number: int, count: int) -> str:
    """The file of shard ``number``, counted from 1.

    >>> shard_name("model", 1, 2)
    'model-00001-of-00002.safetensors'
    """
    return f"{stem}-{number:05}-of-{count:05}{SUFFIX}"


def find_weights(names: Sequence[str]) -> str | None:
    """Find the file to read first: the one that holds all tensors, or the index; None if that is ambiguous."""
    for name in (SINGLE, INDEX):
        if name in names:
            return name
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    files = [name for name in names if name.endswith(SUFFIX)]
    if len(indexes) == 1:
        return indexes[0]
    return files[0] if len(files) == 1 and not indexes else None
