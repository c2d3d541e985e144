"""Small changes to a file that exists: metadata, tensor names, assets.

The new file is planned from the old one, whose payloads are moved by the kernel, without passing through this
process; file systems that can share blocks between files share them. The old file stands until the new one is whole.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall import registry, skeleton
from holdall.api import open_model
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.limits import Limits
from holdall.metadata import Entry, Metadata
from holdall.model import Model
from holdall.plan import FolderPlan, Plan
from holdall.sink import Progress, write_file
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from holdall.format import Format

__all__ = ["EditReport", "edit"]


@dataclass(slots=True)
class EditReport:
    """What an edit changed, or with ``dry_run`` would change; ``size`` is that of the new file."""

    path: str
    format: str
    changes: list[str] = field(default_factory=list)
    size: int | None = None


def edit(
    path: str | os.PathLike[str],
    *,
    set: Mapping[str, Any] | None = None,
    unset: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    assets: Mapping[str, bytes | None] | None = None,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Progress | None = None,
) -> EditReport:
    """Change metadata (``set``, ``unset``), tensor names (``rename`` old to new) and assets (None removes one).

    A value keeps the stored kind of the entry it replaces where it can. A skeleton that a conversion left in the file
    is dropped: it describes a file that this one no longer comes from.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.zeros(3, np.float32)}, metadata={"mode": "fast"})
    >>> holdall.edit("example.oinf", set={"mode": "slow"}, rename={"w": "weight"}).changes
    ["tensor 'w' is called 'weight'", "metadata 'mode': 'fast' became 'slow'"]
    """
    with open_model(path, mmap=False, limits=limits, allowed=allowed) as model:
        report = EditReport(os.fspath(path), model.format or "")
        target = registry.find(report.format)
        changed = model.replace(
            tensors=_renamed(model, rename or {}, report.changes),
            metadata=_metadata(model, set or {}, list(unset), report.changes),
            assets=_assets(model, assets or {}, report.changes),
        )
        if not report.changes:
            return report
        _refuse(changed, model, target.name)
        plan = _plan(changed, model, target)
        if not isinstance(plan, Plan):
            raise UnsupportedError(f"{report.path}: a folder is not edited in its place; convert it into a new one")
        report.size = plan.size
        if not dry_run:
            write_file(path, plan, fsync=fsync, progress=progress)
    return report


def _plan(changed: Model, model: Model, target: Format) -> Plan | FolderPlan:
    """The new file, with new values stored as the old ones were; where they do not fit, as the format infers."""
    kinds = {entry.key: entry.kind for entry in model.metadata.entries}
    kept = [Entry(entry.key, entry.value, entry.kind or kinds.get(entry.key, "")) for entry in changed.metadata.entries]
    try:
        return target.plan(changed.replace(metadata=Metadata(kept)), target.settings({}))
    except ContentError:
        return target.plan(changed, target.settings({}))


def _metadata(model: Model, values: Mapping[str, Any], unset: list[str], changes: list[str]) -> Metadata:
    metadata = model.metadata
    for key in unset:
        if key not in metadata:
            raise MissingError(f"there is no metadata {key!r} to unset")
        changes.append(f"metadata {key!r} is removed")
    for key, value in values.items():
        if key not in metadata:
            changes.append(f"metadata {key!r} is added: {value!r}")
        elif metadata[key] != value:
            changes.append(f"metadata {key!r}: {metadata[key]!r} became {value!r}")
    carried = [key for key in metadata if key == skeleton.KEY or key.startswith(f"{skeleton.KEY}.")]
    if carried:
        changes.append("the carried skeleton is dropped")
    return metadata.updated(values, without=[*unset, *carried])


def _renamed(model: Model, names: Mapping[str, str], changes: list[str]) -> list[Tensor] | None:
    if not names:
        return None  # the table stays as it is
    missing = [name for name in names if name not in model]
    if missing:
        raise MissingError(f"there is no tensor {missing[0]!r} to rename")
    tensors = [tensor.replace(name=names.get(tensor.name)) for tensor in model.tensors]
    seen: dict[str, str] = {}
    for old, tensor in zip(model.tensors.names, tensors, strict=True):
        if tensor.name in seen:
            raise ContentError(f"both {seen[tensor.name]!r} and {old!r} would be called {tensor.name!r}")
        seen[tensor.name] = old
    changes += [f"tensor {old!r} is called {new!r}" for old, new in names.items() if old != new]
    return tensors


def _assets(model: Model, blobs: Mapping[str, bytes | None], changes: list[str]) -> dict[str, Any]:
    assets: dict[str, Any] = {name: model.assets.payload(name) for name in model.assets}
    for name, blob in blobs.items():
        if blob is None:
            if assets.pop(name, None) is None:
                raise MissingError(f"there is no asset {name!r} to remove")
            changes.append(f"asset {name!r} is removed")
        else:
            changes.append(f"asset {name!r} is {'replaced' if name in assets else 'added'}: {len(blob)} bytes")
            assets[name] = blob
    return assets


def _refuse(changed: Model, model: Model, name: str) -> None:
    """What the format has no place for is refused here, before anything is planned."""
    holds = registry.find(name).holds
    if len(changed.assets) and not holds.assets:
        raise ContentError(f"{name} has no place for assets")
    for asset in changed.assets:
        refused = holds.refuses_asset(asset)
        if refused and asset not in model.assets:
            raise ContentError(f"{name}: {refused}")
    if len(changed.metadata) and not holds.metadata:
        raise ContentError(f"{name} has no metadata")
    for key, value in changed.metadata.items():
        if key not in model.metadata or model.metadata[key] is not value:
            refused = holds.refuses_metadata(key, value)
            if refused:
                raise ContentError(f"{name}: metadata {key!r}: {refused}")
