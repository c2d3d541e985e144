"""Writing what was planned, and reading it back before it takes its place: reports speak of what is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdall.check import Check
from holdall.errors import ContentError
from holdall.format import Format
from holdall.ledger import Ledger
from holdall.limits import Limits
from holdall.metadata import is_own
from holdall.model import Model
from holdall.operations.convert.express import as_text
from holdall.operations.convert.report import Loss
from holdall.payload import Payload
from holdall.plan import FolderPlan, Plan, Results
from holdall.sink import Progress, write_file, write_folder
from holdall.source import source_of

__all__ = ["compare_content", "compare_tensors", "read_back", "size_of", "size_planned", "write"]

_NAMED = 5
_ABSENT = "is not in what was written"
_NOTHING = object()
_DEPTH = 64  # dots of a key that are tried


def write(
    dst: str | os.PathLike[str],
    plan: Plan | FolderPlan,
    *,
    fsync: bool,
    progress: Progress | None,
    approve: Callable[[Path, Results], None],
    clobber: bool = True,
) -> None:
    """Carry out ``plan``; ``approve`` sees the new file or folder before it takes its name, and may raise."""
    if isinstance(plan, Plan):
        write_file(dst, plan, fsync=fsync, progress=progress, approve=approve, clobber=clobber)
    else:
        write_folder(dst, plan, fsync=fsync, progress=progress, approve=approve, clobber=clobber)


def size_of(path: Path, plan: Plan | FolderPlan) -> int:
    """Bytes of what was written."""
    files = [path] if isinstance(plan, Plan) else [path / name for name in plan.files]
    return sum(file.stat().st_size for file in files)


def size_planned(plan: Plan | FolderPlan) -> int | None:
    """Bytes of what would be written; None when only writing can tell."""
    sizes = [plan.size] if isinstance(plan, Plan) else [file.size for file in plan.files.values()]
    return None if None in sizes else sum(size or 0 for size in sizes)


def read_back(target: Format, path: Path, parts: Sequence[str], limits: Limits) -> Model:
    """The model that was written, of one file or of the ``parts`` of a split. The caller closes it."""
    if not parts:
        return _read(target, path, limits)
    first = _read(target, path / parts[0], limits)
    if len(parts) == 1 or len(first.sources) > 1:  # a format whose parts know each other
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


def compare_tensors(expected: Iterable[tuple[str, str, tuple[int, ...], int]], written: Model) -> list[str]:
    """The tensors whose dtype the writer changed, in words. ContentError where one has another shape, or is missing.

    ``expected`` has name, dtype, shape and bytes of each.
    """
    rows = {tensor.name: (str(tensor.dtype), tensor.shape, tensor.nbytes) for tensor in written.tensors}
    count, narrowed, wrong = 0, [], []
    for name, dtype, shape, nbytes in expected:
        count += 1
        found = rows.get(name)
        if found is None or found[1] != shape or (found[0] == dtype and found[2] != nbytes):
            now = "missing" if found is None else f"{found[0]}{list(found[1])} of {found[2]} bytes"
            wrong.append(f"{name!r}, {dtype}{list(shape)} of {nbytes} bytes, is {now}")
        elif found[0] != dtype:
            narrowed.append(f"tensor {name!r} goes from {dtype} to {found[0]}")
    if len(rows) != count:
        wrong.append(f"there are {len(rows)} tensors instead of {count}")
    if wrong:
        raise ContentError(f"what was written is not what was asked for: {'; '.join(wrong[:_NAMED])}")
    return narrowed


def compare_content(source: Model, written: Model, planned: Iterable[Loss]) -> list[Loss]:
    """What of the metadata and assets of ``source`` is not in what was written; reasons are those that were planned."""
    reasons = {(loss.part, loss.name): loss for loss in planned}
    found: list[Loss] = [loss for loss in planned if loss.part == "native"]
    for key, value in source.metadata.items():
        if is_own(key):
            continue
        known = reasons.get(("metadata", key))
        now = _look_up(written.metadata, key)
        if now is _NOTHING:
            reason = _ABSENT if known is None else known.reason
            found.append(Loss("metadata", key, reason, "left out"))
        elif not _same(value, now):
            text = isinstance(now, str) and as_text(value) == now
            reason = ("is stored as text" if text else "is written otherwise") if known is None else known.reason
            found.append(Loss("metadata", key, reason, "text" if text else "changed"))
    for name in source.assets:
        known = reasons.get(("asset", name))
        if name not in written.assets:
            found.append(Loss("asset", name, _ABSENT if known is None else known.reason, "left out"))
        elif not _same_bytes(source.assets.payload(name), written.assets.payload(name)):
            found.append(Loss("asset", name, f"{written.format}'s writer writes it anew", "changed"))
    return found


def _look_up(metadata: Mapping[Any, Any], key: str) -> Any:
    """The value of ``key``; where a container has become a value, that of the rest of the key inside it."""
    if key in metadata:
        return metadata[key]
    dots = [at for at, letter in enumerate(key) if letter == "."]
    for at in reversed(dots[:_DEPTH]):
        name: Any = key[:at]
        inside = metadata.get(name, metadata.get(int(name)) if name.isdecimal() else None)
        if isinstance(inside, Mapping):
            return _look_up(inside, key[at + 1 :])
    number = int(key) if key.isdecimal() and len(key) < 20 else None
    return metadata.get(number, _NOTHING)


def _same(a: Any, b: Any) -> bool:
    """Whether two metadata values are the same; arrays and lists, tuples and lists count as alike."""
    return bool(_plain(a) == _plain(b))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, float)):  # True is not 1, 1.0 is not 1, and every NaN is the same
        return type(value), repr(value)
    return value


def _same_bytes(a: Payload, b: Payload) -> bool:
    if a.size != b.size:
        return False
    return all(bytes(one) == bytes(other) for one, other in zip(a.chunks(), b.chunks(), strict=True))
