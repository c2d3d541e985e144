"""The steps of a random chain: the options of a conversion, and the tensors that it must give."""

from __future__ import annotations

import glob
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tests.convert.models import DTYPES, RANKS, SUFFIX, random_metadata
from tests.convert.oracle import FLOATS, Stop, Truth, cast, is_float

__all__ = ["CARRIERS", "METHODS", "Step", "apply_changes", "choose_step"]

METHODS = ("k2", "k3", "k4", "k6", "q4", "q8", "int4", "int8")
CARRIERS = sorted(set(SUFFIX) - {"gptrs-archive"})
_SPLITS = ("safetensors", "gguf")


@dataclass
class Step:
    """One conversion, or with the kind "restore" a restoration."""

    target: str
    options: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    outcome: str = ""
    dry: bool = False  # a dry run comes first

    def add(self, kind: str, **options: Any) -> None:
        self.kinds.append(kind)
        self.options |= options

    def __str__(self) -> str:
        return f"-> {self.target} {'+'.join(self.kinds)} {self.options} : {self.outcome}"


def choose_step(
    rng: random.Random, tensors: Mapping[str, Truth], format: str, original: str | None, several: bool
) -> Step:
    """A random step from a file of ``format``, which may carry an original of the format ``original``."""
    if rng.random() < (0.4 if original else 0.01):
        return Step(original or format, kinds=["restore"])
    targets = sorted(SUFFIX)
    target = rng.choice([*targets, "mcf"])  # twice, since only mcf gets quantized tensors
    for _ in range(2):  # prefers a target that can hold most tensors
        if sum(_holds(target, truth) for truth in tensors.values()) * 2 < len(tensors):
            target = rng.choice(targets)
    step = Step(target, dry=rng.random() < 0.25)
    if not several and rng.random() < 0.25 and target in CARRIERS:
        step.add("carry", carry=True)
        if rng.random() < 0.03:
            step.add("cast", cast="f32")  # refused
        return step
    _add_changes(rng, step, tensors)
    if rng.random() < 0.9:
        _make_writable(rng, step, tensors)
    if not step.kinds:
        step.kinds.append("plain")
    return step


def _add_changes(rng: random.Random, step: Step, tensors: Mapping[str, Truth]) -> None:
    names = sorted(tensors)
    options = step.options

    def some() -> str:
        name = rng.choice(names)
        return rng.choice((glob.escape(name), glob.escape(name), f"{glob.escape(name[:1])}*"))

    if rng.random() < 0.12 and len(names) > 1:
        step.add("exclude", exclude=[some()])
    if rng.random() < 0.08:
        step.add("include", include=[some(), some()])
    if rng.random() < 0.15:
        rule = rng.choice((r"s/[aeiou]/Q/", r"s/^/pre./", r"s|\.|_|g", r"s/(.)$/\1\1/"))
        step.add("rename", rename=[rule])
    if rng.random() < 0.1:
        step.add("names", names={rng.choice(names): f"renamed{rng.randint(0, 9)}"})
    if rng.random() < 0.2:
        step.add("transpose", transpose=rng.choice((["*"], [some()])))
    if rng.random() < 0.2:
        step.add("metadata", metadata=random_metadata(rng, 2))
    if rng.random() < 0.1:
        step.add("dedup", dedup=True)
    if rng.random() < 0.25:
        kinds = [name for name in FLOATS if name in DTYPES[step.target]] or ["f32"]
        dtype = rng.choice(kinds)
        step.add("cast", cast=dtype if rng.random() < 0.6 else {some(): dtype})
    if step.target == "mcf" and rng.random() < 0.7:
        step.add("quantize", quantize=rng.choice(METHODS))
    if step.target in _SPLITS and rng.random() < 0.15:
        step.add("split", split=rng.choice((1, 100, 1000, 100000)))
    elif step.target == "hf" and rng.random() < 0.3:
        step.add("shards", max_shard_size=rng.choice((1, 100, 1000)))
    if step.target == "gguf" and "metadata" not in options and any(len(name) > 63 for name in names):
        step.add("shorten", shorten_names=True)
    if any(truth.encoded for truth in tensors.values()) and rng.random() < 0.3:
        step.add("dequantize", dequantize=True)


def _holds(target: str, truth: Truth) -> bool:
    low, high = RANKS.get(target, (0, 64))
    homes = {"mcf": ("mcf",), "ggml": ("gguf", "aero", "aeroset")}
    fits = target in homes[truth.dtype.split(".")[0]] if truth.encoded else truth.dtype in DTYPES[target]
    return fits and low <= len(truth.shape) <= high and (target != "mcf" or truth.values.size > 0)


