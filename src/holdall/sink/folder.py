"""Writes the plans of a folder into a temporary folder, which is renamed when all files are complete."""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from holdall.base import platform
from holdall.base.progress import Progress
from holdall.errors import ContentError
from holdall.sink.destination import Approve, ask_approval, check_folder, check_name, check_space, resolve
from holdall.sink.output import Output, rename_error
from holdall.sink.plan import FolderPlan, Late, Plan, Results
from holdall.sink.resumable import INSIDE, ResumableStaging
from holdall.sink.staging import Staging, sync_folder
from holdall.sink.writer import PlanWriter
from holdall.source import split_contained
from holdall.source.descriptors import with_room

__all__ = ["write_folder"]

_FILES = 4  # that are written at the same time


def write_folder(
    path: str | os.PathLike[str],
    plan: FolderPlan,
    *,
    fsync: bool = True,
    progress: Progress | None = None,
    approve: Approve | None = None,
    clobber: bool = True,
) -> None:
    """Write the files of ``plan`` into a temporary folder, which is renamed when all of them are complete.

    ``approve`` gets the folder and the results of all taps, by ``"file/tap"``, before that, and may raise. A folder
    that has files is never replaced; without ``clobber`` an empty one is not either.
    """
    target = resolve(path, max([INSIDE, *map(len, plan.files)]))
    check_folder(target, path)
    _check_names(plan.files)
    least = sum(file.cursor for file in plan.files.values())
    total = None if any(file.size is None for file in plan.files.values()) else least
    with ResumableStaging(target, path) if plan.is_resumable else Staging(target, path) as staging:
        staging.make_folder()
        held = 0
        if isinstance(staging, ResumableStaging):
            held = staging.keep_only([name for name, file in plan.files.items() if file.identify is not None])
        check_space(target, path, least - held)
        writer = _FolderWriter(staging, target, fsync, progress, total)
        folders = {parent for name in plan.files for parent in PurePosixPath(*split_contained(name)).parents}
        for inside in sorted(folders)[1:]:  # the first is the folder itself
            writer.make_folder(inside)
        for group in _groups(plan):
            writer.write({name: plan.files[name] for name in group})
        if fsync:
            for inside in folders:
                sync_folder(staging.path / inside, path)
        ask_approval(approve, staging.path, writer.results, path)
        staging.widen_folder()
        staging.publish(clobber)
    if fsync:
        sync_folder(target.parent, path)


def _check_names(names: Iterable[str]) -> None:
    """Raise ContentError where the system would make other files than those of ``names``."""
    seen: dict[str, str] = {}
    for name in names:
        check_name(name, *name.split("/"))
        for path in (name, *map(str, PurePosixPath(name).parents)):
            other = seen.setdefault(_fold(path), path)
            if other != path:
                what = "differ in case or in the form of letters only, and would be one on this system"
                raise ContentError(f"{other!r} and {path!r} {what}")


def _fold(name: str) -> str:
    """What is the same for all spellings that the file system takes for one name."""
    if not platform.IGNORES_CASE:
        return name
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def _groups(plan: FolderPlan) -> Iterator[list[str]]:
    """The files in order, in groups whose files need no result of each other."""
    group: list[str] = []
    for name, file in plan.files.items():
        needs = {need for piece in file.pieces if isinstance(piece, Late) for need in piece.needs}
        needs.update(need for tail in file.tails for need in tail.needs)
        owners = {need[:at] for need in needs for at, letter in enumerate(need) if letter == "/"}
        if not owners.isdisjoint(group):
            yield group
            group = []
        group.append(name)
    if group:
        yield group


class _FolderWriter:
    """Writes the files of a folder, several at the same time. When one fails or is interrupted, all stop."""

    def __init__(
        self, staging: Staging, target: Path, fsync: bool, progress: Progress | None, total: int | None
    ) -> None:
        self._staging, self._folder, self._target = staging, staging.path, target
        self._fsync = fsync
        self._progress, self._total = progress, total
        self._known: dict[str, Any] = {}  # results of the files that are written, by "file/tap"
        self._done: dict[str, int] = {}  # bytes, by file
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def results(self) -> Results:
        """The results of all files that are written."""
        return self._known

    def make_folder(self, inside: PurePosixPath) -> None:
        """Make a folder, before threads write files: after an interrupt one of them could make it too late."""
        try:
            (self._folder / inside).mkdir(exist_ok=isinstance(self._staging, ResumableStaging))
        except OSError as error:
            raise rename_error(error, self._target / inside) from error

    def write(self, files: Mapping[str, Plan]) -> None:
        """Write files that need no results of each other."""
        # One by one what is fetched: its requests run in parallel, and an interrupt leaves less that is half done.
        count = 1 if isinstance(self._staging, ResumableStaging) else min(len(files), _FILES)
        pool = ThreadPoolExecutor(count, "holdall-file")
        try:
            members = {name: pool.submit(copy_context().run, self._write, name, plan) for name, plan in files.items()}
            failed = [each.exception() for each in wait(members.values(), return_when=FIRST_EXCEPTION).done]
            if any(failed):  # others only stopped because of it, and one of those may have ended first
                self._stopped = True
                failed = [each.exception() for each in wait(members.values()).done]
            for error in sorted(filter(None, failed), key=lambda error: isinstance(error, CancelledError)):
                raise error
            for name, member in members.items():
                self._known.update({f"{name}/{key}": value for key, value in member.result().items()})
        except BaseException:
            self._stopped = True
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _write(self, name: str, plan: Plan) -> dict[str, Any]:
        """Write one file. Returns its results and its size."""
        self._check_stopped()
        try:
            fd, written = self._open(name, plan)
            with Output(fd, self._target / name, self._fsync) as output:
                results = dict(PlanWriter(output, plan, self._known, partial(self._step, name), written).run())
                output.set_mode(platform.new_mode((self._folder / name).parent))  # the folder is still private
                results["size"] = output.finish()
            self._check(name, plan, results)
        except BaseException:
            self._stopped = True  # before a thread takes the next file
            raise
        return results

    def _open(self, name: str, plan: Plan) -> tuple[int, int]:
        """Open one file. Returns the descriptor, and the bytes that are there already."""
        if isinstance(self._staging, ResumableStaging) and plan.identify is not None:
            return self._staging.open_file(name, plan.identify(), plan.size)
        try:
            return with_room(name, lambda: platform.open_new(self._folder / name)), 0
        except OSError as error:
            raise rename_error(error, self._target / name) from error

    def _check(self, name: str, plan: Plan, results: Results) -> None:
        if plan.check is not None:
            try:
                plan.check(results)
            except BaseException:
                if isinstance(self._staging, ResumableStaging):
                    self._staging.discard_file(name)
                raise

    def _step(self, name: str, done: int, _: int | None) -> None:
        self._check_stopped()
        if self._progress is not None:
            with self._lock:
                self._done[name] = done
                self._progress(sum(self._done.values()), self._total)

    def _check_stopped(self) -> None:
        if self._stopped:
            raise CancelledError
