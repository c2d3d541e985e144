"""Writes a small model in every format, reads it back, verifies it and compares it bit by bit.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     rows = run(folder)
>>> all(row.fine for row in rows)
True
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError, UnsupportedError
from holdall.format import registry
from holdall.model.metadata import Metadata, same_value
from holdall.model.model import Model
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from holdall.format.base import Format

__all__ = ["Conversions", "FormatResult", "convert_all", "demo_model", "fit", "run"]

_VOCAB, _WIDTH, _HIDDEN, _LAYERS = 512, 64, 192, 2


@dataclass(slots=True)
class FormatResult:
    """The result for one format: ``refused`` is the reason it was skipped, ``wrong`` the first difference."""

    format: str
    path: Path
    size: int = 0
    write_ms: float = 0.0
    read_ms: float = 0.0
    verified: bool = False
    identical: bool = False
    left_out: list[tuple[str, str]] = field(default_factory=list)  # what, and why
    refused: str | None = None
    wrong: str | None = None

    @property
    def fine(self) -> bool:
        """Whether everything that the format can hold came back unchanged."""
        return self.refused is not None or (self.verified and self.identical)


def demo_model() -> Model:
    """Make a tiny transformer: embeddings, two layers, many dtypes, metadata and an asset. Always the same."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(7))

    def floats(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        return Tensor.of(name, (rng.standard_normal(shape) / 8).astype(np.float32), dtype)

    def ints(name: str, shape: tuple[int, ...], dtype: str, low: int, high: int) -> Tensor:
        return Tensor.of(name, rng.integers(low, high, shape, endpoint=True), dtype)

    tensors = [floats("embed.tokens", (_VOCAB, _WIDTH), "f32"), floats("embed.positions", (128, _WIDTH), "f16")]
    for layer in range(_LAYERS):
        at = f"layers.{layer}"
        tensors += [
            floats(f"{at}.attention.qkv", (3 * _WIDTH, _WIDTH), "bf16"),
            floats(f"{at}.attention.out", (_WIDTH, _WIDTH), "f32"),
            floats(f"{at}.mlp.up", (_HIDDEN, _WIDTH), "f8_e5m2"),
            floats(f"{at}.mlp.gate", (_HIDDEN, _WIDTH), "f8_e4m3"),
            ints(f"{at}.mlp.down", (_WIDTH, _HIDDEN), "i4", -8, 7),
            ints(f"{at}.mlp.down_i8", (_WIDTH, _HIDDEN), "i8", -128, 127),
            floats(f"{at}.norm", (_WIDTH,), "f64"),
        ]
    tensors += [
        ints("head.ternary", (_WIDTH, 33), "t2", -1, 1),
        ints("head.mask", (_WIDTH,), "bool", 0, 1),
        ints("tokens.rank", (_VOCAB,), "i64", -(1 << 62), 1 << 62),
        ints("tokens.kind", (_VOCAB,), "u8", 0, 255),
        Tensor.of("scale", np.float32(0.125)),
        Tensor.of("empty", np.zeros((0, _WIDTH), np.float32)),
    ]
    metadata = {
        "architecture": "tiny-transformer",
        "layers": _LAYERS,
        "norm.epsilon": 2.0**-16,
        "tied": False,
        "description": "A small model, made by holdall demo.",
    }
    return Model(tensors, metadata=metadata, assets={"tokenizer.json": b'{"type":"bytes"}'})


def fit(model: Model, target: Format) -> tuple[Model, list[tuple[str, str]]]:
    """As much of ``model`` as ``target`` can hold; and a list of what is left out, with the reasons."""
    holds = target.holds
    left_out: list[tuple[str, str]] = []
    tensors = []
    for tensor in model.tensors:
        why = holds.refuses(tensor)
        if why is None:
            tensors.append(tensor)
        else:
            left_out.append((f"tensor {tensor.name}", why))
    entries = []
    for entry in model.metadata.entries:
        reason = holds.refuses_metadata(entry.key, entry.value) if holds.metadata else "no metadata"
        if reason is None:
            entries.append(entry)
        else:
            left_out.append((f"metadata {entry.key}", reason))
    if model.assets and not holds.assets:
        left_out += [(f"asset {name}", "no assets") for name in model.assets]
    assets = model.assets if holds.assets else None
    return Model(tensors, metadata=Metadata(entries), assets=assets), left_out


def run(out: str | os.PathLike[str], on_format: Callable[[str], None] = lambda name: None) -> list[FormatResult]:
    """Write the demo model in every registered format that has a writer, into ``out``, and check the files.

    ``on_format`` receives the name of each format before it is written.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    model = demo_model()
    rows = []
    for name in registry.names():
        target = registry.find(name)
        if target.writes:
            on_format(name)
            rows.append(_try_format(model, target, folder))
    return rows


@dataclass(slots=True)
class Conversions:
    """How many files of the demo were restored from other formats."""

    exact: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def convert_all(rows: list[FormatResult], folder: str | os.PathLike[str]) -> Conversions:
    """Carry the files of :func:`run` in every other format and restore them; each must come back byte for byte."""
    from holdall.operations.round_trip import round_trip

    found = Conversions()
    there = [row for row in rows if row.fine and row.refused is None]
    for row in there:
        for other in there:
            if other is row:
                continue
            pair = f"{row.format} to {other.format}"
            scratch = Path(folder) / f".{row.format}-{other.format}"
            scratch.mkdir()
            try:
                trip = round_trip(row.path, other.format, scratch)
            except (ContentError, UnsupportedError):
                found.refused += 1
            except Exception as error:
                found.wrong.append(f"{pair}: {type(error).__name__}: {error}")
            else:
                if trip.exact:
                    found.exact += 1
                else:
                    found.wrong.append(f"{pair}: the restored file has other bytes")
            finally:
                shutil.rmtree(scratch)
    return found


def _try_format(model: Model, target: Format, folder: Path) -> FormatResult:
    from holdall.operations.open_save import open_model, save, verify

    suffix = target.suffixes[0] if target.suffixes and not target.folder else ""
    row = FormatResult(target.name, folder / f"demo-{target.name}{suffix}")
    try:
        fitted, row.left_out = fit(model, target)
        started = time.perf_counter()
        save(row.path, fitted, format=target.name, fsync=False)
        row.write_ms = _measure_ms(started)
    except (ContentError, UnsupportedError) as error:
        row.refused = str(error)
        return row
    except Exception as error:  # the other formats are still of interest
        row.wrong = f"{type(error).__name__}: {error}"
        return row
    row.size = _measure_size(row.path)
    try:
        started = time.perf_counter()
        with open_model(row.path, format=target.name) as back:
            read = {tensor.name: bytes(tensor.raw()) for tensor in back.tensors if tensor.has_data}
            row.read_ms = _measure_ms(started)
            row.wrong = _find_difference(fitted, back, read)
            row.left_out += [
                (f"metadata {key}", "a number: kept as its digits")
                for key, value in fitted.metadata.items()
                if _are_digits(back.metadata.get(key), value)
            ]
        row.identical = row.wrong is None
        report = verify(row.path, format=target.name)
        row.verified = report.ok
        if not report.ok:
            row.wrong = row.wrong or next(f.message for f in report.findings if f.severity == "error")
    except Exception as error:
        row.wrong = f"{type(error).__name__}: {error}"
    return row


def _find_difference(wrote: Model, back: Model, read: dict[str, bytes]) -> str | None:
    """Find the first difference after reading back; None if there is none."""
    if sorted(wrote) != sorted(back):
        return f"{len(wrote)} tensors were written, {len(back)} came back, or under other names"
    for tensor in wrote.tensors:
        other = back[tensor.name]
        if (str(tensor.dtype), tensor.shape) != (str(other.dtype), other.shape):
            return f"tensor {tensor.name}: {tensor.dtype}{list(tensor.shape)} became {other.dtype}{list(other.shape)}"
        if bytes(tensor.raw()) != read.get(tensor.name):
            return f"tensor {tensor.name}: its bytes changed"
    for key, value in wrote.metadata.items():
        found = back.metadata.get(key)
        if key not in back.metadata or not (same_value(found, value) or _are_digits(found, value)):
            return f"metadata {key}: {value!r} became {found!r}"
    for name, blob in wrote.assets.items():
        if back.assets.get(name) != blob:
            return f"asset {name}: its bytes changed"
    return None


def _are_digits(found: Any, value: Any) -> bool:
    """Whether ``found`` is the text of an integer ``value``: how a format without numbers keeps it."""
    return isinstance(value, int) and not isinstance(value, bool) and found == str(value)


def _measure_ms(started: float) -> float:
    return 1000 * (time.perf_counter() - started)


def _measure_size(path: Path) -> int:
    if path.is_dir():
        return sum(member.stat().st_size for member in path.rglob("*") if member.is_file())
    return path.stat().st_size
