"""What the fronts for numpy, torch and jax have in common."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.source import Openable
    from holdall.tensor import Tensor

__all__ = ["FORMAT", "bytes_of", "open_to_load", "save_to"]

FORMAT = "safetensors"  # what save() makes unless it is told otherwise


@contextmanager
def open_to_load(what: Openable, check: bool, options: Mapping[str, Any]) -> Iterator[Model]:
    """The model in ``what``; with ``check`` its hashes are proven while the block runs, or HashError ends it."""
    from holdall.api import open_model
    from holdall.proof import Proving, proofs_of

    with open_model(what, **options) as model, Proving(proofs_of(model) if check else []):
        yield model


def save_to(
    path: str | os.PathLike[str],
    tensors: Iterable[Tensor],
    metadata: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> None:
    """Write ``tensors`` to ``path``; the format comes from the suffix unless the options name it."""
    from holdall.api import save

    save(path, list(tensors), metadata=metadata, **options)


def bytes_of(
    tensors: Iterable[Tensor], metadata: Mapping[str, Any] | None, format: str, options: Mapping[str, Any]
) -> bytes:
    """The file of ``format`` that holds ``tensors``, as bytes."""
    from holdall import registry
    from holdall.model import model_of
    from holdall.plan import Plan
    from holdall.sink.memory import write_bytes

    target = registry.find(format)
    plan = target.plan(model_of(list(tensors), metadata), target.settings(options))
    if not isinstance(plan, Plan):
        raise UnsupportedError(f"{format} is made of several files, which are no bytes: use save_file")
    return write_bytes(plan)
