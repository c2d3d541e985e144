"""One conversion between opening and writing: what is asked for, in the target's terms, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdall import registry
from holdall.errors import ContentError, UnsupportedError
from holdall.limits import Limits
from holdall.metadata import NAMES, Metadata, is_own, without_own
from holdall.model import Model
from holdall.operations.convert.carry import Carried
from holdall.operations.convert.changes import Changes
from holdall.operations.convert.dedup import share_equal
from holdall.operations.convert.express import Expressed, express, express_metadata
from holdall.operations.convert.merge import merge_models
from holdall.operations.convert.names import names_entry, shorten_names
from holdall.operations.convert.overwrite import narrowed
from holdall.operations.convert.report import ConversionReport, Loss
from holdall.operations.convert.skeleton import Bond, Skeleton, cut, find
from holdall.operations.convert.written import compare_content, compare_tensors, read_back
from holdall.packed import packed_weights
from holdall.payload import Range
from holdall.plan import FolderPlan, Plan, Results
from holdall.proof import Proof
from holdall.sharding import by_size
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from holdall.format import Format

__all__ = ["Job", "Wishes"]

_NAMED = 10
_CARRY_ALONE = "--carry keeps the original as it is, and goes with no change of content; leave out "


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller asks for beside source and target."""

    changes: Changes = field(default_factory=Changes)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    quantize: Callable[[Model], Model] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the target's writer, as given
    dedup: bool = False
    split: int | None = None
    carry: bool = False
    shorten: bool = False
    strict: bool = False

    def changing(self) -> list[str]:
        """The options that change content."""
        named = [(self.metadata, "--meta"), (self.quantize, "quantize"), (self.shorten, "--shorten-names")]
        return [*self.changes.options(), *(name for given, name in named if given)]


