"""Converts any container into any other, streamed: the result is what a native tool of the target would write.

A tensor that the target cannot hold stops the conversion. Metadata and assets without a place are left out and
reported. The new file is read back before it replaces the target, so that the report describes what was written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdall.base import platform
from holdall.base.parallel import use_threads
from holdall.base.progress import Progress
from holdall.errors import UnsupportedError
from holdall.format import registry
from holdall.format.proof import Prover, Stated, proofs_for, proofs_of
from holdall.format.sharding import parse_size
from holdall.format.zip.inflate import InflatedPayload
from holdall.limits import DEFAULT_LIMITS, Limits, choose_limits
from holdall.model.model import Model
from holdall.model.payload import Payload
from holdall.operations.convert.changes import Changes, parse_cast, parse_rename
from holdall.operations.convert.job import Job
from holdall.operations.convert.options import ConvertOptions
from holdall.operations.convert.overwrite import refuse_clobber, refuse_in_place
from holdall.operations.convert.report import ConversionReport, list_lost
from holdall.operations.convert.write_plan import (
    check_target,
    free_pieces,
    measure_size,
    plans_of,
    predict_size,
    write_plan,
)
from holdall.operations.open_save import open_model
from holdall.sink.plan import FolderPlan, Plan, Results

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.quant.plan import Quantization
    from holdall.recipes import Recipe
    from holdall.source import Openable

__all__ = ["convert"]


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
    quantize: str | Quantization | None = None,
    dedup: bool = False,
    split: int | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    carry: bool = False,
    shorten_names: bool = False,
    recipe: str | Recipe = "auto",
    strict: bool = False,
    force: bool = False,
    clobber: bool = True,
    check: bool = True,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    allow_opaque: bool = True,
    follow: str | Collection[str] = (),
    progress: Progress | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> ConversionReport:
    """Convert ``src`` (a path, or several to be merged) into ``dst``, streaming.

    ``include``/``exclude`` are globs over names; ``rename`` takes ``s/old/new/`` rules and ``names`` exact ones;
    ``cast`` a dtype for the tensors of floats, or ``PATTERN=dtype`` rules for any; ``transpose`` and ``dequantize``
    patterns; ``quantize`` a method such as ``"k4"``, or a :class:`holdall.quant.Quantization`; ``dedup`` stores equal
    tensors once if the target can; ``split`` writes a folder of files, and is the most payload bytes of each;
    ``shorten_names`` shortens names that are too long for the target.

    ``recipe`` maps names, tensors and configuration to those of the target's world, so that the model runs there:
    ``"auto"`` chooses one by content, if the family is known and a recipe leads to the target's format; a name or a
    file ``.toml`` is that recipe; ``"none"`` moves everything as it is. Other changes come first: their patterns are
    names of the source.

    A tensor that the target cannot hold raises ContentError. Metadata and assets without a place are left out and
    listed in the report; ``strict`` refuses them. ``carry`` also stores the original, without its tensors, for
    :func:`holdall.restore`. The hashes that the sources state are checked unless ``check`` is False.

    A source may be its own target. If that loses something, such as the bits that a cast drops, it needs ``force``.
    ``clobber=False`` refuses to replace a file. ``limits``, ``allowed`` and ``allow_opaque`` are for untrusted
    sources, and ``follow`` for sets whose parts are elsewhere, as in :func:`holdall.open`. ``options`` are the target's
    writer options, which can also be given by their names.

    ``dry_run`` reads no values and writes nothing; the report says what would be done, with the plan of a quantization.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)})
    >>> holdall.convert("example.oinf", "copy.oinf", cast="bf16").tensors
    1
    """
    if isinstance(quantize, str):
        from holdall.quant.plan import Quantization

        quantize = Quantization(quantize)
    elif quantize is not None and not hasattr(quantize, "policy"):
        raise UnsupportedError(f"quantize is a method or a holdall.quant.Quantization, not {type(quantize).__name__}")
    asked = ConvertOptions(
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
        writer={**(options or {}), **more},
        dedup=dedup,
        split=None if split is None else parse_size(split),
        carry=carry,
        shorten_names=shorten_names,
        recipe=recipe,
        strict=strict,
        force=force,
        clobber=clobber,
        check=check,
        dry_run=dry_run,
        fsync=fsync,
        limits=choose_limits(limits, allow_opaque) or DEFAULT_LIMITS,
        allowed=allowed,
        follow=follow,
        progress=progress,
    )
    target = registry.find_by_suffix(dst) if format is None else registry.find(format)
    sources: list[Openable] = list(src) if isinstance(src, (list, tuple)) else [src]  # type: ignore[list-item]
    with use_threads(None if quantize is None else quantize.threads):
        return _convert(sources, dst, target, asked)


def _convert(
    sources: Sequence[Openable], dst: str | os.PathLike[str], target: Format, options: ConvertOptions
) -> ConversionReport:
    began = time.monotonic()
    refuse_clobber(dst, options.clobber)
    target.settings(options.writer)  # a wrong option raises before any file is opened
    with ExitStack() as stack:
        opening = partial(open_model, mmap=False, limits=options.limits, allowed=options.allowed, follow=options.follow)
        models = [stack.enter_context(opening(source)) for source in sources]
        job = Job(models, target, options)
        plan = job.plan(Path(dst).name)
        size, checked, replaces = predict_size(plan), False, platform.full_path(dst).is_file()
        refuse_in_place(models, dst, [] if options.force else list_lost(job.dropped, job.losses))
        if options.dry_run:
            check_target(dst, plan)
        else:
            checked = _write(dst, plan, job)
            size = measure_size(Path(dst), plan)
        return job.report(
            os.fspath(dst),
            size=size,
            written=not options.dry_run,
            checked=checked,
            replaces=replaces,
            folder=isinstance(plan, FolderPlan),
            seconds=time.monotonic() - began,
        )


def _write(dst: str | os.PathLike[str], plan: Plan | FolderPlan, job: Job) -> bool:
    """Write ``plan`` while the sources' hashes are checked. Returns True if any was.

    A mismatch raises HashError, and nothing is published.
    """
    options, models = job.options, job.models
    if options.check and job.copies_file:
        _check_compressed(models[0])
    proofs = [*job.proofs, *(_collect_proofs(job, plan) if options.check and not job.copies_set else ())]
    with Prover(proofs) as prover:

        def step(done: int, total: int | None) -> None:
            prover.raise_failure()
            if options.progress is not None:
                options.progress(done, total)

        def approve(path: Path, results: Results) -> None:
            prover.finish()
            free_pieces(plan)
            job.approve(path, results)

        write_plan(dst, plan, fsync=options.fsync, progress=step, approve=approve, clobber=options.clobber)
    if job.copies_set:
        return True
    computed = (payload for model in models for payload in model.tensors.list_computed())
    return bool(proofs) or (options.check and any(map(_is_inflated, computed)))


def _collect_proofs(job: Job, plan: Plan | FolderPlan) -> list[Stated]:
    """Collect the hashes that the sources state for the bytes that ``plan`` reads."""
    if job.copies_file:
        return [proof for model in job.models for proof in proofs_of(model)]
    proofs = []
    for model in job.models:
        payloads = (payload for file in plans_of(plan) for _, payload in file.payloads())
        proofs += proofs_for(model, payloads)
    return proofs


def _check_compressed(model: Model) -> None:
    """Expand the compressed tensors of a file that is copied, since only expanding them checks their checksums."""
    for payload in model.tensors.list_computed():
        for _ in payload.chunks() if _is_inflated(payload) else ():
            pass


def _is_inflated(payload: Payload) -> bool:
    """Whether reading ``payload`` expands a compressed member, which compares its checksum."""
    return isinstance(payload, InflatedPayload) or any(map(_is_inflated, getattr(payload, "inputs", ())))
