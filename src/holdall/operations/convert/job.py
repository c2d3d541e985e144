"""One conversion between opening its sources and writing its target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.base.repeats import find_repeat
from holdall.base.text import plural
from holdall.errors import ContentError
from holdall.format import registry
from holdall.format.proof import Proof, proofs_of, prove
from holdall.format.refusals import find_unplaced
from holdall.model.arranged_table import ArrangedTable
from holdall.model.cast_table import CastTable
from holdall.model.dtypes import DTYPES
from holdall.model.equal_tensors import find_equal
from holdall.model.growth import limit_growth, limit_passes
from holdall.model.metadata import NAMES, Metadata, drop_carried_keys, is_carried_key
from holdall.model.model import Model
from holdall.model.payload import SourceRange
from holdall.model.replaced_table import ReplacedTable
from holdall.model.table import TensorTable
from holdall.operations.convert.adapt import AdaptedModel, adapt_metadata, adapt_model
from holdall.operations.convert.carry import CarriedSkeleton, hand_on_error, hand_on_skeleton, refuse_carrying
from holdall.operations.convert.compare_written import compare_content, compare_tensors, read_back, refuse_foreign_files
from holdall.operations.convert.decode_packed import Decoded, decode_packed, note_copied
from holdall.operations.convert.merge import describe_source, merge_models
from holdall.operations.convert.names import names_entry, shorten_names
from holdall.operations.convert.options import ConvertOptions
from holdall.operations.convert.overwrite import list_narrowing
from holdall.operations.convert.recipe import follow_recipe, list_lost_values, list_unplaced
from holdall.operations.convert.refusals import refuse_losses, refuse_methods, refuse_packed
from holdall.operations.convert.report import ConversionReport, Loss
from holdall.operations.convert.retyped import count_retyped, list_retyped
from holdall.operations.convert.skeleton import find_skeleton, make_skeleton
from holdall.operations.convert.split import plan_split
from holdall.operations.convert.write_plan import plans_of
from holdall.sink.plan import FolderPlan, Plan, Results

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.operations.convert.changes import Changes
    from holdall.quant.plan import Quantization, QuantPlan
    from holdall.recipes import Applied

__all__ = ["Job"]

_LONG = buffer_size(64 << 20)  # a shorter remote file is read whole before it is written: there is nothing to continue


class Job:
    """:meth:`plan` decides what is written, :meth:`approve` reads it back, :meth:`report` builds the report.

    ``changes``, ``dropped`` and ``losses`` are those of the report. They grow while the conversion is planned and
    written, since some things are known only then.
    """

    def __init__(self, models: list[Model], target: Format, options: ConvertOptions) -> None:
        self.models = models
        self.target = target
        self.options = options
        self.settings = target.settings(options.writer)
        self.changes: list[str] = [note for model in models for note in describe_source(model)]
        self.dropped: list[str] = []
        self.losses: list[Loss] = []
        self.copies_file = False
        self.copies_set = False  # file by file, each checked by what the set states of it
        self.proofs: list[Proof] = []  # the proofs of tensors whose type comes from a skeleton
        self._metadata = dict(options.metadata)
        self._quantization: QuantPlan | None = None
        self._applied: Applied | None = None
        self._source: Model | None = None  # the content to write, before it is adapted to the target
        self._adapted: Model | None = None
        self._carried: CarriedSkeleton | None = None
        self._parts: list[str] = []  # the files of a split
        if options.carry:
            refuse_carrying(models, target, options)

    def plan(self, stem: str) -> Plan | FolderPlan:
        """Plan what is written; ``stem`` names the parts of a split."""
        plan = self._plan_copy() or self._plan_content(stem)
        self.changes += dict.fromkeys(note for file in plans_of(plan) for note in file.notes)
        return plan

    def _plan_copy(self) -> Plan | FolderPlan | None:
        """Plan a copy of the file, or set, if it has the target's format already and no change was asked for."""
        model, carry = self.models[0], self.options.carry
        if len(self.models) == 1 and model.format == self.target.name and self.options.copies_file and not carry:
            copied = self.target.plan_copy(model)
            if copied is not None:
                self.copies_set = True
                same = not any(file.notes for file in plans_of(copied))
                how = "copied as it is" if same else "its files are copied, all but one unchanged"
                self.changes.append(f"is {self.target.name} already: {how}")
                return copied
        if len(self.models) > 1 or len(model.sources) > 1 or model.sources[0].is_folder:
            return None
        own = any(is_carried_key(key) or key == NAMES for key in model.metadata)
        if model.format != self.target.name or not self.options.copies_file or (own and not carry):
            return None
        if not self.target.copies_as_it_is(model):
            return None
        if not (self.target.copies_clashing or carry) and self.target.clashing_content(model):
            return None
        source, plan = model.sources[0], Plan()
        plan.stream(SourceRange(source, 0, source.size))
        # Without an ETag nothing says whether the object is still the one of which a part was fetched.
        if source.is_remote and source.size > _LONG and source.identity[2] is not None:
            plan.identify = lambda: json.dumps(source.identity)
        self.copies_file = True
        nothing = ", and there is nothing to carry or to restore: the copy is the original" if carry else ""
        self.changes.append(f"is {self.target.name} already: copied as it is{nothing}")
        return plan

    def _plan_content(self, stem: str) -> Plan | FolderPlan:
        options, target = self.options, self.target
        decoded: list[Decoded] = []

        def decode(model: Model) -> Model:
            decoded.append(decode_packed(model, options, self._note_once))
            return decoded[-1].model

        merged = merge_models(self.models, target, options.limits, decode, carry=options.carry)
        self.changes += merged.changes
        self.proofs = [proof for name, proof in merged.proofs.items() if options.changes.chooses(name)]
        for each in decoded:
            self.changes += each.changes
            self.dropped += each.dropped
        self._source = self._change(merged.model)
        adapted = self._add_metadata(adapt_model(self._source, target, self.settings, carry=options.carry))
        self.changes += note_copied(decoded, adapted.model, target.name, options)
        self.losses = self._find_losses(adapted)
        if options.strict and not options.carry:
            refuse_losses(target, [*map(str, self.losses), *merged.lost])
        self.dropped += merged.lost
        if not len(adapted.model):
            self.changes.append("there are no tensors in it")
        self._adapted = adapted.model
        if options.carry:
            return self._plan_carrying(adapted)
        if options.split is not None:
            plan, self._parts = plan_split(adapted.model, target, self.settings, options.split, stem)
            return plan
        return target.plan(adapted.model, self.settings)

    def _plan_carrying(self, adapted: AdaptedModel) -> Plan | FolderPlan:
        """Plan the target with the skeleton of the source, or with the one that the source carries already."""
        model, longest = self.models[0], self.target.holds.text_bytes
        stored, rows = adapted.model.tensors, adapted.rows
        found = find_skeleton(model, self.options.limits)
        if found is None:
            carried = CarriedSkeleton(skeleton := make_skeleton(model, stored, rows), longest)
            travelling = [rows.get(bond.name) for bond in skeleton.bonds]
            self.losses = [_mark_carried(loss) for loss in self.losses]
        else:
            skeleton, hashes = found
            carried = CarriedSkeleton(hand_on_skeleton(skeleton, model, stored, rows), longest, hashes)
            travelling = [rows.get(bond.carried) if bond.travels else None for bond in skeleton.bonds]
        self._carried = carried
        content = adapted.model.replace(metadata=drop_carried_keys(adapted.model.metadata))
        if not self.target.folder:
            content = content.replace(metadata=carried.extend_metadata(content.metadata))
        plan = self.target.plan(content, self.settings)
        carried.attach(plan, stored, travelling)
        return plan

    def _change(self, model: Model) -> Model:
        """Return ``model`` with the changes that were asked for; bytes are computed only when they are written."""
        model = self._cook(model.replace(tensors=self._change_tensors(model)))
        tensors = model.tensors
        if self.options.shorten_names:
            tensors, names = shorten_names(tensors, self.target)
            self.changes += [f"tensor {old!r} is called {new!r}" for new, old in names.items()]
            self._metadata |= names_entry(names) if names else {}
        repeat = find_repeat(tensors.names)
        if repeat is not None:
            raise ContentError(f"two tensors would be called {tensors.names[repeat]!r}: rename or exclude one of them")
        if self.options.dedup:
            tensors = self._share_equal(tensors)
        if self.options.quantize is None:
            return model.replace(tensors=tensors)
        return self._quantize(model.replace(tensors=tensors), self.options.quantize)

    def _cook(self, model: Model) -> Model:
        """Return ``model`` as its recipe makes it for the target, if there is one."""
        self._applied = follow_recipe(model, self.target, self.options, several=len(self.models) > 1)
        if self._applied is None:
            return model
        self.changes += self._applied.describe()
        self.dropped += list_lost_values(self._applied)
        return self._applied.model

    def _quantize(self, model: Model, request: Quantization) -> Model:
        """Quantize tensors by a plan, which goes into the report. A dry run reads no values for it."""
        from holdall.quant.model import apply_plan
        from holdall.quant.plan import plan_model

        self._quantization = plan_model(model, request)
        refuse_methods(self.target, self._quantization.methods.values())
        survey = not self.options.dry_run
        quantized = apply_plan(model, self._quantization, on_progress=self.options.progress, survey=survey)
        refuse_packed(model, list_retyped(model.tensors, quantized.tensors))
        self.dropped += list_narrowing(model.tensors, quantized.tensors)
        return quantized

    def _change_tensors(self, model: Model) -> TensorTable:
        """Return the tensors that are wanted, changed. They stay columns unless values change."""
        changes, casts = self.options.changes, self._list_default_casts()
        chosen = self._choose(model.tensors)
        if len(model) and not len(chosen):
            raise ContentError("no tensor is left: include and exclude choose none")
        limit_growth(model, Check(limits=self.options.limits), chosen)  # those of a carried original too
        limit_passes(model, chosen)
        left = len(model) - len(chosen)
        self.dropped += [f"{plural(left, 'tensor')} left out"] if left else []
        self.changes += [f"{plural(left, 'tensor')} left out"] if left else []
        valued = self._cast_by_default(changes.change_values(chosen, self._note_once), casts)
        transposed = _list_transposed(chosen, changes)
        if valued is not chosen:
            meant = filter(changes.dequantizes, model.tensors.names)
            refuse_packed(model, chain(transposed, list_retyped(chosen, valued), meant))
            self.dropped += list_narrowing(chosen, valued)
        unmatched = changes.find_unmatched(model.tensors.names, chosen.names)
        self.changes += [f"{rule} matches no tensor" for rule in unmatched]
        self.changes += changes.find_uncast(chosen)
        changed = self._rename(valued)
        done = [
            (sum(map(ne, chosen.names, changed.names)), "renamed"),
            (len(transposed), "transposed"),
            *((count, f"from {old} to {new}") for (old, new), count in count_retyped(chosen, valued).items()),
        ]
        self.changes += [f"{plural(count, 'tensor')} {what}" for count, what in done if count]
        return changed

    def _choose(self, table: TensorTable) -> TensorTable:
        """Return the tensors that are wanted."""
        changes = self.options.changes
        if not changes.include and not changes.exclude:
            return table
        rows = [row for row, name in enumerate(table.names) if changes.chooses(name)]
        return ArrangedTable(table, np.array(rows, np.intp))

    def _rename(self, table: TensorTable) -> TensorTable:
        """Return the tensors under their new names."""
        changes = self.options.changes
        if not changes.rename and not changes.names:
            return table
        return ArrangedTable(table, np.arange(len(table)), list(map(changes.new_name, table.names)))

    def _cast_by_default(self, table: TensorTable, casts: Mapping[str, str]) -> TensorTable:
        """Return the tensors in the types that the target's programs use in the place of theirs."""
        found = sorted({str(form.dtype) for form in table.forms().kinds} & casts.keys())
        if not found:
            return table
        numbers = {name: number for number, name in enumerate(found)}
        choices = table.forms().column(lambda form: numbers.get(str(form.dtype), -1), np.intp)
        return CastTable(table, [DTYPES[casts[name]] for name in found], choices, self._note_once)

    def _list_default_casts(self) -> Mapping[str, str]:
        """List the types that the target's programs use in the place of others."""
        plain = all(registry.find(model.format or "").plain_arrays for model in self.models if model.format)
        return {} if not plain or self.options.strict or self.options.carry else self.target.holds.default_casts

    def _share_equal(self, tensors: TensorTable) -> TensorTable:
        """Give tensors of the same dtype, shape and bytes one payload."""
        found = find_equal(tensors, lambda form: bool(form.size))
        firsts = {first: tensors.tensor(first) for first in found.values()}  # whose payloads are objects that stay
        shared = {row: tensors.tensor(row).replace(payload=firsts[first].payload) for row, first in found.items()}
        names = tensors.names
        self.changes += [f"{names[row]!r} shares the bytes of {names[first]!r}" for row, first in found.items()]
        return ReplacedTable(tensors, firsts | shared)

    def _add_metadata(self, adapted: AdaptedModel) -> AdaptedModel:
        """Add the entries that the caller gives, even if the target takes no foreign metadata."""
        given = self._metadata
        if not given:
            return adapted
        assert self._source is not None
        for key in given:
            self.changes.append(f"metadata {key!r} {'replaced' if key in self._source.metadata else 'added'}")
        if not self.target.holds.metadata:
            raise ContentError(f"{self.target.name} has no place for metadata")
        self._source = self._source.replace(metadata=self._source.metadata.replace(given))
        losses = [loss for loss in adapted.losses if loss.part != "metadata" or loss.name not in given]
        mine = adapt_metadata(Metadata(given), self.target, losses, given=True)
        refused = next((loss for loss in losses if loss.name in given and loss.name not in mine), None)
        if refused is not None:
            raise ContentError(f"{self.target.name}: metadata {refused.name!r}: {refused.reason}")
        model = adapted.model.replace(metadata=adapted.model.metadata.replace(dict(mine)))
        return AdaptedModel(model, losses, adapted.rows)

    def _find_losses(self, adapted: AdaptedModel) -> list[Loss]:
        """List content that the target cannot store unchanged, as far as planning can tell."""
        left = self.target.omitted_metadata(adapted.model, self.settings)
        losses = adapted.losses + [Loss("metadata", key, reason, "left out") for key, reason in left.items()]
        losses += list_unplaced(self._applied)
        placed = frozenset[str]() if self._applied is None else self._applied.placed
        for model in self.models:
            found = find_unplaced(model, self.target)
            for name, what in ((name, what) for name, what in found.items() if name not in placed):
                losses.append(Loss("native", name, f"{what}: {self.target.name} has no place for it", "left out"))
        return losses

    def _note_once(self, text: str) -> None:
        """Add a change. A lazy cast reports the same overflow each time its bytes are read."""
        if text not in self.changes:
            self.changes.append(text)

    def approve(self, path: Path, results: Results) -> None:
        """Read the new file back before it replaces the target, so that the report describes what was written."""
        carried, adapted, source = self._carried, self._adapted, self._source
        changed = carried.find_changed(results) if carried is not None else []
        if carried is not None and changed:
            raise hand_on_error(carried.skeleton, f"{changed[0]!r} has other values")
        if adapted is None or source is None:  # a copy
            if results.get("continued") and self.options.check:
                with read_back(self.target, path, [], self.options.limits) as written:
                    prove(proofs_of(written))  # the bytes of the first attempt too, which were not read now
            return
        with read_back(self.target, path, self._parts, self.options.limits) as written:
            refuse_foreign_files(written, path)
            narrowing = compare_tensors(adapted.tensors, written.tensors)
            if narrowing and carried is not None:
                raise ContentError(f"the writer's options change what is to be carried: {narrowing[0]}")
            self.dropped += narrowing
            # The skeleton of the source has everything, so what the target cannot express is not lost.
            if carried is None or carried.is_handed_on:
                merged = self.target.merged_assets(adapted, self.settings)
                found = compare_content(source, written, self.losses, merged)
                kept = [loss for loss in self.losses if loss.part == "tensor"] + list_unplaced(self._applied)
                self.losses = kept + found

    def report(
        self,
        dst: str,
        *,
        size: int | None,
        written: bool,
        checked: bool,
        replaces: bool,
        folder: bool,
        seconds: float,
    ) -> ConversionReport:
        """Build the report of what was done, or with ``written`` False would be."""
        content = self.models[0] if self._adapted is None else self._adapted
        return ConversionReport(
            source=[model.sources[0].name for model in self.models],
            source_format=[model.format or "" for model in self.models],
            target=dst,
            target_format=self.target.name,
            tensors=len(content),
            nbytes=content.nbytes,
            size=size,
            losses=self.losses,
            dropped=self.dropped,
            changes=self.changes,
            quantization=self._quantization,
            recipe=self._applied,
            skeleton_bytes=0 if self._carried is None else self._carried.size,
            carried=None if self._carried is None else self._carried.skeleton.format,
            written=written,
            checked=checked,
            replaces=replaces,
            folder=folder,
            seconds=seconds,
        )


def _list_transposed(table: TensorTable, changes: Changes) -> list[str]:
    """The names of tensors whose axes are reversed; one axis has no other order."""
    if not changes.transpose:
        return []
    pairs = zip(table.names, table.forms(), strict=True)
    return [name for name, form in pairs if changes.transposes(name) and len(form.shape) > 1]


def _mark_carried(loss: Loss) -> Loss:
    """Mark ``loss`` as kept by the skeleton."""
    return replace(loss, fate="carried") if loss.fate in ("left out", "text", "changed") else loss
