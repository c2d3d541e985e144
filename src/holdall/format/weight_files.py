"""Which files of a folder are weights, and which are what trainers leave behind, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["has_safetensors", "is_training_state", "is_weights"]

_STATE: Final = re.compile(
    r"(^|/)(optimizer|scheduler|training_args|random_states|rng_state)[^/]*\.(bin|pt|pth|pkl)$", re.IGNORECASE
)
_WEIGHTS: Final = re.compile(
    r"""(^|/)(
        .*\.(safetensors|h5|hdf5|keras|msgpack|onnx|onnx[._]data(_\d+)?|ort|gguf|ggml|pt|pth|pth\.tar|ckpt|jit|ptl|pt2|pte|ot
            |tflite|mlmodel|npz|npy|pkl|pickle|joblib|engine|plan|mar|dduf)
      | .*\.(safetensors|bin|h5|msgpack)\.index\.json
      | .*model.*\.bin | weights?\.bin | saved_model\.pb
    )$""",
    re.VERBOSE | re.IGNORECASE,
)
_SAFETENSORS: Final = (".safetensors", ".safetensors.index.json")


def is_weights(path: str) -> bool:
    """Whether a file of this name holds weights or training state, and is not an asset.

    >>> is_weights("pytorch_model.bin"), is_weights("model.onnx.data"), is_weights("1_Pooling/config.json")
    (True, True, False)
    """
    return _WEIGHTS.search(path) is not None or is_training_state(path)


def is_training_state(path: str) -> bool:
    """Whether a file of this name is what a training needs to go on, and no model.

    >>> is_training_state("training_args.bin"), is_training_state("pytorch_model.bin")
    (True, False)
    """
    return _STATE.search(path) is not None


def has_safetensors(names: Iterable[str]) -> bool:
    """Whether safetensors files, or an index of such files, are among ``names``: then the folder is a model by them.

    >>> has_safetensors(["model.onnx", "model.safetensors"]), has_safetensors(["model.onnx"])
    (True, False)
    """
    return any(name.endswith(_SAFETENSORS) for name in names)
