"""Writes a plan to a temporary file beside its destination, which is renamed when it is complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from holdall.base import platform
from holdall.base.progress import Progress
from holdall.errors import FormatError
from holdall.sink.destination import Approve, ask_approval, check_file, check_space, resolve
from holdall.sink.plan import Plan
from holdall.sink.resumable import INSIDE, ResumableStaging
from holdall.sink.staging import Staging, sync_folder
from holdall.sink.writer import PlanWriter

__all__ = ["write_file"]


def write_file(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    fsync: bool = True,
    progress: Progress | None = None,
    approve: Approve | None = None,
    clobber: bool = True,
    follow: bool = True,
) -> None:
    """Write ``plan`` to ``path``. The old file stays until the new one is complete, and after any error.

    ``approve`` gets the new file and the results of its taps before it replaces the old one, and may raise. Without
    ``clobber`` nothing is replaced. Without ``follow``, for names that come out of a file, a link at ``path`` is
    replaced, not the file that it points to.
    """
    if plan.identify is not None:
        _continue_file(path, plan, plan.identify, fsync, progress, approve, clobber)
        return
    target = resolve(path, follow=follow)
    old = check_file(target, path)
    check_space(target, path, plan.cursor)
    with Staging(target, path) as staging:
        output = staging.make_file(fsync)
        results = PlanWriter(output, plan, {}, progress).run()
        output.finish()
        ask_approval(approve, staging.path, results, path)
        output.set_mode(_find_mode(target, old))
        staging.publish(clobber)
    if fsync:
        sync_folder(target.parent, path)


def _continue_file(
    path: str | os.PathLike[str],
    plan: Plan,
    identify: Callable[[], str],
    fsync: bool,
    progress: Progress | None,
    approve: Approve | None,
    clobber: bool,
) -> None:
    """Write a plan that may be interrupted and continued; its results have the bytes that were there as "continued"."""
    target = resolve(path, INSIDE)
    old = check_file(target, path)
    with ResumableStaging(target, path) as staging:
        output, written = staging.make_or_continue(identify(), plan.cursor, fsync)
        check_space(target, path, plan.cursor - written)
        results = PlanWriter(output, plan, {}, progress, written).run()
        output.finish()
        try:
            ask_approval(approve, staging.path, {**results, "continued": written}, path)
        except FormatError:  # what was there, or what came, is wrong
            staging.discard_file("")
            raise
        output.set_mode(_find_mode(target, old))
        staging.publish(clobber)
    if fsync:
        sync_folder(target.parent, path)


def _find_mode(target: Path, old: os.stat_result | None) -> int | None:
    """The permissions of the complete file: those of the one that it replaces, or those of a new one."""
    return platform.new_mode(target.parent) if old is None else stat.S_IMODE(old.st_mode)
