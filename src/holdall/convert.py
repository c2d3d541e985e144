"""From any container into any other, streamed, with nothing lost in silence.

What the target can express natively is expressed; what it cannot travels in the skeleton of the source where the
target has a place for text, and is listed in the report either way. The way back finds the skeleton and restores
the original file: byte for byte while the payloads are unchanged, in everything else otherwise.
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
from holdall.conversion import Conversion, ConversionReport
from holdall.inplace import refuse_in_place
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model import Model
from holdall.plan import FolderPlan, Plan
from holdall.sharding import parse_size
from holdall.sink import Progress, write_file, write_folder
from holdall.transform import Changes, parse_cast, parse_rename

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
    carry: bool = True,
    strict: bool = False,
    force: bool = False,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ConversionReport:
    """Convert ``src`` (a path, or several to be merged) into ``dst``, streaming.

    ``include``/``exclude`` are globs over names; ``rename`` takes ``s/old/new/`` rules and ``names`` exact ones;
    ``cast`` a dtype or ``PATTERN=dtype`` rules; ``transpose`` and ``dequantize`` patterns; ``quantize`` a method
    such as ``"k4"``, or a function from model to model; ``dedup`` stores equal tensors once where the target can;
    ``split`` writes a folder of files with at most so many payload bytes each. ``carry=False`` drops what the
    target cannot hold, ``strict`` refuses the conversion instead. A source may be its own target; where something
    is lost by that, such as the bits that a cast drops, only with ``force``. ``limits`` and ``allowed`` are for
    sources of strangers, as in :func:`holdall.open`. ``options`` are the target's writer options.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)})
    >>> holdall.convert("example.oinf", "copy.oinf", cast="bf16").tensors
    1
    """
    began = time.monotonic()
    target = registry.by_suffix(dst) if format is None else registry.find(format)
    settings = target.settings(options)
    if isinstance(quantize, str):
        from holdall.quant.model import quantize_model

        quantize = partial(quantize_model, method=quantize)
    changes = Changes(
        include=include,
        exclude=exclude,
        rename=parse_rename(rename),
        names=names or {},
        cast=parse_cast(cast) if cast is not None else (),
        transpose=transpose,
        dequantize=("*",) if dequantize is True else tuple(dequantize or ()),
    )
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
            report.changes += _left_behind(model)
        job = Conversion(models, target, settings, changes, report, limits or DEFAULT_LIMITS)
        job.whole &= split is None
        untouched = not (options or metadata or quantize or dedup) and split is None
        plan = (job.copied() or job.restored()) if untouched else None
        if plan is None:
            model = job.expressed(metadata, quantize, dedup=dedup, carry=carry, strict=strict)
            if split is None:
                plan = target.plan(model, settings)
            else:
                plan = job.split_plan(model, parse_size(split), Path(dst).name)
        report.size = plan.size if isinstance(plan, Plan) else _folder_size(plan)
        files = [plan] if isinstance(plan, Plan) else plan.files.values()
        report.changes += dict.fromkeys(note for file in files for note in file.notes)
        report.replaces = Path(dst).is_file()
        refuse_in_place(models, dst, [] if force else report.lost)
        if not dry_run:
            write = write_file if isinstance(plan, Plan) else write_folder
            write(dst, plan, fsync=fsync, progress=progress)  # type: ignore[arg-type]  # plan and writer go together
            report.size = _written(Path(dst), plan)
    report.seconds = time.monotonic() - began
    return report


def _left_behind(model: Model) -> list[str]:
    """What lies in the folder of a source and is no part of the model: said, so that nobody takes the copy for all."""
    names = registry.find(model.format or "").beside(model)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"left behind, no part of the model: {', '.join(names[:_NAMED])}{more}"] if names else []


def _written(path: Path, plan: Plan | FolderPlan) -> int:
    """Bytes of what was written, also where only writing could tell."""
    files = [path] if isinstance(plan, Plan) else [path / name for name in plan.files]
    return sum(file.stat().st_size for file in files)


def _folder_size(plan: FolderPlan) -> int | None:
    sizes = [file.size for file in plan.files.values()]
    return None if None in sizes else sum(size or 0 for size in sizes)