def _make_writable(rng: random.Random, step: Step, tensors: Mapping[str, Truth]) -> None:
    """Add casts and exclusions for tensors that the target cannot hold, so that most steps write something."""
    options, target = step.options, step.target
    stuck = any(truth.encoded and not _holds(target, truth) for truth in tensors.values())
    if stuck and not options.get("dequantize"):
        step.add("dequantize", dequantize=True)
    if target in ("oinf", "gptrs-checkpoint", "npz") and any(not re.fullmatch(r"[\w.-]+", n, re.A) for n in tensors):
        step.add("rename", rename=[*options.get("rename", ()), r"s/[^A-Za-z0-9._-]/_/g"])
    if options.get("quantize") and not all(_is_finite(truth) for truth in tensors.values()):
        step.kinds.remove("quantize")
        del options["quantize"]
    rules: dict[str, str] = {}
    excluded: list[str] = []
    for name, truth in _apply_so_far(tensors, options).items():
        if _holds(target, truth):
            continue
        dtype = _other_dtype(rng, target, truth)
        if dtype is not None and _holds(target, Truth(dtype, truth.values)):
            rules[glob.escape(name)] = dtype
        else:
            excluded.append(glob.escape(name))
    if rules:
        old = options.get("cast")
        step.add("cast", cast={**rules, **(old if isinstance(old, dict) else {})})
    if excluded and len(excluded) < len(tensors):
        step.add("exclude", exclude=[*options.get("exclude", ()), *excluded])


def _is_finite(truth: Truth) -> bool:
    with np.errstate(invalid="ignore"):
        return not is_float(truth) or bool(np.all(np.isfinite(truth.values)))


def _apply_so_far(tensors: Mapping[str, Truth], options: Mapping[str, Any]) -> dict[str, Truth]:
    """The tensors by their old names after the changes so far; a tensor that would stop the step is unchanged."""
    made = {}
    for name, truth in tensors.items():
        try:
            if _is_chosen(name, options):
                made[name] = _change(name, truth, options)
        except Stop:
            made[name] = truth
    return made


def _other_dtype(rng: random.Random, target: str, truth: Truth) -> str | None:
    held = DTYPES[target]
    if truth.dtype in FLOATS or truth.encoded:
        return rng.choice([name for name in ("f32", "f16", "bf16") if name in held])
    if truth.dtype in ("c64", "c128"):
        return next((name for name in ("c64", "c128") if name in held), None)
    for name in ("i8", "u8", "i16", "i32", "u64", "i64", "f32"):
        try:
            if name in held:
                cast(truth, name)
                return name
        except Stop:
            continue
    return None


# -- the expected result ----------------------------------------------------------------------------------------------


def apply_changes(tensors: Mapping[str, Truth], options: Mapping[str, Any]) -> dict[str, tuple[str, Truth]]:
    """The old name and the expected tensor for each new name. Raises Stop when the conversion has to stop."""
    made: dict[str, tuple[str, Truth]] = {}
    for name, truth in tensors.items():
        if not _is_chosen(name, options):
            continue
        new = options.get("names", {}).get(name, name)
        for rule in options.get("rename", ()):
            _, old, text, flag = rule.split(rule[1])
            new = re.sub(old, text, new, count=0 if flag else 1)
        if new in made:
            raise Stop(f"two are called {new!r}")
        made[new] = (name, _change(name, truth, options))
    if tensors and not made:
        raise Stop("none is left")
    return made


def _is_chosen(name: str, options: Mapping[str, Any]) -> bool:
    include, exclude = options.get("include", ()), options.get("exclude", ())
    wanted = not include or any(fnmatchcase(name, pattern) for pattern in include)
    return wanted and not any(fnmatchcase(name, pattern) for pattern in exclude)


def _change(name: str, truth: Truth, options: Mapping[str, Any]) -> Truth:
    """One tensor after dequantize, transpose and cast, in this order."""
    if options.get("dequantize") and truth.encoded:
        truth = Truth("f32", truth.values)
    if any(fnmatchcase(name, pattern) for pattern in options.get("transpose", ())):
        if truth.encoded:
            raise Stop("encoded")
        truth = Truth(truth.dtype, np.ascontiguousarray(np.transpose(truth.values)).reshape(truth.shape[::-1]))
    rules = options.get("cast", {})
    if isinstance(rules, str):
        return cast(truth, rules) if is_float(truth) else truth
    for pattern, dtype in rules.items():
        if fnmatchcase(name, pattern):
            return cast(truth, dtype)
    return truth
