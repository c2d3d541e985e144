"""What a conversion says of itself, compared with what is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from holdall import ConversionReport
from tests.convert.oracle import FLOATS, Truth, bits_of
from tests.convert.readers import Content

__all__ = ["check_claims", "check_lossless", "check_own_keys", "check_quantized", "digest", "plain"]

_LEVELS = {"k2": 3, "k3": 7, "k4": 15, "q4": 15, "int4": 15, "k6": 63, "q8": 255, "int8": 255}
_LARGEST_SCALE = 65504.0
_NEAR = 1e-4
_MARK = b"holdall."
_SHOWN_BY_LIBRARIES = ("safetensors", "hf", "gguf", "onnx")


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and files of a folder."""
    running = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            data = file.read_bytes()
            running.update(f"{file.relative_to(path)} {len(data)} ".encode() + data)
    return running.hexdigest()


def plain(value: Any) -> str:
    """A metadata value as text that tells 1 from 1.0 and True, and takes all kinds of lists for the same."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {plain(one)}" for key, one in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(plain(one) for one in value) + "]"
    return repr(value)


def check_claims(
    report: ConversionReport,
    before: Mapping[str, Any],
    assets: Mapping[str, bytes],
    given: Mapping[str, Any],
    result: Path,
    content: Content,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """All metadata and assets that are not among the losses are there, and those that are left out are not.

    Gives the metadata and the assets of the result.
    """
    with holdall.open(result) as model:
        now = {key: value for key, value in model.metadata.items() if not key.startswith("holdall.")}
        blobs = dict(model.assets)
    fates = {(loss.part, loss.name): loss.fate for loss in report.losses}
    for key, value in {**before, **given}.items():
        fate = fates.get(("metadata", key))
        if fate is None:
            assert key in now, f"metadata {key!r} is neither in the result nor among the losses"
            assert plain(now[key]) == plain(value), f"metadata {key!r} is {now[key]!r} instead of {value!r}"
            if isinstance(value, str) and report.target_format in _SHOWN_BY_LIBRARIES and content.metadata is not None:
                assert content.metadata.get(key) == value, f"the library does not see metadata {key!r}"
        elif fate == "left out":
            assert key not in now, f"metadata {key!r} is called left out and is there"
        elif fate == "text":
            assert isinstance(now[key], str), f"metadata {key!r} is called text and is {now[key]!r}"
    for key in given.keys() & before.keys() & now.keys():
        # the text of the given value may be what was there before
        same = plain(now[key]) == plain(before[key]) and fates.get(("metadata", key)) != "text"
        assert not same or plain(given[key]) == plain(before[key]), f"metadata {key!r} is given, and the old one stays"
    for name, blob in assets.items():
        fate = fates.get(("asset", name))
        if fate is None:
            assert blobs.get(name) == blob, f"asset {name!r} is not in the result, and not among the losses"
        elif fate == "left out":
            assert name not in blobs, f"asset {name!r} is called left out and is there"
    return now, blobs


def check_lossless(
    changed: Mapping[str, tuple[str, Truth]],
    source: Mapping[str, Truth],
    metadata: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]],
    assets: tuple[Mapping[str, bytes], Mapping[str, bytes]],
) -> None:
    """A conversion that says lossless has everything of its source.

    Names, orders of axes and exact casts that the caller asked for lose nothing: the old value comes back from the
    new one. ``metadata`` are the entries before, those given by the caller, and those of the result.
    """
    by_old = dict(changed.values())
    assert set(by_old) == set(source), f"lossless without {sorted(set(source) - set(by_old))}"
    for name, truth in source.items():
        assert _keeps(truth, by_old[name]), f"lossless, but tensor {name!r} went from {truth!r} to {by_old[name]!r}"
    before, given, now = metadata
    for key, value in before.items():
        if key not in given:
            assert key in now and plain(now[key]) == plain(value), f"lossless, but metadata {key!r} is not the same"
    for name, blob in assets[0].items():
        assert assets[1].get(name) == blob, f"lossless, but asset {name!r} is not the same"


def _keeps(old: Truth, new: Truth) -> bool:
    """Whether the old values come back from the new ones, with the axes in the same or in reverse order."""
    if old.encoded or new.encoded:
        return old.found == new.found
    return any(_same_values(old, values) for values in (new.values, np.transpose(new.values)))


def _same_values(old: Truth, values: np.ndarray[Any, Any]) -> bool:
    if values.shape != old.shape:
        return False
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64) if old.dtype in FLOATS and values.dtype != old.values.dtype else values
        back = wide.astype(old.values.dtype)
    if old.values.dtype.kind in "iub":
        return bool(np.array_equal(back, old.values))
    with np.errstate(invalid="ignore"):
        nan, now = np.isnan(old.values), np.isnan(back)
    return bool(np.array_equal(nan, now)) and bits_of(back[~nan]) == bits_of(old.values[~nan])


def check_quantized(method: str, before: Truth, values: np.ndarray[Any, Any]) -> None:
    """The numbers of a quantized tensor are near those before.

    The mean square of the errors is below one step of a scale for the whole tensor, which every method is at least as
    fine as. Scales are float16: nothing is defined beyond its range, and below it an error of 1e-4 tells nothing.
    """
    old = before.values.astype(np.float64)
    error = np.abs(old - values.astype(np.float64))
    largest = float(np.abs(old).max(initial=0.0))
    if largest > _LARGEST_SCALE:
        return
    step = 2 * largest / _LEVELS[method]
    mean = float(np.sqrt(np.mean(error**2)))
    assert float(error.max(initial=0.0)) <= largest + _NEAR, f"{method}: a value is off by {error.max()}"
    assert mean <= step * 0.6 + _NEAR, f"{method}: the mean error is {mean}, a step is {step}"


def check_own_keys(result: Path, content: Content, allowed: tuple[str, ...]) -> None:
    """A file without an original has no key of holdall's own, for the library and in its bytes."""
    with holdall.open(result) as model:
        keys = [*content.keys, *model.metadata, *model.assets]
    own = [key for key in keys if key.startswith("holdall.") and key not in allowed]
    assert not own, f"keys of holdall's own: {own}"
    if allowed:
        return
    for file in result.rglob("*") if result.is_dir() else [result]:
        assert not file.name.startswith("holdall."), f"a file of holdall's own: {file.name}"
        assert not file.is_file() or _MARK not in file.read_bytes(), f"{file.name} names holdall's own keys"
