"""Makes OINF models from dataclasses and dicts, with size variables, metadata and quant parameters.

>>> import numpy as np
>>> from dataclasses import dataclass
>>> from holdall import oinf
>>> @dataclass
... class Mlp:
...     D: int = 4
...     mode: str = "fast"
...     w: oinf.TensorSpec = oinf.TensorSpec([[1, -1], [7, -8]], dtype="i4")
...     state: oinf.Uninitialized = oinf.Uninitialized("f32", ("D", "D"))
>>> model = oinf.from_dataclass(Mlp())
>>> dict(model.sizevars), dict(model.metadata), model["state"].shape
({'D': 4}, {'mode': 'fast'}, (4, 4))

``holdall.save("model.oinf", model)`` writes it, and ``holdall.numpy.save(model)`` returns the bytes of that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.format.oinf.fields import Tables, collect
from holdall.format.oinf.inputs import ScalarValue, SizeVar, TensorSpec, Uninitialized, entry_of, sizevar_of, tensor_of
from holdall.format.oinf.quant import QuantParams
from holdall.format.oinf.read import OinfNative
from holdall.format.oinf.values import Bitset
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.operations.facets import resolve_facet

__all__ = ["Bitset", "QuantParams", "ScalarValue", "SizeVar", "TensorSpec", "Uninitialized", "UninitializedTensor"]
__all__ += ["from_dataclass", "model"]

UninitializedTensor = Uninitialized


def from_dataclass(obj: Any) -> Model:
    """Make the model that a dataclass instance describes; a plain dict works too, with the types of its values.

    ======================================================================== ============
    field                                                                    goes to
    ======================================================================== ============
    ``int``, ``int | None``, ``SizeVar``, ``Annotated[..., "sizevar"]``      sizevars
    ``TensorSpec``, ``Uninitialized``, numpy arrays, ``np.ndarray``,         tensors
    ``Annotated[..., "tensor"]``, ``field(metadata={"tensor": True})``,
    a list with a ``dtype``, None with a ``dtype`` and a ``shape``
    dicts called ``sizevars``, ``metadata``, ``tensors``                     merged in
    everything else                                                          metadata
    ======================================================================== ============

    ``dtype``, ``shape`` and ``name`` come from a dict in ``Annotated`` or from the field's metadata. An integer in a
    field of type ``float`` is a float. Tensors are sorted by field, whatever name they are given. A field wins
    over an entry of the same name in a merged dict. Public attributes that were set on the instance without being
    fields count as entries of a dict do. Arrays are not copied.

    >>> model = from_dataclass({"B": 2, "mode": "fast", "sizevars": {"layer.D": 8}})
    >>> dict(model.sizevars), dict(model.metadata)
    ({'layer.D': 8, 'B': 2}, {'mode': 'fast'})
    """
    return _make_model(collect(obj))


def model(
    tensors: Mapping[str, Any] | None = None,
    *,
    sizevars: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | Metadata | None = None,
) -> Model:
    """Make a model from its three tables.

    Tensors are arrays, lists, :class:`TensorSpec`, :class:`Uninitialized` or :class:`holdall.Tensor`; metadata are
    numbers, text, lists, arrays, :class:`Bitset` or :class:`ScalarValue`.

    >>> m = model({"w": TensorSpec([1.5, 2.5], "f8")}, sizevars={"D": 2}, metadata={"eps": ScalarValue(0.1, "f64")})
    >>> str(m["w"].dtype), m.metadata.kind("eps"), m.resolve(("D", 3))
    ('f8_e5m2', 'f64', (2, 3))
    """
    sizes = {name: sizevar_of(name, value) for name, value in (sizevars or {}).items()}
    entries: list[Entry]
    if isinstance(metadata, Metadata):
        entries = list(metadata.entries)
    else:
        entries = [entry_of(key, value) for key, value in (metadata or {}).items()]
    named = {name: tensor_of(name, value, sizes=sizes) for name, value in (tensors or {}).items()}
    return _make_model(Tables(sizes, {entry.key: entry for entry in entries}, named))


def _make_model(tables: Tables) -> Model:
    made = Model(
        tables.tensors.values(),
        metadata=Metadata(tables.metadata.values()),
        native=OinfNative(tables.sizevars, {t.name: name for name, t in tables.tensors.items() if t.name != name}),
        format="oinf",
    )
    made.resolve_facet = resolve_facet
    return made
