"""One conversion between opening and writing: what is asked for, expressed in the target's terms, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from holdall import skeleton
from holdall.dedup import share_bytes, share_equal
from holdall.errors import ContentError, UnsupportedError
from holdall.inplace import narrowed
from holdall.limits import Limits
from holdall.loss import Loss, as_text, express
from holdall.metadata import Entry, Metadata
from holdall.model import Model
from holdall.payload import Range
from holdall.plan import FolderPlan, Plan
from holdall.returning import carried_entries, original_model, original_plan, same_on_return
from holdall.sharding import by_size
from holdall.tensor import Tensor
from holdall.transform import Changes

if TYPE_CHECKING:
    from holdall.format import Format

__all__ = ["Conversion", "ConversionReport"]

_OWN_FORM = "the form of the file itself (order, padding and the like) has no place in {}"


@dataclass(slots=True)
class ConversionReport:
    """What a conversion did, or with ``dry_run`` would do.

    ``restored`` says how far the way back went: "bytes" is the original file again, "content" the original with
    changed payloads, None an ordinary conversion. ``dropped`` is what the changes asked for leave out or narrow, and
    ``losses`` what the target cannot hold as it is.
    """

    source: list[str]
    source_format: list[str]
    target: str
    target_format: str
    tensors: int = 0
    nbytes: int = 0
    size: int | None = None  # of what is written; None in a dry run when only writing can tell
    losses: list[Loss] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    skeleton_bytes: int = 0
    carried: str | None = None  # the format of the original that the skeleton is of
    restored: Literal["bytes", "content"] | None = None
    altered: bool = False  # tensors were left out or made anew
    replaces: bool = False  # a file that was there before
    seconds: float = 0.0

    @property
    def lossless(self) -> bool:
        """True when nothing is lost for good: nothing dropped, and what is not native travels in the skeleton."""
        return not self.lost

    @property
    def lost(self) -> list[str]:
        """What the target does not hold of the sources, not even in a skeleton."""
        kept = all(loss.fate != "lost" for loss in self.losses) and (not self.losses or self.skeleton_bytes > 0)
        return self.dropped + ([] if kept else [str(loss) for loss in self.losses])

    def __str__(self) -> str:
        how = {"bytes": ", the original bytes restored", "content": ", the original restored around new payloads"}
        extra = how.get(self.restored or "", f", {len(self.losses)} things not native" if self.losses else "")
        count = f"{self.tensors} {_tensors(self.tensors)}"
        return f"{', '.join(self.source)} -> {self.target}: {count}, {self.nbytes} bytes{extra}"


class Conversion:
    """One conversion between opening and writing."""

    def __init__(
        self,
        models: list[Model],
        target: Format,
        settings: Mapping[str, Any],
        changes: Changes,
        report: ConversionReport,
        limits: Limits,
    ) -> None:
        self.models = models
        self.target = target
        self.settings = settings
        self.changes = changes
        self.report = report
        self.limits = limits
        self.whole = len(models) == 1  # one source, and all of it in one target: only then is there an original

    def copied(self) -> Plan | None:
        """The file as it is, when it is of the target's format already and nothing was asked for."""
        model = self.models[0]
        if len(self.models) > 1 or model.format != self.target.name or self.changes or len(model.sources) > 1:
            return None
        source = model.sources[0]
        if source.is_folder:
            return None
        plan = Plan()
        plan.stream(Range(source, 0, source.size))
        self.report.changes.append(f"is {self.target.name} already: copied as it is")
        self._count(model)
        return plan

    # -- the way back -----------------------------------------------------------------------------------------------

    def restored(self) -> Plan | FolderPlan | None:
        """The original file, byte for byte, when the source carries it and nothing about it was changed."""
        found = None
        if len(self.models) == 1 and not self.changes:
            found = original_plan(self.models[0], self.target, self.limits)
        if found is None:
            return None
        plan, original = found
        self.report.restored = "bytes"
        self._count(original)
        return plan

    # -- the way there ----------------------------------------------------------------------------------------------

    def expressed(
        self,
        metadata: Mapping[str, Any] | None,
        quantize: Callable[[Model], Model] | None,
        *,
        dedup: bool,
        carry: bool,
        strict: bool,
    ) -> Model:
        """The model to be written, lazily changed as asked, with what cannot be native carried along."""
        merged = self._merged()
        returns = self._returning(merged)
        if returns is not None:
            merged = returns
        tensors = self._changed(merged)
        _refuse_twins(tensors)
        if dedup:
            tensors, notes = share_equal(tensors)
            self.report.changes += notes
        for key in metadata or {}:
            self.report.changes.append(f"metadata {key!r} {'replaced' if key in merged.metadata else 'added'}")
        model = merged.replace(tensors=tensors, metadata=merged.metadata.updated(metadata or {}))
        if quantize is not None:
            model = quantize(model)
            kept = [tensor for tensor in tensors if tensor.name in model]
            self._drop(len(tensors) - len(kept), ((tensor, model[tensor.name]) for tensor in kept))
            tensors = list(model.tensors)
        expressed, losses, travelling = express(model, tensors, self.target)
        if returns is None and len(self.models) == 1:
            losses += self._native_losses(merged, expressed, travelling, losses)
        left = None if returns is not None else self.target.leaves(expressed, self.settings)
        losses += [Loss("metadata", key, reason, "lost") for key, reason in (left or {}).items()]
        if losses and strict:
            raise ContentError(_refusal(self.target, losses, "strict was asked for"))
        if left is not None:
            gone = [_lost(loss) for loss in losses]
            broken = [loss for loss in gone if loss.part == "tensor" and loss.fate in ("lost", "opaque")]
            if broken and carry:  # leaving out is for what surrounds the weights
                raise ContentError(_refusal(self.target, broken, "writes no more than other tools do"))
            self.report.losses += gone
        elif losses:
            expressed = self._carried(expressed, travelling, losses, carry)
        self._count(expressed)
        return expressed

    def _changed(self, model: Model) -> list[Tensor]:
        """The tensors that were asked for, as they were asked for; what the rules did, and what none of them met."""
        chosen = [tensor for tensor in model.tensors if self.changes.chooses(tensor.name)]
        if len(model) and not chosen:
            raise ContentError("no tensor is left: include and exclude choose none")
        idle = self.changes.idle(model.tensors.names, [tensor.name for tensor in chosen])
        tensors = [self.changes.apply(tensor, self._tell) for tensor in chosen]
        self._drop(len(model) - len(chosen), zip(chosen, tensors, strict=True))
        pairs = list(zip(chosen, tensors, strict=True))
        done = [
            (sum(old.name != new.name for old, new in pairs), "renamed"),
            (sum(old.shape != new.shape for old, new in pairs), "transposed"),
            *(
                (count, f"from {old} to {new}")
                for (old, new), count in Counter((str(old.dtype), str(new.dtype)) for old, new in pairs).items()
                if old != new
            ),
        ]
        self.report.changes += [f"{rule} matches no tensor" for rule in idle]
        self.report.changes += [f"{count} {_tensors(count)} {what}" for count, what in done if count]
        return tensors

    def _drop(self, count: int, kept: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Remember that so many tensors are left out, and what the others lose, each beside what became of it."""
        if count:
            left_out = f"{count} {_tensors(count)} left out"
            self.report.dropped.append(left_out)
            self.report.changes.append(left_out)
        pairs = list(kept)
        self.report.altered |= count > 0 or any(old.payload is not new.payload for old, new in pairs)
        self.report.dropped += narrowed(pairs)

    def _tell(self, text: str) -> None:
        """Put into the report what shows only while bytes pass, and once even when they pass twice."""
        if text not in self.report.changes:
            self.report.changes.append(text)

    def _returning(self, merged: Model) -> Model | None:
        """The original of the target's format that the source carries, around the tensors as they are now."""
        found = original_model(merged, self.target, self.limits) if len(self.models) == 1 else None
        if found is None:
            return None
        model, losses = found
        self.report.restored = "content"
        self.report.losses += losses
        return model

    def split_plan(self, model: Model, most: int, stem: str) -> FolderPlan:
        """Several files of the same format in a folder, each with at most ``most`` payload bytes, or one tensor."""
        if self.target.folder:
            raise UnsupportedError(f"{self.target.name} is made of several files already: see its own options")
        parts = by_size(model.tensors, most)
        for tensor in (part[0] for part in parts if part and part[0].nbytes > most):
            self._tell(
                f"tensor {tensor.name!r} alone has {tensor.nbytes} bytes: the file with it is larger than {most}"
            )
        suffix = self.target.suffixes[0]
        files = {}
        for number, tensors in enumerate(parts, 1):
            part = self.target.part(model.replace(tensors=tensors), number - 1, len(parts), len(model))
            plan = self.target.plan(part, self.settings)
            assert isinstance(plan, Plan)
            files[f"{stem}-{number:05}-of-{len(parts):05}{suffix}"] = plan
        return FolderPlan(files)

    def _merged(self) -> Model:
        """The sources as one model. Metadata that differs between them is reported; the first one's stays."""
        if len(self.models) == 1:
            return self.models[0]
        tensors = [tensor for model in self.models for tensor in model.tensors]
        entries: dict[str, Entry] = {}
        assets: dict[str, Any] = {}
        for model in self.models:
            for entry in skeleton.without(model.metadata).entries:
                kept = entries.setdefault(entry.key, Entry(entry.key, entry.value))
                if _differs(kept.value, entry.value):
                    self.report.losses.append(Loss("metadata", entry.key, "differs between the sources", "lost"))
            for name in model.assets:
                assets.setdefault(name, model.assets.payload(name))
        return Model(
            tensors,
            metadata=Metadata(entries.values()),
            assets=assets,
            format=self.models[0].format if len({model.format for model in self.models}) == 1 else None,
            sources=[source for model in self.models for source in model.sources],
        )

    def _native_losses(
        self, model: Model, expressed: Model, travelling: Mapping[str, Tensor], losses: list[Loss]
    ) -> list[Loss]:
        """What only the source's own format knows is lost, unless its writer would make the same file again."""
        if model.format in (None, self.target.name) or losses:
            return []
        if self.target.holds.own_metadata and self.whole:
            return [Loss("native", model.format or "", f"{self.target.name} adds entries of its own", "carried")]
        if model.native is None and all(tensor.native is None for tensor in model.tensors):
            return []
        if self.changes:
            return [Loss("native", model.format or "", _OWN_FORM.format(self.target.name), "carried")]
        shared = not self.target.holds.aliases and share_bytes(travelling.values())
        if not shared and same_on_return(model, expressed, self.target, self.settings):
            return []
        return [Loss("native", model.format or "", _OWN_FORM.format(self.target.name), "carried")]

    def _carried(self, expressed: Model, travelling: Mapping[str, Tensor], losses: list[Loss], carry: bool) -> Model:
        """``expressed`` with the skeleton of the source; or the losses as they are, where carrying is not wanted."""
        report, holds = self.report, self.target.holds
        if carry and self.whole and holds.free_text:
            entries = carried_entries(self.models[0], self._travels(travelling), holds, self.limits)
            first = skeleton.original_of(self.models[0])  # handed on; what came after it is not in it
            report.losses += losses if first is None else [_handed_on(loss, self.models[0], first) for loss in losses]
            report.carried = (first or self.models[0]).format
            report.skeleton_bytes = sum(len(entry.value) for entry in entries)
            kept = skeleton.without(expressed.metadata).entries
            return expressed.replace(metadata=Metadata([*kept, *entries]))
        gone = [_lost(loss) for loss in losses]
        if carry and any(loss.fate in ("lost", "opaque") for loss in gone):
            raise ContentError(_refusal(self.target, gone, _why_not(self.target, self.whole)))
        report.losses += gone
        return expressed

    def _travels(self, travelling: Mapping[str, Tensor]) -> Callable[[str], Tensor | None]:
        """For a name in the source, the form in which its tensor travels."""

        def form(name: str) -> Tensor | None:
            return travelling.get(self.changes.new_name(name)) if self.changes.chooses(name) else None

        return form

    def _count(self, model: Model) -> None:
        self.report.tensors = len(model)
        self.report.nbytes = model.nbytes


def _tensors(count: int) -> str:
    return "tensor" if count == 1 else "tensors"


def _lost(loss: Loss) -> Loss:
    """``loss`` when there is no skeleton to carry it."""
    return Loss(loss.part, loss.name, loss.reason, "lost") if loss.fate == "carried" else loss


def _handed_on(loss: Loss, model: Model, original: Model) -> Loss:
    """``loss`` of a model that carries an ``original``: in the skeleton of that one is only what it has itself."""
    if loss.part == "metadata":
        kept = loss.name in original.metadata and as_text(original.metadata[loss.name]) == as_text(
            model.metadata[loss.name]
        )
    elif loss.part == "asset":
        kept = loss.name in original.assets
    else:
        kept = loss.part == "tensor"
    return loss if kept else _lost(loss)


def _refuse_twins(tensors: list[Tensor]) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise ContentError(f"two tensors would be called {tensor.name!r}: rename or exclude one of them")
        seen.add(tensor.name)


def _differs(a: Any, b: Any) -> bool:
    result = a != b
    return bool(result.any()) if hasattr(result, "any") else bool(result)


def _why_not(target: Format, whole: bool) -> str:
    if not whole:
        return "files that are merged or split have no single original to carry"
    return f"{target.name} has no free-form place to carry it in" if not target.holds.free_text else "carry is off"


def _refusal(target: Format, losses: list[Loss], why: str) -> str:
    """The list of losses, and what would help."""
    shown = "; ".join(str(loss) for loss in losses[:10])
    more = f"; and {len(losses) - 10} more" if len(losses) > 10 else ""
    return (
        f"{target.name} cannot hold everything, and {why}: {shown}{more}. "
        "To go on without it use --no-carry, --exclude or --cast; to keep it, choose another format"
    )
