"""The forward pass of a BERT encoder in float32.

Texts of a batch lie one after the other without padding: nothing is computed that a mask would hide. Matrix products
run over all tokens of the batch, attention over texts of one length together, since no text may look at another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall import kernels
from holdall.runtime.settings import WORDS
from holdall.sizes import tuned

if TYPE_CHECKING:
    from holdall.params import Parameters
    from holdall.runtime.settings import Settings

__all__ = ["Encoder"]

Floats = NDArray[np.float32]
Run = tuple[int, int, int]  # texts of one length: the first token, how many texts, how long

_TILE = tuned(512)  # tokens whose inner layer is computed at a time, so that it stays in the cache
_SCORES = tuned(1 << 18)  # attention scores at a time, likewise


class Encoder:
    """Token ids to one vector a text, with the weights of ``parameters``."""

    def __init__(self, parameters: Parameters, settings: Settings) -> None:
        self.parameters = parameters
        self.settings = settings

    def encode(self, texts: Sequence[Sequence[int]]) -> Floats:
        """One row a text. Texts of one length should follow each other."""
        runs = _runs(texts)
        x = self._embedded(texts, runs)
        spare = np.empty_like(x)
        qkv = np.empty((len(x), 3 * self.settings.hidden), np.float32)
        for layer in range(self.settings.layers):
            x, spare = self._layer(layer, x, spare, qkv, runs)
        return self._pooled(x, runs, len(texts))

    # -- parts ------------------------------------------------------------------------------------------------------

    def _embedded(self, texts: Sequence[Sequence[int]], runs: list[Run]) -> Floats:
        ids = np.concatenate([np.asarray(text, np.int64) for text in texts])
        x = np.ascontiguousarray(self.parameters.rows(self._name(WORDS), ids), np.float32)
        longest = max(length for _, _, length in runs)
        positions = self._vector("embeddings.position_embeddings.weight")[:longest]
        places = np.concatenate([np.tile(positions[:length], (count, 1)) for _, count, length in runs])
        kind = np.ascontiguousarray(self._vector("embeddings.token_type_embeddings.weight")[0])
        self._norm(x, places, kind, "embeddings.LayerNorm")
        return x

    def _layer(self, layer: int, x: Floats, spare: Floats, qkv: Floats, runs: list[Run]) -> tuple[Floats, Floats]:
        """One layer; gives its result and the array that is free now."""
        at = f"encoder.layer.{layer}."
        np.matmul(x, self._qkv(f"{at}attention.self."), out=qkv)
        qkv[:, : self.settings.hidden] += self._query_bias(f"{at}attention.self.query.bias")
        self._attend(qkv, spare, runs)
        attended = np.matmul(spare, self._turned(f"{at}attention.output.dense.weight"), out=qkv[:, : spare.shape[1]])
        spare[:] = attended
        self._norm(spare, x, self._output_bias(at), f"{at}attention.output.LayerNorm")
        inner, outer = (self._turned(f"{at}{part}.dense.weight") for part in ("intermediate", "output"))
        bias = self._vector(f"{at}intermediate.dense.bias")
        buffer = np.empty((min(_TILE, len(x)), inner.shape[1]), np.float32)
        for start in range(0, len(x), _TILE):
            part = spare[start : start + _TILE]
            wide = np.matmul(part, inner, out=buffer[: len(part)])
            kernels.bias_gelu(wide, bias)
            np.matmul(wide, outer, out=x[start : start + _TILE])
        self._norm(x, spare, self._vector(f"{at}output.dense.bias"), f"{at}output.LayerNorm")
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

    def _pooled(self, x: Floats, runs: list[Run], texts: int) -> Floats:
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

    def _norm(self, values: Floats, residual: Floats, bias: Floats, name: str) -> None:
        weight, shift = self._vector(f"{name}.weight"), self._vector(f"{name}.bias")
        kernels.add_norm(values, residual, bias, weight, shift, self.settings.eps)

    # -- weights ----------------------------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        return self.settings.prefix + name

    def _vector(self, name: str) -> Floats:
        found: Floats = self.parameters.derived(self._name(name), "f32")
        return found

    def _turned(self, name: str) -> Floats:
        found: Floats = self.parameters.derived(self._name(name), "f32.T")
        return found

    def _qkv(self, at: str) -> Floats:
        """Query, key and value as one matrix, the query scaled, so that the scores come out scaled."""

        def pack(query: NDArray[Any]) -> Floats:
            others = (self.parameters.read(self._name(f"{at}{part}.weight")) for part in ("key", "value"))
            parts = [np.asarray(part, np.float32) for part in (query, *others)]
            packed: Floats = np.ascontiguousarray(np.concatenate([parts[0] * self._scale(), *parts[1:]]).T)
            return packed

        return self.parameters.derived(self._name(f"{at}query.weight"), f"bert.qkv.{self.settings.heads}", pack)

    def _query_bias(self, name: str) -> Floats:
        form = f"bert.scaled.{self.settings.heads}"
        return self.parameters.derived(
            self._name(name), form, lambda bias: np.asarray(bias, np.float32) * self._scale()
        )

    def _output_bias(self, at: str) -> Floats:
        """The bias of the output with that of the values in it: attention weights add up to 1, so that it passes
        through them. (That of the keys adds the same to all scores of a row, which softmax does not see.)"""

        def fold(bias: NDArray[Any]) -> Floats:
            names = (f"{at}attention.output.dense.weight", f"{at}attention.self.value.bias")
            weight, value = (self.parameters.read(self._name(name)).astype(np.float64) for name in names)
            folded: Floats = (weight @ value + np.asarray(bias, np.float64)).astype(np.float32)
            return folded

        return self.parameters.derived(self._name(f"{at}attention.output.dense.bias"), "bert.folded", fold)

    def _scale(self) -> np.float32:
        return np.float32(1 / sqrt(self.settings.hidden // self.settings.heads))


def _runs(texts: Sequence[Sequence[int]]) -> list[Run]:
    """Neighbours of one length.

    >>> _runs([[1, 2], [3, 4], [5]])
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
