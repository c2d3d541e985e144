"""AERO 0.1: hashed chunks, a MessagePack index, shards, and hashes of pages, tensors and the control region."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Option, Patch, Tick
from holdall.formats.aero.layout import CODE_OF, MAGIC, MAX_RANK
from holdall.formats.aero.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.payload import Span
    from holdall.plan import Plan
    from holdall.proof import Proof
    from holdall.source import Source

__all__ = ["FORMAT", "HOLDS", "OPTIONS"]


def _refuses_name(name: str) -> str | None:
    from holdall.formats.aero.content import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.aero.content import metadata_breach

    return metadata_breach(key, value)


def _dtypes() -> frozenset[str]:
    from holdall.ggml import BLOCKS

    return frozenset((*CODE_OF, *(blocks.name for blocks in BLOCKS.values())))


HOLDS = Holds(
    dtypes=_dtypes(),
    max_rank=MAX_RANK,
    free_text=True,
    names="1 to 4096 bytes of UTF-8",
    refuses_name=_refuses_name,
    refuses_metadata=_refuses_metadata,
)

OPTIONS = (
    Option("uuid", "content", "content: derived from what the file holds; random; or 32 hex digits"),
    Option("tensor_hash", None, "store the BLAKE3 of every tensor; None: as the file it comes from"),
    Option("page_hash", None, "store the BLAKE3 of every page of this many bytes; True is 4 MiB, None as above"),
    Option("control_hash", None, "store the BLAKE3 of header, TOC and string table; None: as above"),
    Option("max_shard_bytes", 2 << 30, "begin a new shard rather than exceed this"),
    Option("align", 64, "alignment of tensors inside their shard; 1 lays them back to back"),
    Option("sort", False, "sort tensors by name"),
)


class Aero(Format):
    """The AERO container."""

    name = "aero"
    title = "AERO"
    suffixes = (".aero",)
    defers_documents = True
    holds = HOLDS
    options = OPTIONS
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic."""
        return head.startswith(MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Header, TOC, names and the index; verifying, also the documents and the control hash."""
        from holdall.formats.aero.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """One pass over the payloads; every hash is filled in afterwards."""
        from holdall.formats.aero.write import plan

        return plan(model, options)

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """BLAKE3 of tensors, of pages, of shards."""
        from holdall.formats.aero.read import AeroNative

        return model.native.stated.proofs(spans) if isinstance(model.native, AeroNative) else ()

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """The hashes of shards, pages, tensors and unknown chunks."""
        from holdall.formats.aero.audit import audit

        audit(model, check, tick)

    def only_here(self, model: Model) -> Mapping[str, str]:
        """Chunks of kinds that the format does not define."""
        from holdall.formats.aero.read import AeroNative

        extras = model.native.extras if isinstance(model.native, AeroNative) else []
        return {chunk.what: f"a chunk of {chunk.length} bytes" for chunk in extras}

    def patches(self, model: Model, copy: Model, tick: Tick) -> list[Patch]:
        """Damaged pages, or tensors or chunks where there are no page hashes."""
        from holdall.formats.aero.repair import patches

        return patches(model, copy, tick)


FORMAT = Aero()
