"""What a container format can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.model.encodings import Opaque
from holdall.model.table import form_of

if TYPE_CHECKING:
    from holdall.model.forms import Form
    from holdall.model.tensor import Tensor

__all__ = ["Holds"]


@dataclass(frozen=True, slots=True)
class Holds:
    """What a format can hold; conversion and ``holdall formats`` ask here instead of trying.

    ``dtypes``: the names of the dtypes and encodings of tensors.
    ``opaque``: how the names of the opaque encodings begin that the format keeps unchanged.
    ``min_rank``, ``max_rank``: the fewest and the most dimensions; None is any number.
    ``scalars``: the dtypes that tensors without dimensions may have; None is all of ``dtypes``.
    ``zero_size``: tensors without elements.
    ``whole_bytes``: a tensor of a packed type must end with its last byte.
    ``declared``: tensors without data.
    ``aliases``: several names for the same bytes.
    ``metadata``: any metadata at all.
    ``foreign_metadata``: False if other tools write no metadata, so that a conversion adds none unless asked.
    ``foreign_keys``: the only keys that are taken from other formats, where metadata are members of one document with a
    meaning of its own; None takes what ``foreign_metadata`` says.
    ``requires_grad``: the mark of tensors that are trained.
    ``default_casts``: the dtypes that a conversion of plain arrays casts without being asked, each to the one that the
    format's programs use in its place; the report says so, and ``--strict`` refuses instead.
    ``assets``: files such as a tokenizer; without them, ``read_assets`` are those whose content has another place.
    ``free_text``: metadata takes any key with plain ASCII text, so that a file can carry the skeleton of an original.
    ``text_bytes``: the most bytes of one metadata text; None is any number.
    ``max_name``: the most bytes of a tensor's name, where a conversion can shorten names.
    ``names``: the allowed names, described to people.
    ``refuses_name(name)``, ``refuses_metadata(key, value)``, ``refuses_asset(name)``: why the format cannot hold it,
    or None when it can. They return the reason alone, to which callers add the format and the entry, and never raise.
    """

    dtypes: frozenset[str]
    opaque: str | None = None
    min_rank: int = 0
    max_rank: int | None = None
    scalars: frozenset[str] | None = None
    zero_size: bool = True
    whole_bytes: bool = False
    declared: bool = False
    aliases: bool = False
    metadata: bool = True
    foreign_metadata: bool = True
    foreign_keys: frozenset[str] | None = None
    requires_grad: bool = False
    default_casts: Mapping[str, str] = field(default_factory=dict)
    assets: bool = False
    read_assets: frozenset[str] = frozenset()
    free_text: bool = False
    text_bytes: int | None = None
    max_name: int | None = None
    names: str = "any text"
    refuses_name: Callable[[str], str | None] = field(default=lambda name: None)
    refuses_metadata: Callable[[str, Any], str | None] = field(default=lambda key, value: None)
    refuses_asset: Callable[[str], str | None] = field(default=lambda name: None)

    def takes_foreign(self, key: str) -> bool:
        """Whether a conversion stores the metadata ``key`` of another format without being asked."""
        return self.metadata and (self.foreign_metadata if self.foreign_keys is None else key in self.foreign_keys)

    def holds_type(self, tensor: Tensor | Form) -> bool:
        """Whether the format has the dtype or encoding of ``tensor``."""
        name = str(tensor.dtype)
        return name in self.dtypes or (
            self.opaque is not None and isinstance(tensor.dtype, Opaque) and name.startswith(self.opaque)
        )

    def holds_scalar(self, tensor: Tensor | Form) -> bool:
        """False for a tensor without dimensions whose dtype the format's own readers accept only with dimensions."""
        return bool(tensor.shape) or self.scalars is None or str(tensor.dtype) in self.scalars

    def refuses(self, tensor: Tensor) -> str | None:
        """Why the format cannot hold ``tensor`` unchanged; None when it can."""
        return self.refuses_form(form_of(tensor)) or self.refuses_name(tensor.name)

    def refuses_form(self, form: Form) -> str | None:
        """Why the format cannot hold a tensor of this type, shape and size, whatever its name; None when it can."""
        rank, bits = len(form.shape), getattr(form.dtype, "bits", 8)
        if not self.holds_type(form):
            unknown = ", which holdall does not decode" if isinstance(form.dtype, Opaque) else ""
            return f"no {form.dtype}{unknown}"
        if rank < self.min_rank:
            return f"rank {self.min_rank} at least"
        if self.max_rank is not None and rank > self.max_rank:
            return f"rank {self.max_rank} at most"
        if not self.holds_scalar(form):
            return f"no {form.dtype} without dimensions"
        if not self.zero_size and 0 in form.shape:
            return "no empty tensors"
        if not self.declared and form.size is None:
            return "no tensors without data"
        if self.whole_bytes and prod(form.shape) * bits % 8:
            return "whole bytes only"
        return None
