"""All tensors of an ONNX model, by the library's own messages, under the names that docs/formats/onnx.md states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["list_tensors"]

Found = Iterator[tuple[str, Any]]


def list_tensors(model: Any) -> list[tuple[str, Any]]:
    """Each tensor of a ModelProto with its name; a path that is another tensor's name ends with a number."""
    named = [(tensor.name, tensor) for tensor in model.graph.initializer]
    placed = [*_in_graph(model.graph, "graph", is_outer=True)]
    for number, training in enumerate(model.training_info):
        for part in ("initialization", "algorithm"):
            if training.HasField(part):
                placed += _in_graph(getattr(training, part), f"training_info[{number}].{part}")
    for number, function in enumerate(model.functions):
        placed += _in_nodes(function.node, f"functions[{number}]")
        for place, default in enumerate(function.attribute_proto):
            placed += _in_attribute(default, f"functions[{number}].{default.name or f'attribute_proto[{place}]'}")
    taken = {name for name, _ in named} | {path for path, _ in placed}
    met = {name for name, _ in named}
    for path, tensor in placed:
        name, number = path, 2
        while path in met and name in taken:
            name, number = f"{path}#{number}", number + 1
        met.add(path)
        taken.add(name)
        named.append((name, tensor))
    return named


def _in_graph(graph: Any, path: str, *, is_outer: bool = False) -> Found:
    """The tensors at paths: all but the initializers of the outer graph."""
    yield from _in_nodes(graph.node, path)
    for number, tensor in enumerate(() if is_outer else graph.initializer):
        yield f"{path}.{tensor.name or f'initializer[{number}]'}", tensor
    for number, sparse in enumerate(graph.sparse_initializer):
        own = sparse.values.name
        begin = own if own and is_outer else f"{path}.{own or f'sparse_initializer[{number}]'}"
        yield from _in_sparse(sparse, begin)


def _in_nodes(nodes: Any, path: str) -> Found:
    for number, node in enumerate(nodes):
        for place, attribute in enumerate(node.attribute):
            yield from _in_attribute(attribute, f"{path}.node[{number}].{attribute.name or f'attribute[{place}]'}")


def _in_attribute(attribute: Any, path: str) -> Found:
    if attribute.HasField("t"):
        yield path, attribute.t
    if attribute.HasField("g"):
        yield from _in_graph(attribute.g, path)
    for number, tensor in enumerate(attribute.tensors):
        yield f"{path}[{number}]", tensor
    for number, graph in enumerate(attribute.graphs):
        yield from _in_graph(graph, f"{path}[{number}]")
    if attribute.HasField("sparse_tensor"):
        yield from _in_sparse(attribute.sparse_tensor, path)
    for number, sparse in enumerate(attribute.sparse_tensors):
        yield from _in_sparse(sparse, f"{path}[{number}]")


def _in_sparse(sparse: Any, path: str) -> Found:
    for part in ("values", "indices"):
        if sparse.HasField(part):
            yield f"{path}.{part}", getattr(sparse, part)
