"""The public verbs on files: open, save, verify, formats."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from holdall.base.check import LEVELS, Check, Level, Report
from holdall.base.text import list_text
from holdall.errors import ContentError, FormatError, HoldallError, UnsupportedError
from holdall.format import registry
from holdall.format.checked_source import CheckedSource
from holdall.format.refusals import find_unplaced
from holdall.limits import DEFAULT_LIMITS, Limits, choose_limits
from holdall.model.growth import limit_growth, limit_passes
from holdall.model.metadata import Metadata
from holdall.model.model import Model, model_of
from holdall.operations.examine import examine
from holdall.operations.facets import resolve_facet
from holdall.operations.reach import describe_reach
from holdall.operations.verify_packed import note_packed
from holdall.source import Openable, Source, source_of
from holdall.source.folder import REPLACED
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from holdall.base.progress import Progress
    from holdall.format.base import Format
    from holdall.model.tensor import Tensor
    from holdall.sink.plan import FolderPlan, Plan

__all__ = ["formats", "open_model", "plan_content", "plan_save", "save", "verify"]


def open_model(
    what: Openable,
    *,
    format: str | None = None,
    mmap: bool = True,
    require: Collection[str] = (),
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    allow_opaque: bool = True,
    check: bool | None = None,
    follow: str | Collection[str] = (),
) -> Model:
    """Open a weight file of any known format. Reads the header and the index, no payload.

    ``what`` is a path, a URL (http, s3, gs, az, hf) or a bytes-like object. ``format`` names the format instead of
    detecting it, and ``allowed`` is an allowlist of formats for untrusted files. ``mmap=False`` reads instead of
    mapping. ``allow_opaque=False`` refuses a PyTorch file that names classes beyond those of tensors and plain values,
    whose objects otherwise stay opaque data; nothing that a file names is ever imported or called.
    ``require`` names parts (as the format calls them) that must be there.

    ``check`` says which bytes are compared with the hashes that the file states before they are returned. True: all
    that have one, by the pages that a read touches where there are page hashes, else by their tensor, else by the hash
    that spans many tensors; each once. None: of a local file, whole tensors that have a hash of their own, and never
    slices; of a URL, all but what only a hash that spans many tensors covers. False: none. Hashes beyond those, such as
    that of a tensor whose pages were compared, are left to :func:`verify`.

    ``follow`` names origins (``"https://host"``, or several) that requests may be sent to, beside that of a URL which
    is opened: a server may redirect there, and the document of a set may state URLs there; each such part must have the
    stated size and SHA-256. No other origin is ever asked.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones((2, 2), np.float32)})
    >>> with holdall.open("example.oinf") as model:
    ...     model["w"].shape
    (2, 2)
    """
    limits = choose_limits(limits, allow_opaque)
    source = source_of(what, map=mmap, follow=follow)
    checked = CheckedSource(source, everything=check is True) if check or (check is None and source.is_remote) else None
    source = checked or source
    source.is_trusted = check is False
    try:
        found = registry.choose(source, format, allowed)
        ledger = Ledger()
        breach = Check(limits=limits or DEFAULT_LIMITS, proving=check)
        model = found.read(source, breach, ledger)
        limit_growth(model, breach)
        found.require(model, require)
    except BaseException as error:
        source.close()
        if isinstance(error, HoldallError):
            error.file = error.file or source.name
            error.unread |= isinstance(error, UnsupportedError)
        raise
    if checked is not None:
        checked.set_proofs(lambda source, start, stop: found.proofs(model, [(source, start, stop)]))
    model.ledger = ledger
    model.limits, model.allowed, model.resolve_facet = limits, allowed, resolve_facet
    if not isinstance(what, Source):
        # An absolute path: the process that unpickles the model may be in another folder.
        path = getattr(source, "path", what)
        again = os.fspath(path) if isinstance(path, (str, os.PathLike)) else _PickledAsBytes(path)
        options = {"format": found.name, "mmap": mmap, "limits": limits, "allowed": allowed, "check": check}
        options["follow"] = follow
        model.pickle_as(_reopen, (again, options))
    return model


class _PickledAsBytes:
    """A bytes-like object that is copied only when its model is pickled."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self._data),)


