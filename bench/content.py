"""The files and arrays that cases are about. All of it is the same in every run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.work import Action, run, work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor
    from holdall.sink.plan import Plan

__all__ = [
    "FORMATS",
    "HASHES",
    "TENSORS",
    "arrays",
    "checksum",
    "make",
    "make_llama",
    "make_many",
    "make_sparse",
    "make_variants",
    "name_of",
    "path_of",
]
__all__ += ["rehearse", "small_file", "tensors"]

FORMATS = {
    "oinf": ".oinf",
    "embd": ".weights",
    "gptrs-checkpoint": ".gptrs",
    "gptrs-archive": ".gptrsten",
    "mcf": ".mcf",
    "aero": ".aero",
    "aeroset": ".aeroset",
    "safetensors": ".safetensors",
    "hf": "-hf",
    "gguf": ".gguf",
    "torch": ".pt",
    "npz": ".npz",
    "onnx": ".onnx",
}

# The hashes over all payload bytes that a writer of the format has to take, by default.
HASHES: Mapping[str, tuple[str, ...]] = {
    "embd": ("crc32",),
    "aero": ("blake3",),
    "aeroset": ("blake3", "sha256"),
    "torch": ("crc32",),
    "npz": ("crc32",),
}

TENSORS = 300  # of a large file
STEP = 1 << 10  # elements by which the values of one tensor are shifted against those of the one before


def name_of(number: int) -> str:
    """Names as models have them."""
    return f"model.layers.{number // 10}.block.{number % 10}.weight"


def path_of(folder: Path, stem: str, format: str) -> Path:
    """Where the file, or the folder, of a format is."""
    return folder / f"{stem}{FORMATS[format]}"


def arrays(size: int, count: int = TENSORS) -> dict[str, NDArray[np.float32]]:
    """``count`` arrays of f32 with ``size`` bytes in all, in memory of their own, all different."""
    values, each = _values(size, count)
    return {name_of(n): values[n * STEP : n * STEP + each].copy() for n in range(count)}


def _values(size: int, count: int) -> tuple[NDArray[np.float32], int]:
    import numpy as np

    each = size // count // 8 * 2  # a multiple of eight bytes, for checksum()
    return np.random.default_rng(0).standard_normal(each + count * STEP, np.float32), each


def tensors(size: int, count: int = TENSORS) -> list[Tensor]:
    """What :func:`arrays` gives, made when its turn comes: memory does not depend on ``size``."""
    from holdall.model.dtypes import find_dtype
    from holdall.model.payload import Computed
    from holdall.model.tensor import Tensor

    values, each = _values(size, count)

    def payload(number: int) -> Computed:
        return Computed(each * 4, lambda: iter([values[number * STEP : number * STEP + each].data]))

    return [Tensor(name_of(n), find_dtype("f32"), (each,), payload(n)) for n in range(count)]


def checksum(values: Mapping[str, NDArray[Any]] | list[NDArray[Any]]) -> dict[str, str]:
    """Touch every byte: the exclusive or of all words of eight bytes, whatever their order."""
    import numpy as np

    total = np.uint64(0)
    for array in values.values() if isinstance(values, Mapping) else values:
        total ^= np.bitwise_xor.reduce(array.reshape(-1).view(np.uint64))
    return {"same": f"{int(total):016x}"}


# -- files ------------------------------------------------------------------------------------------------------------


def make(path: Path, format: str, size: int, **options: Any) -> Path:
    """A file of real values with ``size`` bytes of tensors."""
    run(work(_make, str(path), format, size, options))
    return path


def _make(path: str, format: str, size: int, options: dict[str, Any]) -> Action:
    import holdall

    return lambda: holdall.save(path, tensors(size), format=format, fsync=False, **options)


def small_file(scratch: Path, format: str) -> str:
    """Return a file of one tensor, on which works rehearse, so that lazy imports and first calls are not timed."""
    folder = scratch / "small"
    if not folder.exists():
        folder.mkdir()
        make_many(folder, 1, list(FORMATS))
    return str(path_of(folder, "many-1", format))


def rehearse(action: Callable[[str], object], small: str, path: str) -> Action:
    """``action`` on ``path``, once it has been done with the small file."""
    action(small)
    return lambda: action(path)


def make_many(folder: Path, count: int, formats: list[str]) -> None:
    """Files of ``count`` small tensors, one a format, called ``many-COUNT``."""
    run(work(_make_many, str(folder), count, formats))


def _make_many(folder: str, count: int, formats: list[str]) -> Action:
    import numpy as np

    import holdall

    values = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    content = {name_of(n): values[n] for n in range(count)}

    def action() -> None:
        gc.disable()  # it would look at a million arrays again and again
        for format in formats:
            holdall.save(path_of(Path(folder), f"many-{count}", format), content, format=format, fsync=False)

    return action


def make_llama(path: Path, size: int) -> None:
    """A Hugging Face folder of a Llama in bf16, of about ``size`` bytes, with configuration and tokenizer."""
    run(work(_make_llama, str(path), size))


def _make_llama(path: str, size: int) -> Action:
    import json

    import holdall
    from holdall.model.model import Model

    config = _configure_llama(size)
    tensors = _list_llama(config)
    files = {"config.json": json.dumps(config).encode(), "tokenizer.json": json.dumps(_TOKENIZER).encode()}
    return lambda: holdall.save(path, Model(tensors, assets=files), format="hf", fsync=False)


def _configure_llama(size: int) -> dict[str, Any]:
    """A configuration with the proportions of Llama 3 and as many layers as ``size`` has room for."""
    width, heads = (4096, 32) if size >= 10**9 else (512, 8)
    inner, words = 7 * width // 2, len(_TOKENIZER["model"]["vocab"])
    layer = 2 * (2 * width * width + 2 * width * width // 4 + 3 * width * inner)
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": inner, "vocab_size": words, "max_position_embeddings": 8192,
        "num_hidden_layers": max(1, round(size / layer)), "num_attention_heads": heads,
        "num_key_value_heads": heads // 4, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    }  # fmt: skip


def _list_llama(config: Mapping[str, Any]) -> list[Tensor]:
    """The tensors of a Llama, made when their turn comes."""
    import numpy as np

    from holdall.model.dtypes import find_dtype
    from holdall.model.payload import Computed
    from holdall.model.tensor import Tensor

    width, inner, words = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = width * config["num_key_value_heads"] // config["num_attention_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (words, width), "lm_head.weight": (words, width)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        shapes |= {f"{layer}.{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
        shapes |= {f"{layer}.self_attn.{name}_proj.weight": (width, width) for name in "qo"}
        shapes |= {f"{layer}.self_attn.{name}_proj.weight": (keys, width) for name in "kv"}
        shapes |= {f"{layer}.mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (width, inner)
    shapes["model.norm.weight"] = (width,)
    # The upper halves of f32, which are bf16; as _values does, each tensor begins elsewhere in them.
    values = np.random.default_rng(0).standard_normal(width * inner + len(shapes) * STEP, np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)

    def payload(number: int, count: int) -> Computed:
        return Computed(count * 2, lambda: iter([halves[number * STEP : number * STEP + count].view(np.uint8).data]))

    return [
        Tensor(name, find_dtype("bf16"), shape, payload(number, int(np.prod(shape))))
        for number, (name, shape) in enumerate(shapes.items())
    ]


def _spell_bytes() -> list[str]:
    """How byte-level tokenizers spell the bytes: those that are printed as they look, the others from 256 on."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return [*map(chr, printed), *(chr(256 + at) for at in range(len(others)))]


