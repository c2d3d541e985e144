"""Writing over what is being read: safe as such, since the old file stays open until the new one is whole.

What is not safe is a result that holds less than its source, whose only copy would be gone, and a file of a set whose
other files go on pointing into it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdall import registry
from holdall.dtypes import UNSIGNED_ZERO, DType, float_info
from holdall.encodings import Encoding
from holdall.errors import UnsupportedError
from holdall.model import Model
from holdall.source import Source
from holdall.tensor import Tensor

_NAMED = 5

__all__ = ["narrowed", "refuse_clobber", "refuse_in_place", "source_at"]


def refuse_clobber(dst: str | os.PathLike[str], clobber: bool) -> None:
    """FileExistsError when ``dst`` exists and is not to be replaced."""
    if not clobber and os.path.lexists(dst):
        raise FileExistsError(errno.EEXIST, "exists already, and is not to be replaced", os.fspath(dst))


def refuse_in_place(models: Iterable[Model], dst: str | os.PathLike[str], lost: Sequence[str]) -> None:
    """UnsupportedError when ``dst`` is a source and something is ``lost`` by writing over it, or is part of a set."""
    for model in models:
        source = source_at(dst, model)
        if source is None:
            continue
        if source.is_folder:
            raise UnsupportedError(f"{os.fspath(dst)}: is the folder that is being read")
        main = model.sources[0]
        if source is not main or (model.format is not None and registry.find(model.format).folder):
            raise UnsupportedError(f"{os.fspath(dst)}: is one of the files of {main.name}, which is being read")
        if lost:
            raise UnsupportedError(
                f"{os.fspath(dst)}: is the file that is being read, and what it loses would be gone for good: "
                f"{'; '.join(lost[:5])}. Write to another name, or use --force"
            )


def source_at(dst: str | os.PathLike[str], model: Model) -> Source | None:
    """The source of ``model`` that writing ``dst`` would replace, if there is one."""
    return next((source for source in model.sources if _is_same(_path(source, model.sources[0]), dst)), None)


def _path(source: Source, main: Source) -> Path:
    """Where a source is; one of a set that is yet to be opened is known by its name inside the set."""
    home = Path(getattr(main, "path", ""))
    return Path(getattr(source, "path", (home if main.is_folder else home.parent) / source.name))


def _is_same(path: Path, dst: str | os.PathLike[str]) -> bool:
    """Whether writing ``dst`` replaces the file at ``path``: also by another spelling, or through a link."""
    try:
        if os.path.realpath(path) == os.path.realpath(dst):
            return True
        # Of several hard links only the one written to gets the new file; the source keeps the old one.
        return Path(dst).samefile(path) and path.stat().st_nlink == 1
    except (OSError, ValueError):  # no file: bytes, a URL, nothing there yet
        return False


def narrowed(tensors: Iterable[tuple[Tensor, Tensor]]) -> list[str]:
    """What tensors lose, each beside what became of it, by a change of dtype: one for each pair of dtypes.

    Casts that are exact lose nothing, and those to and from integers refuse a value rather than changing it.
    """
    lossy: dict[tuple[str, str], list[str]] = {}
    for old, new in tensors:
        if old.count and not _exact(old.dtype, new.dtype):
            lossy.setdefault((str(old.dtype), str(new.dtype)), []).append(old.name)
    return [f"{_list(names)} from {old} to {new}" for (old, new), names in lossy.items()]


def _list(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"tensor {names[0]!r} goes"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"tensors {', '.join(map(repr, names[:_NAMED]))}{more} go"


def _exact(old: DType | Encoding, new: DType | Encoding) -> bool:
    if not isinstance(old, DType) or not isinstance(new, DType):
        return old == new
    if old == new or not {old.kind, new.kind} <= {"float", "complex"}:  # others refuse what they cannot hold
        return True
    if new.name in UNSIGNED_ZERO:
        return False
    had, has = float_info(old.numpy), float_info(new.numpy)
    return bool(has.nmant >= had.nmant and has.max >= had.max and has.smallest_subnormal <= had.smallest_subnormal)
