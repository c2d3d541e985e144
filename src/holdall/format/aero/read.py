"""Reading AERO: the container, then the index as columns. Documents and payloads are read when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import numpy as np

from holdall.base.check import Check
from holdall.binary.columns import find_overlaps, fit
from holdall.format.aero import integrity, manifest, rules
from holdall.format.aero.agreement import check_agreement, check_documents
from holdall.format.aero.chunks import Chunk, Chunks, read_content
from holdall.format.aero.container import Container, open_container
from holdall.format.aero.layout import IHSH, MJSN, MMSG, PAGES, PHSH, TIDX, WTSH, shard_name
from holdall.format.aero.proofs import StatedHashes
from holdall.format.aero.tidx import KEYS, Index, cost_of_index, read_index
from holdall.format.proof import Proof, prove
from holdall.model.dtypes import DType
from holdall.model.metadata import Metadata
from holdall.model.model import Model
from holdall.model.payload import Payload, SourceRange, Span
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.source.ledger import Ledger
from holdall.source.ranges import RangeSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["AeroFiles", "AeroNative", "AeroTable", "JoinedFiles", "TensorNative", "list_files", "read"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TensorNative:
    """What only AERO states of a tensor. ``extra`` has the keys of its entry that the format does not define."""

    flags: int = 0
    shard: int = 0
    quant_id: int | None = None
    quant_params: dict[str, Any] | None = None
    hash_b3: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    named: tuple[str, Span] | None = field(default=None, repr=False, compare=False)  # the bytes that hash_b3 covers
    proven: RangeSet | None = field(default=None, repr=False, compare=False)  # of all tensors of the file
    packed: bool = field(default=False, repr=False, compare=False)  # quant_id and quant_params say how it is stored

    def prove(self, payload: Payload) -> None:
        """Raises HashError if ``payload`` is the one in the file and has not the hash of its entry; compares once."""
        if self.named is None or self.hash_b3 is None or not isinstance(payload, SourceRange):
            return
        name, (source, start, stop) = self.named
        if payload.source is not source or payload.offset != start or source.is_checked or source.is_trusted:
            return
        if self.proven is None or (start, stop) not in self.proven:
            prove([_make_proof(name, (source, start, stop), bytes.fromhex(self.hash_b3))])
            if self.proven is not None:
                self.proven.add(start, stop)


class AeroFiles(ABC):
    """What only a model made of AERO files has: one file, or the parts of a set."""

    __slots__ = ()

    @abstractmethod
    def list_files(self) -> list[AeroNative]:
        """List the files that can be read."""


def list_files(model: Model) -> list[AeroNative]:
    """List the AERO files that ``model`` comes from, whatever was changed since; none if it has another origin."""
    found: Model | None = model
    while found is not None:
        if isinstance(found.native, AeroFiles):
            return found.native.list_files()
        found = found.origin
    return []


@dataclass(frozen=True, slots=True, eq=False)
class AeroNative(AeroFiles):
    """What only AERO has: the UUID, the table of contents, the documents, and the stated hashes."""

    uuid: UUID
    container: Container
    stated: StatedHashes
    table: AeroTable | None  # None if the index is damaged

    def proofs(self, spans: Iterable[Span]) -> Iterable[Proof]:
        """BLAKE3 of tensors, of pages, of shards."""
        return self.stated.proofs(spans)

    def list_files(self) -> list[AeroNative]:
        """This file."""
        return [self]

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.container.source.name

    @property
    def chunks(self) -> Chunks:
        """The table of contents."""
        return self.container.chunks

    @property
    def extras(self) -> list[Chunk]:
        """Chunks that nothing of the model is read from; they are copied when the file is written again.

        These are chunks of kinds that the format does not define, documents beyond the first of their kind, shards
        that no tensor lies in, and page hashes of such shards.
        """
        used = {row for fourcc in (TIDX, IHSH) for row in self.chunks.rows(fourcc)}
        used |= {row for fourcc in (MJSN, MMSG) for row in self.chunks.rows(fourcc)[:1]}
        rows = [(row, "") for row in self.chunks.rows(WTSH)] + [(row, PAGES) for row in self.chunks.rows(PHSH)]
        shards = None if self.table is None else {shard_name(n) for n in np.unique(self.table.tidx.shards).tolist()}
        used |= {row for row, end in rows if shards is None or self.chunks.names[row].removesuffix(end) in shards}
        return [self.chunks[row] for row in range(len(self.chunks)) if row not in used]

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The map in MMSG; None if the file has no MMSG."""
        return manifest.read_manifest(self.container, Check())

    def content(self, chunk: Chunk) -> bytes:
        """The uncompressed bytes of a metadata chunk, proven by their hash."""
        return read_content(self.container.source, chunk, Check())


