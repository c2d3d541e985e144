"""Reads header, directory, tensor index and quant records of MCF; payloads stay unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.errors import FormatError
from holdall.format.mcf import modelinfo, rules
from holdall.format.mcf.index import read_tensors
from holdall.format.mcf.layout import ALIGN, ASSETS, KV, MODEL_INFO, MODELINFO, QUANT_INFO, TENSOR_DATA, TENSOR_INDEX
from holdall.format.mcf.sections import McfNative, Section, read_directory, read_header
from holdall.model.metadata import Metadata
from holdall.model.model import Model
from holdall.model.payload import Payload
from holdall.model.table import ListTable, TensorTable
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["read"]


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``."""
    ledger.pad_to = ALIGN
    header = read_header(source, check, ledger)
    sections: tuple[Section, ...] = ()
    with check.scope():
        sections = read_directory(source, header, check, ledger)
    native = McfNative(header.minor, header.flags, sections, check.limits)
    assets: dict[str, Payload] = {}
    tables = {MODEL_INFO, TENSOR_INDEX}
    if native.get(TENSOR_INDEX) is not None:
        tables |= {TENSOR_DATA, QUANT_INFO}
    again = {id(section) for section in native.repeated}
    for section in sections:
        if section.type in ASSETS:
            assets.setdefault(section.name, section.payload)
        if section.type not in tables or id(section) in again:  # the tables are recorded field by field below
            ledger.region(section.name, section.offset, section.size)
    early = (native.get(type) for type in (MODEL_INFO, TENSOR_INDEX, QUANT_INFO))
    source.prefetch((section.offset, section.offset + section.size) for section in early if section is not None)
    metadata = _read_metadata(native, check, ledger)
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


def _read_metadata(native: McfNative, check: Check, ledger: Ledger) -> Metadata:
    """Read the metadata in ModelInfo; none if it is damaged, which is noted, and ``native.model_info`` says why."""
    section = native.get(MODEL_INFO)
    if section is None:
        return Metadata()
    data, info = b"", None
    if section.size <= check.limits.metadata_bytes:
        data = section.data
        try:
            info = modelinfo.decode(data, section.offset, Check(limits=check.limits))
        except FormatError as error:
            message = f"mcf: ModelInfo is damaged, so that the model has no metadata: {error.message}"
            check.note(rules.INFO_UNREAD, error.offset, message)
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
