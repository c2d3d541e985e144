"""What a model says of itself beside its tensors: who made it, its operator sets, inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.errors import FormatError
from holdall.format.onnx import layout
from holdall.format.onnx.graph import walk_parts
from holdall.format.onnx.layout import DTYPES, STRING
from holdall.format.onnx.wire import BYTES, VARINT, Walker

if TYPE_CHECKING:
    from holdall.format.onnx.read import OnnxNative

__all__ = ["describe"]

_PRODUCER, _PRODUCER_VERSION = 2, 3  # fields of a model
_NODE, _INPUT, _OUTPUT = 1, 11, 12  # fields of a graph
_MOST = 1000  # inputs, outputs and kinds of nodes that are shown


def describe(native: OnnxNative) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
    """Return the producer, the operator sets, the nodes, and the inputs and outputs."""
    try:
        return _describe_model(native) | _describe_graph(native)
    except FormatError as error:  # what cannot be read here does not keep the tensors from being shown
        return {"graph": f"cannot be read: {error.message}"}


def _describe_model(native: OnnxNative) -> dict[str, str]:
    texts: dict[int, str] = {}
    opsets: list[str] = []
    functions = 0
    for walker, number, kind, first, last in walk_parts(native.model):
        if number in (_PRODUCER, _PRODUCER_VERSION) and kind == BYTES:
            texts[number] = walker.text(first, last, "the name of the producer")
        elif number == layout.OPSET and kind == BYTES:
            opsets.append(_read_opset(walker, first, last))
        functions += number == layout.FUNCTIONS
    facts = {"producer": " ".join(text for _, text in sorted(texts.items()) if text), "opset": ", ".join(opsets)}
    facts["functions"] = str(functions) if functions else ""
    return {name: text for name, text in facts.items() if text}


def _read_opset(walker: Walker, start: int, stop: int) -> str:
    domain, version = "", 0
    for number, kind, first, last in walker.fields(start, stop):
        if number == 1 and kind == BYTES:
            domain = walker.text(first, last, "the domain of an operator set")
        elif number == 2 and kind == VARINT:
            version = first
    return f"{domain or 'ai.onnx'} {version}"


def _describe_graph(native: OnnxNative) -> dict[str, str | Sequence[Mapping[str, Any]]]:
    initializers = set() if native.tensors is None else set(native.tensors.names)
    tables: dict[int, list[Mapping[str, Any]]] = {_INPUT: [], _OUTPUT: []}
    nodes: Counter[str] = Counter()
    for walker, number, kind, first, last in walk_parts(native.graph):
        if number == _NODE and kind == BYTES:
            nodes[_read_text(walker, first, last, layout.OP_TYPE)] += 1
        elif number in tables and kind == BYTES:
            row = _read_value(walker, first, last)
            # Until version 3 of the format initializers were inputs too.
            if len(tables[number]) < _MOST and not (number == _INPUT and row["name"] in initializers):
                tables[number].append(row)
    facts: dict[str, str | Sequence[Mapping[str, Any]]] = {}
    if nodes:
        common = ", ".join(f"{count} {name}" for name, count in nodes.most_common(5))
        facts["nodes"] = f"{nodes.total():,}: {common}" + (" and others" if len(nodes) > 5 else "")
    return facts | {
        name: tables[number] for name, number in (("inputs", _INPUT), ("outputs", _OUTPUT)) if tables[number]
    }


def _read_text(walker: Walker, start: int, stop: int, wanted: int) -> str:
    for number, kind, first, last in walker.fields(start, stop):
        if number == wanted and kind == BYTES:
            return walker.text(first, last, "a name in the graph")
    return ""


def _read_value(walker: Walker, start: int, stop: int) -> dict[str, str]:
    """Read a ValueInfoProto: its name, and type and shape if it is a tensor."""
    name, kind, shape = _read_text(walker, start, stop, 1), "", ""
    for tensor_type in _find(walker, start, stop, 2, 1):
        for number, wire, first, last in walker.fields(*tensor_type):
            if number == 1 and wire == VARINT:
                kind = "string" if first == STRING else DTYPES.get(first, str(first))
            elif number == 2 and wire == BYTES:
                shape = ", ".join(_read_dim(walker, *dim) for dim in _find(walker, first, last, 1))
                shape = f"[{shape}]"
    return {"name": name, "dtype": kind, "shape": shape}


def _read_dim(walker: Walker, start: int, stop: int) -> str:
    for number, kind, first, last in walker.fields(start, stop):
        if number == 1 and kind == VARINT:
            return str(first)
        if number == 2 and kind == BYTES:
            return walker.text(first, last, "the name of a dimension")
    return "?"


def _find(walker: Walker, start: int, stop: int, wanted: int, *further: int) -> Iterator[tuple[int, int]]:
    """Find the messages that are fields ``wanted``, and in those the fields ``further``, of the one at start..stop."""
    for number, kind, first, last in walker.fields(start, stop):
        if number == wanted and kind == BYTES:
            yield from _find(walker, first, last, *further) if further else ((first, last),)
