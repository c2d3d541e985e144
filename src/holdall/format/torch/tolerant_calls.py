"""What calls in a pickle come to when unknown ones are allowed: tensors where that is known, else records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdall.format.torch.numpy_objects import Array, ArrayStore, is_array_call, make_type, order_axes, place_axes
from holdall.format.torch.pickle_objects import KINDS, Global, Storage, TensorRef, call, check_state, weight_of
from holdall.format.torch.records import BUILT_IN, Name, Record
from holdall.model.strided import extent_of

__all__ = ["QUANTIZED", "Caller"]

# Where numpy had the functions that its pickles name, before version 2 and since.
_CORES = ("numpy.core.multiarray", "numpy.core.numeric", "numpy._core.multiarray", "numpy._core.numeric")
_UTILS = "torch._utils"
_JIT = "torch.jit._pickle"
_LISTS = ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist", "restore_type_tag")
_GRAPHS, _GRAPH_MAKERS = "torch.fx.graph_module", ("reduce_graph_module", "reduce_package_graph_module")
_PARAMETERS = {(_UTILS, "_rebuild_parameter"), (_UTILS, "_rebuild_parameter_with_state")}
_PLAIN_TENSORS = {
    ("torch", "Tensor"), ("torch._tensor", "Tensor"), ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
}  # fmt: skip
_COMPRESSED = {
    "torch.sparse_csr": ("crow_indices", "col_indices"), "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"), "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}  # fmt: skip

_WORDS = (
    "per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams", "per_tensor_symmetric",
    "per_channel_symmetric", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc",
)  # fmt: skip
# The classes of storages of quantized tensors, and those that hold the same integers.
QUANTIZED = {
    "QInt8Storage": "CharStorage", "QUInt8Storage": "ByteStorage", "QInt32Storage": "IntStorage",
    "QUInt4x2Storage": "ByteStorage", "QUInt2x4Storage": "ByteStorage",
}  # fmt: skip

MakeRecord = Callable[[Name | Record, Any, int], Record]
Pay = Callable[[int, int], None]


class Caller:
    """Makes the values of calls.

    ``make`` makes a record and counts it, ``pay`` counts the work of a call inside a call, and ``arrays`` gets the
    bytes of numpy arrays.
    """

    def __init__(self, make: MakeRecord, pay: Pay, arrays: ArrayStore) -> None:
        self._make = make
        self._pay = pay
        self._arrays = arrays
        self._makers: dict[tuple[str, str], Callable[[Name, tuple[Any, ...], int], Any]] = {
            (_UTILS, "_rebuild_qtensor"): self._make_quantized,
            (_UTILS, "_rebuild_sparse_tensor"): self._make_sparse,
            (_UTILS, "_rebuild_device_tensor_from_numpy"): self._make_from_array,
            ("torch._tensor", "_rebuild_from_type_v2"): self._make_subclass,
            ("torch._tensor", "_rebuild_from_type"): self._make_subclass,
            ("torch.nn.parameter", "Parameter"): self._take_first,
            ("torch.nn.parameter", "Buffer"): self._take_first,
            ("torch.serialization", "_get_layout"): self._take_first,
            ("numpy", "dtype"): self._make_type,
            **{(_GRAPHS, name): self.make_graph_module for name in _GRAPH_MAKERS},
            ("builtins", "bytes"): self._make_bytes,
            ("builtins", "list"): self._make_list,
            **{(_JIT, name): self._take_first for name in _LISTS},
            **{(module, "_reconstruct"): self._make_array for module in _CORES},
            **{(module, "scalar"): self._make_number for module in _CORES},
            **{(module, "_frombuffer"): self._read_buffer for module in _CORES},
        }
        named = {key for key in self._makers if key[0] != _GRAPHS}  # those of graphs run the code in their arguments
        self._known = {*named, *BUILT_IN, *_PLAIN_TENSORS, *(("torch", name) for name in (*_WORDS, *QUANTIZED))}

    def knows(self, module: str, name: str) -> bool:
        """Whether a name is understood, so that it is not listed among those that stay opaque."""
        return (module, name) in self._known

    def call(self, function: Any, arguments: Any, at: int) -> Any:
        """What ``function`` would return for ``arguments``."""
        if isinstance(function, Global):
            if not isinstance(arguments, tuple):
                return call(function, arguments, at)  # which refuses it
            if (function.module, function.name) in _PARAMETERS and arguments and isinstance(arguments[0], Record):
                check_state(arguments[3] if len(arguments) > 3 else None, at)
                return arguments[0]
            return call(function, _without_hooks(function, arguments), at)
        if isinstance(function, Record):
            return self._make(function, arguments, at)
        if not isinstance(function, Name):
            return call(function, arguments, at)
        maker = self._makers.get((function.module, function.name))
        if maker is None or not isinstance(arguments, tuple):
            return self._make(function, arguments, at)
        return maker(function, arguments, at)

    def _take_first(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """The value that a call only marks or converts."""
        return arguments[0] if arguments else self._make(function, arguments, at)

    def _make_quantized(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """A quantized tensor: its integers, and the scales and zero points of its channels."""
        made = self._make(function, arguments, at)
        quantizer = arguments[4] if len(arguments) > 4 else None
        if type(quantizer) is tuple and len(quantizer) >= 3:
            integers = call(_REBUILD, (*arguments[:4], False, None), at)
            made.fields = {"int_repr": _unfold(integers), "scales": quantizer[1], "zero_points": quantizer[2]}
        return made

    def _make_sparse(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """A sparse tensor: its indices and values."""
        made = self._make(function, arguments, at)
        layout, parts = arguments if len(arguments) == 2 else (None, None)
        if isinstance(layout, (Name, Global)):
            layout = f"torch.{layout.name}"
        if type(parts) is not tuple or not isinstance(layout, str):
            return made
        names = ("indices",) if layout == "torch.sparse_coo" else _COMPRESSED.get(layout, ())
        if names and len(parts) > len(names):
            made.fields = dict(zip((*names, "values"), parts, strict=False))
        return made

    def _make_subclass(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """A tensor of a class of its own, or with attributes: (function, class, its arguments, state)."""
        if len(arguments) < 3 or not _rebuilds(arguments[0]):
            return self._make(function, arguments, at)
        self._pay(weight_of(arguments[2]), at)
        inner = self.call(arguments[0], arguments[2], at)
        kind = arguments[1]
        if not isinstance(kind, Name) or (kind.module, kind.name) in _PLAIN_TENSORS:
            kind = None
        state = arguments[3] if len(arguments) > 3 else None
        if kind is None:
            check_state(state, at)
        if kind is None and not state:
            return inner
        made = self._make(kind or function, (), at)
        made.value, made.states = inner, [state] if state else None
        for attributes in made.attributes():  # a class of its own may take any other state in its own way
            check_state(attributes, at)
        return made

    def make_graph_module(self, function: Name, arguments: tuple[Any, ...], at: int) -> Record:
        """A module of torch.fx: its attributes, and the code that would be run."""
        if not arguments or type(arguments[0]) is not dict:
            return self._make(function, arguments, at)
        made = self._make(_GRAPH_MODULE, arguments[1:], at)
        made.states = [arguments[0]]
        return made

    def _make_from_array(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """A tensor of the array in the first argument, if it has the type that PyTorch would cast it to."""
        array, kind = arguments[:2] if len(arguments) > 1 else (None, None)
        ref = array.value if isinstance(array, Array) else None
        if isinstance(ref, TensorRef) and isinstance(kind, Global) and KINDS.get(kind.name) == ref.kind:
            return array
        return self._make(function, arguments, at)

    def _make_list(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """A list of the items of another, to which the pickle may append."""
        if len(arguments) == 1 and type(arguments[0]) in (list, tuple):
            return list(arguments[0])
        return self._make(function, arguments, at) if arguments else []

    def _make_bytes(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """Empty bytes, which protocol 2 writes as a call."""
        return self._make(function, arguments, at) if arguments else b""

    def _make_type(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        return make_type(arguments, at) or self._make(function, arguments, at)

    def _make_array(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """An array without content, which its state adds."""
        if not is_array_call(arguments):
            return self._make(function, arguments, at)
        return Array(self._make(arguments[0], (), at).kind, (), at)

    def _make_number(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        found = self._arrays.scalar(arguments, at)
        return self._make(function, arguments, at) if found is None else found

    def _read_buffer(self, function: Name, arguments: tuple[Any, ...], at: int) -> Any:
        """An array of ``_frombuffer(bytes, type, shape, order)``, as protocol 5 has it.

        An array whose axes were exchanged has the order K, the shape that it had before, and the axes.
        """
        data, kind, shape, order, *moved = arguments if len(arguments) in (4, 5) else (None,) * 4
        axes: Sequence[int] | None = order_axes(order, shape) if order in ("C", "F") and not moved else None
        if order == "K" and moved and (placed := place_axes(shape, moved[0])) is not None:
            # Axis 2 that became the first one is the fastest in the bytes as before.
            axes, shape = sorted(range(len(placed)), key=moved[0].__getitem__), placed
        if axes is None:
            return self._make(function, arguments, at)
        if isinstance(data, Record) and data.title == "builtins.bytearray" and type(data.arguments) is tuple:
            data = data.arguments[0] if len(data.arguments) == 1 else data
        array = Array(self._make(_ARRAY, (), at).kind, (), at)
        self._arrays.store(array, data, kind, shape, axes, at)
        return array


_REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
_ARRAY = Name("numpy", "ndarray")
_GRAPH_MODULE = Name(_GRAPHS, "GraphModule")


def _rebuilds(function: Any) -> bool:
    """Whether a function makes a tensor of a storage, and calls no other."""
    return isinstance(function, (Global, Name)) and function.module == _UTILS and function.name.startswith("_rebuild_")


def _unfold(ref: Any) -> Any:
    """The integers of a quantized tensor; the bytes of its storage where these hold several integers each."""
    storage: Storage = ref.storage
    if ref.first + extent_of(ref.shape, ref.strides) <= storage.elements:
        return ref
    return TensorRef(storage, ref.kind, 0, (storage.elements,), (1,), ref.at)


def _without_hooks(function: Global, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a rebuild without the hooks of the tensor, which are functions and never weights."""
    rebuilds = function.module == _UTILS and function.name != "_rebuild_tensor"
    if not rebuilds:
        return arguments
    place = 2 if function.name.startswith("_rebuild_parameter") else 5
    if len(arguments) <= place or not isinstance(arguments[place], (dict, Record)):
        return arguments
    return (*arguments[:place], None, *arguments[place + 1 :])
