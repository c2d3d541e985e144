"""The content that only EMBD has: the vocabulary, and the form of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from holdall.format.proof import Proof
from holdall.model.payload import Span
from holdall.model.vocab import Vocab

__all__ = ["EmbdNative"]


@dataclass(frozen=True, slots=True)
class EmbdNative:
    """The vocabulary of a ``.weights`` file, and the form of the file, which a copy keeps.

    ``payload_order`` has the names in the order of their payloads where that is not the order of the index.
    """

    vocab: Vocab | None = None
    layout: Literal["spec", "sequential"] = "spec"
    aligned: bool = True
    checksums: bool = True
    payload_order: tuple[str, ...] | None = None
    data_checksum: Proof | None = field(default=None, compare=False)  # covers the tensor data; None without checksums

    def proofs(self, spans: Iterable[Span]) -> Iterator[Proof]:
        """The checksum of the tensor data, for spans inside it."""
        proof = self.data_checksum
        if proof is not None:
            for source, start, stop in spans:
                if source is proof.source and proof.start <= start and stop <= proof.stop:
                    yield proof
