"""A toy format with the worst traits of real ones, all together.

A set is a folder of ``main.toy`` and, when a tensor's name begins with ``side.``, ``side.bin``. The main file
has a table of entries of variable length, sections that a reader may not know, digests in the header that are
known only once everything is written, an index after the payloads whose size depends on their bytes, and a
checksum over all of that at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Option, Tick
from tests.toy.layout import DTYPES, MAGIC, MAIN
from tests.toy.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import FolderPlan
    from holdall.source import Source

__all__ = ["FORMAT"]


def _refuses_name(name: str) -> str | None:
    return None if 0 < len(name.encode()) <= 4096 else "a name takes 1 to 4096 bytes"


def _refuses_metadata(key: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"metadata is text, not {type(value).__name__}"
    longest = max(len(key.encode()), len(value.encode()))
    return None if longest < 1 << 16 else f"a key or value of {longest} bytes is longer than 65535"


class Toy(Format):
    """The format as holdall sees it: facts, and four verbs that import their work when they are called."""

    name = "toy"
    title = "Toy (the worst traits together)"
    suffixes = (".toy",)
    folder = True
    holds = Holds(
        dtypes=frozenset(DTYPES),
        declared=True,
        aliases=True,
        names="1 to 4096 bytes of UTF-8",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    options = (Option("align", "8", "payloads start at multiples of this", ("8", "64")),)
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic of the main file, whether it or its folder was given."""
        return MAIN in source.names() if source.is_folder else head.startswith(MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        from tests.toy.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> FolderPlan:
        from tests.toy.write import plan

        return plan(model, int(options["align"]))

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        from tests.toy.audit import audit

        audit(model, check, tick)


FORMAT = Toy()
