"""Reading a set: the document, the global index as columns, and parts that are opened when a tensor is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.errors import FormatError, HoldallError
from holdall.formats.aero import manifest
from holdall.formats.aero.read import AeroNative, AeroTable
from holdall.formats.aero.read import read as read_aero
from holdall.formats.aeroset import rules
from holdall.formats.aeroset.document import MAX_BYTES, SUFFIX, Member, SetDocument, read_document
from holdall.ledger import Ledger
from holdall.locks import Lock
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, ListTable, Model, TensorTable, Totals
from holdall.payload import Payload, Span
from holdall.proof import Proof
from holdall.source import CHUNK, Source
from holdall.source.deferred import DeferredSource
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AerosetNative", "Part", "SetTable", "read"]


@dataclass(frozen=True, slots=True, eq=False)
class AerosetNative:
    """What only a set has: its document, and its parts."""

    document: SetDocument
    parts: tuple[Part, ...]
    index: Model | None

    def proofs(self, spans: Iterable[Span]) -> Iterator[Proof]:
        """What the set states of its parts where most of one is read, else what the part states of its own bytes.

        Only the former notices a part that was replaced by another one. A remote part is not fetched whole for it.
        """
        for source, own in groupby(spans, key=lambda span: span[0]):
            part = next((part for part in self.parts if part.source.stands_for(source)), None)
            if part is None:
                continue
            ranges = [(start, stop) for _, start, stop in own]
            native = None if part.known is None else part.known.native
            if not source.far and 2 * sum(stop - start for start, stop in ranges) >= part.member.size:
                yield part.proof()
            elif isinstance(native, AeroNative):
                yield from native.stated.proofs((part.source, start, stop) for start, stop in ranges)


class Unreadable(Payload):
    """The bytes of a tensor whose part is missing or says something else: reading them says why."""

    def __init__(self, size: int, error: HoldallError) -> None:
        self.size = size
        self._error = error

    def part(self, start: int, stop: int) -> memoryview:
        raise self._error

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        raise self._error


class Part:
    """One part of a set, read when it is first needed."""

    def __init__(self, member: Member, home: Source, check: Check) -> None:
        self.member = member
        self.source = DeferredSource(member.path, member.size, lambda: _open_member(home, member))
        self._check = check
        self._model: Model | None = None
        self._refused: FormatError | None = None  # what is wrong with it, so that a bad part is read once
        self._lock = Lock()

    def proof(self) -> Proof:
        """What the document of the set states of all of it."""
        member = self.member
        return Proof(
            self.source, 0, member.size, "sha256", bytes.fromhex(member.sha256), rules.HASH.id,
            f"aeroset: {member.path!r}", stated="the document of the set", wide=True, holds=self._names,
        )  # fmt: skip

    def _names(self, start: int, stop: int) -> str:
        """The tensors in a range of the part, for a message."""
        tensors = self.model.tensors
        return tensors.names_between(start, stop) if isinstance(tensors, ColumnTable) else f"{len(tensors)} tensors"

    @cached_property
    def _places(self) -> dict[int, int]:
        """The place in the part of each of its shards."""
        return {shard: place for place, shard in enumerate(self.member.shards)}

    @property
    def model(self) -> Model:
        """The part as a model of its own; raises FormatError when it cannot be read."""
        with self._lock:
            if self._model is None:
                self._model = self._read()
            return self._model

    @property
    def known(self) -> Model | None:
        """The model, if it has been read: nothing in it has a hash before."""
        return self._model

    def _read(self) -> Model:
        self.source.real  # noqa: B018  # opening may fail now and not later
        if self._refused is None:
            try:
                return read_aero(self.source, self._check, Ledger())
            except FormatError as error:
                self._refused = error.with_traceback(None)
        wrong = self._refused
        raise type(wrong)(wrong.rule, wrong.offset, f"{self.member.path}: {wrong.message}")  # a set has many files

    @property
    def stored(self) -> int:
        """The bytes that are there; none where the part is missing or of another size."""
        try:
            return self.source.real.size
        except FormatError:
            return 0

    def verify(self, check: Check, ledger: Ledger) -> None:
        """Read the part with a collecting check; what was whole is what the set then uses."""
        own = Ledger()
        self.source.real  # noqa: B018  # opening is what may fail
        self._model = read_aero(self.source, check, own)
        ledger.members.append((self.source, own))

    def agreed(self, tensor: Tensor, shard: int, stored: int, offset: int) -> Tensor:
        """The part's own tensor, when it is what the global index describes."""
        part = self.model
        table = part.tensors
        name, path = tensor.name, self.member.path
        try:
            row = table.row(name)
        except KeyError:
            raise FormatError(rules.AGREE.id, None, f"aeroset: {path!r} has no tensor {name!r}") from None
        if not isinstance(table, AeroTable):
            raise FormatError(rules.AGREE.id, None, f"aeroset: {path!r} has no index")
        found = table.tensor(row)
        index = table.tidx
        local = self._places.get(shard)
        ours = (str(tensor.dtype), tensor.shape, offset, stored)
        theirs = (str(found.dtype), found.shape, int(index.offsets[row]), int(index.stored[row]))
        if ours != theirs or int(index.shards[row]) not in (local, shard):
            message = f"aeroset: tensor {name!r} is {theirs} of shard {index.shards[row]} in {path!r}, "
            raise FormatError(rules.AGREE.id, None, message + f"but {ours} of shard {shard} in the global index")
        return found


