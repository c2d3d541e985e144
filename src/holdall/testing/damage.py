"""Damages files in thousands of ways, and reads each in every way."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

import holdall
from holdall.base.check import UNOWNED, Finding, Level
from holdall.errors import FormatError, UnsupportedError
from holdall.format import registry
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.examine import Examination, examine
from holdall.operations.explain import expand, list_records, map_file
from holdall.operations.outline import Opener
from holdall.operations.truncated import find_truncation
from holdall.source import Openable, Source
from holdall.source.ledger import Ledger

__all__ = ["Sample", "changes", "exercise", "probe", "truncations"]

T = TypeVar("T")

_EXPLAINED = 2  # records of a table to expand
_ITEMS = 50  # parts of a document to open
_CLOSELY = 64  # tensors of a model to read in pieces and in part too, if they are small
_SMALL = 1 << 12  # bytes
_PIECE = 64
_MAIN = ""  # the one file of a format that is not a folder


@dataclass(frozen=True)
class Sample:
    """One small file, or all files of a folder by relative name.

    ``frame`` has, for each file, the offsets of headers and tables: the bytes worth damaging one by one.
    """

    files: Mapping[str, bytes]
    frame: Mapping[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, format: str | None = None) -> Sample:
        """Read the file or folder at ``path``."""
        if path.is_dir():
            inside = [file for file in sorted(path.rglob("*")) if file.is_file()]
            files = {file.relative_to(path).as_posix(): file.read_bytes() for file in inside}
        else:
            files = {_MAIN: path.read_bytes()}
        with holdall.open(path, format=format) as model:
            payloads = _payload_bytes(model)
        return cls(files, {n: [at for at in range(len(data)) if at not in payloads] for n, data in files.items()})

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(map(len, self.files.values()))

    def replace(self, name: str, data: bytes) -> Sample:
        """Return the sample with other bytes in one file."""
        return Sample({**self.files, name: data}, self.frame)

    def openable(self, scratch: Path) -> bytes | Path:
        """Return what ``holdall.open`` takes: bytes, or a new folder at ``scratch``."""
        if list(self.files) == [_MAIN]:
            return self.files[_MAIN]
        shutil.rmtree(scratch, ignore_errors=True)
        for name, data in self.files.items():
            file = scratch / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return scratch


def _payload_bytes(model: Model) -> set[int]:
    """Return the offsets of payload bytes, if they are all in the file that was opened."""
    ledger = model.ledger
    if ledger is None or not model.sources or model.sources[0].is_folder:
        return set()
    owners = [owner for owner in ledger.owners if owner.kind == "payload"]
    pairs = [pair for owner in owners for pair in zip(owner.starts.tolist(), owner.sizes.tolist(), strict=True)]
    return {at for start, size in pairs for at in range(start, start + size)}


def truncations(sample: Sample, cases: int) -> Iterator[tuple[str, Sample]]:
    """Yield the sample cut at every length, or at ``cases`` lengths, the first and the last among them."""
    places = [(name, length) for name, data in sample.files.items() for length in range(len(data))]
    for name, length in _some(places, cases):
        yield f"{name} cut to {length} bytes", sample.replace(name, sample.files[name][:length])


def changes(sample: Sample, cases: int) -> Iterator[tuple[str, Sample]]:
    """Yield the sample with one byte of its frame changed: each bit flipped, all zero, all one; ``cases`` in all."""
    edits = [
        (name, at, value)
        for name, data in sample.files.items()
        for at in sample.frame.get(name, range(len(data)))
        for value in sorted({*(data[at] ^ (1 << bit) for bit in range(8)), 0x00, 0xFF} - {data[at]})
    ]
    for name, at, value in _some(edits, cases):
        changed = bytearray(sample.files[name])
        changed[at] = value
        what = f"{name} byte {at:#x}: {sample.files[name][at]:#04x} -> {value:#04x}"
        yield what, sample.replace(name, bytes(changed))


def _some(cases: list[T], limit: int) -> list[T]:
    if len(cases) <= limit:
        return cases
    chosen = random.Random(len(cases)).sample(range(1, len(cases) - 1), max(limit - 2, 0))
    return [cases[0], *(cases[place] for place in sorted(chosen)), cases[-1]]


def probe(what: Openable | Callable[[], Source], format: str | None) -> bool:
    """Read a file, which may be damaged, in every way; return True if it opened and all of it could be read.

    It is opened, listed, read tensor by tensor, whole and in part, explained and verified. FormatError (LimitError is
    one) and UnsupportedError are correct answers; any other exception is a bug and passes through. Opening and
    verifying must agree on the structure, except for documents that opening does not read. A source is closed after
    use, so pass a function that makes one.
    """
    refused = None
    try:
        model = holdall.open(what() if callable(what) else what, format=format)
    except (FormatError, UnsupportedError) as error:
        whole = opened = False
        refused = getattr(error, "rule", None)  # may be of level full: the checksum of a document that opening reads
    else:
        opened = True
        with model:
            whole = exercise(model)
    with examine(what() if callable(what) else what, level="strict", format=format) as seen:
        sound = not any(_breaks_structure(f) or f.rule == refused for f in seen.report.findings)
        _explain(seen)
        seen.audit()
        find_truncation(seen)
    defers = seen.format is not None and seen.format.defers_documents
    assert sound == opened or (opened and defers), (
        f"open {'accepts' if opened else 'refuses'} it, verify says {seen.report.findings}"
    )
    assert opened or not seen.report.ok, "open refuses it, verify at level strict does not"
    return whole


def _breaks_structure(finding: Finding) -> bool:
    return finding.severity in ("error", "unread") and _levels().get(finding.rule, "structure") == "structure"


@cache
def _levels() -> dict[str, Level]:
    """Return the level of every rule of all formats: a member of a set may have another format."""
    rules = (rule for name in registry.names() for rule in registry.find(name).rules)
    return {UNOWNED.id: UNOWNED.level, **{rule.id: rule.level for rule in rules}}


def _explain(seen: Examination) -> None:
    """Expand the first records of every table, and walk the map of every file."""
    members = [] if seen.source.is_folder else [(seen.source, seen.ledger)]
    for source, ledger in (*members, *seen.ledger.members):
        for owner in ledger.owners:
            for record in islice(list_records(owner), _EXPLAINED):
                repr(record.label)
                with suppress(FormatError):  # a damaged table may claim bytes beyond the end
                    expand(record, source)
        reached = 0
        for span in map_file(ledger, source):
            assert span.start <= reached or span.start >= source.size, f"the map has a hole before {span}"
            reached = max(reached, span.stop)
        assert reached >= source.size, f"the map ends at {reached} of {source.size}"
    _open_documents(seen)


def _open_documents(seen: Examination) -> None:
    """Open the first documents of every table; each part lies where it says."""
    opener = Opener(seen, _ITEMS)
    for owner in () if seen.source.is_folder else seen.ledger.owners:
        for record in islice(list_records(owner), _EXPLAINED):
            opened = opener.open(record)
            for item in opened.items if opened is not None else ():
                assert item.start <= item.stop, f"{item} ends before it begins"
                if opened is not None and not opened.outline.packing:
                    stored = seen.source.read(item.start, len(item.data))
                    assert stored == item.data, f"{item} is not what the file has there"
    opener.open_carried()


def _read(tensor: Tensor, closely: bool) -> None:
    """Read a tensor at once; ``closely`` also in pieces and in part, which must give the same."""
    raw = tensor.raw()
    assert len(raw) == tensor.nbytes
    closely &= tensor.nbytes <= _SMALL
    if closely and tensor.payload is not None:
        pieces = list(tensor.payload.chunks(_PIECE))  # as a list: a piece that is kept must stay unchanged
        assert b"".join(pieces) == raw, f"{tensor.name!r} differs when read in pieces"
        assert tensor.payload.read() == raw, f"{tensor.name!r} differs when read as a document"
    with suppress(UnsupportedError):
        values = tensor.numpy()
        assert values.shape == tensor.shape
        if closely and tensor.shape and tensor.shape[0]:
            last = tensor[-1:]
            assert last.tobytes() == values[-1:].tobytes(), f"the last row of {tensor.name!r} differs when read alone"


def exercise(model: Model) -> bool:
    """Ask an open model for everything; return False if something in it was damaged."""
    whole = True
    for number, tensor in enumerate(model.tensors):
        repr(tensor)
        if tensor.has_data:
            try:
                _read(tensor, number < _CLOSELY)
            except FormatError:
                whole = False
    model.tensors.totals()
    slots: tuple[Callable[[], object], ...] = (
        lambda: dict(model.metadata),
        lambda: dict(model.assets),
        lambda: (model.sizevars, model.vocab, model.config),
    )
    for slot in slots:
        try:
            slot()
        except (FormatError, UnsupportedError):
            whole = False
    if model.sources and isinstance(model.ledger, Ledger):
        for start, stop in model.ledger.gaps(model.sources[0].size):
            assert 0 <= start < stop <= model.sources[0].size
    return whole
