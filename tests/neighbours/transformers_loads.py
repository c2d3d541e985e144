"""transformers loads what holdall makes of its models: every parameter is the same, or the same after the cast.

    python -m tests.neighbours.transformers_loads [FOLDER]

Tiny BERT and GPT-2 models with random weights are saved by transformers, converted, and loaded with from_pretrained.
Exit 1 when a parameter differs or is missing. It needs torch and transformers, which the other tests do not.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

import holdall

_TINY_BERT = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
}
_TINY_GPT2 = {"vocab_size": 101, "n_positions": 48, "n_embd": 32, "n_layer": 2, "n_head": 4}

Case = Callable[[Any, Path, Path], tuple[Path, torch.dtype | None]]  # model, its folder, scratch -> result, cast to


def make_models() -> dict[str, Any]:
    """Random models: one of separate weights, one whose head shares its weights with the embedding."""
    torch.manual_seed(1)
    return {
        "bert": transformers.BertModel(transformers.BertConfig(**_TINY_BERT)),
        "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(**_TINY_GPT2)),
    }


# -- the ways through holdall -----------------------------------------------------------------------------------------


def one_file_beside_the_config(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """hf -> a single safetensors file, in a folder with the old config.json."""
    out = scratch / "one"
    out.mkdir()
    holdall.convert(folder, out / "model.safetensors")
    shutil.copy(folder / "config.json", out)
    return out, None


def folder_to_folder(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """hf -> hf in small shards with an index."""
    out = scratch / "sharded"
    holdall.convert(folder, out, format="hf", max_shard_size="10KB")
    assert (out / "model.safetensors.index.json").exists()
    return out, None


def cast_to_bf16(model: Any, folder: Path, scratch: Path) -> tuple[Path, torch.dtype]:
    """hf -> hf with every float as bf16."""
    out = scratch / "bf16"
    holdall.convert(folder, out, format="hf", cast="bf16")
    return out, torch.bfloat16


def from_state_dict(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """torch.save of the state_dict -> hf; the assets come from the first folder."""
    torch.save(model.state_dict(), scratch / "state.pt")
    out = scratch / "from_torch"
    holdall.convert(scratch / "state.pt", out, format="hf")
    for file in folder.glob("*.json"):
        shutil.copy(file, out)
    return out, None


def from_state_dict_with_format(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """The same with the entry that transformers 4 demands of a safetensors file."""
    torch.save(model.state_dict(), scratch / "state.pt")
    out = scratch / "from_torch"
    holdall.convert(scratch / "state.pt", out, format="hf", metadata={"format": "pt"})
    shutil.copy(folder / "config.json", out)
    return out, None


def through_oinf(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """hf -> oinf -> hf; oinf has no place for assets."""
    holdall.convert(folder, scratch / "model.oinf")
    out = scratch / "from_oinf"
    holdall.convert(scratch / "model.oinf", out, format="hf")
    shutil.copy(folder / "config.json", out)
    return out, None


def carried_by_oinf(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """hf -> oinf with the original, and back by restore, with all its assets."""
    holdall.convert(folder, scratch / "carrier.oinf", carry=True)
    out = scratch / "restored"
    assert holdall.restore(scratch / "carrier.oinf", out).restored == "bytes"
    return out, None


def through_mcf(model: Any, folder: Path, scratch: Path) -> tuple[Path, None]:
    """hf -> mcf -> hf: an MCF file holds config.json as well."""
    holdall.convert(folder, scratch / "model.mcf")
    out = scratch / "from_mcf"
    holdall.convert(scratch / "model.mcf", out, format="hf")
    return out, None


CASES: Mapping[str, Case] = {
    "hf -> safetensors": one_file_beside_the_config,
    "hf -> hf, sharded": folder_to_folder,
    "hf -> hf, bf16": cast_to_bf16,
    "state_dict -> hf": from_state_dict,
    "state_dict -> hf, format=pt": from_state_dict_with_format,
    "hf -> oinf -> hf": through_oinf,
    "hf -> oinf, restored": carried_by_oinf,
    "hf -> mcf -> hf": through_mcf,
}


# -- what transformers makes of it ------------------------------------------------------------------------------------


def differences(model: Any, out: Path, dtype: torch.dtype | None) -> list[str]:
    """What is not the same in the model that transformers loads from ``out``."""
    options = {"output_loading_info": True, "torch_dtype": dtype or torch.float32}
    try:
        loaded, told = type(model).from_pretrained(out, **options)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    found = [f"{kind}: {sorted(map(str, names))}" for kind, names in told.items() if names]
    now = loaded.state_dict()
    for name, value in model.state_dict().items():
        wanted = value.to(dtype) if dtype is not None and value.is_floating_point() else value
        if name not in now:
            found.append(f"{name} is missing")
        elif now[name].dtype != wanted.dtype or not torch.equal(now[name], wanted):
            found.append(f"{name} differs")
    return found


def main() -> int:
    """Run every case; print one line each."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, holdall {holdall.__version__}")
    failures = 0
    with tempfile.TemporaryDirectory(prefix="transformers-") as name:
        scratch = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(name)
        for family, model in make_models().items():
            folder = scratch / family / "saved"
            model.save_pretrained(folder)
            for case, make in CASES.items():
                place = scratch / family / make.__name__
                place.mkdir()
                found = differences(model, *make(model, folder, place))
                failures += bool(found)
                print(f"  {family}: {case}: {'; '.join(found) if found else 'the same'}")
    print(f"{failures} failures" if failures else "all the same")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
