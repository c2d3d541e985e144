"""The content that only these formats have: the bytes of the configuration, and a flag of each tensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GptrsNative", "GptrsTensor"]


@dataclass(frozen=True, slots=True)
class GptrsNative:
    """The bytes of a checkpoint's configuration; None in an archive.

    ``legacy`` is True for a gpt configuration without a kind.
    """

    config: bytes | None = None
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class GptrsTensor:
    """The flag byte of a tensor, where it is not 0: requires_grad, and reserved in newer readers.

    It is written back unchanged while ``Tensor.requires_grad`` agrees with it.
    """

    flag: int
