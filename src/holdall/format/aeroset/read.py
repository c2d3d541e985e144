"""Reading a set: the document and the global index. A part is opened when one of its tensors is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.errors import FormatError
from holdall.format.aero import manifest
from holdall.format.aero.read import AeroFiles, AeroNative, AeroTable
from holdall.format.aero.read import read as read_aero
from holdall.format.aeroset import rules
from holdall.format.aeroset.document import MAX_BYTES, SUFFIX, SetDocument, read_document
from holdall.format.aeroset.part import SetPart
from holdall.format.aeroset.places import open_index
from holdall.format.aeroset.set_table import SetTable
from holdall.format.proof import Proof
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import Span
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor
from holdall.source import Source
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AerosetNative", "read"]


@dataclass(frozen=True, slots=True, eq=False)
class AerosetNative(AeroFiles):
    """What only a set has: its document, its parts, and its global index as a model.

    ``main`` is the file of the document, ``home`` the source beside which files are.
    """

    document: SetDocument
    parts: tuple[SetPart, ...]
    index: Model | None
    main: Source
    home: Source

    def list_files(self) -> list[AeroNative]:
        """The parts and the index; a part that is missing or damaged is left out, and its tensors raise the reason."""
        found = []
        for part in self.parts:
            with suppress(FormatError):
                found.append(part.model.native)
        found += [self.index.native] if self.index is not None else []
        return [native for native in found if isinstance(native, AeroNative)]

    def proofs(self, spans: Iterable[Span]) -> Iterator[Proof]:
        """The SHA-256 of a part of which half or more is read, else the hashes that the part itself states.

        Only the SHA-256 detects a part that was replaced by another file. Remote parts are not fetched whole for it.
        """
        for source, own in groupby(spans, key=lambda span: span[0]):
            part = next((part for part in self.parts if part.source.stands_for(source)), None)
            if part is None:
                continue
            ranges = [(start, stop) for _, start, stop in own]
            native = None if part.known is None else part.known.native
            if not source.is_remote and 2 * sum(stop - start for start, stop in ranges) >= part.file.size:
                yield part.proof()
            elif isinstance(native, AeroNative):
                yield from native.stated.proofs((part.source, start, stop) for start, stop in ranges)


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model of a set; ``source`` is its document or its folder."""
    home = source
    if source.is_folder:
        source = source.sibling(_find_main_file(source, check))
    check.limit("metadata_bytes", source.size, None, "aeroset: the index")
    if source.size > MAX_BYTES:
        check.fail(rules.JSON, None, f"aeroset: an index of {source.size} bytes is above {MAX_BYTES}")
    document = read_document(source.read(0, source.size), check, home.origins)
    if not home.is_folder:
        ledger.region("json", 0, source.size)
    check.limit_files(len(document.parts), sum(part.size for part in document.parts), "aeroset: parts")
    # One check for all parts, whenever they are read: limits that count across files apply to all of them together.
    common = Check(limits=check.limits, proving=check.proving)
    parts = tuple(SetPart(file, home, common, check.collecting) for file in document.parts)
    index = None
    sources: list[Source] = [home, *([source] if home.is_folder else [])]
    if document.index is not None:
        opened = open_index(home, document.index)
        sources.append(opened)
        with check.inside(document.index.path):
            own = Ledger()
            index = read_aero(opened, check, own, part_sizes=(part.stored_bytes for part in parts))
            ledger.members.append((opened, own))
    sources += [part.source for part in parts]
    tensors: TensorTable = ListTable([])
    if index is not None and isinstance(index.tensors, AeroTable):
        tensors = SetTable(index.tensors, parts)
    if check.collecting:
        for part in parts:
            with check.scope():
                part.source.real  # noqa: B018  # opens the file: what is wrong with that, the document says
                with check.inside(part.file.path), check.scope():
                    part.verify(check, ledger)
        if isinstance(tensors, SetTable):
            _check_agreement(tensors, check)
    if document.index is None:
        tensors = ListTable(tensor for part in parts for tensor in _list_tensors(part, check))
    return Model(
        tensors,
        metadata=Metadata(lambda: _read_metadata(document, parts)),
        native=AerosetNative(document, parts, index, source, home),
        format="aeroset",
        version=document.version,
        sources=sources,
        ledger=ledger,
    )


def _list_tensors(part: SetPart, check: Check) -> list[Tensor]:
    """List the tensors of a part; only a set without a global index lists them from its parts."""
    try:
        return list(part.model.tensors)
    except FormatError:
        if check.collecting:
            return []  # the error is in the report already
        raise


def _check_agreement(table: SetTable, check: Check) -> None:
    """Check that every tensor of the global index is in its part, as the index describes it."""
    for row in table.find_unreadable():
        with check.scope():
            table.find_payload(row)


def _find_main_file(folder: Source, check: Check) -> str:
    found = find_main_files(folder)
    if len(found) != 1:
        check.fail(rules.JSON, None, f"aeroset: the folder has {len(found)} files called *{SUFFIX}, not one")
    return found[0]


def find_main_files(folder: Source) -> list[str]:
    """Find the documents of sets in a folder; only the one of the standard name if there is one."""
    names = [name for name in folder.names() if name.endswith(SUFFIX)]
    return ["model" + SUFFIX] if "model" + SUFFIX in names else names


def _read_metadata(document: SetDocument, parts: Sequence[SetPart]) -> list[Entry]:
    """Read the metadata of the first part or, if that cannot be read, of the document."""
    for part in parts[:1]:
        try:
            native = part.model.native
            assert isinstance(native, AeroNative)
            return manifest.read_metadata(native.container, Check())
        except FormatError:
            break
    known = {manifest.MODEL_NAME: "name", manifest.ARCHITECTURE: "architecture"}
    return [Entry(key, document.model[name], "manifest") for key, name in known.items() if name in document.model]
