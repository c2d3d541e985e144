"""Writing over the file that is being read: the old file stays open until the new one is complete.

Two cases are refused: a result that holds less than its source, whose only copy would be gone, and one file of a set,
since the other files of the set refer to it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path

from holdall.base import platform
from holdall.base.text import file_text, list_text
from holdall.errors import UnsupportedError
from holdall.format import registry
from holdall.model.dtypes import UNSIGNED_ZERO, DType, float_info
from holdall.model.encodings import Encoding
from holdall.model.forms import Form
from holdall.model.model import Model
from holdall.model.table import TensorTable
from holdall.source import Source

_NAMED = 5

__all__ = ["find_source", "list_narrowing", "refuse_clobber", "refuse_in_place"]


def refuse_clobber(dst: str | os.PathLike[str], clobber: bool) -> None:
    """Raise FileExistsError if ``dst`` exists and ``clobber`` is False."""
    if not clobber and os.path.lexists(platform.full_path(dst)):
        raise FileExistsError(errno.EEXIST, "exists already, and is not to be replaced", os.fspath(dst))


def refuse_in_place(models: Iterable[Model], dst: str | os.PathLike[str], lost: Sequence[str]) -> None:
    """Raise UnsupportedError if ``dst`` is a source, and is part of a set or would lose what ``lost`` lists."""
    for model in models:
        source = find_source(dst, model)
        main = model.sources[0] if model.sources else None
        if main is not None and source is None and _is_asset(dst, model, main):
            raise UnsupportedError(f"{file_text(dst)}: is one of the files of {main.name}, which is being read")
        if source is None or main is None:
            continue
        if source.is_folder:
            raise UnsupportedError(f"{file_text(dst)}: is the folder that is being read")
        if source is not main or (model.format is not None and registry.find(model.format).folder):
            raise UnsupportedError(f"{file_text(dst)}: is one of the files of {main.name}, which is being read")
        if lost:
            raise UnsupportedError(
                f"{file_text(dst)}: is the file that is being read, and what it loses would be gone for good: "
                f"{'; '.join(lost[:5])}. Write to another name, or use --force"
            )


def find_source(dst: str | os.PathLike[str], model: Model) -> Source | None:
    """Find the source of ``model`` that writing ``dst`` would replace, or None."""
    return next((source for source in model.sources if _is_same(_locate(source, model.sources[0]), dst)), None)


def _is_asset(dst: str | os.PathLike[str], model: Model, main: Source) -> bool:
    """Whether writing ``dst`` replaces a file beside the weights, such as the configuration, of a folder."""
    if model.format is None or not registry.find(model.format).folder:
        return False
    path = Path(getattr(main, "path", ""))
    home = path if main.is_folder else path.parent
    return any(_is_same(home / name, dst) for name in model.assets)


def _locate(source: Source, main: Source) -> Path:
    """Return the path of a source. One that is not open yet has only a name relative to the set's ``main`` file."""
    home = Path(getattr(main, "path", ""))
    return Path(getattr(source, "path", (home if main.is_folder else home.parent) / source.name))


def _is_same(path: Path, dst: str | os.PathLike[str]) -> bool:
    """Whether writing ``dst`` replaces the file at ``path``, also under another spelling or through a link."""
    try:
        path, target = platform.full_path(path), platform.full_path(dst)
        if os.path.realpath(path) == os.path.realpath(target):
            return True
        # Of several hard links only the one written to gets the new file; the source keeps the old one.
        return target.samefile(path) and path.stat().st_nlink == 1
    except (OSError, ValueError):  # bytes, a URL, or no such file yet
        return False


def list_narrowing(before: TensorTable, after: TensorTable) -> list[str]:
    """Describe what the tensors of two tables lose by a change of dtype: one text for each pair of dtypes.

    Exact casts lose nothing, and casts to and from integers raise rather than change a value.
    """
    lossy: dict[tuple[str, str], list[str]] = {}
    had, has = before.forms(), after.forms()
    pairs = list(zip(had.codes.tolist(), has.codes.tolist(), strict=True))
    changes = {pair: _find_loss(had.kinds[pair[0]], has.kinds[pair[1]]) for pair in set(pairs)}
    for name, pair in zip(before.names, pairs, strict=True):
        loss = changes[pair]
        if loss is not None:
            lossy.setdefault(loss, []).append(name)
    return [f"{_name_tensors(names)} from {old} to {new}" for (old, new), names in lossy.items()]


def _find_loss(old: Form, new: Form) -> tuple[str, str] | None:
    """The dtypes of a change that loses something; None if it does not."""
    return (str(old.dtype), str(new.dtype)) if prod(old.shape) and not _is_exact(old.dtype, new.dtype) else None


def _name_tensors(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"tensor {names[0]!r} goes"
    return f"tensors {list_text([repr(name) for name in names], most=_NAMED)} go"


def _is_exact(old: DType | Encoding, new: DType | Encoding) -> bool:
    if not isinstance(old, DType) or not isinstance(new, DType):
        return old == new
    if old == new or not {old.kind, new.kind} <= {"float", "complex"}:  # casts of integers raise rather than lose
        return True
    if new.name in UNSIGNED_ZERO:
        return False
    had, has = float_info(old.numpy), float_info(new.numpy)
    return bool(has.nmant >= had.nmant and has.max >= had.max and has.smallest_subnormal <= had.smallest_subnormal)
