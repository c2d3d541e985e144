"""The way back: what a conversion carries of its source, and how the source is made again from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdall import registry, skeleton
from holdall.check import Check, Report
from holdall.errors import HoldallError
from holdall.ledger import Ledger
from holdall.loss import Loss, express
from holdall.metadata import Entry
from holdall.model import Model
from holdall.payload import Held, Range
from holdall.plan import Constant, FolderPlan, Piece, Plan, Stream
from holdall.planned import PlannedSource
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from holdall.format import Format, Holds
    from holdall.limits import Limits
    from holdall.source import Source

__all__ = ["carried_entries", "original_model", "original_plan", "same_on_return"]


def _carried(model: Model, target: Format, limits: Limits) -> skeleton.Skeleton | None:
    """The skeleton of a file of the target's format that ``model`` carries."""
    carried = skeleton.find(model, limits)
    wanted = carried is not None and carried.format == target.name and skeleton.may_read(model, target.name)
    return carried if wanted else None


def original_plan(model: Model, target: Format, limits: Limits) -> tuple[Plan | FolderPlan, Model] | None:
    """The original file, byte for byte, when ``model`` carries it and none of its payloads has changed."""
    carried = _carried(model, target, limits)
    if carried is None:
        return None
    source, changed = skeleton.bound_source(carried, model, _name(model))
    known = {bond.carried for bond in carried.bonds}
    if changed or any(name not in known for name in model):
        return None
    report = Report(source.name, carried.format, "full")
    check = Check(limits=carried.tightened(limits), report=report)
    with check.scope():
        original = target.read(source, check, Ledger())
        target.audit(original, check, lambda _: None)  # a payload that no longer fits its checksum
    return (skeleton.plan_of(source), original) if report.ok else None


def original_model(model: Model, target: Format, limits: Limits) -> tuple[Model, list[Loss]] | None:
    """The original that ``model`` carries, with the tensors that have changed as they are now; and those gone."""
    carried = _carried(model, target, limits)
    if carried is None:
        return None
    source, changed = skeleton.bound_source(carried, model, _name(model))
    original = target.read(source, Check(limits=carried.tightened(limits)), Ledger())
    names = {bond.name: bond.carried for bond in carried.bonds}
    tensors, losses = [], []
    for tensor in original.tensors:
        now = model.get(names.get(tensor.name, "")) if tensor.name in changed else None
        if tensor.name not in changed:
            tensors.append(tensor)
        elif now is not None:
            tensors.append(Tensor(tensor.name, now.dtype, now.shape, now.payload))
        else:
            losses.append(Loss("tensor", tensor.name, "is in the original, but not in the source", "lost"))
    known = set(names.values())
    tensors += [tensor for tensor in model.tensors if tensor.name not in known]
    return original.replace(tensors=tensors), losses


def carried_entries(model: Model, travels: Callable[[str], Tensor | None], holds: Holds, limits: Limits) -> list[Entry]:
    """The skeleton of ``model`` as metadata. ``travels(name)`` is the form in which a tensor travels, or None.

    There is never one inside another: a model that carries an original hands that one on.
    """

    def bond(name: str) -> tuple[str, str] | None:
        form = travels(name) if name else None
        return None if form is None else (form.name, str(form.dtype))

    carried = skeleton.find(model, limits)
    if carried is None:
        text = skeleton.cut(model, bond).to_text()
    else:
        bonds = tuple(
            skeleton.Bond(old.name, old.dtype, old.size, *(bond(old.carried) or ("", ""))) for old in carried.bonds
        )
        text = skeleton.Skeleton(carried.format, bonds, carried.members, carried.folder).to_text()
    step = holds.text_bytes or max(1, len(text))
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    return [Entry(skeleton.KEY + (f".{number}" if number else ""), part) for number, part in enumerate(parts)]


def same_on_return(model: Model, expressed: Model, target: Format, settings: Mapping[str, Any]) -> bool:
    """Whether the source's own writer, given what the target hands back, would make the same file again.

    The file that the target would write is read before it is written: in its order, with its values. Payloads are not
    read, only where they come from and where they would go. Files with checksums and sets of files count as different.
    """
    source = model.sources[0]
    if source.is_folder or len(model.sources) > 1:
        return False
    own = registry.find(model.format or "")
    if own.holds.own_metadata:  # the way back would carry a skeleton of the target
        return False
    try:
        there = target.plan(expressed, settings)
        if not isinstance(there, Plan) or not PlannedSource.readable(there):
            return False
        planned = PlannedSource(there)
        returned = target.read(planned, Check(), Ledger())
        form, losses, _ = express(returned, returned.tensors, own)
        plan = None if losses else own.plan(form, own.settings({}))
    except HoldallError:
        return False
    if not isinstance(plan, Plan) or plan.taps or plan.size != source.size:
        return False
    source.prefetch(_kept_ranges(plan))
    at = 0
    for piece in plan.pieces:
        if any(source.read(at, piece.offset - at)) or not _is_in_place(piece, source, planned):
            return False
        at = piece.offset + piece.size
    return not any(source.read(at, source.size - at))


def _is_in_place(piece: Piece, source: Source, planned: PlannedSource) -> bool:
    """Whether ``piece`` is what ``source`` has there; payloads of ``planned`` are known by where they came from."""
    match piece:
        case Constant():
            return source.read(piece.offset, piece.size) == piece.data
        case Stream(payload=Held(data=data)):
            return source.read(piece.offset, piece.size) == data
        case Stream(payload=Range(source=place, offset=offset, size=size)) if place is planned and size:
            came = planned.payload(offset, size)
            return isinstance(came, Range) and came.source is source and came.offset == piece.offset
        case _:
            return not piece.size


def _name(model: Model) -> str:
    return model.sources[0].name if model.sources else "<memory>"


def _kept_ranges(plan: Plan) -> Iterator[tuple[int, int]]:
    """The ranges of a file that hold no payload of a source."""
    at = 0
    for piece in plan.pieces:
        if isinstance(piece, Stream) and isinstance(piece.payload, Range):
            yield at, piece.offset
            at = piece.offset + piece.size
    yield at, plan.cursor
