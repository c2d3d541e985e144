"""What a pickle holds of objects whose classes are unknown: records of plain data. Nothing is imported or called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdall.base.text import list_text, plural

__all__ = ["BUILT_IN", "Name", "OpaqueContent", "Record", "identify_key", "label_key"]

# Containers and numbers of Python and numpy that no plain value of a checkpoint is. They are data, not foreign objects.
BUILT_IN = {
    *(("builtins", name) for name in ("set", "frozenset", "bytearray", "complex")),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
}

# What pickles use to run commands. No such list is complete: this one only decides what is shown first.
_RUNNING = frozenset({
    "os", "posix", "nt", "subprocess", "pty", "shutil", "sys", "runpy", "importlib", "ctypes", "code", "commands",
    "socket", "webbrowser", "operator", "pickle", "_pickle", "marshal", "types", "timeit", "pip", "asyncio", "urllib",
})  # fmt: skip
_RUNNING_BUILTINS = frozenset({
    "eval", "exec", "compile", "open", "getattr", "setattr", "__import__", "breakpoint", "apply", "execfile", "globals",
})  # fmt: skip
_NAME = 200  # letters of a name that are kept
_KEY = 64  # letters of a key that is shown as text


class Name:
    """A class or function that a pickle names. It is never imported. ``title`` is its full name, cut if it is long.

    >>> Name("argparse", "Namespace").title
    'argparse.Namespace'
    """

    __slots__ = ("is_built_in", "module", "name", "title")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        whole = f"{module[:_NAME]}.{name[:_NAME]}"
        self.title = whole if max(len(module), len(name)) <= _NAME else f"{whole}…"
        self.is_built_in = (module, name) in BUILT_IN

    def __repr__(self) -> str:
        return self.title


class Record:
    """An object of an unknown class: what the pickle states of it, as data.

    ``kind`` is the class or function that would make it, or the record that would be called. ``arguments`` and
    ``keywords`` are those of that call, ``states`` what ``BUILD`` sets, ``items`` and ``pairs`` what is added to a list
    or set and to a dict. ``fields`` are arguments that have names. ``value`` is the tensor that the object is, if it is
    one with a class of its own. ``at`` is the byte of the pickle.
    """

    __slots__ = ("arguments", "at", "fields", "items", "keywords", "kind", "pairs", "states", "value")

    def __init__(self, kind: Name | Record, arguments: Any, at: int) -> None:
        self.kind, self.arguments, self.at = kind, arguments, at
        self.keywords: Any = None
        self.states: list[Any] | None = None
        self.items: list[Any] | None = None
        self.pairs: dict[Any, Any] | None = None
        self.fields: dict[str, Any] | None = None
        self.value: Any = None

    def __repr__(self) -> str:
        return f"<{self.title}>"  # short: records may be inside themselves

    @property
    def title(self) -> str:
        """The name of the class; for what a record would return if it were called, the class of that record."""
        return self.kind.title if isinstance(self.kind, Name) else "the result of another object"

    @property
    def is_built_in(self) -> bool:
        """Whether the class is in ``BUILT_IN``."""
        return self.kind.is_built_in if isinstance(self.kind, Name) else False

    def attributes(self) -> Iterator[dict[Any, Any]]:
        """The dicts of attributes that were set. An object with slots has a pair: its dict, and its slots."""
        for state in self.states or ():
            for part in state if _is_pair(state) else (state,):
                if isinstance(part, dict):
                    yield part

    def attribute(self, name: str) -> Any:
        """The attribute ``name`` that was set last; None if there is none."""
        return next((found[name] for found in [*self.attributes()][::-1] if name in found), None)

    def members(self) -> Iterator[tuple[str, str, Any]]:
        """What the object contains: for each its path from the object on, the same path in full, and the value."""
        for name, value in (self.fields or {}).items():
            yield name, name, value
        for key, value in (self.pairs or {}).items():
            yield str(key), f"__items__.{key}", value
        for place, value in enumerate(self.items or ()):
            whole = f"__items__.{place}"
            yield str(place) if self._begins_empty() else whole, whole, value

    def parts(self) -> Iterator[tuple[str, Any]]:
        """What else the pickle states of the object: its attributes and arguments, with the path of each."""
        attributes: dict[Any, Any] = {}
        for found in self.attributes():
            attributes |= found  # of an attribute that is set twice, the last value stays
        yield from ((str(key), value) for key, value in attributes.items())
        if self.fields is None and self.value is None:
            arguments = self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)
            yield from ((f"__args__.{place}", value) for place, value in enumerate(arguments))
        if isinstance(self.keywords, dict):
            yield from ((f"__kwargs__.{key}", value) for key, value in self.keywords.items())
        if isinstance(self.kind, Record):
            yield "__func__", self.kind
        yield from (("__state__", state) for state in self.states or () if not _is_pair(state, or_dict=True))

    def _begins_empty(self) -> bool:
        """Whether items are all that the object has, so that each is at its place: arguments may be items, too."""
        arguments = self.arguments if type(self.arguments) is tuple else (self.arguments,)
        if self.title == "collections.deque" and len(arguments) > 1 and isinstance(arguments[1], int):
            return not arguments[0] and len(self.items or ()) <= arguments[1]  # a longer one loses its first items
        return not self.pairs and not any(_may_have_items(argument) for argument in arguments)


def _may_have_items(argument: Any) -> bool:
    return isinstance(argument, Record) or (isinstance(argument, (str, bytes, list, tuple, dict)) and bool(argument))


def _is_pair(state: Any, *, or_dict: bool = False) -> bool:
    """Whether a state is a pair of dicts, or None in the place of one."""
    if isinstance(state, dict):
        return or_dict
    return type(state) is tuple and len(state) == 2 and all(part is None or isinstance(part, dict) for part in state)


def label_key(key: Any) -> str | None:
    """A text for a key of a dict that is no small plain value; None for what no dict has as a key.

    A tensor has no text: its name elsewhere in the file is not known yet.

    >>> label_key((1, "a")), label_key(None), label_key([])
    ('(1, a)', 'None', None)
    """
    if isinstance(key, (list, dict)):
        return None
    if type(key) is tuple:
        return f"({', '.join(map(_show, key[:8]))})"[:_KEY]
    if isinstance(key, Record):
        first = _show(key.arguments[0]) if isinstance(key.arguments, tuple) and key.arguments else ""
        return f"{key.title}({first})"[-_KEY:]
    return key.title[-_KEY:] if isinstance(key, Name) else _show(key)


def identify_key(key: Any) -> str | None:
    """A text that equal keys of a dict share, for tuples of short plain values; None for any other key.

    >>> identify_key(((1, "a"), 2)) == identify_key(((True, "a"), 2.0)) != identify_key(((1, "a"), "2"))
    True
    """
    parts: list[str] = []
    waiting = [key]
    while waiting and len(parts) <= _KEY:
        item = waiting.pop()
        if type(item) is tuple and len(item) <= _KEY:
            parts.append(f"({len(item)}")
            waiting += item
        elif isinstance(item, (bool, int, float)) and abs(item) < 1 << 53:  # which is False for what is no number
            parts.append(repr(float(item) + 0.0))  # zero has one sign
        elif item is None or (isinstance(item, (str, bytes)) and len(item) <= _KEY):
            parts.append(repr(item))
        else:
            return None
    return None if waiting or type(key) is not tuple else " ".join(parts)


def _show(value: Any) -> str:
    """A short text for a plain value; an ellipsis for any other."""
    if value is None or isinstance(value, (int, float)):
        return str(value)
    return str(value[:_KEY]) if isinstance(value, (bytes, str)) else "…"


def _may_run(title: str) -> bool:
    module, _, name = title.partition(".")
    return name in _RUNNING_BUILTINS if module == "builtins" else module in _RUNNING


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueContent:
    """What a file has beyond plain values and tensors, and what the file is.

    ``classes`` counts the objects of each class that stays opaque, 0 if it is only named. ``objects`` are the outermost
    of them by their path, and ``cut`` the paths that lead back into an object on the way, which are not followed.
    ``arrays`` and ``numbers`` count the arrays and numbers of numpy, which became tensors and plain numbers.
    """

    what: str
    classes: Counter[str] = field(default_factory=Counter)
    objects: Mapping[str, Any] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    arrays: int = 0
    numbers: int = 0
    code: bool = False  # whether the file holds a program, too
    others: Sequence[str] = ()  # resources of a torch.package that are no pickles, and not read
    nested: bool = False  # whether the file is plain but for numpy, so that its containers are known

    def list_classes(self) -> list[tuple[str, int]]:
        """The classes and how many objects each has, those of modules first that may run commands, then the most used.

        >>> OpaqueContent("a file", Counter({"torch.nn.modules.linear.Linear": 7, "posix.system": 1})).list_classes()
        [('posix.system', 1), ('torch.nn.modules.linear.Linear', 7)]
        """
        return sorted(self.classes.items(), key=lambda pair: (not _may_run(pair[0]), -pair[1]))

    def describe(self, most: int = 10) -> str | None:
        """Say what no file but this one can hold, with ``most`` of the classes; None if there is nothing."""
        found = [plural(sum(self.classes.values()), "object") + f" ({list_text(list(self.classes), most=most)})"]
        parts = (found if self.classes else []) + (["its program"] if self.code else [])
        return " and ".join(parts) or None
