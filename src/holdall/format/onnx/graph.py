"""How a graph uses its initializers: nodes take them by name, and were written for their types and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.base.text import list_text
from holdall.errors import FormatError
from holdall.format.onnx import layout
from holdall.format.onnx.places import splice
from holdall.format.onnx.wire import BYTES, Walker
from holdall.limits import DEFAULT_LIMITS
from holdall.model.model import Model
from holdall.model.payload import Payload, SourceRange

if TYPE_CHECKING:
    from holdall.format.onnx.read import OnnxNative

__all__ = ["describe_changes", "explain_refusal", "has_nodes", "hash_graph", "walk_parts"]

# Fields of a graph; all but nodes have a name in their field 1.
_NODE, _INPUT, _OUTPUT, _INFO, _ANNOTATION = 1, 11, 12, 13, 14
_GRAPHS = (layout.G, layout.GRAPHS)  # fields of an attribute
_SHOWN = 5


def explain_refusal(native: OnnxNative, model: Model, changed: Model) -> str | None:
    """Why tensors of ``model`` cannot get the names that ``changed`` has: the graph uses the old or the new name."""
    renamed = [
        (old, new) for old, new in zip(model.tensors.names, changed.tensors.names, strict=True) if old != new
    ]  # fmt: skip
    if not renamed:
        return None
    inside = set() if native.places is None else set(native.places.names)
    for old, new in renamed:
        if old in inside:
            return f"tensor {old!r} cannot be called {new!r}: its name is its place in the model"
    try:
        used = _collect_names(native, model)
    except FormatError as error:
        return f"it is unknown whether the graph uses {renamed[0][0]!r}: {error}"
    for old, new in renamed:
        if old in used or new in used:
            name = old if old in used else new
            return (
                f"tensor {old!r} cannot be called {new!r}: the nodes of the graph would still use {name!r}, and the "
                "model would not run any more. Rename it where the model is exported"
            )
    return None


def has_nodes(native: OnnxNative) -> bool:
    """Whether the graph computes something, and is not only a container of initializers."""
    return any(number == _NODE and kind == BYTES for _, number, kind, _, _ in walk_parts(native.graph))


def walk_parts(parts: Iterable[Payload]) -> Iterator[tuple[Walker, int, int, int, int]]:
    """Walk the fields of those ``parts`` that lie in a file, each with the walker that can read it."""
    for part in parts:
        if isinstance(part, SourceRange):
            walker = Walker(part.source, Check())
            for number, kind, first, last in walker.fields(*part.reach):
                yield walker, number, kind, first, last


def hash_graph(native: OnnxNative) -> bytes | None:
    """The BLAKE3 of the graph without its tensors; None if it has no nodes."""
    from blake3 import blake3

    if not has_nodes(native):
        return None
    digest = blake3()
    cuts = [] if native.places is None else native.places.list_cuts()
    for part in splice(native.graph, cuts):
        for piece in part.chunks():
            digest.update(piece)
    return digest.digest()


def describe_changes(native: OnnxNative, model: Model) -> list[str]:
    """Notes on tensors that the graph uses and that are missing now, or have another type or shape."""
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
        used = _collect_names(native, model)
    except FormatError as error:
        return [f"it is unknown whether the graph still fits its tensors: {error}"]
    return [
        f"{list_text(names, most=_SHOWN)}: {what}; the model may not run any more"
        for names, what in (
            ([repr(name) for name in gone if name in used], "the graph uses what no tensor is called any more"),
            ([repr(name) for name in other if name in used], "the graph was written for another type or shape"),
        )
        if names
    ]


def _collect_names(native: OnnxNative, model: Model) -> set[str]:
    """Collect the names of all values and of all tensors in the graph, apart from its initializers."""
    check = Check(limits=model.limits or DEFAULT_LIMITS)
    found: set[str] = set() if native.places is None else set(native.places.names)
    for part in native.graph:
        if isinstance(part, SourceRange):
            walker = Walker(part.source, check)
            found.update(_names_in_graph(walker, check, part.offset, part.offset + part.size, 0))
    return found


def _names_in_graph(walker: Walker, check: Check, start: int, stop: int, depth: int) -> Iterator[str]:
    check.limit("nesting", depth, start, "onnx: graphs in graphs")
    for number, kind, first, last in walker.fields(start, stop):
        if kind != BYTES:
            continue
        if number == _NODE:
            yield from _names_in_node(walker, check, first, last, depth)
        elif number in (_INPUT, _OUTPUT, _INFO, _ANNOTATION):
            yield from _read_texts(walker, first, last, (1,))


def _names_in_node(walker: Walker, check: Check, start: int, stop: int, depth: int) -> Iterator[str]:
    yield from _read_texts(walker, start, stop, (layout.TAKES, layout.GIVES))
    for attribute, kind, first, last in walker.fields(start, stop):
        if attribute == layout.ATTRIBUTE and kind == BYTES:
            for number, inner, begin, end in walker.fields(first, last):
                if number in _GRAPHS and inner == BYTES:
                    yield from _names_in_graph(walker, check, begin, end, depth + 1)


def _read_texts(walker: Walker, start: int, stop: int, numbers: Iterable[int]) -> Iterator[str]:
    for number, kind, first, last in walker.fields(start, stop):
        if number in numbers and kind == BYTES:
            yield walker.text(first, last, "a name in the graph")
