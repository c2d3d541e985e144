"""Checking the hashes of a set: the SHA-256 of every file, and the hashes inside its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.base.locks import make_lock
from holdall.base.parallel import map_in_order, thread_count, use_threads
from holdall.errors import FormatError
from holdall.format.aero.audit import PayloadHashes, collect_hashes, report_damage
from holdall.format.aeroset import rules
from holdall.format.aeroset.document import SetFile
from holdall.format.aeroset.part import SetPart
from holdall.format.aeroset.read import AerosetNative
from holdall.model.model import Model
from holdall.source import Source
from holdall.source.digests import Tap
from holdall.source.range_hashing import digest_ranges

if TYPE_CHECKING:
    from holdall.format.base import OnProgress

__all__ = ["audit"]

_SMALL = buffer_size(1 << 20)  # bytes of a set up to which threads do not pay
_WHOLE = "file"  # the name of the tap over all of a file


def audit(model: Model, check: Check, on_progress: OnProgress) -> None:
    """Check the SHA-256 of every file of the set and the hashes inside every part, in one pass over each file."""
    native = model.native
    assert isinstance(native, AerosetNative)
    jobs = [_collect(part, check) for part in native.parts]
    if native.index is not None and native.document.index is not None:
        jobs.append(_Job(native.document.index, native.index.sources[0]))
    results = _digest_all(jobs, on_progress)
    for job, found in zip(jobs, results, strict=True):
        if not isinstance(found, FormatError) and found[_WHOLE].hex() != job.file.sha256:
            message = f"aeroset: the SHA-256 of {job.file.path!r} is {found[_WHOLE].hex()}, "
            check.note(rules.HASH, job.file.locate("sha256"), f"{message}the index says {job.file.sha256}")
    for job, found in zip(jobs, results, strict=True):
        if job.hashes is not None:
            with check.inside(job.file.path), check.scope():
                if isinstance(found, FormatError):
                    raise found
                report_damage(job.hashes, found, check, on_progress)


@dataclass(frozen=True, slots=True)
class _Job:
    """A file of the set to be read once. ``hashes`` is None for the index, and for a part that cannot be opened."""

    file: SetFile
    source: Source
    hashes: PayloadHashes | None = None

    def run(self, on_progress: OnProgress) -> dict[str, Any] | FormatError:
        """Digest the file. The error of a part that cannot be opened is in the report already."""
        taps = [Tap(_WHOLE, "sha256", 0, self.file.size), *(self.hashes.taps() if self.hashes else ())]
        try:
            return digest_ranges(self.source, taps, on_progress)
        except FormatError as error:
            return error


def _collect(part: SetPart, check: Check) -> _Job:
    hashes = None
    with check.inside(part.file.path), check.scope():
        if part.known is not None:
            hashes = collect_hashes(part.known, check)
    return _Job(part.file, part.source, hashes)


def _digest_all(jobs: Sequence[_Job], on_progress: OnProgress) -> list[dict[str, Any] | FormatError]:
    """Digest all files, some at the same time: the SHA-256 of one file keeps only one core busy."""
    if sum(job.file.size for job in jobs) <= _SMALL:
        return [job.run(on_progress) for job in jobs]
    lock = make_lock()

    def count(size: int) -> None:
        with lock:
            on_progress(size)

    def run(job: _Job) -> dict[str, Any] | FormatError:
        with use_threads(max(1, thread_count() // len(jobs))):
            return job.run(count)

    return list(map_in_order(run, jobs))
