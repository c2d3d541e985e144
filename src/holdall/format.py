"""The contract of a container format: what it is called, what it can hold, how it is read, planned and audited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    from holdall.check import Check, Rule
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.payload import Payload, Span
    from holdall.plan import FolderPlan, Plan
    from holdall.proof import Proof
    from holdall.source import Source
    from holdall.tensor import Tensor

__all__ = ["Format", "Holds", "Option", "Patch", "Tick"]

Tick = Callable[[int], None]  # told how many more payload bytes an audit has been through


@dataclass(frozen=True, slots=True)
class Holds:
    """What a format can hold; conversion and ``holdall formats`` ask here instead of trying.

    ``names`` and ``values`` are sentences for people; ``refuses_name``, ``refuses_metadata`` and
    ``refuses_asset`` decide, and give the reason alone: whoever reports it says of what format and entry.
    """

    dtypes: frozenset[str]
    min_rank: int = 0
    max_rank: int | None = None
    scalars: frozenset[str] | None = None  # the dtypes of tensors without dimensions; None: all of them
    zero_size: bool = True
    whole_bytes: bool = False  # a tensor of a packed type must end with its last byte
    declared: bool = False  # tensors without data
    aliases: bool = False  # several names for the same bytes
    metadata: bool = True
    foreign_metadata: bool = True  # False: other tools write none, so that a conversion brings none along unasked
    assets: bool = False
    free_text: bool = False  # metadata takes any key with plain ASCII text, so that a skeleton can travel
    text_bytes: int | None = None  # the longest text that one metadata value holds
    max_name: int | None = None  # bytes of a tensor's name, where a conversion can shorten names
    names: str = "any text"
    refuses_name: Callable[[str], str | None] = field(default=lambda name: None)
    refuses_metadata: Callable[[str, Any], str | None] = field(default=lambda key, value: None)
    refuses_asset: Callable[[str], str | None] = field(default=lambda name: None)

    def holds_scalar(self, tensor: Tensor) -> bool:
        """False for a tensor without dimensions of a dtype that the format's own readers then do not take."""
        return bool(tensor.shape) or self.scalars is None or str(tensor.dtype) in self.scalars

    def refuses(self, tensor: Tensor) -> str | None:
        """Why ``tensor`` cannot be held as it is; None when it can."""
        rank, bits = len(tensor.shape), getattr(tensor.dtype, "bits", 8)
        if str(tensor.dtype) not in self.dtypes:
            return f"no {tensor.dtype}"
        if rank < self.min_rank:
            return f"rank {self.min_rank} at least"
        if self.max_rank is not None and rank > self.max_rank:
            return f"rank {self.max_rank} at most"
        if not self.holds_scalar(tensor):
            return f"no {tensor.dtype} without dimensions"
        if not self.zero_size and tensor.count == 0:
            return "no empty tensors"
        if not self.declared and not tensor.has_data:
            return "no tensors without data"
        if self.whole_bytes and tensor.count * bits % 8:
            return "whole bytes only"
        return self.refuses_name(tensor.name)


@dataclass(frozen=True, slots=True)
class Option:
    """A writer option: what the command line and ``save`` accept for the format."""

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Patch:
    """A damaged stretch of a file, and the payload that belongs there."""

    start: int
    payload: Payload
    message: str  # what is damaged


class Format(ABC):
    """One container format as an object. Subclass it, fill in the facts, and register the instance."""

    name: str  # the id: "oinf"
    title: str  # for people
    suffixes: tuple[str, ...] = ()
    folder = False  # made of several files in a folder
    splits = False  # a model may be several files of the format in a folder, which then opens as one
    defers_documents = False  # level structure also proves documents that opening leaves until they are asked for
    holds: Holds
    options: tuple[Option, ...] = ()
    rules: tuple[Rule, ...] = ()

    @abstractmethod
    def accepts(self, head: bytes, source: Source) -> bool:
        """Whether ``source``, which begins with ``head``, is of this format: by content, cheaply, never raising."""

    @abstractmethod
    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Parse header and index: bounded by the file's own size, without touching payloads."""

    def require(self, model: Model, parts: Collection[str]) -> None:
        """Refuse a file that lacks one of ``parts``, named as the format names them."""
        if parts:
            raise UnsupportedError(f"{self.name} has no optional parts to require: {', '.join(parts)}")

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan | FolderPlan:
        """The file that holds ``model``. Raises ContentError for what it cannot hold."""
        raise UnsupportedError(f"{self.name}: can be read, not written")

    def part(self, model: Model, number: int, count: int, tensors: int) -> Model:
        """``model`` holds what goes into file ``number``, from 0 on, of ``count``: with what such a file has to say.

        ``tensors`` is how many all files have together. By default a part is a file like any other.
        """
        return model

    def split_files(self, stem: str, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Plan]:
        """What the folder of a split model needs beside its ``parts``, such as an index: plans by file name.

        ``parts`` has the tensors of each file by its name, ``STEM-00001-of-0000N`` and the suffix, in order.
        """
        return {}

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """Why the file of ``model`` cannot become one that holds ``changed``, its place and all else the same.

        None when it can, as far as the format can tell without planning it.
        """
        return None

    @property
    def writes(self) -> bool:
        """Whether the format has a writer."""
        return type(self).plan is not Format.plan

    @property
    def carries(self) -> bool:
        """Whether a file of this format has a place for the skeleton of an original."""
        return self.folder or self.holds.free_text

    def leaves(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """The metadata that :meth:`plan` leaves out on purpose, with the reason: it writes what other tools would."""
        return {}

    def only_here(self, model: Model) -> Mapping[str, str]:
        """What ``model`` says that no other format has a place for, by name, in words: it is lost by a conversion.

        Order, padding and other forms of the file are not content, and are not named.
        """
        return {}

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """What verification needs payload bytes for: hashes, padding, values. Streams; records into ``check``."""
        return

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """The hashes that the files of ``model`` state of their payloads: the fewest bytes that hold ``spans``.

        A span without a hash has none; one hash that holds several spans may come several times.
        """
        return ()

    def patches(self, model: Model, copy: Model, tick: Tick) -> list[Patch]:
        """What of ``copy`` makes the damaged file of ``model`` whole; raises where the copy cannot."""
        raise UnsupportedError(f"{self.name}: has no hashes of small ranges to repair by")

    def beside(self, model: Model) -> list[str]:
        """Files in the folder of an open model that are no part of it: no conversion takes them along."""
        return []

    def bound_values(self, model: Model) -> dict[str, str]:
        """Tensors whose values depend on what the format keeps beside them, such as scales, with the reason.

        A tensor that says so itself by its encoding is not among them.
        """
        return {}

    def facet(self, name: str, model: Model) -> Any:
        """What the model holds under a facet's name ("sizevars", "vocab", "config"); None where it holds none."""
        return None

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` completed by the defaults; an option that the format does not have is refused."""
        known = {option.name: option for option in self.options}
        for name, value in given.items():
            if name not in known:
                has = ", ".join(known) or "none"
                raise UnsupportedError(f"{self.name} has no option {name!r}; its options are: {has}")
            choices = known[name].choices
            if choices and str(value) not in choices:
                raise UnsupportedError(f"{self.name}: {name} is one of {', '.join(choices)}, not {value!r}")
        return {name: given.get(name, option.default) for name, option in known.items()}
