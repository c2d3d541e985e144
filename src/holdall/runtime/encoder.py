"""The forward pass of a BERT encoder in float32.

The texts of a batch follow each other without padding, so that nothing is computed that a mask would hide. Matrix
products run over all tokens of the batch; attention runs inside each text, over texts of equal length together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.base.buffer_sizes import buffer_size
from holdall.binary import kernels
from holdall.runtime.settings import WORDS

if TYPE_CHECKING:
    from holdall.params import Parameters
    from holdall.runtime.settings import Settings

__all__ = ["Encoder"]

Floats = NDArray[np.float32]
Run = tuple[int, int, int]  # texts of equal length: the first token, the number of texts, the length

# Computed at a time, so that they stay in the cache: tokens of the inner layer, and attention scores.
_TILE = buffer_size(512)
_SCORES = buffer_size(1 << 18)


class Encoder:
    """Turns the token ids of texts into one vector each, with the weights of ``parameters``."""

    def __init__(self, parameters: Parameters, settings: Settings) -> None:
        self.parameters = parameters
        self.settings = settings
        # Receives the name and the values of each activation, some tokens at a time; None costs nothing.
        self.on_activation: Callable[[str, Floats], None] | None = None

    @np.errstate(all="ignore")  # weights may be NaN or infinite
    def encode(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return one row for each text. Texts of equal length should follow each other."""
        runs = _group_runs(texts)
        x = self._embed(texts, runs)
        spare = np.empty_like(x)
        qkv = np.empty((len(x), 3 * self.settings.hidden), np.float32)
        for layer in range(self.settings.layers):
            x, spare = self._run_layer(layer, x, spare, qkv, runs)
        return self._pool(x, runs, len(texts))

    def _embed(self, texts: Sequence[Sequence[int]], runs: list[Run]) -> Floats:
        ids = np.concatenate([np.asarray(text, np.int64) for text in texts])
        x = np.ascontiguousarray(self.parameters.rows(self._name(WORDS), ids), np.float32)
        longest = max(length for _, _, length in runs)
        positions = self._load_vector("embeddings.position_embeddings.weight")[:longest]
        places = np.concatenate([np.tile(positions[:length], (count, 1)) for _, count, length in runs])
        kind = np.ascontiguousarray(self._load_vector("embeddings.token_type_embeddings.weight")[0])
        self._norm(x, places, kind, "embeddings.LayerNorm")
        self._report("embeddings", x)
        return x

    def _run_layer(self, layer: int, x: Floats, spare: Floats, qkv: Floats, runs: list[Run]) -> tuple[Floats, Floats]:
        """Compute one layer; return its result and the array that is free now."""
        at = f"encoder.layer.{layer}."
        np.matmul(x, self._pack_qkv(f"{at}attention.self."), out=qkv)
        qkv[:, : self.settings.hidden] += self._scale_query_bias(f"{at}attention.self.query.bias")
        self._attend(qkv, spare, runs)
        if self.on_activation is not None:  # the bias of the values is folded into that of the output
            self._report(f"{at}attention.self", spare + self._load_vector(f"{at}attention.self.value.bias"))
        projected = np.matmul(
            spare, self._load_transposed(f"{at}attention.output.dense.weight"), out=qkv[:, : spare.shape[1]]
        )
        spare[:] = projected
        self._norm(spare, x, self._fold_output_bias(at), f"{at}attention.output.LayerNorm")
        self._report(f"{at}attention.output", spare)
        inner, outer = (self._load_transposed(f"{at}{part}.dense.weight") for part in ("intermediate", "output"))
        bias = self._load_vector(f"{at}intermediate.dense.bias")
        buffer = np.empty((min(_TILE, len(x)), inner.shape[1]), np.float32)
        for start in range(0, len(x), _TILE):
            part = spare[start : start + _TILE]
            wide = np.matmul(part, inner, out=buffer[: len(part)])
            kernels.bias_gelu(wide, bias)
            self._report(f"{at}intermediate", wide)
            np.matmul(wide, outer, out=x[start : start + _TILE])
        self._norm(x, spare, self._load_vector(f"{at}output.dense.bias"), f"{at}output.LayerNorm")
        self._report(f"{at}output", x)
        return x, spare

    def _attend(self, qkv: Floats, out: Floats, runs: list[Run]) -> None:
        heads = self.settings.heads
        size = self.settings.hidden // heads
        for start, count, length in runs:
            step = max(1, _SCORES // (heads * length * length))
            scores = np.empty((min(step, count), heads, length, length), np.float32)
            for first in range(0, count, step):
                many = min(step, count - first)
                tokens = slice(start + first * length, start + (first + many) * length)
                query, key, value = qkv[tokens].reshape(many, length, 3, heads, size).transpose(2, 0, 3, 1, 4)
                part = np.matmul(query, key.swapaxes(2, 3), out=scores[:many])
                kernels.softmax(part, length)
                np.matmul(part, value, out=out[tokens].reshape(many, length, heads, size).swapaxes(1, 2))

    def _pool(self, x: Floats, runs: list[Run], texts: int) -> Floats:
        found = np.empty((texts, self.settings.hidden), np.float32)
        row = 0
        for start, count, length in runs:
            tokens = x[start : start + count * length].reshape(count, length, -1)
            of_one = tokens[:, 0] if self.settings.pooling == "cls" else tokens.mean(axis=1, dtype=np.float64)
            found[row : row + count] = of_one
            row += count
        if self.settings.normalize:
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found

    def _report(self, name: str, values: Floats) -> None:
        if self.on_activation is not None:
            self.on_activation(self._name(name), values)

    def _norm(self, values: Floats, residual: Floats, bias: Floats, name: str) -> None:
        weight, shift = self._load_vector(f"{name}.weight"), self._load_vector(f"{name}.bias")
        kernels.add_norm(values, residual, bias, weight, shift, self.settings.eps)

    def _name(self, name: str) -> str:
        return self.settings.prefix + name

    def _load_vector(self, name: str) -> Floats:
        found: Floats = self.parameters.derive(self._name(name), "f32")
        return found

    def _load_transposed(self, name: str) -> Floats:
        found: Floats = self.parameters.derive(self._name(name), "f32.T")
        return found

    def _pack_qkv(self, at: str) -> Floats:
        """Return query, key and value as one matrix; the query is scaled, which scales the scores."""

        def pack(query: NDArray[Any]) -> Floats:
            others = (self.parameters.read(self._name(f"{at}{part}.weight")) for part in ("key", "value"))
            parts = [np.asarray(part, np.float32) for part in (query, *others)]
            packed: Floats = np.ascontiguousarray(np.concatenate([parts[0] * self._scale(), *parts[1:]]).T)
            return packed

        form = f"bert.qkv.{self.settings.heads}"
        found: Floats = self.parameters.derive(self._name(f"{at}query.weight"), form, pack)
        return found

    def _scale_query_bias(self, name: str) -> Floats:
        form = f"bert.scaled.{self.settings.heads}"
        found: Floats = self.parameters.derive(
            self._name(name), form, lambda bias: np.asarray(bias, np.float32) * self._scale()
        )
        return found

    def _fold_output_bias(self, at: str) -> Floats:
        """Return the bias of the output, with the bias of the values folded in: attention weights add up to 1.

        The bias of the keys is left out: it adds the same number to all scores of a row, which softmax ignores.
        """

        def fold(bias: NDArray[Any]) -> Floats:
            names = (f"{at}attention.output.dense.weight", f"{at}attention.self.value.bias")
            weight, value = (self.parameters.read(self._name(name)).astype(np.float64) for name in names)
            folded: Floats = (weight @ value + np.asarray(bias, np.float64)).astype(np.float32)
            return folded

        found: Floats = self.parameters.derive(self._name(f"{at}attention.output.dense.bias"), "bert.folded", fold)
        return found

    def _scale(self) -> np.float32:
        return np.float32(1 / sqrt(self.settings.hidden // self.settings.heads))


def _group_runs(texts: Sequence[Sequence[int]]) -> list[Run]:
    """Group neighbouring texts of equal length.

    >>> _group_runs([[1, 2], [3, 4], [5]])
    [(0, 2, 2), (4, 1, 1)]
    """
    runs: list[Run] = []
    at = 0
    for text in texts:
        if runs and runs[-1][2] == len(text):
            start, count, length = runs.pop()
            runs.append((start, count + 1, length))
        else:
            runs.append((at, 1, len(text)))
        at += len(text)
    return runs
