"""A toy format that has the difficult traits of real ones, all together.

A set is a folder of ``main.toy`` and, when a tensor's name begins with ``side.``, ``side.bin``. The main file
has a table of entries of variable length, sections that a reader may not know, digests in the header that are
known only once everything is written, an index after the payloads whose size depends on their bytes, and a
checksum over all of that at its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdall.plugin import Format, Model, Option, Proof, Source, Span
from tests.toy.holds import HOLDS
from tests.toy.layout import MAGIC, MAIN
from tests.toy.rules import RULES

__all__ = ["FORMAT"]


class Toy(Format):
    """The format as holdall sees it: facts alone. The work is in the modules of this package."""

    name = "toy"
    title = "Toy (the worst traits together)"
    suffixes = (".toy",)
    folder = True
    holds = HOLDS
    options = (Option("align", "8", "payloads start at multiples of this", ("8", "64")),)
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic of the main file, whether it or its folder was given."""
        return MAIN in source.names() if source.is_folder else head.startswith(MAGIC)

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """The digest of all payloads of the main file, and the checksum of ``side.bin``."""
        from tests.toy.audit import find_proofs

        return find_proofs(model, spans)


FORMAT = Toy()
