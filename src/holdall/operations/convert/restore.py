"""Restores the original that a file carries, and proves it by the hashes of its tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdall.base import platform
from holdall.base.check import Check
from holdall.base.progress import Progress
from holdall.base.text import list_text
from holdall.errors import ContentError, UnsupportedError
from holdall.format import registry
from holdall.format.proof import Prover, proofs_of
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model.equal_tensors import hash_payload
from holdall.model.growth import limit_growth, limit_passes
from holdall.model.metadata import drop_carried_keys
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.convert.adapt import to_text
from holdall.operations.convert.carried_source import fill_skeleton, list_current, may_read, plan_original
from holdall.operations.convert.overwrite import refuse_clobber, refuse_in_place
from holdall.operations.convert.report import ConversionReport, Loss, list_lost
from holdall.operations.convert.skeleton import DIGEST, find_skeleton
from holdall.operations.convert.write_plan import check_target, measure_size, predict_size, write_plan
from holdall.operations.open_save import open_model
from holdall.sink.plan import FolderPlan, Plan, Results
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.source import Openable

__all__ = ["restore"]


def restore(
    src: Openable,
    dst: str | os.PathLike[str],
    *,
    with_changes: bool = False,
    clobber: bool = True,
    check: bool = True,
    dry_run: bool = False,
    fsync: bool = True,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    follow: str | Collection[str] = (),
    progress: Progress | None = None,
) -> ConversionReport:
    """Restore the original carried by ``src`` to ``dst``, byte for byte, proven by the hashes of its tensors.

    ``src`` was written by :func:`holdall.convert` with ``carry=True``. If tensors were changed since, ContentError
    names them; ``with_changes`` writes the original's metadata and structure around the new values instead.
    The hashes that ``src`` states are checked too, unless ``check`` is False. ``clobber=False`` refuses to
    replace a file; ``limits`` and ``allowed`` are as in :func:`holdall.open`.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)}, metadata={"steps": 300})
    >>> _ = holdall.convert("example.oinf", "carrier.safetensors", carry=True)
    >>> holdall.restore("carrier.safetensors", "again.oinf").restored
    'bytes'
    """
    began = time.monotonic()
    refuse_clobber(dst, clobber)
    with open_model(src, mmap=False, limits=limits, allowed=allowed, follow=follow) as model:
        work = _Restoration(model, limits or DEFAULT_LIMITS)
        plan = work.plan(with_changes)
        size, replaces = predict_size(plan), platform.full_path(dst).is_file()
        refuse_in_place([model], dst, list_lost([], work.losses))
        if dry_run:
            check_target(dst, plan)
        else:
            proofs = proofs_of(model) if check else []
            with Prover(proofs) as prover:

                def approve(path: Path, results: Results) -> None:
                    prover.finish()  # first: damage in the carrier must not be reported as a change
                    work.approve(results)

                write_plan(dst, plan, fsync=fsync, progress=progress, approve=approve, clobber=clobber)
            size = measure_size(Path(dst), plan)
        return ConversionReport(
            source=[model.sources[0].name],
            source_format=[model.format or ""],
            target=os.fspath(dst),
            target_format=work.target.name,
            tensors=len(work.result),
            nbytes=work.result.nbytes,
            size=size,
            losses=work.losses,
            dropped=[],
            changes=[*work.find_left_out(), *work.changes],
            restored="content" if work.changes else "bytes",
            written=not dry_run,
            checked=not dry_run and any(work.taps.values()),
            replaces=replaces,
            folder=isinstance(plan, FolderPlan),
            seconds=time.monotonic() - began,
        )


class _Restoration:
    """The state of one restore. ``changes`` lists tensors modified since the conversion.

    Without any changes, ``result`` is the original.
    """

    def __init__(self, model: Model, limits: Limits) -> None:
        self.model = model
        name = model.sources[0].name
        found = find_skeleton(model, limits)
        if found is None:
            raise ContentError(
                f"{name}: carries no original to restore; holdall convert --carry writes files that do, if the format "
                "changes. Into the same format it writes a copy, which is the original"
            )
        self.skeleton, self.hashes = found
        if not may_read(model, self.skeleton.format):
            raise UnsupportedError(f"{name}: carries a file of the format {self.skeleton.format!r}, not an allowed one")
        self.target = registry.find(self.skeleton.format)
        self.filled = fill_skeleton(self.skeleton, model.tensors, name)
        check = Check(limits=self.skeleton.tighten_limits(limits))
        self.original = self.target.read(self.filled.source, check, Ledger())
        limit_growth(model, check, self.original.tensors)
        limit_passes(model)
        self.result = self.original
        self.losses: list[Loss] = []
        self.changes: list[str] = []
        self.taps: dict[str, list[int]] = {}  # each tap with the rows of the bonds whose hashes it must have
        carried = {bond.carried for bond in self.skeleton.bonds if bond.travels}
        self._added = [name for name in model if name not in carried]

    def plan(self, with_changes: bool) -> Plan | FolderPlan:
        """Plan the original, or ``with_changes`` its form around the tensors that were changed since."""
        if with_changes:
            found = self._find_other_values(range(len(self.skeleton.bonds))) | self._find_mismatches()
            self.changes = [f"tensor {name!r} {what}" for name, what in found.items()]
        return self._plan_changed() if self.changes else self._plan_original()

    def _find_mismatches(self) -> dict[str, str]:
        """Find the tensors that were removed, added, or given another dtype or shape, each with a description."""
        return {**self.filled.mismatches, **dict.fromkeys(self._added, "was added since")}

    def _find_other_values(self, rows: Iterable[int]) -> dict[str, str]:
        """Find the tensors of these ``rows`` whose bytes differ from those that were carried."""
        found = {}
        for row in rows:
            bond, payload = self.skeleton.bonds[row], self.filled.payloads[row]
            if bond.travels and payload is not None and hash_payload(payload) != self._hash_of(row):
                found[bond.name] = "has other values"
        return found

    def _hash_of(self, row: int) -> bytes:
        return self.hashes[DIGEST * row : DIGEST * (row + 1)]

    def _plan_original(self) -> Plan | FolderPlan:
        """Plan the original file. Raises ContentError for a change that shows before the bytes are hashed."""
        _refuse_changes(self._find_mismatches())
        plan, self.taps = plan_original(self.filled.source)
        # Aliases, for example, share the bytes of another tensor, so no tap covers them.
        untapped = set(range(len(self.skeleton.bonds))) - {row for rows in self.taps.values() for row in rows}
        _refuse_changes(self._find_other_values(sorted(untapped)))
        return plan

    def approve(self, results: Results) -> None:
        """Raise ContentError unless all tensors that were written have the hashes of the original."""
        rows = [
            row
            for tap, rows in self.taps.items()
            for number, row in enumerate(rows)
            if results[tap][DIGEST * number : DIGEST * (number + 1)] != self._hash_of(row)
        ]
        _refuse_changes({self.skeleton.bonds[row].name: "has other values" for row in rows})

    def _plan_changed(self) -> Plan | FolderPlan:
        """Plan the original's form around the tensors that the carrier has now."""
        tensors: list[Tensor] = []
        for tensor, now in list_current(self.original, self.filled, self.model):
            if now is None:
                self.losses.append(Loss("tensor", tensor.name, "is not in the file any more", "left out"))
            else:
                tensors.append(now)
        tensors += [self.model[name] for name in self._added]
        self.result = self.original.replace(tensors=tensors)
        return self.target.plan(self.result, self.target.settings({}))

    def find_left_out(self) -> list[str]:
        """List metadata and assets added since the conversion; they are not restored."""
        mine, theirs = drop_carried_keys(self.model.metadata), self.original.metadata
        other = [key for key, value in mine.items() if key not in theirs or to_text(theirs[key]) != to_text(value)]
        found = [f"metadata {key!r}" for key in other] + [
            f"asset {name!r}" for name in self.model.assets if name not in self.original.assets
        ]
        return [f"not in the original, and left out: {list_text(found)}"] if found else []


def _refuse_changes(wrong: Mapping[str, str]) -> None:
    """Raise ContentError if tensors were changed, naming each with its change."""
    if not wrong:
        return
    shown = list_text([f"{name!r} {what}" for name, what in wrong.items()], "; ")
    raise ContentError(
        f"the original cannot be restored, since tensors were changed: {shown}. "
        "--with-changes writes the original's form around the new values"
    )
