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

    from holdall.plan import Plan
    from holdall.tensor import Tensor

__all__ = [
    "FORMATS",
    "HASHES",
    "TENSORS",
    "arrays",
    "checksum",
    "make",
    "make_many",
    "make_sparse",
    "make_variants",
    "name_of",
    "path_of",
]
__all__ += ["rehearsed", "small_file", "tensors"]

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
    from holdall.dtypes import named
    from holdall.payload import Made
    from holdall.tensor import Tensor

    values, each = _values(size, count)

    def payload(number: int) -> Made:
        return Made(each * 4, lambda: iter([values[number * STEP : number * STEP + each].data]))

    return [Tensor(name_of(n), named("f32"), (each,), payload(n)) for n in range(count)]


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
    """A file of one tensor, on which works rehearse: lazy imports and first calls are nobody's time."""
    folder = scratch / "small"
    if not folder.exists():
        folder.mkdir()
        make_many(folder, 1, list(FORMATS))
    return str(path_of(folder, "many-1", format))


def rehearsed(action: Callable[[str], object], small: str, path: str) -> Action:
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
    from holdall.api import plan_of
    from holdall.dtypes import named
    from holdall.payload import Made
    from holdall.plan import Plan
    from holdall.tensor import Tensor

    each = size // TENSORS // 8 * 8
    holes = [Tensor(name_of(n), named("f32"), (each // 4,), Made(each, _never)) for n in range(TENSORS)]

    def action() -> None:
        plan = plan_of(path, holes, format=format)
        if isinstance(plan, Plan):
            _write_holes(Path(path), plan)
            return
        Path(path).mkdir()
        for name, part in plan.files.items():
            _write_holes(Path(path) / name, part)

    return action


def _write_holes(path: Path, plan: Plan) -> None:
    """The constant pieces of a plan, which has to have no others but payloads."""
    from holdall.plan import Constant, Stream

    assert not plan.tails
    with path.open("wb") as file:
        for piece in plan.pieces:
            assert isinstance(piece, Constant | Stream), piece
            if isinstance(piece, Constant):
                file.seek(piece.offset)
                file.write(piece.data)
        file.truncate(plan.cursor)


def _never() -> Any:
    raise AssertionError("a hole has no bytes to give")
