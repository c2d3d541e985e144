"""The options of a conversion: all that it is asked to do, except its sources and its target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall.base.progress import Progress
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.operations.convert.changes import Changes

if TYPE_CHECKING:
    from holdall.quant.plan import Quantization
    from holdall.recipes import Recipe

__all__ = ["ConvertOptions"]


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The arguments of :func:`holdall.convert`, parsed. The defaults change nothing."""

    changes: Changes = field(default_factory=Changes)
    metadata: Mapping[str, Any] = field(default_factory=dict)  # added to that of the sources, or replaces it
    quantize: Quantization | None = None
    writer: Mapping[str, Any] = field(default_factory=dict)  # the options of the target's writer
    dedup: bool = False
    split: int | None = None  # payload bytes of each file
    carry: bool = False
    shorten_names: bool = False
    recipe: str | Recipe = "auto"  # by content; "none", the name of a recipe, or a file
    strict: bool = False
    force: bool = False
    clobber: bool = True
    check: bool = True
    dry_run: bool = False
    fsync: bool = True
    limits: Limits = DEFAULT_LIMITS
    allowed: Collection[str] | None = None
    follow: str | Collection[str] = ()
    progress: Progress | None = None

    def list_changing(self) -> list[str]:
        """List the options in use that change content, as the command line calls them."""
        named = [(self.metadata, "--meta"), (self.quantize, "quantize"), (self.shorten_names, "--shorten-names")]
        named.append((self.recipe not in ("auto", "none"), "--recipe"))
        return [*self.changes.options(), *(name for given, name in named if given)]

    @property
    def copies_file(self) -> bool:
        """Whether a copy of the file does all that was asked for."""
        return not (self.list_changing() or self.writer or self.dedup or self.split is not None)
