"""Writing GPTRSCHK and GPTRSTEN, version 2: sorted by name, payloads aligned to 64 or packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdall import identity
from holdall.documents.json import decode
from holdall.dtypes import DType
from holdall.errors import ContentError
from holdall.formats.gptrs import config
from holdall.formats.gptrs.layout import (
    ARCHIVE_ENTRY,
    ARCHIVE_MAGIC,
    CHECKPOINT_ENTRY,
    CHECKPOINT_MAGIC,
    CONFIG_LENGTH,
    COUNT,
    DTYPE_TAG,
    HEADER,
    INDEX_LENGTH,
)
from holdall.formats.gptrs.native import GptrsNative, GptrsTensor
from holdall.layout import Layout
from holdall.model import Model
from holdall.payload import Payload
from holdall.plan import Plan
from holdall.tables import build
from holdall.tensor import Tensor

__all__ = ["config_of", "name_breach", "plan"]

_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1
_LOW = (1 << 64) - 1


def plan(model: Model, options: Mapping[str, Any], *, checkpoint: bool) -> Plan:
    """The file that holds ``model``."""
    step = int(options["align"])
    tensors = sorted(model.tensors, key=lambda tensor: tensor.name)
    _check_names(tensors, checkpoint)
    payloads = [_payload(tensor) for tensor in tensors]
    head = HEADER.pack(magic=CHECKPOINT_MAGIC if checkpoint else ARCHIVE_MAGIC, version=2)
    layout, ids = ARCHIVE_ENTRY, {}
    if checkpoint:
        stored = config_of(model, options["config"])
        head += CONFIG_LENGTH.pack(config_len=_fits(len(stored), "the configuration")) + stored
        layout = CHECKPOINT_ENTRY
        base = identity.base_ids([tensor.name for tensor in tensors]) if options["ids"] else [0] * len(tensors)
        ids = {"id_low": [id & _LOW for id in base], "id_high": [id >> 64 for id in base]}
    index_size = COUNT.size + sum(_entry_size(layout, tensor) for tensor in tensors)
    cursor = len(head) + INDEX_LENGTH.size + _fits(index_size, "the index")
    places = []
    for payload in payloads:
        cursor += -cursor % step
        places.append(cursor)
        cursor += payload.size
    index = build(
        layout,
        name=[tensor.name.encode() for tensor in tensors],
        **ids,
        rank=[len(tensor.shape) for tensor in tensors],
        dims=[tensor.shape for tensor in tensors],
        dtype=[DTYPE_TAG[str(tensor.dtype)] for tensor in tensors],
        flag=[tensor.native.flag if isinstance(tensor.native, GptrsTensor) else 0 for tensor in tensors],
        offset=places,
        byte_len=[payload.size for payload in payloads],
    )
    out = Plan()
    out.put(head + INDEX_LENGTH.pack(index_len=index_size) + COUNT.pack(tensor_count=len(tensors)) + index)
    for place, payload in zip(places, payloads, strict=True):
        out.align(step)
        assert out.cursor == place
        out.stream(payload)
    return out


def _entry_size(layout: Layout, tensor: Tensor) -> int:
    return layout.min_size + len(tensor.name.encode()) + 8 * len(tensor.shape)


def _fits(size: int, what: str) -> int:
    if size > _U32:
        raise ContentError(f"gptrs: {what} takes {size} bytes; its length is 32 bits")
    return size


# -- content ----------------------------------------------------------------------------------------------------------


def config_of(model: Model, given: Any) -> bytes:
    """The configuration to store: the one asked for, else the model's metadata as its members.

    The bytes that the model came with stay as they are while they say the same. A model of another format gives its
    own configuration under ``config``, with its ``model_type`` as the kind.
    """
    if isinstance(given, bytes):
        config.encode(_decoded(given))  # says what is wrong with it
        return given
    if given is not None:
        return config.encode(given)
    members = {entry.key: _plain(entry.value) for entry in model.metadata.entries}
    native = model.native
    if isinstance(native, GptrsNative) and native.config is not None:
        was = decode(native.config).value
        if members == (config.normalized(was) if native.legacy else was):
            # Programs of today refuse a version 2 file without a kind; only one that was so already stays so.
            return config.encode(members) if native.legacy and model.version == (1,) else native.config
    elif not isinstance(members.get("kind"), str):
        own = model.config
        kind = own.get("model_type") if isinstance(own, Mapping) else None
        tagged = {"kind": kind if isinstance(kind, str) else "unknown", "config": own}
        members = {**tagged, **{key: value for key, value in members.items() if key not in tagged}}
    return config.encode(members)


def _decoded(data: bytes) -> Any:
    try:
        return decode(data).value
    except ValueError as error:
        raise ContentError(f"gptrs: the configuration: {error}") from None


def _plain(value: Any) -> Any:
    """A metadata value as JSON has it."""
    return value.item() if isinstance(value, np.generic) else value


def name_breach(name: str, *, checkpoint: bool) -> str | None:
    """Why no tensor can be called so; None when one can."""
    if not name:
        return "a name is empty"
    if checkpoint and not name.isascii():
        return f"the name {name!r} is not ASCII, so that it has no base id"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"the name {name!r} cannot be written as UTF-8"
    return None


def _check_names(tensors: list[Tensor], checkpoint: bool) -> None:
    before = None
    for tensor in tensors:
        wrong = name_breach(tensor.name, checkpoint=checkpoint)
        if wrong:
            raise ContentError(f"gptrs: {wrong}")
        if tensor.name == before:
            raise ContentError(f"gptrs: two tensors are called {before!r}")
        before = tensor.name


def _payload(tensor: Tensor) -> Payload:
    what = f"gptrs: tensor {tensor.name!r}"
    if tensor.payload is None:
        raise ContentError(f"{what} is declared without data")
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in DTYPE_TAG:
        raise ContentError(f"{what}: {tensor.dtype} is not one of {', '.join(DTYPE_TAG)}")
    if any(dim > _U64 for dim in tensor.shape):
        raise ContentError(f"{what}: a dim of {list(tensor.shape)} does not fit u64")
    needed = tensor.dtype.nbytes(tensor.shape)
    if tensor.nbytes != needed:
        raise ContentError(f"{what}: {tensor.dtype}{list(tensor.shape)} takes {needed} bytes, not {tensor.nbytes}")
    return tensor.payload
