"""What a Hugging Face folder is made of.

================================ ==================================================================================
``model.safetensors``            all tensors, or
``model.safetensors.index.json`` ``{"metadata": {"total_size": N}, "weight_map": {TENSOR: FILE}}``, and the FILEs
every other file                 an asset, unless it holds weights in another form (see ``is_weights``)
================================ ==================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from holdall.formats.safetensors.layout import INDEX_SUFFIX

__all__ = ["INDEX", "INDEX_SUFFIX", "SINGLE", "SUFFIX", "is_weights", "shard_name", "weights_of"]

SUFFIX: Final = ".safetensors"
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

# The same weights in other containers, and what trainers leave behind: neither tensors nor assets of this model.
_WEIGHTS: Final = re.compile(
    r"""(^|/)(
        .*\.(safetensors|h5|msgpack|onnx|onnx_data|gguf|ggml|pt|pth|ckpt|ot|tflite|mlmodel|npz|pkl|pickle)
      | .*\.(safetensors|bin|h5|msgpack)\.index\.json
      | .*model.*\.bin | (optimizer|scheduler|training_args|random_states).*\.bin
    )$""",
    re.VERBOSE | re.IGNORECASE,
)


def is_weights(path: str) -> bool:
    """Whether a file of this name holds weights or training state, and is no asset.

    >>> is_weights("pytorch_model.bin"), is_weights("1_Pooling/config.json")
    (True, False)
    """
    return _WEIGHTS.search(path) is not None


def shard_name(number: int, count: int) -> str:
    """The file of shard ``number``, counted from 1.

    >>> shard_name(1, 2)
    'model-00001-of-00002.safetensors'
    """
    return f"model-{number:05}-of-{count:05}.safetensors"


def weights_of(names: Sequence[str]) -> str | None:
    """The file to start from: the one that holds everything, or the index; None when that is not clear."""
    for name in (SINGLE, INDEX):
        if name in names:
            return name
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    files = [name for name in names if name.endswith(SUFFIX)]
    if len(indexes) == 1:
        return indexes[0]
    return files[0] if len(files) == 1 and not indexes else None
