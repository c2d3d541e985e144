"""Reading MCF: header, directory, index and records; payloads stay where they are."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.errors import FormatError
from holdall.formats.mcf import modelinfo
from holdall.formats.mcf.index import read_tensors
from holdall.formats.mcf.layout import ALIGN, ASSETS, KV, MODEL_INFO, MODELINFO, QUANT_INFO, TENSOR_DATA, TENSOR_INDEX
from holdall.formats.mcf.sections import McfNative, Section, read_directory, read_header
from holdall.ledger import Ledger
from holdall.metadata import Metadata
from holdall.model import ListTable, Model, TensorTable
from holdall.payload import Payload

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["read"]


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``."""
    ledger.pad_to = ALIGN
    header = read_header(source, check, ledger)
    sections: tuple[Section, ...] = ()
    with check.scope():
        sections = read_directory(source, header, check, ledger)
    native = McfNative(header.minor, header.flags, sections, check.limits)
    assets: dict[str, Payload] = {}
    tables = {MODEL_INFO, TENSOR_INDEX, TENSOR_DATA} | ({QUANT_INFO} if native.get(TENSOR_INDEX) is not None else set())
    for section in sections:
        if section.type in ASSETS:
            assets.setdefault(section.name, section.payload)
        if section.type not in tables:  # those are taken apart further down
            ledger.region(section.name, section.offset, section.size)
    early = (native.get(type) for type in (MODEL_INFO, TENSOR_INDEX, QUANT_INFO))
    source.prefetch((section.offset, section.offset + section.size) for section in early if section is not None)
    metadata = _metadata(native, check, ledger)
    tensors: TensorTable = ListTable([])
    with check.scope():
        tensors = read_tensors(source, native, check, ledger)
    return Model(
        tensors,
        metadata=metadata,
        assets=assets,
        native=native,
        format="mcf",
        version=(header.major, header.minor),
        sources=[source],
        ledger=ledger,
    )


def _metadata(native: McfNative, check: Check, ledger: Ledger) -> Metadata:
    """ModelInfo as metadata. A damaged one gives none: ``native.model_info`` and verification say what is wrong."""
    section = native.get(MODEL_INFO)
    if section is None:
        return Metadata()
    data, info = b"", None
    if section.size <= check.limits.metadata_bytes:
        data = section.data
        with suppress(FormatError):
            info = modelinfo.decode(data, section.offset, Check(limits=check.limits))
    if info is None:
        ledger.region(section.name, section.offset, section.size)
        return Metadata()
    ledger.record(MODELINFO, section.offset)
    head = MODELINFO.read(data, 0)
    start, stop = MODELINFO.size, section.size
    if head.kv_count:
        ledger.table(KV, section.offset + head.kv_off, head.kv_count)
        end = head.kv_off + head.kv_count * KV.size
        ledger.region("model info texts", section.offset + end, section.size - end)
        stop = max(start, head.kv_off)
    ledger.region("model info texts", section.offset + start, stop - start)
    return info.metadata()
