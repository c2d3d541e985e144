"""GPTRSCHK checkpoints and GPTRSTEN tensor archives: two formats with one kind of index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.format.base import Holds, MagicFormat, Option, import_late
from holdall.format.gptrs.layout import ARCHIVE_MAGIC, CHECKPOINT_MAGIC, DTYPES, MEMBERS
from holdall.format.gptrs.rules import RULES

if TYPE_CHECKING:
    from holdall.base.check import Check
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor
    from holdall.sink.plan import Plan
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["ARCHIVE", "CHECKPOINT"]

_OPTIONS = (
    Option("align", 64, "start payloads at multiples of 64, or pack them", ("64", "1")),
    Option("scalars", "keep", "as-vector gives a tensor without dimensions the shape [1]: the Rust reader panics on it",
           ("keep", "as-vector")),
    Option("requires_grad", None, "the tensors to mark as trained: true, false, or names and globs, with commas "
           "between them on the command line; by default as the tensors say"),
)  # fmt: skip


class _Gptrs(MagicFormat):
    """What both formats have in common."""

    checkpoint: bool
    rules = RULES

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        from holdall.format.gptrs.read import read

        return read(source, check, ledger, checkpoint=self.checkpoint)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        from holdall.format.gptrs.write import plan

        return plan(model, options, checkpoint=self.checkpoint)


class GptrsCheckpoint(_Gptrs):
    """The configuration of a model, and its tensors by name and by id."""

    name = "gptrs-checkpoint"
    title = "GPTRSCHK (gpt-rs checkpoint)"
    suffixes = (".gptrs",)  # and .bin, which others use as well
    holds = Holds(
        dtypes=frozenset(DTYPES),
        foreign_keys=frozenset(MEMBERS),
        read_assets=frozenset(("config.json",)),
        requires_grad=True,
        free_text=True,
        names="ASCII, not empty",
        refuses_name=import_late("holdall.format.gptrs.write", "name_breach", checkpoint=True),
        refuses_metadata=import_late("holdall.format.gptrs.config", "member_breach"),
    )
    options = (
        *_OPTIONS,
        Option("ids", True, "store the base id of each name, as the Rust writers do; false stores 0"),
        Option(
            "config",
            None,
            "the configuration: a mapping, JSON text, or bytes, which are stored unchanged; by "
            "default the model's own. On the command line JSON text, or @FILE",
            document=True,
        ),
    )
    magic = CHECKPOINT_MAGIC
    checkpoint = True

    def describe_tensor(self, tensor: Tensor) -> dict[str, Any]:
        """The base id of its name, as a hexadecimal number, and what archives have too."""
        from holdall.model.identity import base_id

        return {"base_id": f"{base_id(tensor.name):032x}"} | super().describe_tensor(tensor)

    def facet(self, name: str, model: Model) -> Any:
        """The configuration: kind, config and further members."""
        from holdall.format.gptrs.config import normalize

        if name != "config" or not isinstance(model.metadata.get("kind"), str):
            return None
        return normalize(model.metadata)


class GptrsArchive(_Gptrs):
    """Tensors by name and nothing else, such as inputs, outputs and traces."""

    name = "gptrs-archive"
    title = "GPTRSTEN (gpt-rs tensor archive)"
    suffixes = (".gptrsten",)
    holds = Holds(
        dtypes=frozenset(DTYPES),
        metadata=False,
        requires_grad=True,
        default_casts={"f64": "f32", "i64": "i32"},  # the default types of numpy
        names="any text, not empty",
        refuses_name=import_late("holdall.format.gptrs.write", "name_breach", checkpoint=False),
    )
    options = _OPTIONS
    magic = ARCHIVE_MAGIC
    checkpoint = False


CHECKPOINT = GptrsCheckpoint()
ARCHIVE = GptrsArchive()
