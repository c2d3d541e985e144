"""AEROSET 0.1 and 0.2: a folder of AERO files with a global index, opened like one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.format.aero import HOLDS, OPTIONS
from holdall.format.aero.any_aero import AnyAero
from holdall.format.aeroset.rules import RULES
from holdall.format.base import Option
from holdall.format.second_format import is_aeroset

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.sink.plan import FolderPlan
    from holdall.source import Source

__all__ = ["FORMAT"]


class Aeroset(AnyAero):
    """The set of AERO files."""

    name = "aeroset"
    title = "AEROSET (a folder of AERO files)"
    suffixes = (".aeroset",)
    kin = ("aero",)
    defers_documents = True
    folder = True
    holds = HOLDS
    options = (
        *OPTIONS,
        Option("part_shards", 4, "shards in a part"),
        Option("base_url", "", "where the parts can be fetched; makes the set version 0.2"),
    )
    rules = RULES

    def plan_copy(self, model: Model) -> FolderPlan:
        """The document, the index and the parts, each proven by its SHA-256."""
        from holdall.format.aeroset.copy import plan_copy

        return plan_copy(model)

    def accepts(self, head: bytes, source: Source) -> bool:
        """A folder with an index in it, or the index: by its name, or by AEROSET near its beginning."""
        from holdall.format.aeroset.document import SUFFIX

        if source.is_folder:
            return any(name.endswith(SUFFIX) for name in source.names())
        return is_aeroset(head) or (source.name.endswith(SUFFIX) and head.lstrip().startswith(b"{"))

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """Chunks that no tensor lies in, unknown keys, and values of tensors, in any file that can be read."""
        from holdall.format.aero.own_content import describe_own
        from holdall.format.aeroset.read import AerosetNative

        files = model.native.list_files() if isinstance(model.native, AerosetNative) else []
        return {f"{file.name}: {key}": what for file in files for key, what in describe_own(file).items()}

    def describe(self, model: Model) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
        """The parts, with UUID and number of chunks of those that have been read."""
        from holdall.format.aero.read import AeroNative
        from holdall.format.aeroset.read import AerosetNative

        rows: list[Mapping[str, Any]] = []
        for part in model.native.parts if isinstance(model.native, AerosetNative) else ():
            native = None if part.known is None else part.known.native
            uuid, chunks = (str(native.uuid), len(native.chunks)) if isinstance(native, AeroNative) else ("", 0)
            rows.append({"path": part.file.path, "bytes": part.file.size, "uuid": uuid, "chunks": chunks})
        return {"parts": rows}


FORMAT = Aeroset()
