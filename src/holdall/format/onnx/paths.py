"""The names of tensors: an initializer of the graph has its own, any other tensor the path to its place.

``graph.node[3].value`` is the value of a Constant node, ``graph.node[3].then_branch.w`` an initializer of a graph
inside a node, ``functions[0].node[1].value`` lies in a function, and ``functions[0].k`` is the default of its
attribute ``k``. The two tensors of a sparse one are its ``.values`` and ``.indices``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.binary.kernels.protobuf_tokens import NUMBER, PARENT
from holdall.format.onnx import layout, rules
from holdall.format.onnx.layout import INSIDE
from holdall.format.onnx.wire import BYTES, Walker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Paths"]

# What a field adds to the path, by the kind of message that it is in; {} stands for how many came before it.
_STEPS = {
    (layout.MODEL, layout.GRAPH): "graph",
    (layout.MODEL, layout.TRAINING): "training_info[{}]",
    (layout.MODEL, layout.FUNCTIONS): "functions[{}]",
    (layout.TRAINING_INFO, layout.INITIALIZATION): ".initialization",
    (layout.TRAINING_INFO, layout.ALGORITHM): ".algorithm",
    (layout.GRAPH_PROTO, layout.NODE): ".node[{}]",
    (layout.GRAPH_PROTO, layout.INITIALIZER): ".initializer[{}]",
    (layout.GRAPH_PROTO, layout.SPARSE_INITIALIZER): ".sparse_initializer[{}]",
    (layout.FUNCTION, layout.NODE_OF_FUNCTION): ".node[{}]",
    (layout.FUNCTION, layout.ATTRIBUTE_OF_FUNCTION): ".attribute_proto[{}]",
    (layout.NODE_PROTO, layout.ATTRIBUTE): ".attribute[{}]",
    (layout.ATTRIBUTE_PROTO, layout.T): "",
    (layout.ATTRIBUTE_PROTO, layout.G): "",
    (layout.ATTRIBUTE_PROTO, layout.TENSORS): "[{}]",
    (layout.ATTRIBUTE_PROTO, layout.GRAPHS): "[{}]",
    (layout.ATTRIBUTE_PROTO, layout.SPARSE_TENSOR): "",
    (layout.ATTRIBUTE_PROTO, layout.SPARSE_TENSORS): "[{}]",
    (layout.SPARSE, layout.VALUES): ".values",
    (layout.SPARSE, layout.INDICES): ".indices",
}
# The fields that a name of their own stands for where they have one: where it is, as numbers of fields from there on.
_OWN_NAMES = {
    (layout.GRAPH_PROTO, layout.SPARSE_INITIALIZER): (layout.VALUES, layout.NAME),
    (layout.FUNCTION, layout.ATTRIBUTE_OF_FUNCTION): (layout.ATTRIBUTE_NAME,),
    (layout.NODE_PROTO, layout.ATTRIBUTE): (layout.ATTRIBUTE_NAME,),
}


_FLOOR, _RATIO = 1 << 24, 8


class Paths:
    """The paths of the messages that tensors lie in, which are rows of ``frames``; the model itself is number 0."""

    def __init__(self, frames: NDArray[np.uint64], walker: Walker, check: Check) -> None:
        self._frames = frames
        self._walker = walker
        self._check = check
        self._made: dict[int, tuple[int, str]] = {0: (layout.MODEL, "")}
        rows = (frames[:, PARENT] == 0) & (frames[:, NUMBER] == layout.GRAPH)
        self.graph = int(rows.argmax()) + 1 if rows.any() else 0  # the model's graph; 0 where no tensor lies in it
        self._left = _FLOOR + _RATIO * walker.size  # characters that paths may still have

    def name_tensor(self, parent: int, number: int, ordinal: int, own: str, at: int) -> str:
        """Name the tensor at byte ``at``, which calls itself ``own``, by its place in the message ``parent``."""
        kind, path = self._find(parent)
        if kind == layout.GRAPH_PROTO and (own or parent == self.graph):
            return own if parent == self.graph else self._count(f"{path}.{own}", at)
        return self._count(path + self._step(kind, number, ordinal, at), at)

    def _find(self, frame: int) -> tuple[int, str]:
        """Find the kind and the path of a message."""
        waiting = []
        while frame not in self._made:
            waiting.append(frame)
            frame = int(self._frames[frame - 1, PARENT])
        kind, path = self._made[frame]
        for frame in reversed(waiting):
            _, start, stop, parent, number, ordinal = self._frames[frame - 1].tolist()
            own = self._read_own_name(kind, number, start, stop)
            if own and kind == layout.GRAPH_PROTO and parent == self.graph:
                path = own
            else:
                path += f".{own}" if own else self._step(kind, number, ordinal, start)
            kind = INSIDE[kind, number]
            self._made[frame] = kind, self._count(path, start)
        return kind, path

    def _count(self, path: str, at: int) -> str:
        """Return ``path``; fails if all paths together have become much longer than the file: names in it repeat."""
        self._left -= len(path)
        if self._left < 0:
            self._check.fail(rules.PATHS, at, f"onnx: paths of tensors have more than {_RATIO} x the bytes of the file")
        return path

    def _step(self, kind: int, number: int, ordinal: int, at: int) -> str:
        step = _STEPS[kind, number]
        if ordinal and "{}" not in step:  # a protobuf library would join the two
            self._check.fail(rules.ONCE, at, f"onnx: field {number} of a message is there twice")
        return step.format(ordinal)

    def _read_own_name(self, kind: int, number: int, start: int, stop: int) -> str:
        """Read the name that stands in a message; empty if there is none."""
        if (kind, number) not in _OWN_NAMES:
            return ""
        for wanted in _OWN_NAMES[kind, number]:
            fields = self._walker.fields(start, stop)
            spans = [(first, last) for found, wire, first, last in fields if found == wanted and wire == BYTES]
            if not spans:
                return ""
            start, stop = spans[-1]  # a protobuf library takes the last
        return self._walker.text(start, stop, "the name of an attribute or tensor")
