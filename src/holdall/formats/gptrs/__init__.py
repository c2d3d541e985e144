"""GPTRSCHK checkpoints and GPTRSTEN tensor archives: two formats with one kind of index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Option
from holdall.formats.gptrs.layout import ARCHIVE_MAGIC, CHECKPOINT_MAGIC, DTYPES
from holdall.formats.gptrs.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.source import Source

__all__ = ["ARCHIVE", "CHECKPOINT"]

_ALIGN = Option("align", 64, "start payloads at multiples of 64, or pack them", ("64", "1"))


def _refuses_checkpoint_name(name: str) -> str | None:
    from holdall.formats.gptrs.write import name_breach

    return name_breach(name, checkpoint=True)


def _refuses_archive_name(name: str) -> str | None:
    from holdall.formats.gptrs.write import name_breach

    return name_breach(name, checkpoint=False)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.gptrs.config import member_breach

    return member_breach(key, value)


class GptrsCheckpoint(Format):
    """A model's configuration and tensors, found by name or by id."""

    name = "gptrs-checkpoint"
    title = "GPTRSCHK (gpt-rs checkpoint)"
    suffixes = (".gptrs",)  # and .bin, which others use as well
    holds = Holds(
        dtypes=frozenset(DTYPES),
        free_text=True,
        names="ASCII, not empty",
        refuses_name=_refuses_checkpoint_name,
        refuses_metadata=_refuses_metadata,
    )
    options = (
        _ALIGN,
        Option("ids", True, "store the base id of each name, as the Rust writers do; false stores 0"),
        Option("config", None, "the configuration, a mapping or its bytes; by default the model's own"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic."""
        return head.startswith(CHECKPOINT_MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Configuration and index."""
        from holdall.formats.gptrs.read import read

        return read(source, check, ledger, checkpoint=True)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """Version 2, aligned and with ids by default."""
        from holdall.formats.gptrs.write import plan

        return plan(model, options, checkpoint=True)

    def only_here(self, model: Model) -> Mapping[str, str]:
        """The flag byte of tensors."""
        from holdall.formats.gptrs.native import GptrsTensor

        flagged = sum(isinstance(tensor.native, GptrsTensor) and tensor.native.flag != 0 for tensor in model.tensors)
        return {"requires_grad": f"the flag of {flagged} tensors"} if flagged else {}

    def facet(self, name: str, model: Model) -> Any:
        """The configuration: kind, config, and what else there is."""
        from holdall.formats.gptrs.config import normalized

        if name != "config" or not isinstance(model.metadata.get("kind"), str):
            return None
        return normalized(model.metadata)


class GptrsArchive(Format):
    """Named tensors and nothing else: inputs, outputs, traces."""

    name = "gptrs-archive"
    title = "GPTRSTEN (gpt-rs tensor archive)"
    suffixes = (".gptrsten",)
    holds = Holds(
        dtypes=frozenset(DTYPES), metadata=False, names="any text, not empty", refuses_name=_refuses_archive_name
    )
    options = (_ALIGN,)
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic."""
        return head.startswith(ARCHIVE_MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """The index."""
        from holdall.formats.gptrs.read import read

        return read(source, check, ledger, checkpoint=False)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """Version 2, aligned by default."""
        from holdall.formats.gptrs.write import plan

        return plan(model, options, checkpoint=False)


CHECKPOINT = GptrsCheckpoint()
ARCHIVE = GptrsArchive()
