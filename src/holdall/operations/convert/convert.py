"""From any container into any other, streamed: the file that a native tool of the target would write.

A tensor that the target cannot hold stops the conversion. Metadata and assets without a place are left out and
reported. What was written is read back before it takes its name, so that the report says what is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdall import registry
from holdall.api import open_model
from holdall.inflated import Inflated
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model import Model
from holdall.operations.convert.changes import Changes, parse_cast, parse_rename
from holdall.operations.convert.job import Job, Wishes
from holdall.operations.convert.overwrite import refuse_clobber, refuse_in_place
from holdall.operations.convert.report import ConversionReport
from holdall.operations.convert.written import size_of, size_planned, write
from holdall.payload import Payload
from holdall.plan import FolderPlan, Plan, Results, Stream
from holdall.proof import Proof, Proving, proofs_for, proofs_of
from holdall.sharding import parse_size
from holdall.sink import Progress

if TYPE_CHECKING:
    from holdall.source import Openable

__all__ = ["convert"]

_NAMED = 10  # files that are left behind, by name


def convert(
    src: Openable | Sequence[Openable],
    dst: str | os.PathLike[str],
    *,
    format: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    cast: str | Iterable[str] | Mapping[str, str] | None = None,
    transpose: Sequence[str] = (),
    dequantize: bool | Sequence[str] = False,
    quantize: str | Callable[[Model], Model] | None = None,
    dedup: bool = False,
    split: int | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    carry: bool = False,
    shorten_names: bool = False,
    strict: bool = False,
    force: bool = False,
    clobber: bool = True,
    check: bool = True,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Progress | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> ConversionReport:
    """Convert ``src`` (a path, or several to be merged) into ``dst``, streaming.

    ``include``/``exclude`` are globs over names; ``rename`` takes ``s/old/new/`` rules and ``names`` exact ones;
    ``cast`` a dtype or ``PATTERN=dtype`` rules; ``transpose`` and ``dequantize`` patterns; ``quantize`` a method
    such as ``"k4"``, or a function from model to model; ``dedup`` stores equal tensors once where the target can;
    ``split`` writes a folder of files with at most so many payload bytes each; ``shorten_names`` shortens names that
    the target has no room for.

    A tensor that the target cannot hold raises ContentError. Metadata and assets without a place are left out and
    listed in the report; ``strict`` refuses them. ``carry`` stores the original along, without its tensors, for
    :func:`holdall.restore`. The stated hashes of what is read are compared unless ``check`` is False.

    A source may be its own target; where something is lost by that, such as the bits that a cast drops, only with
    ``force``. ``clobber=False`` refuses to replace a file. ``limits`` and ``allowed`` are for untrusted sources, as in
    :func:`holdall.open`. ``options`` are the target's writer options, which can also be given by their names.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)})
    >>> holdall.convert("example.oinf", "copy.oinf", cast="bf16").tensors
    1
    """
    began = time.monotonic()
    refuse_clobber(dst, clobber)
    options = {**(options or {}), **more}
    target = registry.by_suffix(dst) if format is None else registry.find(format)
    if isinstance(quantize, str):
        from holdall.quant.model import quantize_model

        quantize = partial(quantize_model, method=quantize)
    wishes = Wishes(
        changes=Changes(
            include=include,
            exclude=exclude,
            rename=parse_rename(rename),
            names=names or {},
            cast=parse_cast(cast) if cast is not None else (),
            transpose=transpose,
            dequantize=("*",) if dequantize is True else tuple(dequantize or ()),
        ),
        metadata=metadata or {},
        quantize=quantize,
        options=options,
        dedup=dedup,
        split=None if split is None else parse_size(split),
        carry=carry,
        shorten=shorten_names,
        strict=strict,
    )
    target.settings(options)  # a wrong option is said before any file is opened
    several: list[Openable] = list(src) if isinstance(src, (list, tuple)) else [src]  # type: ignore[list-item]
    with ExitStack() as stack:
        models = [stack.enter_context(open_model(item, mmap=False, limits=limits, allowed=allowed)) for item in several]
        report = ConversionReport(
            source=[model.sources[0].name for model in models],
            source_format=[model.format or "" for model in models],
            target=os.fspath(dst),
            target_format=target.name,
        )
        for model in models:
            report.changes += [*_left_behind(model), *_misnamed(model)]
        job = Job(models, target, wishes, report, limits or DEFAULT_LIMITS)
        plan = job.plan(Path(dst).name)
        report.size = size_planned(plan)
        files = [plan] if isinstance(plan, Plan) else plan.files.values()
        report.changes += dict.fromkeys(note for file in files for note in file.notes)
        report.replaces = Path(dst).is_file()
        refuse_in_place(models, dst, [] if force else report.lost)
        if not dry_run:
            if check and job.copies:
                _read_compressed(models[0])
            proofs = [*job.proofs, *(_proofs(models, plan, copy=job.copies) if check else ())]
            _write(dst, plan, proofs, job, fsync=fsync, progress=progress, clobber=clobber)
            report.checked |= check and any(
                _expands(payload) for model in models for t in model.tensors for payload in t.payloads
            )
    report.seconds = time.monotonic() - began
    return report


def _write(
    dst: str | os.PathLike[str],
    plan: Plan | FolderPlan,
    proofs: list[Proof],
    job: Job,
    *,
    fsync: bool,
    progress: Progress | None,
    clobber: bool,
) -> None:
    """Write ``plan`` while ``proofs`` are checked beside it: what they refuse never takes its name."""
    with Proving(proofs) as proving:

        def step(done: int, total: int | None) -> None:
            proving.raise_if_failed()
            if progress is not None:
                progress(done, total)

        def approve(path: Path, results: Results) -> None:
            proving.finish()
            for file in [plan] if isinstance(plan, Plan) else plan.files.values():
                file.pieces.clear()  # headers and tables of megabytes, which are written by now
            job.approve(path, results)

        write(dst, plan, fsync=fsync, progress=step, approve=approve, clobber=clobber)
    job.report.size = size_of(Path(dst), plan)
    job.report.written = True
    job.report.checked = bool(proofs)


def _proofs(models: Iterable[Model], plan: Plan | FolderPlan, *, copy: bool) -> list[Proof]:
    """The hashes that the sources state of what ``plan`` reads."""
    if copy:
        return [proof for model in models for proof in proofs_of(model)]
    files = [plan] if isinstance(plan, Plan) else plan.files.values()
    payloads = [piece.payload for file in files for piece in file.pieces if isinstance(piece, Stream)]
    return [proof for model in models for proof in proofs_for(model, payloads)]


def _read_compressed(model: Model) -> None:
    """Have compressed tensors of a file that is copied as it is compare their checksums: they do as they expand."""
    for tensor in model.tensors:
        for _ in tensor.payload.chunks() if tensor.payload is not None and _expands(tensor.payload) else ():
            pass


def _expands(payload: Payload) -> bool:
    """Whether reading ``payload`` expands a compressed member, which compares its checksum."""
    return isinstance(payload, Inflated) or any(map(_expands, getattr(payload, "of", ())))


def _left_behind(model: Model) -> list[str]:
    """Files beside the source that are not converted, in words."""
    names = registry.find(model.format or "").beside(model)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"left behind, no part of the model: {', '.join(names[:_NAMED])}{more}"] if names else []


def _misnamed(model: Model) -> list[str]:
    """A note when the suffix of a source says another format than its content."""
    source = model.sources[0]
    said = None if source.is_folder else registry.suffix_of(source.name)
    agree = said in (None, model.format)
    return [] if agree else [f"{source.name} holds {model.format}, not {said} as its suffix says"]
