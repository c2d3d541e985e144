"""Writing the plan of a conversion as a file or a folder, and the size of the result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from holdall.base import platform
from holdall.base.progress import Progress
from holdall.sink import write_file, write_folder
from holdall.sink.destination import check_file, check_folder, resolve
from holdall.sink.plan import FolderPlan, Plan, Results

__all__ = ["check_target", "free_pieces", "measure_size", "plans_of", "predict_size", "write_plan"]


def check_target(dst: str | os.PathLike[str], plan: Plan | FolderPlan) -> None:
    """Raise if :func:`write_plan` would not write over what is at ``dst``."""
    target = resolve(dst)
    if isinstance(plan, Plan):
        check_file(target, dst)
    else:
        check_folder(target, dst)


def write_plan(
    dst: str | os.PathLike[str],
    plan: Plan | FolderPlan,
    *,
    fsync: bool,
    progress: Progress | None,
    approve: Callable[[Path, Results], None],
    clobber: bool = True,
) -> None:
    """Write ``plan``. ``approve`` is called before the rename; if it raises, nothing is replaced."""
    if isinstance(plan, Plan):
        write_file(dst, plan, fsync=fsync, progress=progress, approve=approve, clobber=clobber)
    else:
        write_folder(dst, plan, fsync=fsync, progress=progress, approve=approve, clobber=clobber)


def measure_size(path: Path, plan: Plan | FolderPlan) -> int:
    """Return the bytes that were written."""
    files = [path] if isinstance(plan, Plan) else [path / name for name in plan.files]
    return sum(platform.full_path(file).stat().st_size for file in files)


def plans_of(plan: Plan | FolderPlan) -> list[Plan]:
    """Return the plan of each file."""
    return [plan] if isinstance(plan, Plan) else list(plan.files.values())


def predict_size(plan: Plan | FolderPlan) -> int | None:
    """Return the bytes that would be written; None if the size is known only after writing."""
    sizes = [file.size for file in plans_of(plan)]
    return None if None in sizes else sum(size or 0 for size in sizes)


def free_pieces(plan: Plan | FolderPlan) -> None:
    """Free the headers and tables of a plan that is written: reading the file back needs the memory."""
    for file in plans_of(plan):
        file.pieces.clear()
