"""The nodes of a model, of its graphs in graphs and of its functions: what each takes and gives, by name.

Of a hostile model only a bounded number of fields is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from holdall.base.check import Check
from holdall.format.onnx import layout
from holdall.format.onnx.graph import walk_parts
from holdall.format.onnx.wire import BYTES, Walker

if TYPE_CHECKING:
    from holdall.format.onnx.read import OnnxNative

__all__ = ["Function", "Graph", "Node", "TooManyNodes", "read_functions", "read_graph"]

_FIELDS = 1 << 19  # of all nodes together,
_NODE = 8  # of which a node itself counts as so many
_VALUE_NAME = 1  # the field of an input that is its name
_TENSORS = (layout.T, layout.TENSORS)
_GRAPHS = (layout.G, layout.GRAPHS)
_SPARSE = (layout.SPARSE_TENSOR, layout.SPARSE_TENSORS)

Span: TypeAlias = tuple[Walker, int, int]


class TooManyNodes(Exception):
    """A model has more nodes than are looked at."""


@dataclass(slots=True)
class Node:
    """A node. ``tensors`` are the bytes at which the tensors in its attributes begin."""

    op: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    tensors: list[int] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """A graph. ``own`` has the bytes at which its initializers begin, but for those of the model's graph."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    own: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Function:
    """A function of the model, by the name and the domain that nodes call it by."""

    name: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def read_graph(native: OnnxNative, check: Check) -> Graph:
    """Read the model's graph."""
    reader, graph = _Reader(check), Graph()
    for walker, number, kind, first, last in walk_parts(native.graph):
        if kind == BYTES:
            reader.add_to_graph(graph, number, (walker, first, last), 0)
    return graph


def read_functions(native: OnnxNative, check: Check) -> Iterator[Function]:
    """Read the functions of the model."""
    reader = _Reader(check)
    for walker, number, kind, first, last in walk_parts(native.model):
        if number == layout.FUNCTIONS and kind == BYTES:
            yield reader.read_function((walker, first, last))


class _Reader:
    """Reads messages, as long as there are not too many fields."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._left = _FIELDS

    def read_function(self, span: Span) -> Function:
        function = Function()
        for number, inner in self._list_messages(span):
            match number:
                case layout.NODE_OF_FUNCTION:
                    function.nodes.append(self._read_node(inner, 0))
                case layout.FUNCTION_NAME:
                    function.name = _read_text(inner)
                case layout.FUNCTION_INPUT:
                    function.inputs.append(_read_text(inner))
                case layout.FUNCTION_DOMAIN:
                    function.domain = _read_text(inner)
        return function

    def add_to_graph(self, graph: Graph, number: int, span: Span, depth: int) -> None:
        """Add a field of a graph to it."""
        self._count(span[1])
        match number:
            case layout.NODE:
                graph.nodes.append(self._read_node(span, depth))
            case layout.INITIALIZER:
                graph.own[self._find_name(span, layout.NAME)] = [span[1]]
            case layout.SPARSE_INITIALIZER:
                starts, name = [], ""
                for inside, inner in self._list_messages(span):
                    starts.append(inner[1])
                    name = self._find_name(inner, layout.NAME) if inside == layout.VALUES else name
                graph.own[name] = starts
            case layout.GRAPH_INPUT:
                graph.inputs.append(self._find_name(span, _VALUE_NAME))

    def _read_node(self, span: Span, depth: int) -> Node:
        self._count(span[1], _NODE)
        node = Node()
        for number, inner in self._list_messages(span):
            match number:
                case layout.TAKES:
                    node.inputs.append(_read_text(inner))
                case layout.GIVES:
                    node.outputs.append(_read_text(inner))
                case layout.OP_TYPE:
                    node.op = _read_text(inner)
                case layout.DOMAIN:
                    node.domain = _read_text(inner)
                case layout.ATTRIBUTE:
                    self._read_attribute(node, inner, depth)
        return node

    def _read_attribute(self, node: Node, span: Span, depth: int) -> None:
        for number, inner in self._list_messages(span):
            if number in _TENSORS:
                node.tensors.append(inner[1])
            elif number in _SPARSE:
                node.tensors += [tensor[1] for _, tensor in self._list_messages(inner)]
            elif number in _GRAPHS:
                self._check.limit("nesting", depth + 1, inner[1], "onnx: graphs in graphs")
                graph = Graph()
                for field_number, part in self._list_messages(inner):
                    self.add_to_graph(graph, field_number, part, depth + 1)
                node.graphs.append(graph)

    def _find_name(self, span: Span, wanted: int) -> str:
        name = ""
        for number, inner in self._list_messages(span):
            name = _read_text(inner) if number == wanted else name
        return name

    def _list_messages(self, span: Span) -> Iterator[tuple[int, Span]]:
        """List the fields of a message that have bytes."""
        walker, start, stop = span
        for number, kind, first, last in walker.fields(start, stop):
            self._count(first)
            if kind == BYTES:
                yield number, (walker, first, last)

    def _count(self, at: int, fields: int = 1) -> None:
        self._left -= fields
        if self._left < 0:
            raise TooManyNodes(at)


def _read_text(span: Span) -> str:
    walker, start, stop = span
    return walker.text(start, stop, "a name in the graph")