class SetTable(TensorTable):
    """The tensors of a set by its global index; their bytes are in the parts."""

    def __init__(self, index: AeroTable, parts: Sequence[Part]) -> None:
        self.columns = index
        self.names = index.names
        self._owner = {shard: part for part in parts for shard in part.member.shards}

    def tensor(self, row: int) -> Tensor:
        tensor = self.columns.tensor(row)
        try:
            tensor.payload = self.found(row, tensor).payload
        except HoldallError as error:
            tensor.payload = Unreadable(int(self.columns.tidx.sizes[row]), error)
        return tensor

    def found(self, row: int, tensor: Tensor) -> Tensor:
        """The tensor of ``row`` as its part has it; raises FormatError when no part does."""
        index = self.columns.tidx
        shard = int(index.shards[row])
        part = self._owner.get(shard)
        if part is None:
            message = f"aeroset: tensor {tensor.name!r}: its shard {shard} is in no part"
            raise FormatError(rules.NO_PART.id, None, message)
        return part.agreed(tensor, shard, int(index.stored[row]), int(index.offsets[row]))

    def totals(self) -> dict[str, Totals]:
        return self.columns.totals()


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model that the set at ``source``, its JSON or its folder, makes up."""
    home = source
    if source.is_folder:
        source = source.sibling(_main_file(source, check))
    check.limit("metadata_bytes", source.size, None, "aeroset: the index")
    if source.size > MAX_BYTES:
        check.fail(rules.JSON, None, f"aeroset: an index of {source.size} bytes is above {MAX_BYTES}")
    document = read_document(source.read(0, source.size), check)
    if not home.is_folder:
        ledger.region("json", 0, source.size)
    check.limit_files(len(document.parts), sum(part.size for part in document.parts), "aeroset: parts")
    common = Check(
        limits=check.limits, proving=check.proving
    )  # what the parts together ask for is counted, whenever they are read
    parts = tuple(Part(member, home, common) for member in document.parts)
    index = None
    sources: list[Source] = [home, *([source] if home.is_folder else [])]
    if document.index is not None:
        with _file(check, document.index.path):
            opened = _open_member(home, document.index)
            sources.append(opened)
            own = Ledger()
            index = read_aero(opened, check, own, elsewhere=(part.stored for part in parts))
            ledger.members.append((opened, own))
    sources += [part.source for part in parts]
    tensors: TensorTable = ListTable([])
    if index is not None and isinstance(index.tensors, AeroTable):
        tensors = SetTable(index.tensors, parts)
    if check.collecting:
        for part in parts:
            with _file(check, part.member.path), check.scope():
                part.verify(check, ledger)
        if isinstance(tensors, SetTable):
            _agree(tensors, check)
    if document.index is None:
        tensors = ListTable(tensor for part in parts for tensor in _listed(part, check))
    return Model(
        tensors,
        metadata=Metadata(lambda: _metadata(document, parts)),
        native=AerosetNative(document, parts, index),
        format="aeroset",
        version=document.version,
        sources=sources,
        ledger=ledger,
    )


def _listed(part: Part, check: Check) -> list[Tensor]:
    """The tensors of a part, for a set without a global index."""
    try:
        return list(part.model.tensors)
    except FormatError:
        if check.collecting:
            return []  # said already
        raise


def _agree(table: SetTable, check: Check) -> None:
    """Every tensor of the global index is in its part, and as described."""
    for row in range(len(table)):
        with check.scope():
            table.found(row, table.columns.tensor(row))


@contextmanager
def _file(check: Check, path: str) -> Iterator[None]:
    """Findings in this block belong to one file of the set."""
    check.file = path
    try:
        yield
    finally:
        check.file = None


def _main_file(folder: Source, check: Check) -> str:
    found = main_files(folder)
    if len(found) != 1:
        check.fail(rules.JSON, None, f"aeroset: the folder has {len(found)} files called *{SUFFIX}, not one")
    return found[0]


def main_files(folder: Source) -> list[str]:
    """The indexes of sets in a folder; the standard name alone where it is there."""
    names = [name for name in folder.names() if name.endswith(SUFFIX)]
    return ["model" + SUFFIX] if "model" + SUFFIX in names else names


def _open_member(home: Source, member: Member) -> Source:
    try:
        opened = home.sibling(member.path)
    except OSError as error:
        message = f"aeroset: {member.path!r} cannot be opened: {error.strerror or error}"
        raise FormatError(rules.MISSING.id, None, message) from error
    if opened.size != member.size:
        opened.close()
        message = f"aeroset: {member.path!r} has {opened.size} bytes, the index says {member.size}"
        raise FormatError(rules.SIZE.id, None, message)
    return opened


def _metadata(document: SetDocument, parts: Sequence[Part]) -> list[Entry]:
    """What the first part says, or, where that cannot be read, the set itself."""
    for part in parts[:1]:
        try:
            native = part.model.native
            assert isinstance(native, AeroNative)
            return manifest.metadata_entries(native.container, Check())
        except FormatError:
            break
    known = {manifest.MODEL_NAME: "name", manifest.ARCHITECTURE: "architecture"}
    return [Entry(key, document.model[name], "manifest") for key, name in known.items() if name in document.model]
