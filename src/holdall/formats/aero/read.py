"""Reading AERO: the container, then the index as columns; documents are decoded and payloads read when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from holdall.check import Check
from holdall.formats.aero import integrity, manifest, rules
from holdall.formats.aero.chunks import Chunk, Chunks, Container, content, open_container
from holdall.formats.aero.layout import DTYPES, KNOWN, PACKED, TIDX, WTSH, shard_name
from holdall.formats.aero.proofs import Stated
from holdall.formats.aero.tidx import Index, read_index
from holdall.ledger import Ledger
from holdall.metadata import Metadata
from holdall.model import ColumnTable, ListTable, Model, TensorTable
from holdall.payload import Payload, Range
from holdall.proof import Proof, prove

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["AeroNative", "AeroTable", "TensorNative", "read"]


@dataclass(frozen=True, slots=True)
class TensorNative:
    """What only AERO has of a tensor. ``extra`` is what its entry has under other keys."""

    flags: int = 0
    shard: int = 0
    quant_id: int | None = None
    quant_params: dict[str, Any] | None = None
    hash_b3: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    proof: Proof | None = field(default=None, repr=False, compare=False)

    def prove(self, payload: Payload) -> None:
        """HashError unless ``payload``, where it is the one in the file, has the hash of its entry."""
        proof = self.proof
        if proof is None or not isinstance(payload, Range) or payload.source is not proof.source:
            return
        source = payload.source
        if payload.offset == proof.start and not source.checked and not source.trusted:
            prove([proof])


@dataclass(frozen=True, slots=True, eq=False)
class AeroNative:
    """What only AERO has: its identity, its table of contents, and the documents as they are."""

    uuid: UUID
    container: Container
    stated: Stated

    @property
    def chunks(self) -> Chunks:
        """The table of contents."""
        return self.container.chunks

    @property
    def extras(self) -> list[Chunk]:
        """Chunks of kinds that the format does not define; they are carried along."""
        known = {fourcc.decode() for fourcc in KNOWN}
        return [chunk for chunk in self.chunks if chunk.fourcc not in known]

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The map in MMSG; None without one."""
        return manifest.manifest_map(self.container, Check())

    def content(self, chunk: Chunk) -> bytes:
        """The uncompressed bytes of a metadata chunk, proven by their hash."""
        return content(self.container.source, chunk, Check())


