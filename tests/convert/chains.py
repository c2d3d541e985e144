"""Random chains of conversions. Each step is compared with an oracle that shares no arithmetic with holdall.

A chain starts from a random model in one of the formats and goes through up to four conversions with random changes.
After each step the library of the target's format reads the result, where there is one. Every tensor has exactly the
name, dtype, shape and bits of the oracle, or the step stopped with a HoldallError and left nothing behind.

    python -m tests.convert.chains --chains 20000 --seed 1 --jobs 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from holdall import ConversionReport, HoldallError
from holdall.operations.convert.report import Loss
from tests.convert.claims import check_claims, check_lossless, check_own_keys, check_quantized, digest
from tests.convert.models import SUFFIX, random_metadata, random_model, write_first
from tests.convert.oracle import Stop, Truth, bits_of, cast, compare
from tests.convert.outcome import Outcome, Summary
from tests.convert.readers import Content, read, read_by_holdall
from tests.convert.steps import Step, apply_changes, choose_step

__all__ = ["run_chain", "run_in"]

_STEPS = 4


@dataclass
class State:
    """A file and its content. A carrier has the ``original``; its ``covered`` tensors travel in another form."""

    paths: list[Path]
    format: str
    tensors: dict[str, Truth]
    metadata: dict[str, Any]
    assets: dict[str, bytes]
    sha256: str
    original: State | None = None
    covered: frozenset[str] = frozenset()
    shortened: Mapping[str, str] = field(default_factory=dict)  # old names, which the next conversion restores
    is_set: bool = False  # the path is the first of several files, which are read together

    @property
    def source(self) -> Path | list[Path]:
        return self.paths[0] if len(self.paths) == 1 else self.paths


def run_chain(seed: int, folder: Path) -> Outcome:
    """Run one chain; the same seed gives the same chain."""
    rng = random.Random(seed)
    outcome = Outcome(seed)
    try:
        state = _start(rng, folder, outcome)
        for number in range(rng.randint(1, _STEPS)):
            step = choose_step(
                rng,
                state.tensors,
                state.format,
                None if state.original is None else state.original.format,
                len(state.paths) > 1,
            )
            outcome.steps.append(step)
            state = _take_step(step, state, folder / f"{number + 1}{SUFFIX[step.target]}")
    except Exception:
        outcome.failure = traceback.format_exc()
    return outcome


def _start(rng: random.Random, folder: Path, outcome: Outcome) -> State:
    """Write the first file. A model that the format refuses is replaced by another."""
    while True:
        format = rng.choice(sorted(SUFFIX))
        tensors = random_model(rng, format)
        metadata = random_metadata(rng)
        path = folder / f"0{SUFFIX[format]}"
        try:
            assets = write_first(rng, path, format, tensors, metadata)
            outcome.start = f"{format} {tensors} {metadata}"
            with holdall.open(path) as model:  # refused too: names with a backslash in an npz
                metadata = dict(model.metadata)
                assert model.format == format
        except HoldallError:
            continue
        _compare_all(tensors, read(path, format), loose=False)
        return State([path], format, tensors, metadata, assets, digest(path))


# -- one step ---------------------------------------------------------------------------------------------------------


def _take_step(step: Step, state: State, dst: Path) -> State:
    """The state after ``step``; ``state`` itself when the step had to stop."""
    if "restore" in step.kinds:
        return _restore(step, state, dst)
    try:
        if state.shortened and "carry" not in step.kinds:
            tensors = {state.shortened.get(name, name): truth for name, truth in state.tensors.items()}
            state = replace(state, tensors=tensors)
        expected = apply_changes(state.tensors, step.options)
        must_stop = "carry" in step.kinds and len(step.kinds) > 1
    except Stop:
        expected, must_stop = {}, True
    before = [digest(path) for path in state.paths]
    dry = _try_dry(step, state, dst) if step.dry else None
    try:
        report = holdall.convert(state.source, dst, format=step.target, fsync=False, **step.options)
    except HoldallError as error:
        step.outcome = f"stop: {error}"
        assert not dst.exists(), "a conversion that stopped left something behind"
        return state
    step.outcome = "ok"
    assert not must_stop, "the conversion should have stopped"
    assert [digest(path) for path in state.paths] == before, "the source has changed"
    assert report.written and report.target_format == step.target
    assert dry is None or (dry.tensors, dry.nbytes) == (report.tensors, report.nbytes), "the dry run said otherwise"
    assert dry is None or dry.size in (None, report.size), f"the dry run said {dry.size} bytes, not {report.size}"
    if "carry" in step.kinds:
        return _check_carrier(state, report, dst)
    return _check_step(step, state, expected, report, dst)


def _try_dry(step: Step, state: State, dst: Path) -> ConversionReport | None:
    """The report of a dry run; None when it stops."""
    try:
        report = holdall.convert(state.source, dst, format=step.target, dry_run=True, **step.options)
    except HoldallError:
        report = None
    assert not dst.exists(), "a dry run wrote something"
    assert report is None or (report.lossless is None and not report.written)
    return report


def _check_step(
    step: Step, state: State, expected: Mapping[str, tuple[str, Truth]], report: ConversionReport, dst: Path
) -> State:
    paths, content = _read_result(dst, step.target, "split" in step.kinds)
    if "quantize" in step.kinds:
        expected = _adopt_quantized(step.options["quantize"], expected, content)
    if (state.format, step.target) == ("npz", "gptrs-archive"):  # numpy's default types, which gpt-rs does not have
        wide = {"f64": "f32", "i64": "i32"}
        expected = {
            name: (old, cast(truth, wide.get(truth.dtype, truth.dtype))) for name, (old, truth) in expected.items()
        }
    shortened: dict[str, str] = {}
    if "shorten" in step.kinds:
        expected, shortened = _adopt_names(report, expected)
    tensors = _compare_all({name: truth for name, (_, truth) in expected.items()}, content, loose="cast" in step.kinds)
    given = step.options.get("metadata", {})
    metadata, assets = check_claims(report, state.metadata, state.assets, given, paths[0], content)
    if report.lossless:
        written = {new: (old, tensors[new]) for new, (old, _) in expected.items()}
        metadatas = (state.metadata, given, metadata)
        check_lossless(written, state.tensors, metadatas, (state.assets, assets))
    single = len(state.paths) == 1 and not state.is_set and not dst.is_dir()
    if step.kinds == ["plain"] and state.format == step.target and single and state.original is None:
        assert digest(dst) == state.sha256, "a plain copy has other bytes"
    for path in paths:
        check_own_keys(path, content, ("holdall.names",) if shortened else ())
    is_set = step.target == "gguf" and _is_set(dst)
    sha256 = digest(dst if is_set else paths[0])
    return State(paths, step.target, tensors, metadata, assets, sha256, shortened=shortened, is_set=is_set)


def _read_result(dst: Path, target: str, split: bool) -> tuple[list[Path], Content]:
    """The files that the next step converts, and their content."""
    if not split:
        return [dst], read(dst, target)
    parts = sorted(dst.glob("*-of-*"))  # an index is not one of them
    content = Content({}, {})
    for part in parts:
        found = read(part, target)
        assert not set(found.tensors) & set(content.tensors), "a tensor is in two parts"
        content.tensors |= found.tensors
        content.metadata = {**(found.metadata or {}), **(content.metadata or {})}
        content.keys += found.keys
    if target == "gguf":  # the first part names the others
        assert read_by_holdall(parts[0]).tensors.keys() == content.tensors.keys()
        return parts[:1], content
    return parts, content


def _is_set(path: Path) -> bool:
    """Whether a folder has several parts, which are carried and restored together."""
    return path.is_dir() and len(list(path.iterdir())) > 1


def _adopt_quantized(
    method: str, expected: Mapping[str, tuple[str, Truth]], content: Content
) -> dict[str, tuple[str, Truth]]:
    """``expected`` with the written values of quantized tensors, once those are known to be close enough."""
    made = {}
    for name, (old, truth) in expected.items():
        dtype, shape, bits = content.tensors.get(name, ("", (), b""))
        if dtype == f"mcf.{method}" and not truth.encoded:
            assert shape == truth.shape, f"{name!r} has the shape {shape} instead of {truth.shape}"
            values = np.frombuffer(bits, np.float32).reshape(shape)
            check_quantized(method, truth, values)
            truth = Truth(dtype, values)
        made[name] = (old, truth)
    return made


def _adopt_names(
    report: ConversionReport, expected: Mapping[str, tuple[str, Truth]]
) -> tuple[dict[str, tuple[str, Truth]], dict[str, str]]:
    """``expected`` with the shortened names of the report, each of which must end like the old one."""
    found = [re.fullmatch(r"tensor (.+) is called (.+)", text, re.S) for text in report.changes]
    names = {eval(match[1]): eval(match[2]) for match in found if match}
    for old, new in names.items():
        assert len(new.encode()) <= 63 < len(old.encode())
        assert old.endswith(new.rpartition("~")[2])
    return {names.get(name, name): pair for name, pair in expected.items()}, {new: old for old, new in names.items()}


def _compare_all(expected: Mapping[str, Truth], content: Content, *, loose: bool) -> dict[str, Truth]:
    """Check that exactly the expected tensors are there. Returns them with the bits that the next step must keep."""
    assert set(expected) == set(content.tensors), (
        f"missing {sorted(set(expected) - set(content.tensors))}, new {sorted(set(content.tensors) - set(expected))}"
    )
    made = {}
    for name, truth in expected.items():
        made[name], wrong = compare(truth, content.tensors[name], loose=loose)
        assert wrong is None, f"tensor {name!r}: {wrong}"
    return made


# -- carrying and restoring -------------------------------------------------------------------------------------------


def _check_carrier(state: State, report: ConversionReport, dst: Path) -> State:
    """Check that tensors travel unchanged or are in the report, and that the original can be restored."""
    target = report.target_format
    content = read(dst, target)
    fates: dict[str, set[str]] = {}
    for loss in report.losses:
        if loss.part == "tensor":
            fates.setdefault(loss.name, set()).add(loss.fate)
    if target == state.format and not dst.is_dir() and not state.is_set:  # a copy, which may carry an original already
        assert digest(dst) == state.sha256, "a plain copy has other bytes"
        return replace(state, paths=[dst])
    original = state.original or state
    covered = set(state.covered)
    for name, truth in state.tensors.items():
        if name in covered:
            continue
        fate = fates.get(name)
        if not fate:
            assert name in content.tensors, f"tensor {name!r} is missing"
            _, wrong = compare(truth, content.tensors[name], loose=False)
            assert wrong is None, f"tensor {name!r}: {wrong}"
            continue
        covered.add(name)
        if fate == {"opaque"} and truth.dtype not in ("i4", "i2", "u4", "u2") and not truth.encoded:
            dtype, _, bits = content.tensors[name]
            assert dtype[0] in "iu" and bits.startswith(bits_of(truth.values)), f"tensor {name!r} has lost its bytes"
    restored = dst.parent / f"again{SUFFIX[original.format]}"
    assert holdall.restore(dst, restored, fsync=False).restored == "bytes"
    assert digest(restored) == original.sha256, "the restored file is not the original"
    shutil.rmtree(restored) if restored.is_dir() else restored.unlink()
    if target == "safetensors":
        _check_damaged(dst, content, restored, original.sha256)
    metadata, assets = check_claims(
        _ignore_carried(report, state.metadata), state.metadata, state.assets, {}, dst, content
    )
    # Tensors without bytes that only the skeleton has come back with the next conversion.
    hidden = frozenset(covered)
    with holdall.open(dst) as model:  # a target without metadata cannot keep the old names
        shortened = state.shortened if "holdall.names" in model.metadata else {}
    return State([dst], target, state.tensors, metadata, assets, digest(dst), original, hidden, shortened)


def _check_damaged(dst: Path, content: Content, restored: Path, sha256: str) -> None:
    """Check that a carrier with a flipped bit in its last byte is not restored, unless that byte is padding."""
    if not any(bits for _, _, bits in content.tensors.values()):
        return
    data = bytearray(dst.read_bytes())
    data[-1] ^= 1
    damaged = dst.parent / "damaged.safetensors"
    damaged.write_bytes(data)
    try:
        holdall.restore(damaged, restored, fsync=False)
    except holdall.ContentError as error:
        assert "tensors were changed" in str(error)
    else:
        assert digest(restored) == sha256, "a changed tensor was restored as the original"
        shutil.rmtree(restored) if restored.is_dir() else restored.unlink()
    finally:
        damaged.unlink()
    assert not restored.exists()


def _ignore_carried(report: ConversionReport, metadata: Mapping[str, Any]) -> ConversionReport:
    """``report`` with "changed" for all metadata: the skeleton has it, and the target may have it too."""
    losses = [replace(loss, fate="changed") if loss.fate == "carried" else loss for loss in report.losses]
    known = {loss.name for loss in losses if loss.part == "metadata"}
    losses += [Loss("metadata", key, "", "changed") for key in metadata if key not in known]
    return replace(report, losses=losses)


def _restore(step: Step, state: State, dst: Path) -> State:
    try:
        report = holdall.restore(state.source, dst, fsync=False) if len(state.paths) == 1 else None
    except HoldallError as error:
        assert state.original is None, f"the original cannot be restored: {error}"
        assert isinstance(error, holdall.ContentError)
        report = None
    if report is None:
        step.outcome = "stop: carries no original"
        assert not dst.exists()
        return state
    assert state.original is not None, "something was restored that was never carried"
    assert report.restored == "bytes" and report.lossless
    assert digest(dst) == state.original.sha256, "the restored file is not the original"
    step.outcome = "ok"
    original = state.original
    return replace(original, paths=[min(dst.iterdir())] if original.is_set else [dst])


# -- campaigns --------------------------------------------------------------------------------------------------------


def run_in(scratch: Path, seed: int) -> Outcome:
    """Run one chain in a new folder, which is removed afterwards."""
    folder = scratch / str(seed)
    folder.mkdir(parents=True)
    try:
        return run_chain(seed, folder)
    finally:
        shutil.rmtree(folder)


def _run_all(seeds: range, jobs: int, scratch: Path) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(partial(run_in, scratch), seeds)
        return
    with multiprocessing.get_context("forkserver").Pool(jobs) as pool:
        yield from pool.imap(partial(run_in, scratch), seeds, chunksize=8)


def main() -> int:
    """Run a campaign; exit 1 when a chain fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.convert.chains", description=main.__doc__)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first chain; the others follow")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print every chain")
    parser.add_argument("--reasons", action="store_true", help="print why steps stopped")
    given = parser.parse_args()
    summary, began = Summary(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chains-") as scratch:
        for outcome in _run_all(range(given.seed, given.seed + given.chains), given.jobs, Path(scratch)):
            summary.add(outcome)
            if given.show or outcome.failure is not None:
                print(outcome, flush=True)
    print(summary)
    print(f"{summary.chains / (time.monotonic() - began):.1f} chains a second")
    if given.reasons:
        print("\n".join(f"{count:6} {text}" for text, count in summary.reasons.most_common(40)))
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
