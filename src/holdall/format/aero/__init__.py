"""AERO 0.1: hashed chunks, a MessagePack index, shards, and hashes of pages, tensors and the control region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.format.aero.any_aero import AnyAero
from holdall.format.aero.layout import CODE_OF, MAGIC, MAX_RANK
from holdall.format.aero.rules import RULES
from holdall.format.base import Holds, MagicFormat, Option, import_late

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["FORMAT", "HOLDS", "OPTIONS"]


def _dtypes() -> frozenset[str]:
    from holdall.model.ggml import BLOCKS, HALF_Q8_1

    return frozenset((*CODE_OF, *(blocks.name for blocks in BLOCKS.values()), HALF_Q8_1.name))


HOLDS = Holds(
    dtypes=_dtypes(),
    max_rank=MAX_RANK,
    free_text=True,
    names="1 to 4096 bytes of UTF-8",
    refuses_name=import_late("holdall.format.aero.content", "name_breach"),
    refuses_metadata=import_late("holdall.format.aero.content", "metadata_breach"),
)

STORED = ("compressed", "stored")
OPTIONS = (
    Option("uuid", "content", "content: derived from what the file holds; random; or 32 hex digits"),
    Option("tensor_hash", None, "store the BLAKE3 of every tensor; None: as the file it comes from"),
    Option("page_hash", None, "store the BLAKE3 of every page of this many bytes; True is 4 MiB, None as above"),
    Option("control_hash", None, "store the BLAKE3 of header, TOC and string table; None: as above"),
    Option("max_shard_bytes", 2 << 30, "begin a new shard rather than exceed this"),
    Option("align", 64, "alignment of tensors inside their shard; 1 lays them back to back"),
    Option("sort", False, "sort tensors by name"),
    Option("tidx", "compressed", "how the index of tensors is stored", STORED),
    Option("mmsg", "compressed", "how the manifest is stored", STORED),
    Option("mjsn", "stored", "how the JSON metadata is stored", STORED),
    Option(
        "chunk", None, "a chunk of a kind that the format does not define, as FOURCC:name@file; repeatable", files=True
    ),
)


class Aero(AnyAero, MagicFormat):
    """The AERO container."""

    name = "aero"
    title = "AERO"
    suffixes = (".aero",)
    kin = ("aeroset",)
    defers_documents = True
    holds = HOLDS
    options = OPTIONS
    rules = RULES
    magic = MAGIC

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """Chunks that no tensor lies in, unknown keys, and values of tensors that only AERO has."""
        from holdall.format.aero.own_content import describe_own
        from holdall.format.aero.read import AeroNative

        return describe_own(model.native) if isinstance(model.native, AeroNative) else {}

    def describe(self, model: Model) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
        """The UUID and the chunks."""
        from holdall.format.aero.describe import describe
        from holdall.format.aero.read import AeroNative

        return describe(model.native) if isinstance(model.native, AeroNative) else {}


FORMAT = Aero()
