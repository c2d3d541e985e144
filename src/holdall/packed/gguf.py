"""Blocks of GGUF inside of safetensors: known by name, and not decoded, since no tensor says of which type they are."""

from __future__ import annotations

from holdall.packed.finder import Finder

__all__ = ["find_gguf"]


def find_gguf(finder: Finder) -> None:
    """Report the blocks; weights are found in the GGUF file from which they come."""
    names = [name for name, _ in finder.list_names(".qweight_type")]
    names += [tensor.name for tensor in finder.model.tensors if str(tensor.dtype) == "u8" and tensor.ndim == 2]
    for name in names[:1]:
        text = "belongs to blocks of GGUF, and safetensors does not say of which type: convert the .gguf file instead"
        finder.report(name, "blocks", text)
