"""Small changes to a file that exists: metadata, tensor names, assets.

The new file is planned from the old one, whose payloads are moved by the kernel, without passing through this
process; file systems that can share blocks between files share them. The old file stands until the new one is whole.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall import registry
from holdall.api import open_model
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.metadata import Entry, Metadata, is_own
from holdall.model import Model
from holdall.operations.convert.changes import Changes, parse_rename
from holdall.operations.convert.skeleton import find
from holdall.plan import Plan, Stream
from holdall.proof import Proving, proofs_for
from holdall.sink import Progress, write_file
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from holdall.format import Format

__all__ = ["EditReport", "edit"]

_NAMED = 4  # files of a set, by name


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
    rules: Iterable[str] = (),
    assets: Mapping[str, bytes | None] | None = None,
    keep_kinds: bool = True,
    check: bool = True,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Progress | None = None,
) -> EditReport:
    """Change metadata (``set``, ``unset``), tensor names (``rename`` old to new) and assets (None removes one).

    ``rules`` rename by regular expression, ``s/old/new/`` as in :func:`holdall.convert`. A value is stored as the one
    that it replaces was, a u32 as a u32, and refused where that does not hold it; ``keep_kinds=False`` chooses anew,
    and so does an entry that is unset and set at once. What else becomes of the file is among the changes too. A
    skeleton that a conversion left in the file is dropped, since it describes a file that this one no longer is; where
    tensors are what they are by the skeleton alone, an edit is refused. The hashes that the file states are
    compared before it gets new ones, unless ``check`` is False.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.zeros(3, np.float32)}, metadata={"mode": "fast"})
    >>> holdall.edit("example.oinf", set={"mode": "slow"}, rename={"w": "weight"}).changes
    ["tensor 'w' is called 'weight'", "metadata 'mode': 'fast' became 'slow'"]
    """
    unset = list(unset)
    with open_model(path, mmap=False, limits=limits, allowed=allowed) as model:
        report = EditReport(os.fspath(path), model.format or "")
        target = registry.find(report.format)
        changed = model.replace(
            tensors=_renamed(model, rename or {}, list(rules), report.changes),
            metadata=_metadata(model, set or {}, unset, report.changes),
            assets=_assets(model, assets or {}, report.changes),
        )
        if not report.changes:
            return report
        _refuse_carrier(model)
        if len(model.sources) > 1:
            several = ", ".join(source.name for source in model.sources[:_NAMED])
            raise UnsupportedError(f"{several}: a set of files is not edited in its place; convert it into a new one")
        _refuse(changed, model, target)
        changed = _as_before(changed, model, unset if keep_kinds else list(set or {}))
        plan = target.plan(changed, target.settings({}))
        if not isinstance(plan, Plan):
            raise UnsupportedError(f"{report.path}: a folder is not edited in its place; convert it into a new one")
        report.changes += plan.notes
        report.size = plan.size
        if not dry_run:
            proofs = proofs_for(model, [p.payload for p in plan.pieces if isinstance(p, Stream)]) if check else []
            with Proving(proofs) as proving:
                write_file(path, plan, fsync=fsync, progress=progress, approve=lambda *_: proving.finish())
    return report


def _refuse_carrier(model: Model) -> None:
    """ContentError when a tensor is not what its bytes say: only the skeleton, which an edit drops, knows its type."""
    found = find(model, model.limits or DEFAULT_LIMITS)
    hidden = [bond for bond in found[0].bonds if not bond.plain] if found is not None else []
    if found is not None and hidden:
        what = f"tensor {hidden[0].name!r} {hidden[0].dtype}{list(hidden[0].shape)}"
        carried = f"the file carries a {found[0].format} original, which an edit drops"
        raise ContentError(f"{carried}, and {what} would be lost with it: restore or convert it first")


def _as_before(changed: Model, model: Model, anew: Collection[str]) -> Model:
    """``changed`` with new values in the kinds of the old ones, but for those that are stored ``anew``."""
    kinds = {entry.key: entry.kind for entry in model.metadata.entries if entry.key not in anew}
    entries = [Entry(one.key, one.value, one.kind or kinds.get(one.key, "")) for one in changed.metadata.entries]
    return changed.replace(metadata=Metadata(entries))


def _metadata(model: Model, values: Mapping[str, Any], unset: list[str], changes: list[str]) -> Metadata:
    metadata = model.metadata
    for key in unset:
        if key not in metadata:
            raise MissingError(f"there is no metadata {key!r} to unset")
        if key not in values:
            changes.append(f"metadata {key!r} is removed")
    for key, value in values.items():
        if key not in metadata:
            changes.append(f"metadata {key!r} is added: {value!r}")
        elif key in unset or _differs(metadata[key], value):
            changes.append(f"metadata {key!r}: {metadata[key]!r} became {value!r}")
    carried = [key for key in metadata if is_own(key)]
    if carried:
        changes.append("the carried skeleton is dropped")
    return metadata.updated(values, without=[*unset, *carried])


def _differs(old: Any, new: Any) -> bool:
    if hasattr(old, "tolist"):  # numpy's arrays compare each element
        old = old.tolist()
    result = type(old) is not type(new) or old != new
    return bool(result)


def _renamed(model: Model, names: Mapping[str, str], rules: list[str], changes: list[str]) -> list[Tensor] | None:
    if not names and not rules:
        return None  # the table stays as it is
    missing = [name for name in names if name not in model]
    if missing:
        raise MissingError(f"there is no tensor {missing[0]!r} to rename")
    called = [names.get(name, name) for name in model.tensors.names]
    for rule, parsed in zip(rules, parse_rename(rules), strict=True):
        before, called = called, [Changes(rename=[parsed]).new_name(name) for name in called]
        if called == before:
            raise MissingError(f"{rule!r} renames no tensor")
    seen: dict[str, str] = {}
    for old, new in zip(model.tensors.names, called, strict=True):
        if new in seen:
            raise ContentError(f"both {seen[new]!r} and {old!r} would be called {new!r}")
        seen[new] = old
        if new != old:
            changes.append(f"tensor {old!r} is called {new!r}")
    return [tensor.replace(name=new) for tensor, new in zip(model.tensors, called, strict=True)]


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


def _refuse(changed: Model, model: Model, target: Format) -> None:
    """What the format has no place for is refused here, before anything is planned."""
    name, holds = target.name, target.holds
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
    refused = target.refuses_edit(model, changed)
    if refused:
        raise ContentError(f"{name}: {refused}")