class Job:
    """One conversion. :meth:`plan` says what is written, :meth:`approve` looks at what was."""

    def __init__(
        self, models: list[Model], target: Format, wishes: Wishes, report: ConversionReport, limits: Limits
    ) -> None:
        self.models = models
        self.target = target
        self.settings = target.settings(wishes.options)
        self.wishes = wishes
        self.report = report
        self.limits = limits
        self.copies = False  # the file is written as it is
        self.proofs: list[Proof] = []  # of tensors that get their type back from a skeleton
        self._planned: list[Loss] = []
        self._source: Model | None = None  # what the target is to hold, before it is put in the target's terms
        self._expressed: Model | None = None
        self._carried: Carried | None = None
        self._carries_source = False  # the skeleton is that of the source, not of an original before it
        self._parts: list[str] = []  # of a split
        if wishes.carry:
            self._refuse_carrying()

    def _refuse_carrying(self) -> None:
        changing = self.wishes.changing()
        if changing:
            raise UnsupportedError(_CARRY_ALONE + ", ".join(changing))
        if len(self.models) > 1 or self.wishes.split is not None:
            raise UnsupportedError("--carry: files that are merged or split have no single original to carry")
        if not self.target.carries:
            raise UnsupportedError(f"{self.target.name} has no place in which an original could be carried")

    # -- what is written --------------------------------------------------------------------------------------------

    def plan(self, stem: str) -> Plan | FolderPlan:
        """What to write; ``stem`` names the parts of a split."""
        copy = self._copy()
        if copy is not None:
            return copy
        merged = merge_models(self.models, self.report, self.limits, carry=self.wishes.carry)
        self.proofs = [proof for name, proof in merged.proofs.items() if self.wishes.changes.chooses(name)]
        model = self._change(merged.model)
        self._source = model
        expressed = express(model, self.target, carry=self.wishes.carry)
        expressed = self._add_metadata(expressed)
        self._planned = self._losses(expressed)
        if self.wishes.strict and not self.wishes.carry:
            _refuse_losses(self.target, [*map(str, self._planned), *merged.lost])
        self.report.dropped += merged.lost
        if not len(expressed.model):
            self.report.changes.append("there are no tensors in it")
        self._count(expressed.model)
        self._expressed = expressed.model
        if self.wishes.carry:
            return self._plan_carrying(expressed)
        self.report.losses += self._planned
        if self.wishes.split is not None:
            return self._plan_split(expressed.model, self.wishes.split, stem)
        return self.target.plan(expressed.model, self.settings)

    def _copy(self) -> Plan | None:
        """The file as it is, when it is of the target's format already and nothing was asked for."""
        model, wishes = self.models[0], self.wishes
        asked = wishes.changing() or wishes.options or wishes.dedup or wishes.split is not None
        if len(self.models) > 1 or model.format != self.target.name or asked or len(model.sources) > 1:
            return None
        source = model.sources[0]
        own = any(is_own(key) or key == NAMES for key in model.metadata)
        if source.is_folder or (own and not wishes.carry):
            return None
        plan = Plan()
        plan.stream(Range(source, 0, source.size))
        self.copies = True
        nothing = ", and there is nothing to carry: the copy is the original" if wishes.carry else ""
        self.report.changes.append(f"is {self.target.name} already: copied as it is{nothing}")
        self._count(model)
        return plan

    # -- changes ----------------------------------------------------------------------------------------------------

    def _change(self, model: Model) -> Model:
        """``model`` with what was asked for, lazily; what the rules did, and what none of them met, is reported."""
        wishes = self.wishes
        tensors = self._change_tensors(model)
        if wishes.shorten:
            tensors, names = shorten_names(tensors, self.target)
            self.report.changes += [f"tensor {old!r} is called {new!r}" for new, old in names.items()]
            if names:
                wishes = replace(wishes, metadata={**wishes.metadata, **names_entry(names)})
                self.wishes = wishes
        _refuse_twins(tensors)
        if wishes.dedup:
            tensors, notes = share_equal(tensors)
            self.report.changes += notes
        changed = model.replace(tensors=tensors)
        if wishes.quantize is None:
            return changed
        quantized = wishes.quantize(changed)
        pairs = [(tensor, quantized[tensor.name]) for tensor in tensors if tensor.name in quantized]
        _refuse_packed(changed, pairs)
        self._drop(len(tensors) - len(pairs), pairs)
        return quantized

    def _change_tensors(self, model: Model) -> list[Tensor]:
        changes, report = self.wishes.changes, self.report
        chosen = [tensor for tensor in model.tensors if changes.chooses(tensor.name)]
        if len(model) and not chosen:
            raise ContentError("no tensor is left: include and exclude choose none")
        idle = changes.idle(model.tensors.names, [tensor.name for tensor in chosen])
        tensors = [changes.apply(tensor, report.add_change) for tensor in chosen]
        pairs = list(zip(chosen, tensors, strict=True))
        if changes.cast or changes.transpose or changes.dequantize:
            meant = [name for name in model.tensors.names if changes.dequantizes(name)]
            _refuse_packed(model, pairs, meant)
        self._drop(len(model) - len(chosen), pairs)
        done = [
            (sum(old.name != new.name for old, new in pairs), "renamed"),
            (sum(changes.transposes(old.name) and old.ndim > 1 for old, _ in pairs), "transposed"),
            *(
                (count, f"from {old} to {new}")
                for (old, new), count in Counter((str(old.dtype), str(new.dtype)) for old, new in pairs).items()
                if old != new
            ),
        ]
        report.changes += [f"{rule} matches no tensor" for rule in idle]
        report.changes += [f"{_tensors(count)} {what}" for count, what in done if count]
        return tensors

    def _drop(self, count: int, kept: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Report that so many tensors are left out, and what the others lose, each beside what became of it."""
        if count:
            self.report.dropped.append(f"{_tensors(count)} left out")
            self.report.changes.append(f"{_tensors(count)} left out")
        self.report.dropped += narrowed(kept)

    def _add_metadata(self, expressed: Expressed) -> Expressed:
        """Entries that the caller gives go in whatever the target does with those of others."""
        given = self.wishes.metadata
        if not given:
            return expressed
        assert self._source is not None
        for key in given:
            known = key in self._source.metadata
            self.report.changes.append(f"metadata {key!r} {'replaced' if known else 'added'}")
        if not self.target.holds.metadata:
            raise ContentError(f"{self.target.name} has no place for metadata")
        self._source = self._source.replace(metadata=self._source.metadata.updated(given))
        losses = [loss for loss in expressed.losses if loss.part != "metadata" or loss.name not in given]
        mine = express_metadata(Metadata(given), self.target, losses, given=True)
        refused = next((loss for loss in losses if loss.name in given and loss.name not in mine), None)
        if refused is not None:
            raise ContentError(f"{self.target.name}: metadata {refused.name!r}: {refused.reason}")
        model = expressed.model.replace(metadata=expressed.model.metadata.updated(dict(mine)))
        return Expressed(model, losses, expressed.forms)

    # -- what is lost -----------------------------------------------------------------------------------------------

    def _losses(self, expressed: Expressed) -> list[Loss]:
        """All that the target does not hold as the source does, as far as planning can tell."""
        left = self.target.leaves(expressed.model, self.settings)
        losses = expressed.losses + [Loss("metadata", key, reason, "left out") for key, reason in left.items()]
        for model in self.models:
            if model.format not in (None, self.target.name):
                for name, what in registry.find(model.format or "").only_here(model).items():
                    losses.append(Loss("native", name, f"{what}: only {model.format} has a place for it", "left out"))
        return losses

    # -- carrying ---------------------------------------------------------------------------------------------------

    def _plan_carrying(self, expressed: Expressed) -> Plan | FolderPlan:
        """The target with the skeleton of the source, or with the one that the source carries already."""
        model, report, longest = self.models[0], self.report, self.target.holds.text_bytes
        found = find(model, self.limits)
        forms = expressed.forms
        if found is None:
            skeleton = cut(model, forms.get)
            carried = Carried(skeleton, longest)
            travelling = [forms.get(bond.name) for bond in skeleton.bonds]
            self._carries_source = True
            self._planned = [_carry(loss) for loss in self._planned]
        else:
            skeleton = _hand_on(found[0], model, forms)
            carried = Carried(skeleton, longest, found[1])
            travelling = [forms.get(bond.carried) if bond.carried else None for bond in found[0].bonds]
        self._carried = carried
        report.carried, report.skeleton_bytes = skeleton.format, carried.size
        report.losses += self._planned
        out = expressed.model.replace(metadata=without_own(expressed.model.metadata))
        if not self.target.folder:
            out = out.replace(metadata=carried.extend(out.metadata))
        plan = self.target.plan(out, self.settings)
        carried.attach(plan, travelling)
        return plan

    # -- splitting --------------------------------------------------------------------------------------------------

    def _plan_split(self, model: Model, most: int, stem: str) -> FolderPlan:
        """Several files of the same format in a folder, each with at most ``most`` payload bytes, or one tensor."""
        if self.target.folder:
            raise UnsupportedError(f"{self.target.name} is made of several files already: see its own options")
        if not self.target.splits:
            able = ", ".join(name for name in registry.names() if registry.find(name).splits)
            raise UnsupportedError(f"{self.target.name} has no convention for several files; these have: {able}")
        parts = by_size(model.tensors, most)
        for tensor in (part[0] for part in parts if part and part[0].nbytes > most):
            self.report.add_change(
                f"tensor {tensor.name!r} alone has {tensor.nbytes} bytes: the file with it is larger than {most}"
            )
        suffix = self.target.suffixes[0]
        names = [f"{stem}-{number:05}-of-{len(parts):05}{suffix}" for number in range(1, len(parts) + 1)]
        files = {}
        for number, (name, tensors) in enumerate(zip(names, parts, strict=True)):
            part = self.target.part(model.replace(tensors=tensors), number, len(parts), len(model))
            plan = self.target.plan(part, self.settings)
            assert isinstance(plan, Plan)
            files[name] = plan
        self._parts = names
        return FolderPlan({**files, **self.target.split_files(stem, dict(zip(names, parts, strict=True)))})

    # -- what was written -------------------------------------------------------------------------------------------

    def approve(self, path: Path, results: Results) -> None:
        """Read back what was written, before it takes its name: the report says what is there."""
        expected, source, report = self._expressed, self._source, self.report
        changed = self._carried.changed(results) if self._carried is not None else []
        if changed:
            raise ContentError(_cannot_hand_on(report.carried, f"{changed[0]!r} has other values"))
        if expected is None or source is None:  # a copy
            return
        with read_back(self.target, path, self._parts, self.limits) as written:
            rows = ((t.name, str(t.dtype), t.shape, t.nbytes) for t in expected.tensors)
            changed = compare_tensors(rows, written)
            if changed and self.wishes.carry:
                raise ContentError(f"the writer's options change what is to be carried: {changed[0]}")
            report.dropped += changed
            if self._carries_source:  # which has everything: what the target expresses in its own terms is for others
                return
            found = compare_content(source, written, self._planned)
        report.losses = [loss for loss in self._planned if loss.part == "tensor"] + found

    def _count(self, model: Model) -> None:
        self.report.tensors, self.report.nbytes = len(model), model.nbytes


def _tensors(count: int) -> str:
    return f"{count} {'tensor' if count == 1 else 'tensors'}"


def _refuse_packed(model: Model, pairs: Iterable[tuple[Tensor, Tensor]], meant: Sequence[str] = ()) -> None:
    """ContentError when a tensor that is one of several that make a weight was changed, or was ``meant`` to be."""
    packed = packed_weights(model)
    changed = [old.name for old, new in pairs if old.name in packed and old.payload is not new.payload]
    changed += [name for name in meant if name in packed]
    if changed:
        raise ContentError(
            f"tensor {changed[0]!r} {packed[changed[0]]}: the weight is made of several tensors, and a change of one "
            f"alone would change its values; {len(changed)} of {len(model)} tensors are so. Copies are possible"
        )


def _refuse_twins(tensors: list[Tensor]) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise ContentError(f"two tensors would be called {tensor.name!r}: rename or exclude one of them")
        seen.add(tensor.name)


def _carry(loss: Loss) -> Loss:
    """``loss`` where the skeleton has what is lost."""
    return replace(loss, fate="carried") if loss.fate in ("left out", "text", "changed") else loss


def _cannot_hand_on(format: str | None, what: str) -> str:
    return (
        f"the {format} original that is carried cannot be handed on: tensor {what}. "
        "Convert without --carry, or restore it first"
    )


def _hand_on(skeleton: Skeleton, model: Model, forms: Mapping[str, Tensor]) -> Skeleton:
    """The original that ``model`` carries, bound to the ``forms`` in which its tensors travel from now on."""
    bonds = []
    for bond in skeleton.bonds:
        tensor = model.get(bond.carried) if bond.carried else None
        if bond.carried and (tensor is None or not bond.fits(tensor)):
            now = "is gone" if tensor is None else f"is {tensor.dtype}{list(tensor.shape)}"
            raise ContentError(_cannot_hand_on(skeleton.format, f"{bond.carried!r} {now}"))
        form = forms.get(bond.carried) if bond.carried else None
        carried = ("", "", ()) if form is None else (form.name, str(form.dtype), form.shape)
        bonds.append(Bond(bond.name, bond.dtype, bond.shape, bond.size, *carried))
    return Skeleton(skeleton.format, tuple(bonds), skeleton.members, skeleton.folder)


def _refuse_losses(target: Format, losses: Sequence[str]) -> None:
    """ContentError with the list of losses, and what would help."""
    if not losses:
        return
    shown = "; ".join(losses[:_NAMED])
    more = f"; and {len(losses) - _NAMED} more" if len(losses) > _NAMED else ""
    raise ContentError(
        f"{target.name} cannot hold everything, and strict was asked for: {shown}{more}. "
        "To go on without it leave out --strict; to keep it, use --carry or another format"
    )
