"""Small changes to an existing file: metadata, tensor names, assets, marks of tensors.

The new file is planned from the old one. The kernel copies the payloads, and file systems that can share blocks
between files share them. The old file is replaced when the new one is whole.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.progress import Progress
from holdall.base.text import file_text
from holdall.errors import ContentError, HoldallError, MissingError, UnsupportedError
from holdall.format import registry
from holdall.format.proof import Prover, proofs_for
from holdall.format.refusals import find_unplaced
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model.arranged_table import ArrangedTable
from holdall.model.growth import limit_passes
from holdall.model.metadata import Entry, Metadata, is_carried_key, same_value
from holdall.model.model import Model
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor
from holdall.operations.convert.changes import Changes, parse_rename
from holdall.operations.convert.copied_packed import describe_packed, explain_other_weights
from holdall.operations.convert.skeleton import find_skeleton
from holdall.operations.open_save import open_model
from holdall.packed import find_weights
from holdall.packed.settings import find_config
from holdall.sink import write_file
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from holdall.format.base import Format

__all__ = ["EditReport", "edit"]

_CONFIG = "config.json"
_NAMED = 4  # files of a set that a refusal names


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
    requires_grad: Mapping[str, bool] | None = None,
    keep_kinds: bool = True,
    check: bool = True,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    follow: str | Collection[str] = (),
    progress: Progress | None = None,
) -> EditReport:
    """Change metadata (``set``, ``unset``), tensor names (``rename`` old to new) and assets (None removes one).

    ``requires_grad`` maps names or globs to whether such tensors are marked as trained, in formats that store the mark;
    the last match counts. It uses the names from before the edit.

    ``rules`` rename by regular expression, ``s/old/new/`` as in :func:`holdall.convert`. A new value is stored in the
    kind of the old one, a u32 as a u32, and refused if it does not fit; with ``keep_kinds=False``, or for a key that
    is both unset and set, the format chooses the kind. The report also lists what the writer changes.

    A carried skeleton is dropped, since it would no longer describe the file; an edit is refused where the skeleton is
    needed to know the type of a tensor. The hashes that the file states are compared before new ones are written,
    unless ``check`` is False.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.zeros(3, np.float32)}, metadata={"mode": "fast"})
    >>> holdall.edit("example.oinf", set={"mode": "slow"}, rename={"w": "weight"}).changes
    ["tensor 'w' is called 'weight'", "metadata 'mode': 'fast' became 'slow'"]
    """
    unset = list(unset)
    with open_model(path, mmap=False, limits=limits, allowed=allowed, follow=follow) as model:
        report = EditReport(os.fspath(path), model.format or "")
        target = registry.find(report.format)
        tensors = _mark_trained(model, target, requires_grad or {}, report.changes)
        changed = model.replace(
            tensors=_rename_tensors(model, tensors, rename or {}, list(rules), report.changes),
            metadata=_change_metadata(model, set or {}, unset, report.changes),
            assets=_change_assets(model, assets or {}, report.changes),
        )
        if not report.changes:
            return report
        limit_passes(model)
        _refuse_carrier(model)
        if len(model.sources) > 1:
            several = ", ".join(source.name for source in model.sources[:_NAMED])
            raise UnsupportedError(f"{several}: a set of files is not edited in its place; convert it into a new one")
        _refuse_unfit(changed, model, target)
        if changed.tensors.names != model.tensors.names or any(name not in changed.assets for name in model.assets):
            _refuse_other_weights(changed, model)
        changed = _keep_kinds(changed, model, unset if keep_kinds else list(set or {}))
        plan = target.plan(changed, target.settings(target.edit_options(model)))
        if not isinstance(plan, Plan):
            message = "a folder is not edited in its place; convert it into a new one"
            raise UnsupportedError(f"{file_text(report.path)}: {message}")
        report.changes += plan.notes
        report.size = plan.size
        if not dry_run:
            proofs = proofs_for(model, (payload for _, payload in plan.payloads())) if check else []
            with Prover(proofs) as prover:
                write_file(path, plan, fsync=fsync, progress=progress, approve=lambda *_: prover.finish())
    return report


def _refuse_carrier(model: Model) -> None:
    """Raise ContentError when a tensor has its type from the skeleton alone, which an edit drops."""
    found = find_skeleton(model, model.limits or DEFAULT_LIMITS)
    hidden = [bond for bond in found[0].bonds if not bond.plain] if found is not None else []
    if found is not None and hidden:
        what = f"tensor {hidden[0].name!r} {hidden[0].dtype}{list(hidden[0].shape)}"
        carried = f"the file carries a {found[0].format} original, which an edit drops"
        raise ContentError(f"{carried}, and {what} would be lost with it: restore or convert it first")


def _refuse_other_weights(changed: Model, model: Model) -> None:
    """Raise ContentError if packed weights would be decoded otherwise, or not at all."""
    beside = _find_configuration_beside(model)
    before, after = (model, changed) if beside is None else (_describe(each, beside) for each in (model, changed))
    found = find_weights(before)
    weights = [] if found is None else found.weights
    new_names = dict(zip(model.tensors.names, changed.tensors.names, strict=True))
    reason = explain_other_weights([describe_packed(before, found, weights, new_names.__getitem__)], after)
    if reason:
        raise ContentError(f"{reason}: convert with --dequantize to have plain weights, whose names are free")


def _describe(model: Model, beside: Model) -> Model:
    """Return the tensors of ``model`` with the configuration of ``beside``."""
    return Model(model.tensors, metadata=model.metadata, origin=beside)


def _find_configuration_beside(model: Model) -> Model | None:
    """Find the configuration that lies in the folder of a file which has no place for one; None if there is none."""
    if find_config(model) or registry.find(model.format or "").holds.assets:
        return None
    try:
        file = model.sources[0].sibling(_CONFIG)
    except (HoldallError, OSError):
        return None
    try:
        beside = Model([], assets={_CONFIG: bytes(file.read(0, file.size))}, format="hf")
    finally:
        file.close()
    beside.resolve_facet = registry.resolve_facet
    return beside


def _keep_kinds(changed: Model, model: Model, anew: Collection[str]) -> Model:
    """Return ``changed`` with new values in the kinds of the old ones, except for the keys in ``anew``."""
    kinds = {entry.key: entry.kind for entry in model.metadata.entries if entry.key not in anew}
    entries = [Entry(one.key, one.value, one.kind or kinds.get(one.key, "")) for one in changed.metadata.entries]
    return changed.replace(metadata=Metadata(entries))


def _change_metadata(model: Model, values: Mapping[str, Any], unset: list[str], changes: list[str]) -> Metadata:
    metadata = model.metadata
    for key in unset:
        if key not in metadata:
            raise MissingError(f"there is no metadata {key!r} to unset")
        if key not in values:
            changes.append(f"metadata {key!r} is removed")
    for key, value in values.items():
        if key not in metadata:
            changes.append(f"metadata {key!r} is added: {value!r}")
        elif key in unset or not same_value(metadata[key], value):
            changes.append(f"metadata {key!r}: {metadata[key]!r} became {value!r}")
    carried = [key for key in metadata if is_carried_key(key)]
    if carried:
        changes.append("the carried skeleton is dropped")
    return metadata.replace(values, without=[*unset, *carried])


def _mark_trained(
    model: Model, target: Format, marks: Mapping[str, bool], changes: list[str]
) -> TensorTable | list[Tensor]:
    """Return the tensors with their marks; the table of the file if none is to change."""
    if not marks:
        return model.tensors
    if not target.holds.requires_grad:
        raise ContentError(f"{target.name} has no place for requires_grad")
    tensors = list(model.tensors)
    for glob, mark in marks.items():
        rows = [row for row, tensor in enumerate(tensors) if fnmatchcase(tensor.name, glob)]
        if not rows:
            raise MissingError(f"there is no tensor {glob!r} to mark", glob, model.tensors.names)
        for row in rows:
            tensors[row] = tensors[row].replace(requires_grad=mark)
    changes += [
        f"tensor {new.name!r}: requires_grad became {str(new.requires_grad).lower()}"
        for old, new in zip(model.tensors, tensors, strict=True)
        if old.requires_grad != new.requires_grad
    ]
    return tensors


def _rename_tensors(
    model: Model,
    tensors: TensorTable | list[Tensor],
    names: Mapping[str, str],
    rules: list[str],
    changes: list[str],
) -> TensorTable | list[Tensor]:
    if not names and not rules:
        return tensors
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
    table = tensors if isinstance(tensors, TensorTable) else ListTable(tensors)
    return ArrangedTable(table, np.arange(len(table)), called)


def _change_assets(model: Model, blobs: Mapping[str, bytes | None], changes: list[str]) -> dict[str, Any]:
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


def _refuse_unfit(changed: Model, model: Model, target: Format) -> None:
    """Raise ContentError for content that the format has no place for, before anything is planned."""
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
    for what, why in find_unplaced(model, target).items():
        raise ContentError(f"{name}: {what}: {why}: an edit would lose it; a conversion into a new file leaves it out")
    refused = target.refuses_edit(model, changed)
    if refused:
        raise ContentError(f"{name}: {refused}")
