"""Packed models by the libraries of the quantizers: into tests/golden/packed, or compared with what is there.

    python -m tests.packed.make_golden            # compares; exit 1 where a library or holdall reads other numbers
    python -m tests.packed.make_golden --write    # makes the files anew

``make packed`` compares, in an environment of its own. A scheme whose library is missing there is named and left out:
the files that it made before stay, and the other tests decode them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
from safetensors.torch import save_file

import holdall
import holdall.numpy
from tests.packed.golden import FOLDER, compare_values
from tests.packed.oracles.packed import PackedModel

_MODULES = sys.argv[2:] or ("fp8", "compressed", "gptq", "awq", "bnb", "mxfp4", "nvfp4", "mlx")


def list_models() -> Iterator[PackedModel | str]:
    """Every model, and the names of modules whose library is missing."""
    for name in _MODULES:
        try:
            module = import_module(f"tests.packed.oracles.{name}")
        except ImportError as error:
            yield f"{name}: left out, {error}"
            continue
        yield from module.make_models()


def write_model(model: PackedModel, folder: Path) -> None:
    """Write a model as it is published, and beside it what is expected of it."""
    here = folder / model.name
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    save_file({name: each.contiguous() for name, each in model.tensors.items()}, here / "model.safetensors")
    if model.settings is not None:
        (here / "config.json").write_text(json.dumps(model.write_config(), indent=1) + "\n")
    about = {"scheme": model.scheme, "oracle": model.oracle, "roundings": str(model.roundings)}
    expected = {name: each.contiguous() for name, each in model.expected.items()}
    expected |= {f"original.{name}": each.contiguous() for name, each in model.original.items()}
    save_file(expected, folder / f"{model.name}.expected.safetensors", metadata=about)


def compare_model(model: PackedModel) -> list[str]:
    """Compare what holdall decodes with the library; list what differs."""
    with tempfile.TemporaryDirectory() as scratch:
        write_model(model, Path(scratch))
        source = Path(scratch, model.name)
        path = source if model.settings is not None else source / "model.safetensors"
        found = holdall.numpy.load_file(path, decode=True)
    wrong = []
    for name, wanted in model.expected.items():
        values = found[name].astype(np.float32)
        text = compare_values(values, wanted.float().numpy(), str(wanted.dtype).removeprefix("torch."), model.roundings)
        wrong += [f"{model.name}: {name} {text}"] if text else []
    return wrong


def main(arguments: list[str]) -> int:
    """Make or compare all models."""
    failed = False
    for model in list_models():
        if isinstance(model, str):
            print(model)
            continue
        if "--write" in arguments:
            write_model(model, FOLDER)
            print(f"{model.name}: written")
            continue
        wrong = compare_model(model)
        failed |= bool(wrong)
        print(*(wrong or [f"{model.name}: the same, {model.oracle}"]), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
