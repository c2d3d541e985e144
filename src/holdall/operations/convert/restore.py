"""The way back: the original that a file carries, made again and proven."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdall import registry
from holdall.api import open_model
from holdall.check import Check
from holdall.errors import ContentError, UnsupportedError
from holdall.ledger import Ledger
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.metadata import without_own
from holdall.model import Model
from holdall.operations.convert.bound import Bound, bind, may_read, plan_of
from holdall.operations.convert.express import as_text
from holdall.operations.convert.overwrite import refuse_clobber, refuse_in_place
from holdall.operations.convert.report import ConversionReport, Loss
from holdall.operations.convert.skeleton import DIGEST, Skeleton, find
from holdall.operations.convert.written import size_of, size_planned, write
from holdall.payload import Payload
from holdall.plan import FolderPlan, Plan, Results
from holdall.proof import Proving, proofs_for
from holdall.sink import Progress
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from holdall.source import Openable

__all__ = ["restore"]

_NAMED = 10  # tensors that a refusal names


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
    progress: Progress | None = None,
) -> ConversionReport:
    """Make the original that ``src`` carries again, as ``dst``: byte for byte, proven by the hashes of its tensors.

    ``src`` was written by :func:`holdall.convert` with ``carry=True``. Where tensors were changed since, this stops and
    names them; ``with_changes`` writes the original's form, its metadata and structure, around the new values.
    The hashes that ``src`` states of itself are compared too, unless ``check`` is False. ``clobber=False`` refuses to
    replace a file; ``limits`` and ``allowed`` are as in :func:`holdall.open`.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)}, metadata={"steps": 300})
    >>> _ = holdall.convert("example.oinf", "carrier.safetensors", carry=True)
    >>> holdall.restore("carrier.safetensors", "again.oinf").restored
    'bytes'
    """
    began = time.monotonic()
    refuse_clobber(dst, clobber)
    with open_model(src, mmap=False, limits=limits, allowed=allowed) as model:
        work = _Restoring(model, limits or DEFAULT_LIMITS, dst)
        work.report.changes += work.left_out()
        changed = work.changes() if with_changes else []
        plan = work.changed_plan(changed) if changed else work.plan()
        report = work.report
        report.size = size_planned(plan)
        report.replaces = Path(dst).is_file()
        refuse_in_place([model], dst, report.lost)
        if not dry_run:
            proofs = proofs_for(model, (t.payload for t in model.tensors if t.payload is not None)) if check else []
            with Proving(proofs) as proving:
                write(dst, plan, fsync=fsync, progress=progress, approve=_both(proving, work.approve), clobber=clobber)
            report.size = size_of(Path(dst), plan)
            report.written = True
    report.seconds = time.monotonic() - began
    return report


def _both(proving: Proving, approve: Callable[[Path, Results], None]) -> Callable[[Path, Results], None]:
    """First the hashes that the carrier states, then those of the original: damage is not a change."""

    def ask(path: Path, results: Results) -> None:
        proving.finish()
        approve(path, results)

    return ask


class _Restoring:
    """One original between the file that carries it and the file that it becomes again."""

    def __init__(self, model: Model, limits: Limits, dst: str | os.PathLike[str]) -> None:
        self.model = model
        name = model.sources[0].name
        found = find(model, limits)
        if found is None:
            raise ContentError(f"{name}: carries no original to restore; holdall convert --carry writes files that do")
        self.skeleton, self.hashes = found
        if not may_read(model, self.skeleton.format):
            raise UnsupportedError(f"{name}: carries a file of the format {self.skeleton.format!r}, not an allowed one")
        self.target = registry.find(self.skeleton.format)
        self.limits = self.skeleton.tightened(limits)
        self.bound: Bound = bind(self.skeleton, model, name)
        self.original = self.target.read(self.bound.source, Check(limits=self.limits), Ledger())
        self._expected: dict[str, int] = {}  # taps, each with the row of the bond whose hash it must have
        self.report = ConversionReport(
            source=[name],
            source_format=[model.format or ""],
            target=os.fspath(dst),
            target_format=self.target.name,
        )

    # -- unchanged --------------------------------------------------------------------------------------------------

    def plan(self) -> Plan | FolderPlan:
        """The original file; ContentError when it is known already that some tensor is not what it was."""
        wrong = dict(self.bound.wrong)
        wrong |= dict.fromkeys(_added(self.skeleton, self.model), "was added since")
        if wrong:
            raise ContentError(_refusal(wrong))
        plan, self._expected = plan_of(self.bound.source)
        apart = set(range(len(self.skeleton.bonds))) - set(self._expected.values())
        self._refuse_changed([row for row in sorted(apart) if not self._agrees(row)])
        self._count(self.original)
        self.report.restored = "bytes"
        return plan

    def approve(self, path: Path, results: Results) -> None:
        """Compare the hashes of what was written: only now may it be called the original."""
        found = [row for tap, row in self._expected.items() if results[tap] != self._hash(row)]
        self._refuse_changed(found)
        self.report.checked = bool(self._expected)

    def _refuse_changed(self, rows: list[int]) -> None:
        if rows:
            bonds = self.skeleton.bonds
            raise ContentError(_refusal({bonds[row].name: "has other values" for row in rows}))

    def _hash(self, row: int) -> bytes:
        return self.hashes[DIGEST * row : DIGEST * (row + 1)]

    def _agrees(self, row: int) -> bool:
        """Whether a tensor has its old values, for those whose bytes are not laid into the file, such as aliases."""
        payload = self.bound.payloads[row]
        return not self.skeleton.bonds[row].carried or payload is None or _blake3(payload) == self._hash(row)

    # -- changed ----------------------------------------------------------------------------------------------------

    def changes(self) -> list[str]:
        """The tensors that are not what they were, each with what became of it."""
        found = dict(self.bound.wrong)
        for row, bond in enumerate(self.skeleton.bonds):
            if bond.name not in found and not self._agrees(row):
                found[bond.name] = "has other values"
        found |= dict.fromkeys(_added(self.skeleton, self.model), "was added since")
        return [f"tensor {name!r} {what}" for name, what in found.items()]

    def changed_plan(self, changed: list[str]) -> Plan | FolderPlan:
        """The original's form around the tensors as they are now."""
        report, tensors = self.report, []
        rows = {bond.name: row for row, bond in enumerate(self.skeleton.bonds)}
        for tensor in self.original.tensors:
            row = rows.get(tensor.name, -1)
            if row < 0:  # in the original's own bytes
                tensors.append(tensor)
                continue
            bond, payload = self.skeleton.bonds[row], self.bound.payloads[row]
            now = self.model.get(bond.carried) if bond.carried else None
            if payload is not None:
                tensors.append(tensor.replace(payload=payload))
            elif not bond.carried:
                tensors.append(tensor)
            elif now is None:
                report.losses.append(Loss("tensor", tensor.name, "is not in the file any more", "left out"))
            elif bond.plain:
                tensors.append(Tensor(tensor.name, now.dtype, now.shape, now.payload))
            else:
                what = self.bound.wrong[tensor.name]
                raise ContentError(f"tensor {tensor.name!r} {what}: it cannot be turned into {bond.dtype} again")
        tensors += [self.model[name] for name in _added(self.skeleton, self.model)]
        restored = self.original.replace(tensors=tensors)
        report.restored = "content"
        report.changes += changed
        self._count(restored)
        return self.target.plan(restored, self.target.settings({}))

    def left_out(self) -> list[str]:
        """What the carrier says beside its tensors and the original does not: it is not restored."""
        mine, theirs = without_own(self.model.metadata), self.original.metadata
        other = [key for key, value in mine.items() if key not in theirs or as_text(theirs[key]) != as_text(value)]
        found = [f"metadata {key!r}" for key in other] + [
            f"asset {name!r}" for name in self.model.assets if name not in self.original.assets
        ]
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return [f"not in the original, and left out: {', '.join(found[:_NAMED])}{more}"] if found else []

    def _count(self, model: Model) -> None:
        self.report.tensors, self.report.nbytes = len(model), model.nbytes


def _added(skeleton: Skeleton, model: Model) -> list[str]:
    carried = {bond.carried for bond in skeleton.bonds}
    return [name for name in model if name not in carried]


def _refusal(wrong: Mapping[str, str]) -> str:
    shown = "; ".join(f"{name!r} {what}" for name, what in list(wrong.items())[:_NAMED])
    more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return (
        f"the original cannot be restored, since tensors were changed: {shown}{more}. "
        "--with-changes writes the original's form around the new values"
    )


def _blake3(payload: Payload) -> bytes:
    from blake3 import blake3

    running = blake3()
    for chunk in payload.chunks():
        running.update(chunk)
    return running.digest()
