"""One model that is looked at: what was read of its file, and the work that fills in the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.check import Report
from holdall.base.locks import make_lock
from holdall.base.once import computed_once
from holdall.base.progress import Progress
from holdall.base.text import file_text
from holdall.model.model import Model
from holdall.model.payload import SourceRange
from holdall.source.ledger import Ledger
from holdall.viewer.matrix import Matrix
from holdall.viewer.pooling import Pooling
from holdall.viewer.rows import TensorRows
from holdall.viewer.statistics import Statistics
from holdall.viewer.task import Task

if TYPE_CHECKING:
    from holdall.model.tensor import Tensor
    from holdall.operations.examine import Examination
    from holdall.operations.explain import MapSpan
    from holdall.source import Source

__all__ = ["Subject"]

_VERIFIED = 4 << 30  # bytes of a local file that is verified without being asked
_KEPT = 3  # tensors whose heat maps are kept: 12 MB each


class Subject:
    """A model with its name, its findings and its files.

    ``seen`` is what was read of the file; a model that was made in memory has none.
    """

    def __init__(self, model: Model | None, seen: Examination | None = None, name: str = "") -> None:
        self.model = Model() if model is None else model
        self.seen = seen
        self.name = name or _name_model(self.model)
        self.report = seen.report if seen is not None else Report(self.name, self.model.format, "structure")
        self.cut = ""  # what is missing of a truncated file
        self.statistics = Statistics(self.model, waits=self.is_remote)
        self.verification = Task(self._verify, waits=seen is None or self.is_remote or self.size > _VERIFIED)
        self._pooled: dict[int, Pooling] = {}
        self._lock = make_lock()

    @classmethod
    def examine(cls, path: str, **options: Any) -> Subject:
        """Read the file ``path`` as far as possible: header and index, no payload."""
        from holdall.operations.examine import examine

        return cls.of_examination(examine(path, level="full", **options), path)

    @classmethod
    def of_examination(cls, seen: Examination, path: str) -> Subject:
        """The model of a file ``path`` that was examined at level full; the subject closes it."""
        from holdall.operations.truncated import find_truncation

        if seen.format is None:
            seen.close()
            raise seen.first_error()
        model, cut = seen.model, ""
        truncation = None if seen.report.ok else find_truncation(seen)
        if truncation is not None:
            model = truncation.model or model
            cut = f"cut short: {truncation.size:,} of {truncation.needs:,} bytes are here"
        subject = cls(model, seen, file_text(path))
        subject.cut = cut
        return subject

    def demand_tensors(self) -> None:
        """Raise what kept the file from being read, if nothing of its index could be."""
        if self.seen is not None and not self.report.ok and not self.model.tensors and not self.cut:
            error = self.seen.first_error()
            error.file = self.name
            raise error

    @property
    def title(self) -> str:
        """The last part of the name."""
        return self.name.rstrip("/").rpartition("/")[2] or self.name

    @property
    def files(self) -> Sequence[Source]:
        """The files of the model; a folder is not one of them."""
        found = [source for source in self.model.sources if not source.is_folder]
        if not found and self.seen is not None and not self.seen.source.is_folder:
            found = [self.seen.source]
        return found

    @property
    def size(self) -> int:
        """The bytes of all files, or of the tensors of a model in memory."""
        return sum(source.size for source in self.files) or self.model.nbytes

    @property
    def is_remote(self) -> bool:
        """Whether bytes come over a network: then nothing is read that no page shows."""
        return any(source.is_remote for source in self.files)

    @property
    def received(self) -> int | None:
        """Bytes fetched so far; None for local files."""
        if not self.is_remote:
            return None
        return sum(getattr(source, "received", 0) for source in self.files)

    def ledger(self, source: Source) -> Ledger:
        """Who owns the bytes of one of the files."""
        ledger = self.seen.ledger if self.seen is not None else self.model.ledger
        if ledger is None:
            return Ledger()
        return next((inner for member, inner in ledger.members if member is source), ledger)

    def locate(self, tensor: Tensor) -> tuple[int, int] | None:
        """The number of the file and the first byte of a tensor; None if it is no plain range of a file."""
        payload = tensor.payload
        if not isinstance(payload, SourceRange):
            return None
        for number, source in enumerate(self.files):
            if source is payload.source or source.name == payload.source.name:
                return number, payload.offset
        return None

    def find_change(self) -> str:
        """Say that a local file was changed since it was opened; empty if none was."""
        from holdall.source import FileSource

        for source in self.files:
            if isinstance(source, FileSource) and _is_changed(source):
                return f"{file_text(source.name)} has changed on disk since it was opened: start the viewer again"
        return ""

    @computed_once
    def rows(self) -> TensorRows:
        """The table of the tensors."""
        return TensorRows(self)

    def pool(self, row: int) -> Pooling:
        """The heat maps of one tensor. Those of the last few tensors are kept."""
        with self._lock:  # the parts of a page ask at once, and share one
            found = self._pooled.pop(row, None) or Pooling(Matrix(self.model.tensors[row]))
            self._pooled[row] = found
            while len(self._pooled) > _KEPT:
                del self._pooled[next(iter(self._pooled))]
            return found

    @computed_once
    def maps(self) -> dict[int, list[MapSpan]]:
        """The ranges of each file that was asked for, kept by its number."""
        return {}

    def map(self, number: int) -> list[MapSpan]:
        """The ranges of the file ``number`` with their owners, in order."""
        from holdall.operations.explain import map_file

        if number not in self.maps:
            source = self.files[number]
            self.maps[number] = list(map_file(self.ledger(source), source))
        return self.maps[number]

    def close(self) -> None:
        """End the work, and close the files that were opened here."""
        self.statistics.task.end()
        self.verification.end()
        if self.seen is not None:
            self.seen.close()

    def _verify(self, progress: Progress) -> None:
        if self.seen is not None:
            self.seen.audit(progress)


def _name_model(model: Model) -> str:
    return file_text(model.sources[0].name) if model.sources else "a model in memory"


def _is_changed(source: Any) -> bool:
    try:
        with source.lend():
            pass
        status = source.path.stat()
    except Exception:  # whatever is wrong with it, it is not the file that was opened
        return True
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) != tuple(source.identity[2:])
