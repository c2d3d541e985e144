"""The public verbs on files: open, save, verify, formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from holdall import registry
from holdall.check import LEVELS, Check, Level, Report
from holdall.checked import CheckedSource
from holdall.errors import FormatError, HoldallError, UnsupportedError
from holdall.examine import examine
from holdall.ledger import Ledger
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model import Model, model_of
from holdall.source import Openable, Source, source_of
from holdall.source.folder import REPLACED

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from holdall.format import Format
    from holdall.sink import Progress
    from holdall.tensor import Tensor

__all__ = ["formats", "open_model", "plan_of", "save", "verify"]


def open_model(
    what: Openable,
    *,
    format: str | None = None,
    mmap: bool = True,
    require: Collection[str] = (),
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    check: bool | None = None,
) -> Model:
    """Open a weight file of any known format. Reads the header and the index, no payload.

    ``what`` is a path, a URL (http, s3, gs, az, hf) or a bytes-like object. ``format`` names the format instead of
    detecting it, and ``allowed`` is an allowlist of formats for files of strangers. ``mmap=False`` reads instead of
    mapping.
    ``require`` names the parts (as the format calls them) without which the file is of no use to the caller.
    ``check=True`` proves everything that the file states a hash of before handing it out: a slice by the pages that it
    touches, where there are page hashes, else by its whole tensor, each once. By default (None) this is so for URLs,
    whose hashes over many tensors are then left out.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones((2, 2), np.float32)})
    >>> with holdall.open("example.oinf") as model:
    ...     model["w"].shape
    (2, 2)
    """
    source = source_of(what, map=mmap)
    checked = CheckedSource(source, everything=check is True) if check or (check is None and source.far) else None
    source = checked or source
    source.trusted = check is False
    try:
        found = registry.choose(source, format, allowed)
        ledger = Ledger()
        model = found.read(source, Check(limits=limits or DEFAULT_LIMITS, proving=check), ledger)
        found.require(model, require)
    except BaseException as error:
        source.close()
        if isinstance(error, HoldallError):
            error.file = error.file or source.name
        raise
    if checked is not None:
        checked.state(lambda source, start, stop: found.proofs(model, [(source, start, stop)]))
    model.ledger = ledger
    model.limits, model.allowed = limits, allowed
    if not isinstance(what, Source):
        # A path as it is from anywhere: the other process may be in another folder.
        path = getattr(source, "path", what)
        again = os.fspath(path) if isinstance(path, (str, os.PathLike)) else _PickledAsBytes(path)
        options = {"format": found.name, "mmap": mmap, "limits": limits, "allowed": allowed, "check": check}
        model.travels_as(_reopen, (again, options))
    return model


class _PickledAsBytes:
    """A bytes-like object that is copied when its model is pickled, and not before."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self._data),)


def _reopen(what: Openable, options: Mapping[str, Any], identities: Sequence[tuple[object, ...] | None]) -> Model:
    """Unpickle a model: open its files again, if they are still the same files."""
    model = open_model(what, **options)
    for source, identity in zip_longest(model.sources, identities):
        if source is None or (identity is not None and source.identity != identity):
            model.close()
            name = (source or model.sources[0]).name
            raise FormatError(REPLACED.id, None, f"{name}: has been replaced since it was pickled")
    return model


def save(
    path: str | os.PathLike[str],
    content: Model | Mapping[str, Tensor | ArrayLike] | Iterable[Tensor],
    *,
    metadata: Mapping[str, Any] | None = None,
    format: str | None = None,
    fsync: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Write a model, or a mapping from names to arrays, to ``path``.

    The format comes from the suffix unless ``format`` names it; ``options`` are those of the format's
    writer (``holdall formats NAME`` lists them). The old file stands until the new one is whole.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.zeros(3, np.float16)}, metadata={"mode": "fast"})
    """
    from holdall.plan import Plan
    from holdall.sink import write_file, write_folder

    plan = plan_of(path, content, metadata=metadata, format=format, **options)
    if isinstance(plan, Plan):
        write_file(path, plan, fsync=fsync, progress=progress)
    else:
        write_folder(path, plan, fsync=fsync, progress=progress)


def plan_of(
    path: str | os.PathLike[str],
    content: Model | Mapping[str, Tensor | ArrayLike] | Iterable[Tensor],
    *,
    metadata: Mapping[str, Any] | None = None,
    format: str | None = None,
    **options: Any,
) -> Any:
    """The plan that :func:`save` would carry out."""
    path = os.fspath(path)  # TypeError when path and content changed places
    target = registry.by_suffix(path) if format is None else registry.find(format)
    with _no_collection():
        return target.plan(model_of(content, metadata), target.settings(options))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector back while objects are made by the hundred thousand, none of them in a cycle.

    It would walk all of them again whenever there are a quarter more, which takes longer than making them.
    """
    import gc

    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def verify(
    what: Openable,
    *,
    level: Level = "full",
    format: str | None = None,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Check a file and list everything that is wrong with it, never raising for what is wrong with the file.

    ``level``: "structure" reads no payload, "full" adds all hashes, "strict" every must-be-zero. Payloads
    are streamed; ``progress`` is told bytes done and bytes in all.

    >>> import holdall
    >>> report = holdall.verify(b"OINF" + bytes(68))
    >>> report.ok, report.findings[0].rule
    (False, 'oinf.header.version')
    """
    if level not in LEVELS:
        raise UnsupportedError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
    with examine(what, level=level, format=format, limits=limits, allowed=allowed) as seen:
        seen.audit(progress)
    return seen.report


def formats() -> dict[str, Format]:
    """All registered formats by id; each says what it can hold.

    >>> import holdall
    >>> "f32" in holdall.formats()["oinf"].holds.dtypes
    True
    """
    return {name: registry.find(name) for name in registry.names()}
