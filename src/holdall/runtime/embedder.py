"""Texts to vectors, with a sentence encoder in any container."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.errors import ContentError
from holdall.params import Figures, ParamStore
from holdall.runtime.encoder import Encoder
from holdall.runtime.settings import WORDS, settings_of
from holdall.runtime.tokenizer import WordPiece

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.vocab import Vocab

__all__ = ["Embedder"]

Progress = Callable[[int, int], None]  # texts done, texts to do


class Embedder:
    """A BERT sentence encoder, ready to run.

    ``model`` is open and stays so while texts are embedded. ``budget`` bounds the bytes of weights in memory;
    ``vocab`` and ``config`` serve where the container has none, or instead of its own; ``max_length`` cuts texts at
    another number of tokens than the model states.
    """

    def __init__(
        self,
        model: Model,
        *,
        budget: int | None = None,
        vocab: Vocab | None = None,
        config: Mapping[str, Any] | None = None,
        max_length: int | None = None,
    ) -> None:
        settings, self.vocab = settings_of(model, config, vocab)
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
        self.cut = 0  # texts so far that were too long
        self._encoder = Encoder(parameters, settings)

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.settings.hidden

    @property
    def figures(self) -> Figures:
        """What the store of weights did so far."""
        return self.store.figures()

    def embed(
        self, texts: str | Iterable[str], batch_size: int = 32, *, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """One row a text, in the order of the texts. ``batch_size`` texts are computed at a time."""
        if batch_size < 1:
            raise ContentError(f"a batch has 1 text or more, not {batch_size}")
        listed = [texts] if isinstance(texts, str) else list(texts)
        ids = []
        for text in listed:
            encoded, count = self.tokenizer.encode_counted(text)
            self.cut += count > len(encoded)
            ids.append(encoded)
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        found = np.empty((len(ids), self.dimension), np.float32)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            found[batch] = self._encoder.encode([ids[row] for row in batch])
            if progress is not None:
                progress(start + len(batch), len(order))
        return found
