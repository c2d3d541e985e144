"""What the rest of a graph says of its initializers: nodes take them by name, and were written for their types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.errors import FormatError
from holdall.formats.onnx.wire import BYTES, Walker
from holdall.limits import DEFAULT_LIMITS
from holdall.model import Model
from holdall.payload import Range

if TYPE_CHECKING:
    from holdall.formats.onnx.read import OnnxNative

__all__ = ["has_nodes", "refusal", "what_changed"]

_NODE, _INPUT, _OUTPUT, _INFO, _ANNOTATION = 1, 11, 12, 13, 14  # of a graph; all but nodes have a name in field 1
_TAKES, _GIVES, _ATTRIBUTE = 1, 2, 5  # of a node
_GRAPHS = (6, 11)  # of an attribute
_SHOWN = 5


def refusal(native: OnnxNative, model: Model, changed: Model) -> str | None:
    """Why the tensors of ``model`` cannot be called as in ``changed``: the graph would take others, or none."""
    renamed = [
        (old, new) for old, new in zip(model.tensors.names, changed.tensors.names, strict=True) if old != new
    ]  # fmt: skip
    if not renamed:
        return None
    try:
        used = _names(native, model)
    except FormatError as error:
        return f"whether the graph uses {renamed[0][0]!r} cannot be told: {error}"
    for old, new in renamed:
        if old in used or new in used:
            name = old if old in used else new
            return (
                f"tensor {old!r} cannot be called {new!r}: the nodes of the graph go on speaking of {name!r}, and the "
                "model would not run any more. Rename it where the model is exported"
            )
    return None


def has_nodes(native: OnnxNative) -> bool:
    """Whether there is more than initializers: an operator that computes something."""
    for part in native.graph:
        fields = Walker(part.source, Check()).fields(part.offset, part.offset + part.size)
        if any(number == _NODE and kind == BYTES for number, kind, _, _ in fields):
            return True
    return False


def what_changed(native: OnnxNative, model: Model) -> list[str]:
    """What the nodes of the graph will miss, or find in another form than they were written for."""
    source = native.tensors
    if source is None:
        return []
    now = {tensor.name: tensor for tensor in model.tensors}
    gone = [name for name in source.names if name not in now]
    other = [
        old.name
        for old in source
        if old.name in now and (str(old.dtype), old.shape) != (str(now[old.name].dtype), now[old.name].shape)
    ]
    if not gone and not other:
        return []
    try:
        used = _names(native, model)
    except FormatError as error:
        return [f"whether the graph still fits its tensors cannot be told: {error}"]
    return [
        f"{_listed(names)}: {what}; the model may not run any more"
        for names, what in (
            ([name for name in gone if name in used], "the graph uses what is no longer there under this name"),
            ([name for name in other if name in used], "the graph was written for another type or shape"),
        )
        if names
    ]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def _names(native: OnnxNative, model: Model) -> set[str]:
    """The names of all values that the graph speaks of, its initializers apart."""
    check = Check(limits=model.limits or DEFAULT_LIMITS)
    found: set[str] = set()
    for part in native.graph:
        if isinstance(part, Range):
            walker = Walker(part.source, check)
            found.update(_in_graph(walker, check, part.offset, part.offset + part.size, 0))
    return found


def _in_graph(walker: Walker, check: Check, start: int, stop: int, depth: int) -> Iterator[str]:
    check.limit("nesting", depth, start, "onnx: graphs in graphs")
    for number, kind, first, last in walker.fields(start, stop):
        if kind != BYTES:
            continue
        if number == _NODE:
            yield from _in_node(walker, check, first, last, depth)
        elif number in (_INPUT, _OUTPUT, _INFO, _ANNOTATION):
            yield from _texts(walker, first, last, (1,))


def _in_node(walker: Walker, check: Check, start: int, stop: int, depth: int) -> Iterator[str]:
    yield from _texts(walker, start, stop, (_TAKES, _GIVES))
    for attribute, kind, first, last in walker.fields(start, stop):
        if attribute == _ATTRIBUTE and kind == BYTES:
            for number, inner, begin, end in walker.fields(first, last):
                if number in _GRAPHS and inner == BYTES:
                    yield from _in_graph(walker, check, begin, end, depth + 1)


def _texts(walker: Walker, start: int, stop: int, numbers: Iterable[int]) -> Iterator[str]:
    for number, kind, first, last in walker.fields(start, stop):
        if number in numbers and kind == BYTES:
            yield walker.text(first, last, "a name in the graph")
