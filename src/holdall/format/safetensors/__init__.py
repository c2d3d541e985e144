"""safetensors: a JSON header and the tensors, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdall.format.base import Format, Holds, Option, import_late
from holdall.format.safetensors.layout import CAP, INDEX_SUFFIX, WORD_OF
from holdall.format.safetensors.rules import RULES
from holdall.format.second_format import is_safetensors

if TYPE_CHECKING:
    from holdall.model.tensor import Tensor
    from holdall.sink.plan import Plan
    from holdall.source import Source

__all__ = ["FORMAT", "OPTIONS"]


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
        refuses_name=import_late("holdall.format.safetensors.write", "name_breach"),
        refuses_metadata=import_late("holdall.format.safetensors.write", "metadata_breach"),
    )
    options = OPTIONS
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """Whether the header length fits the file and a brace follows it."""
        return is_safetensors(head, source.size)

    def split_files(self, stem: str, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Plan]:
        """Return the index file, from which Hugging Face libraries and holdall open the folder."""
        from holdall.format.safetensors.sharded import plan_index

        return {stem + INDEX_SUFFIX: plan_index(parts)}


FORMAT = Safetensors()
