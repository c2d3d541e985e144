"""The contract of a container format: its name, what it can hold, and how it is read, planned and audited.

A format that is a package keeps this work in modules of fixed names, which are imported when they are needed:
``read`` has ``read``, ``write`` has ``plan``, ``audit`` has ``audit``, ``repair`` has ``patches`` and ``outline`` has
``outline``, each with the parameters of the method of :class:`Format`. The package states facts; see ``tests/toy``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from holdall.errors import UnsupportedError
from holdall.format.holds import Holds

if TYPE_CHECKING:
    from holdall.base.check import Check, Rule
    from holdall.format.outline import Outline, Place
    from holdall.format.proof import Stated
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.model.payload import Payload, Span
    from holdall.model.tensor import Tensor
    from holdall.sink.plan import FolderPlan, Plan
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["Format", "Holds", "MagicFormat", "OnProgress", "Option", "Patch", "import_late", "list_fields"]

OnProgress = Callable[[int], None]  # receives the number of payload bytes read since the last call


def import_late(module: str, name: str, **fixed: Any) -> Callable[..., Any]:
    """The function ``name`` of ``module``, which is imported by the first call, with the arguments ``fixed``.

    >>> import_late("math", "isclose", abs_tol=1.0)(2.0, 2.5)
    True
    """

    @lru_cache(1)
    def find() -> Callable[..., Any]:
        return partial(getattr(import_module(module), name), **fixed)

    return lambda *given: find()(*given)


def list_fields(record: object) -> dict[str, Any]:
    """The fields of a dataclass that have a value and belong to its ``repr``; nothing of any other object.

    >>> list_fields(Patch(64, None, "page 1 is damaged"))
    {'start': 64, 'message': 'page 1 is damaged'}
    """
    found = ((name, getattr(record, name)) for name in _list_shown(cast(Hashable, type(record))))
    return {name: value for name, value in found if value is not None and value != {}}


@lru_cache(maxsize=64)
def _list_shown(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields that belong to the ``repr`` of a dataclass."""
    return tuple(each.name for each in fields(kind) if each.repr) if is_dataclass(kind) else ()


@dataclass(frozen=True, slots=True)
class Option:
    """A writer option: what the command line and ``save`` accept for the format.

    An option with ``files`` is a mapping from labels to contents, bytes or payloads. On the command line it is
    ``LABEL@FILE``, any number of times.
    The value of a ``document`` stays text on the command line, whatever it looks like, and ``@FILE`` is the bytes of
    that file.
    """

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    files: bool = False
    document: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """A damaged range of a file, and the payload that belongs there."""

    start: int
    payload: Payload
    message: str  # says what is damaged


