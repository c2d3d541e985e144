"""The sources of a conversion as one model, with what earlier conversions hid in them as it was before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdall.errors import FormatError
from holdall.limits import Limits
from holdall.metadata import Entry, Metadata, without_own
from holdall.model import Model, TensorTable
from holdall.operations.convert.bound import original_of
from holdall.operations.convert.names import lengthen_names
from holdall.operations.convert.report import ConversionReport
from holdall.operations.convert.skeleton import BROKEN, DIGEST, Bond, find
from holdall.payload import Range
from holdall.proof import Proof
from holdall.tensor import Tensor

__all__ = ["Merged", "merge_models"]


@dataclass(slots=True)
class Merged:
    """One model, and the ``proofs`` of tensors that get their type back from a skeleton."""

    model: Model
    proofs: dict[str, Proof] = field(default_factory=dict)  # by the name of the tensor
    lost: list[str] = field(default_factory=list)  # what differs between the sources, in words


def merge_models(models: Sequence[Model], report: ConversionReport, limits: Limits, *, carry: bool) -> Merged:
    """``models`` as one. With ``carry`` there is one, and it stays as it is."""
    if carry:
        return Merged(models[0])
    found = [_uncover(model, report, limits) for model in models]
    proofs = {name: proof for one in found for name, proof in one.proofs.items()}
    plain = [_lengthen(one.model, report) for one in found]
    lost: list[str] = []
    return Merged(plain[0] if len(plain) == 1 else _join(plain, lost), proofs, lost)


def _join(models: Iterable[Model], lost: list[str]) -> Model:
    """The tensors of all; of metadata and assets with the same name, those of the first."""
    models = list(models)
    entries: dict[str, Entry] = {}
    assets: dict[str, Any] = {}
    for model in models:
        for entry in model.metadata.entries:
            kept = entries.setdefault(entry.key, Entry(entry.key, entry.value))
            if _differs(kept.value, entry.value):
                lost.append(f"metadata {entry.key!r} differs between the sources: the first stays")
        for name in model.assets:
            payload = model.assets.payload(name)
            if assets.setdefault(name, payload) is not payload and assets[name].read() != payload.read():
                lost.append(f"asset {name!r} differs between the sources: the first stays")
    return Model(
        [tensor for model in models for tensor in model.tensors],
        metadata=Metadata(entries.values()),
        assets=assets,
        format=models[0].format if len({model.format for model in models}) == 1 else None,
        sources=[source for model in models for source in model.sources],
    )


def _lengthen(model: Model, report: ConversionReport) -> Model:
    """``model`` with the names that it had before they were shortened."""
    model, count = lengthen_names(model)
    if count:
        report.changes.append(f"{count} {'tensor' if count == 1 else 'tensors'} called as before --shorten-names")
    return model


def _uncover(model: Model, report: ConversionReport, limits: Limits) -> Merged:
    """``model`` without the original that it carries; tensors that travel as opaque bytes get their type back.

    A conversion reads those as what they are. Their hashes prove that they are still the bytes that were carried.
    """
    found = find(model, limits)
    if found is None:
        return Merged(model)
    skeleton, hashes = found
    report.changes.append(f"the carried {skeleton.format} original is left out: holdall restore makes it")
    covered = {bond.carried: (row, bond) for row, bond in enumerate(skeleton.bonds) if not bond.plain}
    alone = [bond.name for bond in skeleton.bonds if not bond.carried]  # without bytes: nothing had to travel
    original = original_of(model) if covered else None
    if original is None:
        return Merged(_without_original(model, model.tensors))
    tensors: list[Tensor] = []
    proofs: dict[str, Proof] = {}
    for tensor in model.tensors:
        row, bond = covered.get(tensor.name, (0, None))
        if bond is None or not bond.fits(tensor):
            tensors.append(tensor)
            continue
        proofs[bond.name] = _bond_proof(tensor, bond, hashes[DIGEST * row : DIGEST * (row + 1)])
        true = original[bond.name]
        tensors.append(Tensor(true.name, true.dtype, true.shape, true.payload, true.native))
    tensors += [original[name] for name in alone]
    if any(original[name].nbytes for name in alone):
        raise FormatError(BROKEN.id, None, f"the carried skeleton has bytes of {alone[0]!r}, which does not travel")
    return Merged(_without_original(model, tensors), proofs)


def _without_original(model: Model, tensors: TensorTable | list[Tensor]) -> Model:
    """``model`` as itself alone; its facets are still those of the original, such as a quantization_config."""
    plain = model.replace(tensors=tensors, metadata=without_own(model.metadata))
    plain.origin = model
    return plain


def _bond_proof(tensor: Tensor, bond: Bond, digest: bytes) -> Proof:
    """The proof that a tensor still has the bytes that were carried."""
    payload = tensor.payload
    assert isinstance(payload, Range), "a carrier stores its tensors plainly"
    what = f"tensor {tensor.name!r}, which carries {bond.dtype}{list(bond.shape)}"
    return Proof(
        payload.source, payload.offset, payload.offset + bond.size, "blake3", digest, BROKEN.id, what,
        stated="the carried skeleton (holdall restore --with-changes takes new bytes)",
    )  # fmt: skip


def _differs(a: Any, b: Any) -> bool:
    result = a != b
    return bool(result.any()) if hasattr(result, "any") else bool(result)
