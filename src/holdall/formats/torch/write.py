"""Writing PyTorch checkpoints: tensors as ``torch.save(state_dict)`` has them, or nested as in the file before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.arranged import contiguous_strides
from holdall.dtypes import DType
from holdall.errors import ContentError
from holdall.formats.torch.content import Ordered
from holdall.formats.torch.encode import Pickler, breach
from holdall.formats.torch.layout import ALIGN, TYPE_OF
from holdall.formats.torch.nesting import ATTRIBUTE, METADATA, Branch, Row, arrange
from holdall.formats.torch.read import TorchNative
from holdall.model import Model
from holdall.payload import Payload, Range
from holdall.plan import Plan
from holdall.tensor import Tensor
from holdall.zipplan import ZipPlan

__all__ = ["MAX_RANK", "metadata_breach", "name_breach", "plan"]

ROOT = "archive"
MAX_RANK = 64


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The zip checkpoint that holds ``model``."""
    if model.assets:
        raise ContentError(f"torch has no place for assets: {', '.join(model.assets)}")
    tensors = list(model.tensors)
    storages: dict[tuple[Any, ...], int] = {}
    payloads: list[Payload] = []
    keys: list[int] = []
    strides: dict[tuple[Any, ...], tuple[int, ...]] = {}  # by type, shape and size: many tensors have those of others
    for tensor in tensors:
        payload = _checked(tensor, strides)
        key = storages.setdefault((*_identity(payload), str(tensor.dtype)), len(payloads))
        if key == len(payloads):
            payloads.append(payload)
        keys.append(key)
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise ContentError("torch: two tensors have the same name")
    content, notes = _content(tensors, model)
    archive = ZipPlan(ALIGN)
    archive.add(f"{ROOT}/data.pkl", *_pickle(content, tensors, keys, strides), pending=model.metadata.pending)
    archive.add(f"{ROOT}/byteorder", b"little")
    for number, payload in enumerate(payloads):
        archive.add(f"{ROOT}/data/{number}", payload)
    archive.add(f"{ROOT}/version", b"3\n")
    made = archive.finish()
    made.notes += notes
    return made


def _content(tensors: list[Tensor], model: Model) -> tuple[Any, list[str]]:
    """What the pickle holds: nested as in the file that the model comes from, else flat. And what is worth telling."""
    for entry in model.metadata.entries:
        wrong = metadata_breach(entry.key, entry.value)
        if wrong:
            raise ContentError(f"torch: metadata {entry.key!r}: {wrong}")
    native = model.native if isinstance(model.native, TorchNative) else None
    notes = [] if native is None else native.notes
    if native is None and model.format == "torch" and len(model.sources) > 1:
        notes = ["several checkpoints become one flat dict of tensors, and their values an attribute of it"]
    if native is None or native.nesting is None:
        items = {tensor.name: Row(number) for number, tensor in enumerate(tensors)}
        return Branch(Ordered, items=items, attributes=_attributes(model)), notes
    content, more = arrange(native.nesting, [tensor.name for tensor in tensors], model.metadata.entries)
    return content, notes + more


def _attributes(model: Model) -> dict[str, Any]:
    """What is set on the dict: the metadata, and attributes that it had in the file that it comes from."""
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for entry in model.metadata.entries:
        home = attributes if entry.kind == ATTRIBUTE and entry.key != METADATA else metadata
        if entry.key in home:
            raise ContentError(f"torch: two metadata entries are called {entry.key!r}")
        home[entry.key] = entry.value
    return {**attributes, **({METADATA: metadata} if metadata else {})}


def _pickle(
    content: Any, tensors: list[Tensor], keys: list[int], strides: Mapping[tuple[Any, ...], tuple[int, ...]]
) -> list[bytes]:
    pickler = Pickler()

    def put(item: Any) -> None:
        if isinstance(item, Row):
            tensor = tensors[item.number]
            dtype = str(tensor.dtype)
            elements = tensor.count if dtype not in _UNTYPED else tensor.nbytes
            pickler.tensor(str(keys[item.number]), dtype, tensor.shape, strides[_form(tensor)], elements)
        elif isinstance(item, Branch):
            pickler.container(item.kind, item.items.items(), put)
            if item.attributes:
                pickler.build(item.attributes)
        else:
            pickler.value(item)

    put(content)
    return pickler.finish()


_UNTYPED = frozenset(("f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0", "u64", "u32", "u16"))


def _identity(payload: Payload) -> tuple[Any, ...]:
    """Equal for payloads that are the same bytes in the same place."""
    return (id(payload.source), payload.offset, payload.size) if isinstance(payload, Range) else (id(payload),)


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.nbytes


def _checked(tensor: Tensor, strides: dict[tuple[Any, ...], tuple[int, ...]]) -> Payload:
    wrong = name_breach(tensor.name)
    if wrong:
        raise ContentError(f"torch: {wrong}")
    form = _form(tensor)
    if tensor.payload is not None and form in strides:
        return tensor.payload
    what = f"torch: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in TYPE_OF:
        raise ContentError(f"{what}: torch has no {tensor.dtype}")
    if tensor.payload is None:
        raise ContentError(f"{what} is declared without data, which torch cannot say")
    if len(tensor.shape) > MAX_RANK or any(not 0 <= size < 1 << 63 for size in tensor.shape):
        raise ContentError(f"{what}: torch cannot hold this shape")
    steps = contiguous_strides(tensor.shape)
    if steps[:1] > (1 << 63,):
        raise ContentError(f"{what}: its strides do not fit 64 bits")
    if tensor.nbytes != tensor.dtype.nbytes(tensor.shape):
        raise ContentError(f"{what} takes {tensor.dtype.nbytes(tensor.shape)} bytes, not {tensor.nbytes}")
    strides[form] = steps
    return tensor.payload


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    wrong = breach(name)
    return None if wrong is None else f"the tensor name: {wrong}"


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    return breach(key) or breach(value)