class AeroTable(ColumnTable):
    """The tensors of one file. Those whose shard is not in it have no data."""

    def __init__(
        self, container: Container, index: Index, offsets: NDArray[np.uint64], stored: NDArray[np.bool_]
    ) -> None:
        self.tidx = index
        self.offsets = offsets
        self.present = stored
        super().__init__(
            container.source, index.names, index.dtypes, index.codes, index.shapes, offsets, index.sizes,
            stored=stored, native_of=self.native_of,
        )  # fmt: skip

    @property
    def extents(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        return self.offsets, self.tidx.stored

    def native_of(self, row: int) -> TensorNative:
        """What only AERO has of the tensor in ``row``."""
        index = self.tidx
        digest = index.digest(row)
        return TensorNative(
            index.number("flags", row) or 0,
            int(index.shards[row]),
            index.number("quant_id", row),
            index.params(row),
            None if digest is None else digest.hex(),
            index.extra(row),
            None if digest is None or not self.present[row] else self.proof(row, digest),
        )

    def proof(self, row: int, digest: bytes) -> Proof:
        """The proof of the tensor in ``row``, whose hash is ``digest``."""
        start = int(self.offsets[row])
        stop, what = start + int(self.tidx.stored[row]), self.tidx.what(row)
        return Proof(self._source, start, stop, "blake3", digest, rules.TENSOR_HASH.id, what, stated="hash_b3")


def read(source: Source, check: Check, ledger: Ledger, *, elsewhere: Iterable[int] | None = None) -> Model:
    """The model in ``source``. The index of a set is told of the bytes ``elsewhere``: those of each part."""
    container = open_container(source, check, ledger)
    tensors: TensorTable = ListTable([])
    _own_metadata(container, ledger)
    before = check.abandoned
    with check.scope():
        tensors = _tensors(container, check, ledger, elsewhere)
    if check.abandoned > before:  # the shards belong to somebody even when it is not known to whom
        _own(container, "shard", container.chunks.rows(WTSH), ledger)
    stated = Stated(container, tensors if isinstance(tensors, AeroTable) else None)
    if check.collecting:
        _documents(container, tensors, check, in_set=elsewhere is not None)
        with check.scope():
            integrity.check_control(container, check)
    return Model(
        tensors,
        metadata=Metadata(lambda: manifest.metadata_entries(container, Check(limits=check.limits))),
        native=AeroNative(
            UUID(bytes=container.uuid),
            container,
            stated,
        ),
        format="aero",
        version=(container.header.version_major, container.header.version_minor),
        sources=[source],
        ledger=ledger,
    )


def _tensors(container: Container, check: Check, ledger: Ledger, elsewhere: Iterable[int] | None) -> AeroTable:
    chunk = container.chunks.first(TIDX)
    if chunk is None:
        check.fail(rules.INDEX, container.header.toc_offset, "aero: there is no TIDX chunk, so no tensor can be found")
    if chunk.compressed:
        size = container.source.size
        check.limit_index(chunk.ulen, size, chunk.offset, "aero: TIDX, expanded", elsewhere or ())
    index = read_index(content(container.source, chunk, check), chunk, check)
    if check.collecting:
        index.check_values()
    offsets, present = _places(container.chunks, index, check)
    ledger.payloads("tensor", offsets[present], index.stored[present])
    _overlaps(index, offsets, present, check)
    return AeroTable(container, index, offsets, present)


def _places(chunks: Chunks, index: Index, check: Check) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Where each tensor is in the file, and whether its shard is there at all."""
    shards = {chunk.name: chunk for chunk in chunks.all(WTSH)}
    numbers, inverse = np.unique(index.shards, return_inverse=True)
    found = [shards.get(shard_name(number)) for number in numbers.tolist()]
    starts = np.array([chunk.offset if chunk else 0 for chunk in found], np.uint64)[inverse]
    sizes = np.array([chunk.length if chunk else 0 for chunk in found], np.uint64)[inverse]
    present = np.array([chunk is not None for chunk in found], np.bool_)[inverse]
    inside = (index.offsets <= sizes) & (index.stored <= sizes - np.minimum(index.offsets, sizes))
    check.rows(
        inside | ~present, rules.RANGE, index.where,
        lambda row: f"{index.what(row)}: {index.stored[row]} bytes at {index.offsets[row]} "
                    f"run past {shard_name(int(index.shards[row]))!r}, which has {sizes[row]}",
    )  # fmt: skip
    return starts + np.where(present, index.offsets, np.uint64(0)), present


def _overlaps(index: Index, offsets: NDArray[np.uint64], present: NDArray[np.bool_], check: Check) -> None:
    if not check.wants("strict"):
        return
    used = (present & (index.stored > 0)).nonzero()[0]
    order = used[np.argsort(offsets[used], kind="stable")]
    ends = np.maximum.accumulate(offsets[order] + index.stored[order])
    check.rows(
        offsets[order][1:] >= ends[:-1], rules.TENSORS_OVERLAP, lambda place: int(offsets[order[place + 1]]),
        lambda place: f"{index.what(int(order[place + 1]))} begins inside the tensor before it",
    )  # fmt: skip


def _own_metadata(container: Container, ledger: Ledger) -> None:
    """Every chunk but the shards is a region of its own; the shards belong to their tensors."""
    chunks = container.chunks
    weights = set(chunks.rows(WTSH))
    _own(container, "chunk", [row for row in range(len(chunks)) if row not in weights], ledger)


def _own(container: Container, name: str, rows: list[int], ledger: Ledger) -> None:
    chunks = container.chunks
    table = chunks.table[rows]
    label = chunks.names
    ledger.payloads(name, table["chunk_offset"], table["chunk_length"], lambda n: label[rows[n]])


def _documents(container: Container, tensors: TensorTable, check: Check, *, in_set: bool) -> None:
    """What verification looks at beyond the index: the documents, the types, and where the shards are."""
    found = None
    with check.scope():
        manifest.json_object(container, check)
    with check.scope():
        found = manifest.manifest_map(container, check)
    if not isinstance(tensors, AeroTable):
        return
    index = tensors.tidx
    codes = index.rows.value("dtype")
    known = np.isin(codes, np.array([*DTYPES, PACKED], np.uint64))
    with check.scope():
        check.rows(known, rules.DTYPE, index.where, lambda row: f"{index.what(row)}: dtype {codes[row]} is unknown")
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
