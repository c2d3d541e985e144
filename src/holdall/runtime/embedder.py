"""Turns texts into vectors, with a sentence encoder in any container."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.base.progress import Progress
from holdall.errors import ContentError
from holdall.packed import join_weights, refuse_unknown
from holdall.params import Figures, ParamStore
from holdall.runtime.encoder import Encoder
from holdall.runtime.settings import WORDS, settings_of
from holdall.runtime.tokenizer import WordPiece

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.vocab import Vocab

__all__ = ["Embedder"]


class Embedder:
    """A BERT sentence encoder, ready to run.

    ``model`` must stay open while texts are embedded. ``budget`` limits the bytes of weights in memory. ``vocab`` and
    ``config`` replace those of the container; ``max_length`` replaces the number of tokens at which texts are cut, and
    ``normalize`` says whether vectors get the length 1, where the model should not decide.
    """

    def __init__(
        self,
        model: Model,
        *,
        budget: int | None = None,
        vocab: Vocab | None = None,
        config: Mapping[str, Any] | None = None,
        max_length: int | None = None,
        normalize: bool | None = None,
    ) -> None:
        joined = join_weights(model)
        if joined is model:
            refuse_unknown(model)
        model = joined
        settings, self.vocab = settings_of(model, config, vocab)
        if normalize is not None:
            settings = replace(settings, normalize=normalize)
        self.settings = settings
        self.store = ParamStore.from_model(model, budget=budget)
        (parameters,) = self.store.models.values()
        rows = model[settings.prefix + WORDS].shape[0]
        if len(self.vocab) > rows:
            raise ContentError(f"the vocabulary has {len(self.vocab)} tokens, but the model knows {rows}")
        positions = model[f"{settings.prefix}embeddings.position_embeddings.weight"].shape[0]
        if max_length is not None and not 2 <= max_length <= positions:
            raise ContentError(f"max_length is {max_length}; this model takes 2 to {positions} tokens")
        self.tokenizer = WordPiece(
            self.vocab,
            lowercase=settings.lowercase,
            strip_accents=settings.strip_accents,
            ideographs=settings.ideographs,
            max_length=max_length or settings.max_length,
        )
        self.cut = 0  # number of texts so far that were too long
        self._encoder = Encoder(parameters, settings)

    def calibrate(
        self, texts: str | Iterable[str], batch_size: int = 32, *, progress: Progress | None = None
    ) -> dict[str, tuple[float, float]]:
        """Record the smallest and the largest value of each activation over ``texts``, in the order of the layers.

        Recorded are the inputs of all matrices, under the names of the modules that give them in PyTorch:
        ``embeddings``, and of each ``encoder.layer.N`` ``attention.self``, ``attention.output``, ``intermediate`` and
        ``output``. The bounds are those that :class:`holdall.quant.Quantization` takes as ``clips``.
        """
        ranges: dict[str, tuple[float, float]] = {}

        def record(name: str, values: NDArray[np.float32]) -> None:
            least, most = float(values.min()), float(values.max())
            if not (isfinite(least) and isfinite(most)):
                raise ContentError(f"the activation {name!r} has values that are not finite")
            low, high = ranges.get(name, (least, most))
            ranges[name] = (min(low, least), max(high, most))

        self._encoder.on_activation = record
        try:
            if not len(self.embed(texts, batch_size, progress=progress)):
                raise ContentError("there is no text to calibrate with")
        finally:
            self._encoder.on_activation = None
        return ranges

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return self.settings.hidden

    @property
    def figures(self) -> Figures:
        """The counters of the store of weights."""
        return self.store.figures()

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, and count those that were cut. ``tokenizer.decode`` makes texts of ids."""
        ids = []
        for text in texts:
            encoded, count = self.tokenizer.encode_counted(text)
            self.cut += count > len(encoded)
            ids.append(encoded)
        return ids

    def embed(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        *,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """Return one row for each text, in order.

        ``batch_size`` texts are computed at a time, in each of ``threads`` threads. The values do not depend on the
        number of threads.
        """
        if batch_size < 1:
            raise ContentError(f"a batch has 1 text or more, not {batch_size}")
        if threads < 1:
            raise ContentError(f"embedding takes 1 thread or more, not {threads}")
        ids = self.tokenize([texts] if isinstance(texts, str) else texts)
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        found = np.empty((len(ids), self.dimension), np.float32)

        def compute(batch: list[int]) -> int:
            found[batch] = self._encoder.encode([ids[row] for row in batch])
            return len(batch)

        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        done = 0
        for count in _map_in_threads(compute, batches, threads):
            done += count
            if progress is not None:
                progress(done, len(order))
        return found


def _map_in_threads(
    compute: Callable[[list[int]], int], batches: Sequence[list[int]], threads: int
) -> Iterator[int]:  # fmt: skip
    """Yield the result of each batch in order; numpy's products and the kernels release the interpreter lock."""
    if min(threads, len(batches)) <= 1:
        yield from map(compute, batches)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads, "holdall-embed") as pool:
        yield from pool.map(compute, batches)