@dataclass(frozen=True, slots=True, eq=False)
class JoinedFiles(AeroFiles):
    """The AERO files of several models that become one."""

    files: tuple[AeroNative, ...]

    @classmethod
    def of(cls, models: Iterable[Model]) -> JoinedFiles | None:
        """The files of ``models``; None if there are none."""
        files = tuple(file for model in models for file in list_files(model))
        return cls(files) if files else None

    def list_files(self) -> list[AeroNative]:
        """All files, in the order of the models."""
        return list(self.files)


class AeroTable(ColumnTable):
    """The tensors of one file. Tensors whose shard is not in the file have no data."""

    def __init__(
        self, container: Container, index: Index, offsets: NDArray[np.uint64], stored: NDArray[np.bool_]
    ) -> None:
        self.tidx = index
        self.offsets = offsets
        self.present = stored
        self.proven = RangeSet()
        super().__init__(
            container.source, index.names, index.dtypes, index.codes, index.shapes, offsets, index.sizes,
            has_data=stored, native_of=self.native_of,
        )  # fmt: skip

    @property
    def extents(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        return self.offsets, self.tidx.stored

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        return super().natives(kind) if issubclass(TensorNative, kind) else iter(())

    def native_of(self, row: int) -> TensorNative:
        """What only AERO states of the tensor in ``row``."""
        index = self.tidx
        digest, entry = index.digest(row), index.read_stated(row)
        return TensorNative(
            entry.get("flags", 0),
            int(index.shards[row]),
            entry.get("quant_id"),
            entry.get("quant_params"),
            None if digest is None else digest.hex(),
            {key: value for key, value in entry.items() if key not in KEYS},
            None if digest is None or not self.present[row] else (self.names[row], self._span(row)),
            self.proven,
            not isinstance(index.dtypes[int(index.codes[row])], DType),
        )

    def proof(self, row: int, digest: bytes) -> Proof:
        """The proof of the tensor in ``row``, whose hash is ``digest``."""
        return _make_proof(self.names[row], self._span(row), digest)

    def _span(self, row: int) -> Span:
        """The bytes that the hash_b3 of a tensor covers."""
        start = int(self.offsets[row])
        return self._source, start, start + int(self.tidx.stored[row])


def _make_proof(name: str, span: Span, digest: bytes) -> Proof:
    return Proof(*span, "blake3", digest, rules.TENSOR_HASH.id, f"aero: tensor {name!r}", stated="hash_b3")


def read(source: Source, check: Check, ledger: Ledger, *, part_sizes: Iterable[int] | None = None) -> Model:
    """Read the model in ``source``; for the index of a set, ``part_sizes`` are the sizes of the parts."""
    container = open_container(source, check, ledger, part_sizes or ())
    tensors: TensorTable = ListTable([])
    _record_metadata(container, ledger)
    before = check.abandoned
    with check.scope():
        tensors = _read_tensors(container, check, ledger)
    if check.abandoned > before:  # without an index, the shards are recorded as a whole
        _record_chunks(container, "shard", container.chunks.rows(WTSH), ledger)
    table = tensors if isinstance(tensors, AeroTable) else None
    stated = StatedHashes(container, table)
    if check.collecting:
        _check_documents(container, tensors, check, in_set=part_sizes is not None)
        with check.scope():
            integrity.check_control(container, check)
    return Model(
        tensors,
        metadata=Metadata(lambda: manifest.read_metadata(container, Check(limits=check.limits))),
        native=AeroNative(UUID(bytes=container.uuid), container, stated, table),
        format="aero",
        version=(container.header.version_major, container.header.version_minor),
        sources=[source],
        ledger=ledger,
    )


def _read_tensors(container: Container, check: Check, ledger: Ledger) -> AeroTable:
    """Read the tensors of TIDX, each inside its shard."""
    chunks = container.chunks.all(TIDX)
    if not chunks:
        check.fail(rules.INDEX, container.header.toc_offset, "aero: there is no TIDX chunk, so no tensor can be found")
    index = _read_index(container, chunks[0], check)
    for other in chunks[1:]:
        # Two chunks of the same bytes agree. That the bytes are those of the hash is for verify to say.
        if check.collecting or (other.ulen, other.blake3) != (chunks[0].ulen, chunks[0].blake3):
            check_agreement(index, _read_index(container, other, check), chunks[0], other, check)
    offsets, present = _locate_tensors(container.chunks, index, check)
    ledger.payloads("tensor", offsets[present], index.stored[present])
    _check_overlaps(index, offsets, present, check)
    return AeroTable(container, index, offsets, present)


def _read_index(container: Container, chunk: Chunk, check: Check) -> Index:
    if chunk.compressed:
        container.expansion.add(chunk.fourcc, cost_of_index(chunk.ulen, 0), check, chunk.offset, "aero: TIDX")
    content = read_content(container.source, chunk, check, weighed=True)
    return read_index(content, chunk, check, container.expansion)


def _locate_tensors(chunks: Chunks, index: Index, check: Check) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Find where each tensor begins in the file, and whether its shard is in the file."""
    shards = {chunk.name: chunk for chunk in chunks.all(WTSH)}
    numbers, inverse = np.unique(index.shards, return_inverse=True)
    found = [shards.get(shard_name(number)) for number in numbers.tolist()]
    starts = np.array([chunk.offset if chunk else 0 for chunk in found], np.uint64)[inverse]
    sizes = np.array([chunk.length if chunk else 0 for chunk in found], np.uint64)[inverse]
    present = np.array([chunk is not None for chunk in found], np.bool_)[inverse]
    check.rows(
        fit(index.offsets, index.stored, sizes) | ~present, rules.RANGE, index.where,
        lambda row: f"{index.what(row)}: {index.stored[row]} bytes at {index.offsets[row]} "
                    f"run past {shard_name(int(index.shards[row]))!r}, which has {sizes[row]}",
    )  # fmt: skip
    return starts + np.where(present, index.offsets, np.uint64(0)), present


def _check_overlaps(index: Index, offsets: NDArray[np.uint64], present: NDArray[np.bool_], check: Check) -> None:
    if not check.wants("strict"):
        return
    for _, row in find_overlaps(offsets, index.stored, present):
        message = f"{index.what(row)} begins inside the tensor before it"
        check.note(rules.TENSORS_OVERLAP, int(offsets[row]), message)


def _record_metadata(container: Container, ledger: Ledger) -> None:
    """Record every chunk but the shards, of which the tensors are recorded instead."""
    chunks = container.chunks
    weights = set(chunks.rows(WTSH))
    _record_chunks(container, "chunk", [row for row in range(len(chunks)) if row not in weights], ledger)


def _record_chunks(container: Container, name: str, rows: list[int], ledger: Ledger) -> None:
    chunks = container.chunks
    table = chunks.table[rows]
    label = chunks.names
    ledger.payloads(name, table["chunk_offset"], table["chunk_length"], lambda n: label[rows[n]])


def _check_documents(container: Container, tensors: TensorTable, check: Check, *, in_set: bool) -> None:
    """Check, when verifying, the documents, the types of tensors, and whether their shards are there."""
    json = found = None
    with check.scope():
        json = manifest.read_json(container, check)
    with check.scope():
        found = manifest.read_manifest(container, check)
    check_documents(container, json, found, check)
    if not isinstance(tensors, AeroTable):
        return
    index = tensors.tidx
    with check.scope():
        check.rows(
            index.known, rules.DTYPE, index.where,
            lambda row: f"{index.what(row)}: dtype {index.type_name(row).removeprefix('aero.')} is unknown",
        )  # fmt: skip
    if in_set or tensors.present.all():
        return
    with check.scope():
        if manifest.is_set_index(container, found):
            message = f"aero: the shards of all {len(index)} tensors are in the parts of a set"
            check.note(rules.ELSEWHERE, None, message)
            return
        check.rows(
            tensors.present, rules.SHARD, index.where,
            lambda row: f"{index.what(row)}: there is no chunk WTSH {shard_name(int(index.shards[row]))!r}",
        )  # fmt: skip
