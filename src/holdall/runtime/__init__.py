"""Models that run from their container: sentence encoders of the BERT family, in numpy.

    import holdall
    from holdall.runtime import Embedder

    with holdall.open("all-MiniLM-L6-v2.weights") as model:
        vectors = Embedder(model).embed(["The cat sits on the mat.", "A feline rests on a rug."])

Nothing but weights, configuration and vocabulary is taken from the container, and they are read through a
:class:`holdall.ParamStore`, so that a model runs in less memory than it takes.
"""

from __future__ import annotations

from holdall.runtime.embedder import Embedder
from holdall.runtime.settings import Settings
from holdall.runtime.tokenizer import WordPiece

__all__ = ["Embedder", "Settings", "WordPiece"]
