"""Merges the sources of a conversion into one model, without what earlier conversions added to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall.base.text import list_text, plural
from holdall.errors import FormatError
from holdall.format import registry
from holdall.format.proof import Proof
from holdall.format.weight_files import has_safetensors
from holdall.limits import Limits
from holdall.model.metadata import Assets, Entry, Metadata, drop_carried_keys, same_value
from holdall.model.model import Model
from holdall.model.payload import Payload, SourceRange
from holdall.model.table import TensorTable
from holdall.model.tensor import Tensor
from holdall.operations.convert.carried_source import SkeletonSource, open_original
from holdall.operations.convert.names import lengthen_names
from holdall.operations.convert.skeleton import BROKEN, DIGEST, Bond, SkeletonFile, find_skeleton

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.source import Source

__all__ = ["MergedSources", "describe_source", "merge_models"]


@dataclass(slots=True)
class MergedSources:
    """One model, and the ``proofs`` of its tensors whose type comes from a skeleton."""

    model: Model
    proofs: dict[str, Proof] = field(default_factory=dict)  # the proof of each tensor, by its name
    changes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # what differs between the sources


def describe_source(model: Model) -> list[str]:
    """List warnings about a source: files beside it that are not converted, and a suffix of another format."""
    notes = []
    source = model.sources[0]
    names = registry.find(model.format or "").unread_files(model)
    if names:
        notes.append(f"left behind, no part of the model: {list_text(names)}")
    suffix = None if source.is_folder else registry.name_by_suffix(source.name)
    if suffix not in (None, model.format):
        notes.append(f"{source.name} holds {model.format}, not {suffix} as its suffix says")
    return notes


def merge_models(
    models: Sequence[Model], target: Format, limits: Limits, change: Callable[[Model], Model], *, carry: bool
) -> MergedSources:
    """Return ``models`` as one, with the names and types that their tensors had before earlier conversions.

    It has the content of their own formats that ``target`` can join; the rest is in the list of what is lost.
    ``change`` is called with each of them, whose own configuration is at hand then.
    With ``carry`` there is one model, which keeps its names and types.
    """
    left = [name for model in models for name in registry.find(model.format or "").unread_files(model)]
    left = [name for name in left if has_safetensors([name])]  # other weights are the same ones for other programs
    lost = [f"left behind, with weights of their own: {list_text(left)}"] if left else []
    merged = MergedSources(models[0], lost=lost)
    if carry:
        merged.model = change(models[0])
        return merged
    plain = []
    for model in models:
        found = _remove_original(model, limits)
        merged.proofs |= found.proofs
        merged.changes += found.changes
        named, count = lengthen_names(found.model)
        if count:
            merged.changes.append(f"{plural(count, 'tensor')} called as before --shorten-names")
        plain.append(change(named))
    merged.model = plain[0] if len(plain) == 1 else _join(plain, target, merged.lost)
    return merged


def _join(models: Sequence[Model], target: Format, lost: list[str]) -> Model:
    """Return the tensors of all models; if metadata or assets have the same name, those of the first."""
    entries: dict[str, Entry] = {}
    assets: dict[str, Any] = {}
    for model in models:
        for entry in model.metadata.entries:
            kept = entries.setdefault(entry.key, entry)
            if not same_value(kept.value, entry.value):
                lost.append(f"metadata {entry.key!r} differs between the sources: the first stays")
        for name in model.assets:
            payload = model.assets.payload(name)
            if assets.setdefault(name, payload) is not payload and assets[name].read() != payload.read():
                lost.append(f"asset {name!r} differs between the sources: the first stays")
    joined = Model(
        [tensor for model in models for tensor in model.tensors],
        metadata=Metadata(entries.values()),
        assets=assets,
        native=target.join_native(models),
        format=models[0].format if len({model.format for model in models}) == 1 else None,
        sources=[source for model in models for source in model.sources],
    )
    joined.limits = models[0].limits
    lost += _list_unjoined(models, joined, target)
    return joined


def _list_unjoined(models: Sequence[Model], joined: Model, target: Format) -> list[str]:
    """List the content that ``target`` keeps of each of ``models``, but not of all together."""
    kept = [model for model in models if model.format is not None and target.keeps_unique_content(model)]
    if joined.native is not None:
        alone = {name for model in kept for name in target.clashing_content(model)}  # reported for each model
        return [f"{name}: {what}" for name, what in target.clashing_content(joined).items() if name not in alone]
    return [
        f"{model.sources[0].name}: {name}: {what}: is not joined with that of other files"
        for model in kept
        for name, what in registry.find(model.format or "").unique_content(model).items()
    ]


def _remove_original(model: Model, limits: Limits) -> MergedSources:
    """Remove the original that ``model`` carries. Tensors that are stored as opaque bytes get their type back.

    Their hashes prove that they are still the bytes that were carried.
    """
    found = find_skeleton(model, limits)
    if found is None:
        return MergedSources(model)
    skeleton, hashes = found
    changes = [f"the carried {skeleton.format} original is not in the target: holdall restore makes it from the source"]
    covered = {bond.carried: (row, bond) for row, bond in enumerate(skeleton.bonds) if bond.travels and not bond.plain}
    empty = [bond.name for bond in skeleton.bonds if not bond.travels]  # without bytes, so none are stored
    files = not registry.find(model.format or "").holds.assets  # those of the original have no other place
    original = open_original(model) if covered or empty or files else None
    if original is None:
        return MergedSources(_strip_own(model, model.tensors), changes=changes)
    assets = original.assets if files else model.assets
    tensors: list[Tensor] = []
    proofs: dict[str, Proof] = {}
    for tensor in model.tensors:
        row, bond = covered.get(tensor.name, (0, None))
        if bond is None or not bond.fits(tensor) or tensor.payload is None:  # the bytes may be gone, the form not
            tensors.append(tensor)
            continue
        proofs[bond.name] = _prove_bond(tensor.payload, bond, hashes[DIGEST * row : DIGEST * (row + 1)])
        tensors.append(original[bond.name])
    tensors += [original[name] for name in empty]
    if any(original[name].nbytes for name in empty):
        raise FormatError(BROKEN.id, None, f"the carried skeleton has bytes of {empty[0]!r}, which does not travel")
    return MergedSources(_strip_own(model, tensors if covered or empty else model.tensors, assets), proofs, changes)


def _strip_own(model: Model, tensors: TensorTable | list[Tensor], assets: Assets | None = None) -> Model:
    """Remove holdall's own metadata. Facets, such as the configuration, stay those of the original."""
    plain = model.replace(tensors=tensors, metadata=drop_carried_keys(model.metadata), assets=assets)
    plain.origin = model
    return plain


def _prove_bond(payload: Payload, bond: Bond, digest: bytes) -> Proof:
    """Make the proof that a tensor still has the bytes that were carried."""
    if isinstance(payload, SourceRange):
        source: Source = payload.source
        start = payload.offset
    else:  # another program stored the carrier anew, compressed, or the bytes cannot be read and reading says why
        whole = SkeletonFile("", bond.size, ((0, bond.size, 0),), b"")
        source, start = SkeletonSource(bond.carried, whole, [payload]), 0
    what = f"tensor {bond.carried!r}, which carries {bond.dtype}{list(bond.shape)}"
    return Proof(
        source, start, start + bond.size, "blake3", digest, BROKEN.id, what,
        stated="the carried skeleton (holdall restore --with-changes takes new bytes)",
    )  # fmt: skip
