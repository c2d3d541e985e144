"""AEROSET 0.1 and 0.2: a folder of AERO files with a global index, opened like one model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Option, Tick
from holdall.formats.aero import HOLDS, OPTIONS
from holdall.formats.aeroset.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.payload import Span
    from holdall.plan import FolderPlan
    from holdall.proof import Proof
    from holdall.source import Source

__all__ = ["FORMAT"]


class Aeroset(Format):
    """The set of AERO files."""

    name = "aeroset"
    title = "AEROSET (a folder of AERO files)"
    suffixes = (".aeroset",)
    defers_documents = True
    folder = True
    holds = HOLDS
    options = (
        *OPTIONS,
        Option("part_shards", 4, "shards in a part"),
        Option("base_url", "", "where the parts can be fetched; makes the set version 0.2"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """A folder with an index in it, or the index: by its name, or by AEROSET near its beginning."""
        from holdall.formats.aeroset.document import SUFFIX

        if source.is_folder:
            return any(name.endswith(SUFFIX) for name in source.names())
        return head.lstrip().startswith(b"{") and (source.name.endswith(SUFFIX) or b'"AEROSET"' in head)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """The document and the global index; verifying, also every part's own."""
        from holdall.formats.aeroset.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> FolderPlan:
        """Parts, index and document, in a fresh folder."""
        from holdall.formats.aeroset.write import plan

        return plan(model, options)

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """Those of the parts."""
        from holdall.formats.aeroset.read import AerosetNative

        return model.native.proofs(spans) if isinstance(model.native, AerosetNative) else ()

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """SHA-256 of every file, and every part's own hashes."""
        from holdall.formats.aeroset.audit import audit

        audit(model, check, tick)


FORMAT = Aeroset()
