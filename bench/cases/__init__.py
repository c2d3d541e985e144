"""The topics, in the order of the page. Each module has ``cases(run)``, which makes files and yields cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from bench.case import Case, Run

__all__ = ["TOPICS", "cases_of"]

TOPICS = {
    "open": "Opening and listing",
    "read": "Reading all tensors",
    "save": "Saving",
    "many": "A million tensors",
    "commands": "Every command on many tensors",
    "convert": "Converting",
    "packed": "Decoding packed checkpoints",
    "verify": "Verifying",
    "check": "Checking in passing",
    "diff": "Comparing two files",
    "cores": "More cores",
    "kernels": "Small types",
    "quant": "Quantizing",
    "ggml": "Decoding ggml blocks",
    "start": "The command line",
    "remote": "Reading from S3",
    "embed": "Sentences to vectors",
    "view": "Pages in a browser",
}


def cases_of(topic: str, run: Run) -> Iterator[Case]:
    """The cases of a topic; its files are there while they are measured."""
    cases: Callable[[Run], Iterator[Case]] = import_module(f"bench.cases.{topic}").cases
    return cases(run)
