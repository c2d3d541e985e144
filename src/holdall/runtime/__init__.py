"""Runs sentence encoders of the BERT family from their container, in numpy.

    import holdall
    from holdall.runtime import Embedder

    with holdall.open("all-MiniLM-L6-v2.weights") as model:
        vectors = Embedder(model).embed(["The cat sits on the mat.", "A feline rests on a rug."])

Weights, configuration and vocabulary come from the container. Weights are read through a
:class:`holdall.ParamStore`, so that a model can run in less memory than it takes.
"""

from __future__ import annotations

from holdall.runtime.embedder import Embedder
from holdall.runtime.nearest import compute_cosines, find_nearest
from holdall.runtime.settings import Settings
from holdall.runtime.tokenizer import WordPiece

__all__ = ["Embedder", "Settings", "WordPiece", "compute_cosines", "find_nearest"]