def _reopen(what: Openable, options: Mapping[str, Any], identities: Sequence[tuple[object, ...] | None]) -> Model:
    """Unpickle a model: open its files again. Raises FormatError when one has been replaced."""
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
    writer (``holdall formats NAME`` lists them). An old file is replaced when the new one is complete. A model whose
    own format has content that the new one has no place for, such as size variables, raises ContentError, and so do
    tensors with ``requires_grad`` in a format without such marks.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.zeros(3, np.float16)}, metadata={"mode": "fast"})
    """
    from holdall.sink import write_file, write_folder
    from holdall.sink.plan import Plan

    plan = plan_save(path, content, metadata=metadata, format=format, **options)
    if isinstance(plan, Plan):
        write_file(path, plan, fsync=fsync, progress=progress)
    else:
        write_folder(path, plan, fsync=fsync, progress=progress)


def plan_save(
    path: str | os.PathLike[str],
    content: Model | Mapping[str, Tensor | ArrayLike] | Iterable[Tensor],
    *,
    metadata: Mapping[str, Any] | None = None,
    format: str | None = None,
    **options: Any,
) -> Plan | FolderPlan:
    """Make the plan of the file that :func:`save` would write."""
    path = os.fspath(path)  # TypeError when path and content changed places
    target = registry.find_by_suffix(path) if format is None else registry.find(format)
    return plan_content(content, target, metadata=metadata, options=options)


def plan_content(
    content: Model | Mapping[str, Tensor | ArrayLike] | Iterable[Tensor],
    target: Format,
    *,
    metadata: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Plan | FolderPlan:
    """Make the plan of the file of the format ``target``; raises for a model that it would not keep whole."""
    model = model_of(content, metadata)
    limit_passes(model)
    unplaced = [*find_unplaced(model, target).values()]
    files = [] if target.holds.assets else [name for name in model.assets if name not in target.holds.read_assets]
    if files:
        unplaced.append(f"assets: {list_text(files, most=5)}")
    for what in unplaced:
        raise ContentError(f"{target.name} has no place for {what}: holdall.convert leaves out such content")
    if metadata is None and target.holds.foreign_keys is not None and model.format not in (None, target.name):
        own = [entry for entry in model.metadata.entries if target.holds.takes_foreign(entry.key)]
        kept = model.replace(metadata=Metadata(own))
        kept.origin = model  # which answers for the configuration
        model = kept
    with _pause_collection():
        return target.plan(model, target.settings(options))


@contextmanager
def _pause_collection() -> Iterator[None]:
    """Pause the garbage collector while a plan makes objects by the hundred thousand, none of them in a cycle.

    The collector would walk all of them each time their number grows by a quarter, which takes longer than making them.
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
    allow_opaque: bool = True,
    follow: str | Collection[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Check a file and list everything that is wrong with it. A damaged file is reported and never raises.

    ``level``: "structure" reads no payload, "full" adds all hashes, "strict" every must-be-zero. Payloads
    are streamed; ``progress`` receives the bytes done and the bytes in all. ``follow`` and
    ``allow_opaque`` are as in :func:`holdall.open`.

    >>> import holdall
    >>> report = holdall.verify(b"OINF" + bytes(68))
    >>> report.ok, report.findings[0].rule
    (False, 'oinf.header.version')
    """
    if level not in LEVELS:
        raise UnsupportedError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
    limits = choose_limits(limits, allow_opaque)
    with examine(what, level=level, format=format, limits=limits, allowed=allowed, follow=follow) as seen:
        seen.audit(progress)
        note_packed(seen)
        seen.report.checked, seen.report.unchecked = describe_reach(seen)
    return seen.report


def formats() -> dict[str, Format]:
    """All registered formats by id; each says what it can hold.

    >>> import holdall
    >>> "f32" in holdall.formats()["oinf"].holds.dtypes
    True
    """
    return {name: registry.find(name) for name in registry.names()}
