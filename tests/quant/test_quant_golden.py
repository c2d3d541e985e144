"""Payloads of the golden files: quantizing their source and decoding them give the expected bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

import holdall
from holdall.quant import METHODS, Quantization, encoding_of, quantize
from tests.golden import golden

FOLDER = golden("mcf")


def cases() -> list[tuple[str, dict, dict]]:
    found = []
    for path in sorted(FOLDER.glob("*.expected.json")):
        file = json.loads(path.read_text())
        name = path.name.removesuffix(".expected.json")
        found += [(name, t, file) for t in file.get("tensors", []) if t["dtype"] in METHODS and "dequant_npy" in t]
    return found


CASES = cases()
SOURCES = [case for case in CASES if "source_npy" in case[1]]
WHOLE = [path for path in sorted(FOLDER.glob("*.expected.json")) if json.loads(path.read_text()).get("quantize")]


def label(case: tuple[str, dict, dict]) -> str:
    return f"{case[0]}-{case[1]['name']}"


def payload(name: str, tensor: dict) -> memoryview:
    data = (FOLDER / f"{name}.mcf").read_bytes()
    return memoryview(data)[tensor["offset"] : tensor["offset"] + tensor["nbytes"]]


def clip_of(file: dict) -> tuple[float, float] | None:
    clip = (file.get("quantize") or {}).get("clip")
    return clip if clip is None else tuple(clip if isinstance(clip, list) else (clip["min"], clip["max"]))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    nan = np.isnan(b)
    return bool((np.isnan(a) == nan).all() and (a.view("u4")[~nan] == b.view("u4")[~nan]).all())


def test_the_corpus_is_there() -> None:
    assert len(CASES) >= 190
    assert len(SOURCES) >= 174


@pytest.mark.shows("M20", "M43")
@pytest.mark.parametrize("case", CASES, ids=label)
def test_decoding(case: tuple[str, dict, dict]) -> None:
    name, tensor, _ = case
    wanted = np.load(FOLDER / tensor.get("dequant_ieee_npy", tensor["dequant_npy"]))
    encoding = encoding_of(tensor["dtype"], tensor.get("domain") or 0)
    assert encoding.nbytes(tensor["shape"]) == tensor["nbytes"]
    assert same(encoding.decode(payload(name, tensor), tensor["shape"]), wanted)


@pytest.mark.shows("M23", "M43")
@pytest.mark.parametrize("case", SOURCES, ids=label)
def test_reference_bytes(case: tuple[str, dict, dict]) -> None:
    name, tensor, file = case
    source = np.load(FOLDER / tensor["source_npy"])
    q = quantize(source, tensor["dtype"], mode="reference", clip=clip_of(file))
    assert bytes(q.payload) == bytes(payload(name, tensor))


@pytest.mark.shows("M41", "M43")
@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.name.removesuffix(".expected.json"))
def test_whole_files(path, tmp_path) -> None:
    file = json.loads(path.read_text())
    asked = file["quantize"]
    request = Quantization(asked["method"], mode="reference", clip=clip_of(file))
    holdall.convert(FOLDER / asked["input"], tmp_path / "out.mcf", quantize=request, arrange="quantize")
    wanted = path.with_name(path.name.replace(".expected.json", ".mcf"))
    assert (tmp_path / "out.mcf").read_bytes() == wanted.read_bytes()
