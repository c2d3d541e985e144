"""Reading a conversion back and comparing it, so that reports describe the file that was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base import platform
from holdall.base.check import Check
from holdall.errors import ContentError
from holdall.format.base import Format
from holdall.limits import Limits
from holdall.model.equal_tensors import same_bytes
from holdall.model.metadata import is_carried_key, same_value
from holdall.model.model import Model
from holdall.operations.convert.adapt import to_text
from holdall.operations.convert.report import Loss
from holdall.source import source_of
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.model.forms import Form
    from holdall.model.table import TensorTable

__all__ = ["compare_content", "compare_tensors", "read_back", "refuse_foreign_files"]

_NAMED = 5  # an error names at most this many tensors
_ABSENT = "is not in what was written"
_NOTHING = object()
_DEPTH = 64  # at most this many dots of a key are tried
_DIGITS = 20  # a key with more digits is not a number; Python refuses to convert thousands of them


def read_back(target: Format, path: Path, parts: Sequence[str], limits: Limits) -> Model:
    """Open the model that was written to one file, or to the ``parts`` of a split. The caller closes it."""
    if not parts:
        return _read(target, path, limits)
    first = _read(target, path / parts[0], limits)
    if len(parts) == 1 or len(first.sources) > 1:  # the format opens the other parts with the first
        return first
    models = [first, *(_read(target, path / name, limits) for name in parts[1:])]
    return Model(
        [tensor for model in models for tensor in model.tensors],
        metadata=first.metadata,
        assets=first.assets,
        format=first.format,
        sources=[source for model in models for source in model.sources],
    )


def _read(target: Format, path: Path, limits: Limits) -> Model:
    source = source_of(path, map=False)
    try:
        return target.read(source, Check(limits=limits), Ledger())
    except BaseException:
        source.close()
        raise


def refuse_foreign_files(written: Model, path: Path) -> None:
    """Raise ContentError if the model at ``path`` needs a file that was not written with it."""
    own = platform.full_path(path).parts[1:]  # the first part of a long path is spelled in several ways
    for source in written.sources:
        place: Path = getattr(source, "path", path)
        if platform.full_path(place).parts[1 : len(own) + 1] != own:
            raise ContentError(f"what was written needs {place.name}, which is no part of it")


def compare_tensors(expected: TensorTable, written: TensorTable) -> list[str]:
    """Describe each tensor whose dtype the writer changed. Raises ContentError for a missing one or another shape."""
    rows = {name: row for row, name in enumerate(written.names)}
    old, new = expected.forms(), [*written.forms().kinds, None]
    codes = np.append(written.forms().codes, np.uint32(len(new) - 1))  # -1, the last, is that of a missing one
    found = codes[np.fromiter((rows.get(name, -1) for name in expected.names), np.intp, len(expected))].tolist()
    pairs = list(zip(old.codes.tolist(), found, strict=True))
    changed = {pair: change for pair in set(pairs) if (change := _compare_forms(old.kinds[pair[0]], new[pair[1]]))}
    named = [(name, changed[pair]) for name, pair in zip(expected.names, pairs, strict=True) if pair in changed]
    wrong = [f"{name!r}, {what}" for name, (is_wrong, what) in named if is_wrong]
    if len(rows) != len(expected):
        wrong.append(f"there are {len(rows)} tensors instead of {len(expected)}")
    if wrong:
        raise ContentError(f"what was written is not what was asked for: {'; '.join(wrong[:_NAMED])}")
    return [f"tensor {name!r} {what}" for name, (_, what) in named]


def _compare_forms(old: Form, new: Form | None) -> tuple[bool, str] | None:
    """Say how what was written, None if nothing was, differs from what was asked for, and whether that is wrong."""
    asked = f"{old.dtype}{list(old.shape)} of {old.size or 0} bytes"
    if new is None:
        return True, f"{asked}, is missing"
    retyped = str(old.dtype) != str(new.dtype)
    as_vector = (old.shape, new.shape) == ((), (1,))  # a writer option of some formats
    if (new.shape != old.shape and not as_vector) or (not retyped and (old.size or 0) != (new.size or 0)):
        return True, f"{asked}, is {new.dtype}{list(new.shape)} of {new.size or 0} bytes"
    if retyped:
        return False, f"goes from {old.dtype} to {new.dtype}"
    return (False, "goes from no dimensions to the shape [1]") if as_vector else None


def compare_content(
    source: Model, written: Model, planned: Iterable[Loss], merged: Mapping[str, str] | None = None
) -> list[Loss]:
    """List the metadata and assets of ``source`` that were not ``written``, each with its ``planned`` reason.

    ``merged`` are the assets whose content is in others, each with the place.
    """
    planned = list(planned)
    reasons = {(loss.part, loss.name): loss.reason for loss in planned}
    untyped = {loss.name: loss for loss in planned if (loss.part, loss.fate) == ("metadata", "changed")}
    found: list[Loss] = [loss for loss in planned if loss.part == "native"]
    for key, value in source.metadata.items():
        if is_carried_key(key):
            continue
        now = _look_up(written.metadata, key)
        if now is _NOTHING:
            found.append(Loss("metadata", key, reasons.get(("metadata", key), _ABSENT), "left out"))
        elif not same_value(value, now):
            text = isinstance(now, str) and to_text(value) == now
            reason = reasons.get(("metadata", key), "is stored as text" if text else "is written otherwise")
            found.append(Loss("metadata", key, reason, "text" if text else "changed"))
        elif key in untyped:  # the same values, of another type
            found.append(untyped[key])
    for name in source.assets:
        if name not in written.assets and merged and name in merged:
            found.append(Loss("asset", name, merged[name], "changed"))
        elif name not in written.assets:
            found.append(Loss("asset", name, reasons.get(("asset", name), _ABSENT), "left out"))
        elif not same_bytes(source.assets.payload(name), written.assets.payload(name)):
            found.append(Loss("asset", name, f"{written.format}'s writer writes it anew", "changed"))
    return found


def _look_up(metadata: Mapping[Any, Any], key: str) -> Any:
    """Find the value of ``key``. The target may store a dotted key as a path into nested mappings."""
    if key in metadata:
        return metadata[key]
    dots = [at for at, letter in enumerate(key) if letter == "."]
    for at in reversed(dots[:_DEPTH]):
        inside = _find(metadata, key[:at])
        if isinstance(inside, Mapping):
            return _look_up(inside, key[at + 1 :])
    return _find(metadata, key)


def _find(metadata: Mapping[Any, Any], key: str) -> Any:
    """The value of ``key``, or of the number that it writes in decimal; _NOTHING where there is neither."""
    if key in metadata:
        return metadata[key]
    return metadata.get(int(key), _NOTHING) if len(key) < _DIGITS and key.isdecimal() else _NOTHING
