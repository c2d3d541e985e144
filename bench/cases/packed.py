"""Packed checkpoints to plain bf16 safetensors, beside ``cp`` of what is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.case import Bar, Case, Contender, Run, at_least, megabytes
from bench.cases.convert import CP, MEMORY, file_is_copied
from bench.measure import drop, warm
from bench.work import Action, run, work

_WIDTH = 4096  # rows and columns of a weight
_GROUP = 128

# -- works ------------------------------------------------------------------------------------------------------------


def folder_is_packed(path: str, kind: str, count: int) -> Action:
    """Write a folder of ``count`` weights; all have the same random codes."""
    import holdall
    from holdall.model.model import Model, model_of

    def action() -> None:
        settings, parts = _KINDS[kind](_WIDTH if count > 1 else 256)
        tensors = {f"model.layers.{n}.mlp.up_proj.{part}": each for n in range(count) for part, each in parts.items()}
        config = {"model_type": "bench", "dtype": "bfloat16", "quantization_config": settings}
        model = Model(model_of(tensors).tensors, assets={"config.json": json.dumps(config).encode()})
        holdall.save(path, model, format="hf", fsync=False)

    return action


def holdall_decodes(source: str, target: str, small: str) -> Action:
    import holdall

    with TemporaryDirectory(dir=Path(target).parent) as folder:
        holdall.convert(small, f"{folder}/rehearsal.safetensors", dequantize=True, fsync=False)

    def action() -> None:
        report = holdall.convert(source, target, dequantize=True, fsync=False)
        assert any("decoded to bf16" in change for change in report.changes), report.changes

    return action


# -- models -----------------------------------------------------------------------------------------------------------


def _pack_fp8(width: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """FP8 with a scale for each block of 128 rows and columns."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(1)
    codes = random.standard_normal((width, width), np.float32).astype(ml_dtypes.float8_e4m3fn)
    scales = random.random((width // _GROUP, width // _GROUP), np.float32)
    settings = {"quant_method": "fp8", "weight_block_size": [_GROUP, _GROUP]}
    return settings, {"weight": codes, "weight_scale_inv": scales}


def _pack_words(width: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Four bits of compressed-tensors, with a scale for each 128 columns of a row."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(2)
    words = random.integers(-(1 << 31), 1 << 31, (width, width // 8)).astype(np.int32)
    scales = random.random((width, width // _GROUP), np.float32).astype(ml_dtypes.bfloat16)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": _GROUP, "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights}
    settings = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}
    return settings, {"weight_packed": words, "weight_scale": scales, "weight_shape": np.array([width, width])}


def _pack_gptq(width: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Four bits of GPTQ, whose tensors have the rows of the weight as columns."""
    import numpy as np

    random = np.random.default_rng(3)
    words = random.integers(-(1 << 31), 1 << 31, (width // 8, width)).astype(np.int32)
    zeros = random.integers(-(1 << 31), 1 << 31, (width // _GROUP, width // 8)).astype(np.int32)
    scales = random.random((width // _GROUP, width), np.float32).astype(np.float16)
    settings = {"quant_method": "gptq", "bits": 4, "group_size": _GROUP, "desc_act": False}
    order = np.arange(width, dtype=np.int32) // _GROUP
    return settings, {"qweight": words, "qzeros": zeros, "scales": scales, "g_idx": order}


_KINDS: Mapping[str, Callable[[int], tuple[Mapping[str, Any], Mapping[str, Any]]]] = {
    "FP8 in blocks": _pack_fp8,
    "int4 in groups": _pack_words,
    "GPTQ of 4 bits": _pack_gptq,
}

# -- cases ------------------------------------------------------------------------------------------------------------


def cases(run: Run) -> Iterator[Case]:
    """Three schemes to 1 GB of bf16."""
    count = run.pick(30, 2)
    for kind in _KINDS:
        with run.memory(4 * count * 2 * _WIDTH**2) as folder:
            yield decode(run, folder, kind, count)


def decode(run_: Run, folder: Path, kind: str, count: int) -> Case:
    """One scheme, beside a copy of the plain file."""
    source, small, plain = folder / "packed", folder / "small", folder / "plain.safetensors"
    run(work(folder_is_packed, str(source), kind, count))
    run(work(folder_is_packed, str(small), kind, 1))
    copied, target = folder / "copied", folder / "target.safetensors"
    run(work(holdall_decodes, str(source), str(plain), str(small)))
    drop(plain)
    warm([source, plain])
    bars: list[Bar] = [at_least(0.5, CP), megabytes(MEMORY)]
    lines = [
        Contender(CP, work(file_is_copied, str(plain), str(copied), False), leaves=copied),
        Contender(f"{kind} → bf16", work(holdall_decodes, str(source), str(target), str(small)), bars, leaves=target),
    ]
    size = plain.stat().st_size
    title = f"Decode {kind} to {size / 1e9:.1f} GB of bf16 safetensors, without fsync"
    return Case(title, lines, run_.pick(4, 2), CP, CP, size)