_TOKENIZER: Mapping[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "vocab": {letter: id for id, letter in enumerate(_spell_bytes())}, "merges": []},
}


def make_variants(folder: Path, count: int) -> dict[str, Path]:
    """The same tensors in layouts that are read and are not what is written by default."""
    found = {
        "embd, sequential": folder / f"sequential-{count}.weights",
        "gptrs-archive, version 1": folder / f"version-1-{count}.gptrsten",
    }
    run(work(_make_variants, count, *map(str, found.values())))
    return found


def _make_variants(count: int, sequential: str, version_1: str) -> Action:
    import struct

    import numpy as np

    import holdall

    values = np.arange(4 * count, dtype=np.float32).reshape(count, 4)

    def action() -> None:
        content = {name_of(n): values[n] for n in range(count)}
        holdall.save(sequential, content, layout="sequential", fsync=False)
        with Path(version_1).open("wb") as file:  # holdall reads this version and does not write it
            file.write(b"GPTRSTEN" + struct.pack("<II", 1, count))
            for name, array in content.items():
                head = struct.pack("<I", len(name)) + name.encode() + struct.pack("<IQ", 1, array.size)
                file.write(head + struct.pack("<IBQ", 0, 0, array.nbytes) + array.tobytes())

    return action


def make_many_by_safetensors(path: Path, count: int) -> None:
    """The file that the safetensors library itself writes of the same tensors."""
    run(work(_by_safetensors, str(path), count))


def _by_safetensors(path: str, count: int) -> Action:
    import numpy as np
    from safetensors.numpy import save_file

    values = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    return lambda: save_file({name_of(n): values[n] for n in range(count)}, path)


def make_sparse(path: Path, format: str, size: int) -> None:
    """A file whose header and tables are real and whose payloads are holes, of a format without checksums."""
    run(work(_make_sparse, str(path), format, size))


def _make_sparse(path: str, format: str, size: int) -> Action:
    from holdall.model.dtypes import find_dtype
    from holdall.model.payload import Computed
    from holdall.model.tensor import Tensor
    from holdall.operations.open_save import plan_save
    from holdall.sink.plan import Plan

    each = size // TENSORS // 8 * 8
    holes = [Tensor(name_of(n), find_dtype("f32"), (each // 4,), Computed(each, _never)) for n in range(TENSORS)]

    def action() -> None:
        plan = plan_save(path, holes, format=format)
        if isinstance(plan, Plan):
            _write_holes(Path(path), plan)
            return
        Path(path).mkdir()
        for name, part in plan.files.items():
            _write_holes(Path(path) / name, part)

    return action


def _write_holes(path: Path, plan: Plan) -> None:
    """The constant pieces of a plan and the tables that it streams. Nothing else may be there but payloads."""
    from holdall.sink.plan import Constant, Late

    assert not plan.tails
    assert not any(isinstance(piece, Late) for piece in plan.pieces)
    known = [(piece.offset, iter([memoryview(piece.data)])) for piece in plan.pieces if isinstance(piece, Constant)]
    made = [(at, payload.chunks()) for at, payload in plan.payloads() if getattr(payload, "make", None) is not _never]
    with path.open("wb") as file:
        for at, chunks in [*known, *made]:
            file.seek(at)
            file.writelines(chunks)
        file.truncate(plan.cursor)


def _never() -> Any:
    raise AssertionError("a hole has no bytes to give")
