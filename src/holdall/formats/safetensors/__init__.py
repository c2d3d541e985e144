"""safetensors: a JSON header and the tensors, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Option
from holdall.formats.safetensors.layout import CAP, HEADER, INDEX_SUFFIX, WORD_OF
from holdall.formats.safetensors.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.source import Source
    from holdall.tensor import Tensor

__all__ = ["FORMAT", "OPTIONS"]


def _refuses_name(name: str) -> str | None:
    from holdall.formats.safetensors.write import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.safetensors.write import metadata_breach

    return metadata_breach(key, value)


OPTIONS = (
    Option("order", "sorted", "sorted: by falling alignment, then name, as the format's own library; or as given",
           ("sorted", "given")),
    Option("metadata_order", "sorted", "metadata sorted by key, or as given", ("sorted", "given")),
    Option("align", 64, "where the data begins: at a multiple of this power of two; the format's own library takes 8"),
)  # fmt: skip


class Safetensors(Format):
    """The safetensors container."""

    name = "safetensors"
    title = "safetensors"
    suffixes = (".safetensors",)
    splits = True
    holds = Holds(
        dtypes=frozenset(WORD_OF),
        whole_bytes=True,
        free_text=True,
        text_bytes=CAP // 2,
        names="any text but __metadata__",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    options = OPTIONS
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By a length that fits, and the brace after it."""
        return (
            len(head) > HEADER.size + 1
            and head[HEADER.size] == ord("{")
            and 2 <= HEADER.read(head, 0).length <= source.size - HEADER.size
        )

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """The header; the data stays where it is."""
        from holdall.formats.safetensors.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """One file."""
        from holdall.formats.safetensors.write import plan

        return plan(model, options)

    def split_files(self, stem: str, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Plan]:
        """The index, by which Hugging Face libraries and holdall open the folder."""
        from holdall.formats.safetensors.sharded import index_plan

        return {stem + INDEX_SUFFIX: index_plan(parts)}


FORMAT = Safetensors()
