"""Splits a model into several files of one format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.format import registry
from holdall.format.sharding import split_by_size
from holdall.model.model import Model
from holdall.sink.plan import FolderPlan, Plan

if TYPE_CHECKING:
    from holdall.format.base import Format

__all__ = ["plan_split"]


def plan_split(
    model: Model, target: Format, settings: Mapping[str, Any], most: int, stem: str
) -> tuple[FolderPlan, list[str]]:
    """Plan a folder of files with at most ``most`` payload bytes or one tensor each, and the names of those files."""
    if target.folder:
        raise UnsupportedError(f"{target.name} is made of several files already: see its own options")
    if not target.splits:
        able = ", ".join(name for name in registry.names() if registry.find(name).splits)
        raise UnsupportedError(f"{target.name} has no convention for several files; these have: {able}")
    tensors = list(model.tensors)
    starts = [0, *split_by_size([tensor.nbytes for tensor in tensors], most)]
    groups = [tensors[start:stop] for start, stop in zip(starts, [*starts[1:], len(tensors)], strict=True)]
    count = len(groups)
    names = [f"{stem}-{number:05}-of-{count:05}{target.suffixes[0]}" for number in range(1, count + 1)]
    files = {}
    for number, (name, group) in enumerate(zip(names, groups, strict=True)):
        plan = target.plan(target.part(model.replace(tensors=group), number, count, len(model)), settings)
        assert isinstance(plan, Plan)
        if group and group[0].nbytes > most:
            alone = f"tensor {group[0].name!r} alone has {group[0].nbytes} bytes"
            plan.notes.append(f"{alone}: the file with it is larger than {most}")
        files[name] = plan
    return FolderPlan({**files, **target.split_files(stem, dict(zip(names, groups, strict=True)))}), names