class Format(ABC):
    """One container format as an object: subclass it, state the facts, and register an instance.

    ``accepts`` has to be written. ``read``, ``plan``, ``audit`` and ``patches`` by default call the function of that
    name in a module of the package that defines the class.
    """

    name: str  # the id: "oinf"
    title: str  # for people
    suffixes: tuple[str, ...] = ()
    folder = False  # made of several files in a folder
    plain_arrays = False  # its tensors have the types that numpy makes of numbers unless it is asked for others
    splits = False  # a model may be several files of the format in a folder, which then opens as one
    copies_clashing = True  # a copy of a file keeps the content that the writer has no place for
    beside = False  # a file may have its data in others beside it: a folder of them opens as one
    kin: tuple[str, ...] = ()  # other formats whose unique_content the writer stores as well
    defers_documents = False  # opening leaves some documents unread; verifying at level structure reads them too
    holds: Holds
    options: tuple[Option, ...] = ()
    rules: tuple[Rule, ...] = ()

    @abstractmethod
    def accepts(self, head: bytes, source: Source) -> bool:
        """Whether ``source``, which begins with ``head``, is of this format: by content, cheaply, never raising."""

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Parse header and index: bounded by the file's own size, without touching payloads."""
        module = _find_module(self, "read")
        if module is None:
            raise NotImplementedError(f"{self.name}: the format has neither a method read nor a module read")
        model: Model = import_module(module).read(source, check, ledger)
        return model

    def require(self, model: Model, parts: Collection[str]) -> None:
        """Refuse a file that lacks one of ``parts``, named as the format names them."""
        if parts:
            raise UnsupportedError(f"{self.name} has no optional parts to require: {', '.join(parts)}")

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan | FolderPlan:
        """The file that holds ``model``; raises ContentError for content that the format cannot hold."""
        module = _find_module(self, "write")
        if module is None:
            raise UnsupportedError(f"{self.name}: can be read, not written")
        plan: Plan | FolderPlan = import_module(module).plan(model, options)
        return plan

    def plan_copy(self, model: Model) -> FolderPlan | None:
        """An unchanged copy of the files of ``model``, a set of this format; None where they are planned anew."""
        return None

    def part(self, model: Model, number: int, count: int, tensors: int) -> Model:
        """``model``, which goes into file ``number`` (from 0) of ``count``, with the entries that such a file needs.

        ``tensors`` is the number of tensors in all files. By default a part is a file like any other.
        """
        return model

    def split_files(self, stem: str, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Plan]:
        """The further files that the folder of a split model needs, such as an index: plans by file name.

        ``parts`` maps the name of each file, ``STEM-00001-of-0000N`` with the suffix, to its tensors, in order.
        """
        return {}

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """Why the file of ``model`` cannot be edited into one of ``changed``; None when it can, as far as is known."""
        return None

    def edit_options(self, model: Model) -> Mapping[str, Any]:
        """The options without which :meth:`plan` refuses what the file of ``model`` has: an edit keeps it."""
        return {}

    @property
    def writes(self) -> bool:
        """Whether the format has a writer."""
        return type(self).plan is not Format.plan or _find_module(self, "write") is not None

    @property
    def carries(self) -> bool:
        """Whether a file of this format has a place for the skeleton of an original."""
        return self.folder or self.holds.free_text

    def holds_with(self, options: Mapping[str, Any]) -> Holds:
        """What the format can hold when it is written with ``options``, by default the same with all of them."""
        return self.holds

    def omitted_metadata(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """The keys that :meth:`plan` leaves out, each with the reason, because other tools do not write them."""
        return {}

    def merged_assets(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """The assets whose content :meth:`plan` puts into another one, each with the place, for the report."""
        return {}

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """The content that no other format can hold and a conversion loses: a description for each name.

        Order, padding and other properties of the file are not content.
        """
        return {}

    def copies_as_it_is(self, model: Model) -> bool:
        """Whether the file of ``model`` is one that the writer could have made, so that a copy is a conversion."""
        return True

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """The unique content as values that ``diff`` compares with those of a model of this format or of its ``kin``.

        A value is a number, a text, a list or a mapping; or ``bytes``, the hash of what is not shown.
        """
        return {}

    def infer_kind(self, value: Any) -> str | None:
        """The kind in which the writer stores a metadata value that states none; None if the format has no kinds.

        A conversion asks it whether an array that a target holds as a list would come back with its type.
        """
        return None

    def keeps_unique_content(self, model: Model) -> bool:
        """Whether a file of this format that is made of ``model`` has the unique content of the model's own format."""
        return model.format in (None, self.name, *self.kin)

    def clashing_content(self, model: Model) -> Mapping[str, str]:
        """The unique content that a file of this format has no place for beside the rest: a description for each name.

        The format keeps the unique content of ``model``, but two things of one name may come from several files.
        """
        return {}

    def join_native(self, models: Sequence[Model]) -> object:
        """The native part of ``models`` joined into one, for a file of this format.

        None where there is none; a conversion of several files then loses the unique content of each.
        """
        return None

    def describe(self, model: Model) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
        """What only this format states of a file, for ``holdall info``: texts, and tables as rows of equal keys."""
        return {}

    def audit(self, model: Model, check: Check, on_progress: OnProgress) -> None:
        """Check what needs payload bytes, such as hashes, padding and values; stream, and record into ``check``."""
        module = _find_module(self, "audit")
        if module is not None:
            import_module(module).audit(model, check, on_progress)

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Stated]:
        """The hashes stated by the files of ``model`` that cover ``spans``, with as few bytes around them as possible.

        A span that no hash covers is left out; a hash that covers several spans may come several times. By default
        they come from the method ``proofs`` of the model's native part, if it has one.
        """
        stated: Callable[[Iterable[Span]], Iterable[Stated]] | None = getattr(model.native, "proofs", None)
        return () if stated is None else stated(spans)

    def patches(self, model: Model, copy: Model, on_progress: OnProgress) -> list[Patch]:
        """The ranges of ``copy`` that repair the damaged file of ``model``; raises where the copy cannot repair it."""
        module = _find_module(self, "repair")
        if module is None:
            raise UnsupportedError(f"{self.name}: has no hashes of small ranges to repair by")
        patches: list[Patch] = import_module(module).patches(model, copy, on_progress)
        return patches

    def outline(self, place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
        """The document in a range of the file, opened for ``explain``; None where its bytes say no more."""
        module = _find_module(self, "outline")
        found: Outline | None = None if module is None else import_module(module).outline(place, source, model, limits)
        return found

    def unread_files(self, model: Model) -> list[str]:
        """Files in the folder of an open model that are not part of it; a conversion does not copy them.

        By default, of a format that is one file or a folder of them, all files but those that were opened.
        """
        if not (self.splits or self.beside):
            return []
        known = {source.member for source in model.sources}
        return [name for source in model.sources[:1] if source.is_folder
                for name in source.everything() if name not in known]  # fmt: skip

    def list_unchecked(self, model: Model) -> list[str]:
        """What a file has that no level of verification looks into, for the report; empty for an ordinary file."""
        return []

    def bound_values(self, model: Model) -> dict[str, str]:
        """Tensors without an encoding whose values depend on further data, such as scales, each with the reason."""
        return {}

    def describe_tensor(self, tensor: Tensor) -> dict[str, Any]:
        """What the format states of ``tensor`` beyond its name, dtype, shape and place: ``holdall ls`` shows it.

        By default these are the attributes of a tensor that :class:`Holds` has a field for, where the format has them,
        and the fields of the tensor's native part.
        """
        stated = {name: getattr(tensor, name) for name in tensor.__slots__ if getattr(self.holds, name, False)}
        return stated | list_fields(tensor.native)

    def find_layer_kinds(self, model: Model) -> Mapping[str, str]:
        """The kinds of layers of tensors by what the file does with them, by name; asked where names tell nothing."""
        return {}

    def facet(self, name: str, model: Model) -> Any:
        """The facet ``name`` of ``model`` ("sizevars", "vocab" or "config"); None where the model has none."""
        return None

    def make_native(self, facets: Mapping[str, Any]) -> object:
        """Make the native part of a new file that holds ``facets``, by name; None where the format has no place."""
        return None

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` with the defaults of all other options; raises for an option that the format does not have."""
        known = {option.name: option for option in self.options}
        for name, value in given.items():
            if name not in known:
                has = ", ".join(known) or "none"
                raise UnsupportedError(f"{self.name} has no option {name!r}; its options are: {has}")
            choices = known[name].choices
            if choices and str(value) not in choices:
                raise UnsupportedError(f"{self.name}: {name} is one of {', '.join(choices)}, not {value!r}")
        return {name: given.get(name, option.default) for name, option in known.items()}


class MagicFormat(Format):
    """A format whose files begin with ``magic``, which no other format uses."""

    magic: bytes

    def accepts(self, head: bytes, source: Source) -> bool:
        """Whether the file begins with the magic."""
        return head.startswith(self.magic)


def _find_module(format: Format, name: str) -> str | None:
    """The full name of the module ``name`` in the package that defines the format; None where there is none.

    The module is not imported: to know a format costs nothing of its reader and writer.
    """
    for defined in type(format).__mro__:  # a subclass elsewhere uses the modules of the format that it extends
        try:
            found = find_spec(f"{defined.__module__}.{name}")
        except ModuleNotFoundError:  # the class is defined in a plain module, which has no modules inside
            continue
        if found is not None:
            return found.name
    return None
