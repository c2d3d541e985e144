"""What only these formats know of a file and of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GptrsNative", "GptrsTensor"]


@dataclass(frozen=True, slots=True)
class GptrsNative:
    """The configuration of a checkpoint as its bytes stand in the file; None in an archive.

    ``legacy`` is True when they are a gpt configuration without a kind.
    """

    config: bytes | None = None
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class GptrsTensor:
    """The flag byte of a tensor: once requires_grad, now reserved. No reader looks at it; it is kept."""

    flag: int

    @property
    def requires_grad(self) -> bool:
        """The flag by its first meaning."""
        return self.flag != 0
