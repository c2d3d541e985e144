"""ONNX models with tensors that are no initializers: in nodes, in graphs inside of them, in functions, sparse ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from holdall.format.onnx.wire import field

__all__ = ["make_model", "onnx_places"]

_TENSOR, _GRAPH, _TENSORS, _GRAPHS, _SPARSE, _SPARSES = 4, 5, 9, 10, 11, 12  # kinds of attributes


def make_model(*tensors: bytes, graph: bytes = b"", more: bytes = b"") -> bytes:
    """Return a model with these initializers, more fields of its graph, and more of its own."""
    inside = graph + field(2, b"g") + b"".join(field(5, tensor) for tensor in tensors)
    props = field(14, field(1, b"key") + field(2, b"value"))
    return field(1, 8) + field(2, b"test") + field(7, inside) + field(8, field(2, 17)) + props + more


def onnx_places() -> Iterator[tuple[str, bytes]]:
    """Yield a model for each kind of place, and one with several."""
    constant = _node(b"Constant", _attribute(b"value", _TENSOR, field(5, _tensor(b"", 1))))
    branches = [
        _attribute(name, _GRAPH, field(6, _graph(field(1, constant), _tensor(b"w", number))))
        for number, name in enumerate((b"then_branch", b"else_branch"))
    ]
    choice = _node(b"If", *branches)
    loop = _node(b"Loop", _attribute(b"body", _GRAPH, field(6, _graph(field(1, choice)))))
    scan = _node(b"Scan", _attribute(b"body", _GRAPH, field(6, _graph(field(1, constant), _tensor(b"s", 4)))))
    several = _node(
        b"Own",
        _attribute(b"list", _TENSORS, field(10, _tensor(b"", 5)) + field(10, _tensor(b"named", 6))),
        _attribute(
            b"graphs", _GRAPHS, field(11, _graph(b"", _tensor(b"u", 7))) + field(11, _graph(field(1, constant)))
        ),
        _attribute(b"plain", 1, b""),
    )
    sparse = _node(
        b"Constant",
        _attribute(b"sparse_value", _SPARSE, field(22, _sparse(b""))),
        _attribute(b"sparse_values", _SPARSES, field(23, _sparse(b"")) + field(23, _sparse(b"x"))),
    )
    default = _attribute(b"k", _TENSOR, field(5, _tensor(b"", 8)))
    function = field(1, b"Shift") + field(4, b"a") + field(5, b"b") + field(7, constant) + field(11, default)
    training = field(1, _graph(field(1, constant))) + field(2, _graph(b"", _tensor(b"t", 9)))
    graphs = {
        "constant": field(1, constant), "if": field(1, choice), "loop": field(1, loop), "scan": field(1, scan),
        "lists": field(1, several), "sparse": field(1, sparse) + field(15, _sparse(b"S")) + field(15, _sparse(b"")),
        "clash": field(1, constant),
    }  # fmt: skip
    for title, graph in graphs.items():
        own = b"graph.node[0].value" if title == "clash" else b"w"
        yield title, make_model(_tensor(own, 2), graph=graph)
    yield "function", make_model(more=field(25, function))
    yield "training", make_model(more=field(20, training))
    everything = field(1, constant) + field(1, loop) + field(1, scan) + field(15, _sparse(b"S"))
    yield "everywhere", make_model(_tensor(b"w", 2), graph=everything, more=field(25, function) + field(20, training))


def _tensor(name: bytes, number: int) -> bytes:
    """Two floats, or two integers: half of them are in the bytes of the message, half are repeated numbers."""
    own = field(8, name) if name else b""
    if number % 2:
        return field(1, 2) + field(2, 1) + own + field(9, struct.pack("<2f", number, 0.5))
    return field(1, 2) + field(2, 7) + field(7, bytes([number, 1])) + own


def _sparse(name: bytes) -> bytes:
    indices = field(1, 2) + field(2, 7) + field(7, b"\1\3")
    return field(1, _tensor(name, 3)) + field(2, indices) + field(3, 5)


def _attribute(name: bytes, kind: int, value: bytes) -> bytes:
    return field(1, name) + value + field(20, kind)


def _node(word: bytes, *attributes: bytes) -> bytes:
    return field(1, b"in") + field(2, b"out") + field(4, word) + b"".join(field(5, inner) for inner in attributes)


def _graph(nodes: bytes, *tensors: bytes) -> bytes:
    return nodes + field(2, b"inner") + b"".join(field(5, tensor) for tensor in tensors)
