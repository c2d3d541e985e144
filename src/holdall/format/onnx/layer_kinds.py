"""What kinds of layers tensors belong to, by the nodes that take them.

Nodes are looked at from the last one to the first: what becomes of a value is known when the node that makes it is
reached. So a tensor that is cast, transposed or decoded first has the kind of what takes the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdall.base.check import Check
from holdall.binary.kernels.protobuf_tokens import START
from holdall.errors import FormatError
from holdall.format.onnx.nodes import Function, Graph, Node, TooManyNodes, read_functions, read_graph
from holdall.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from holdall.format.onnx.read import OnnxNative
    from holdall.limits import Limits

__all__ = ["find_layer_kinds"]

_EMBEDDING, _RECURRENT = "embedding", "recurrent"
# The kinds of nodes by their operator, and how many inputs come before the weights.
_OPERATORS = (
    (re.compile(r"(?:QLinear|Nhwc|Fused|Deform)*Conv(?:Integer|Transpose)?"), "convolution", 1),
    (re.compile(r"(?:DynamicQuantize|Q)?(?:LSTM|GRU|RNN)"), _RECURRENT, 1),
    (re.compile(r"\w*Normalization"), "norm", 1),
    (re.compile(r"\w*Attention"), "attention", 1),
    (re.compile(r"\w*MatMul\w*|\w*Gemm\w*"), "linear", 0),
)
_TABLES = ("Gather", "GatherBlockQuantized")  # an embedding if what they gather from has two dimensions
_DECODING = ("DequantizeLinear", "QuantizeLinear")  # whose scale and zero point belong to the values
_PASSING = ("Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze", *_DECODING)
_ORDERING = {"Slice": 1, "Concat": None}  # by which gates are put in order; how many inputs are values
_DEEP = 128  # graphs in graphs and functions in functions that are followed
_LONGEST = 64  # letters of an operator


class _Use(NamedTuple):
    """What a value is used for: the kind of the first node that takes it, and whether one gathers rows of it."""

    kind: str = ""
    gathered: bool = False


_NONE = _Use()


def find_layer_kinds(native: OnnxNative, limits: Limits | None) -> dict[str, str]:
    """Find the kinds of layers of those tensors that a node takes; none for a graph that is broken or very large."""
    table = native.tensors
    if table is None:
        return {}
    check = Check(limits=limits or DEFAULT_LIMITS)
    try:
        graph = read_graph(native, check)
        finder = _Finder(read_functions(native, check))
    except (FormatError, TooManyNodes):
        return {}
    outer = finder.find_uses(graph)
    inner: dict[str, _Use] = {}
    if native.places is not None:
        starts = native.places.tensors[:, START].tolist()
        inner = {name: finder.inside.get(start, _NONE) for name, start in zip(native.places.names, starts, strict=True)}
    forms = table.forms()
    ranks = [len(form.shape) for form in forms.kinds]
    found = {}
    for name, code in zip(table.names, forms.codes.tolist(), strict=True):
        use = inner[name] if name in inner else outer.get(name, _NONE)
        kind = _EMBEDDING if use.gathered and ranks[code] == 2 else use.kind
        if kind:
            found[name] = kind
    return found


class _Finder:
    """Finds what values are used for. ``inside`` has it for tensors in nodes and inner graphs, by their first byte."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self.inside: dict[int, _Use] = {}
        self._functions = {(function.domain, function.name): function for function in functions}
        self._parameters: dict[tuple[str, str], list[_Use]] = {}
        for key in self._functions:
            self._find_parameters(key, 0)

    def find_uses(self, graph: Graph) -> dict[str, _Use]:
        """Find what the values of a graph are used for, by name."""
        uses: dict[str, _Use] = {}
        self._pass_nodes(graph.nodes, uses, 0)
        self._keep_own(graph, uses)
        return uses

    def _find_parameters(self, key: tuple[str, str], depth: int) -> list[_Use]:
        """Find what a function does with each of its inputs; nothing is known of one that calls itself."""
        if key in self._parameters or depth > _DEEP:
            return self._parameters.get(key, [])
        self._parameters[key] = []
        function, uses = self._functions[key], dict[str, _Use]()
        self._pass_nodes(function.nodes, uses, depth + 1)
        self._parameters[key] = [uses.get(name, _NONE) for name in function.inputs]
        return self._parameters[key]

    def _pass_nodes(self, nodes: list[Node], uses: dict[str, _Use], depth: int) -> None:
        for node in reversed(nodes):
            for graph in node.graphs if depth <= _DEEP else ():
                self._pass_inner(graph, uses, depth + 1)
            for name, use in self._list_uses(node, uses, depth):
                if use != _NONE and name:
                    known = uses.get(name, _NONE)
                    uses[name] = _Use(use.kind or known.kind, use.gathered or known.gathered)

    def _pass_inner(self, graph: Graph, uses: dict[str, _Use], depth: int) -> None:
        """Find the uses in an inner graph, which sees the names around it but for those that it has itself."""
        own = {*graph.own, *graph.inputs, *(name for node in graph.nodes for name in node.outputs)}
        hidden = {name: uses.pop(name) for name in own if name in uses}
        self._pass_nodes(graph.nodes, uses, depth)
        self._keep_own(graph, uses)
        for name in own:
            uses.pop(name, None)
        uses.update(hidden)

    def _keep_own(self, graph: Graph, uses: dict[str, _Use]) -> None:
        for name, starts in graph.own.items():
            self.inside.update(dict.fromkeys(starts, uses.get(name, _NONE)))

    def _list_uses(self, node: Node, uses: dict[str, _Use], depth: int) -> Iterable[tuple[str, _Use]]:
        """List what a node uses its inputs for, the names and the uses."""
        inputs = node.inputs
        if (node.domain, node.op) in self._functions:
            return list(zip(inputs, self._find_parameters((node.domain, node.op), depth + 1), strict=False))
        made = uses.get(node.outputs[0], _NONE) if node.outputs else _NONE
        if node.op == "Constant":
            self.inside.update(dict.fromkeys(node.tensors, made))
            return []
        if node.op in _PASSING:
            beside = _Use(_EMBEDDING if made.gathered else made.kind) if node.op in _DECODING else _NONE
            return [(name, beside if place else made) for place, name in enumerate(inputs)]
        if node.op in _ORDERING and made.kind == _RECURRENT:
            return [(name, made) for name in inputs[: _ORDERING[node.op]]]
        if node.op in _TABLES:
            return [(name, _Use(gathered=True)) for name in inputs[:1]]
        kind, first = _find_operator(node.op[:_LONGEST])
        return [(name, _Use(kind)) for name in inputs[first:]] if kind else []


@lru_cache(1024)
def _find_operator(op: str) -> tuple[str, int]:
    """Find the kind of an operator, and the place of its first weight; empty for one that has no weights.

    >>> _find_operator("QLinearConv"), _find_operator("MatMulNBits"), _find_operator("Relu")
    (('convolution', 1), ('linear', 0), ('', 0))
    """
    return next(((kind, first) for pattern, kind, first in _OPERATORS if pattern.fullmatch(op)), ("", 0))
