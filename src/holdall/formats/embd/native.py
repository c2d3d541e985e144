"""What only EMBD has: how a file was laid out, and its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from holdall.proof import Proof
from holdall.vocab import Vocab

__all__ = ["EmbdNative"]


@dataclass(frozen=True, slots=True)
class EmbdNative:
    """The vocabulary of a ``.weights`` file and the form in which it is stored.

    ``payload_order`` lists the names in the order of their payloads where that is not the order of the index.
    """

    vocab: Vocab | None = None
    layout: Literal["spec", "sequential"] = "spec"
    aligned: bool = True
    checksums: bool = True
    payload_order: tuple[str, ...] | None = None
    data_checksum: Proof | None = field(default=None, compare=False)  # of the tensor data, where there are checksums
