"""The OINF front: models from dataclasses and dicts, with sizes, metadata and quant parameters.

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

``holdall.save("model.oinf", model)`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.formats.oinf.fields import Tables, collect
from holdall.formats.oinf.inputs import ScalarValue, SizeVar, TensorSpec, Uninitialized, entry_of, sizevar_of, tensor_of
from holdall.formats.oinf.quant import QuantParams
from holdall.formats.oinf.read import OinfNative
from holdall.formats.oinf.values import Bitset
from holdall.metadata import Metadata
from holdall.model import Model

if TYPE_CHECKING:
    from holdall.metadata import Entry

__all__ = ["Bitset", "QuantParams", "ScalarValue", "SizeVar", "TensorSpec", "Uninitialized", "UninitializedTensor"]
__all__ += ["from_dataclass", "model"]

UninitializedTensor = Uninitialized


def from_dataclass(obj: Any) -> Model:
    """The model that a dataclass instance describes; a plain dict works too, with the types of its values.

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

    ``dtype``, ``shape`` and ``name`` come from a dict in ``Annotated`` or from the field's metadata. A field wins
    over an entry of the same name in a merged dict. Public attributes that were set on the instance without being
    fields count as entries of a dict do. Arrays are not copied.

    >>> model = from_dataclass({"B": 2, "mode": "fast", "sizevars": {"layer.D": 8}})
    >>> dict(model.sizevars), dict(model.metadata)
    ({'layer.D': 8, 'B': 2}, {'mode': 'fast'})
    """
    return _model(collect(obj))


def model(
    tensors: Mapping[str, Any] | None = None,
    *,
    sizevars: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | Metadata | None = None,
) -> Model:
    """A model from its three tables.

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
    return _model(Tables(sizes, {entry.key: entry for entry in entries}, named))


def _model(tables: Tables) -> Model:
    return Model(
        tables.tensors.values(),
        metadata=Metadata(tables.metadata.values()),
        native=OinfNative(tables.sizevars),
        format="oinf",
    )
