"""How much a whole model may be, in proportion to its files.

A small file can name the same bytes a thousand times, or spread one number over gigabytes, and each tensor looks
harmless. So the tensors of a model are added up: what they become when it is opened, and what has to be read for it
before an operation goes through all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.errors import LimitError
from holdall.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.table import TensorTable

__all__ = ["limit_files", "limit_gathering", "limit_growth", "limit_passes"]

_PASSED = 1 << 30  # bytes that may always be read: a second or two
_FILE = 4096  # bytes that a file takes on most disks, whatever it holds


def limit_growth(model: Model, check: Check, tensors: TensorTable | None = None) -> None:
    """Refuse tensors of an opened model, by default all, if they become too much: ``Limits.decompression_ratio``."""
    work = (model.tensors if tensors is None else tensors).work()
    check.limit_model(work.made, _measure_files(model), f"{model.format}: tensors")


def limit_passes(model: Model, tensors: TensorTable | None = None) -> None:
    """Refuse to read ``tensors``, by default all of the model, if that takes too many passes: ``Limits.passes``.

    A model that was made in memory has no files to pass over.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)})
    >>> with holdall.open("example.oinf") as model:
    ...     limit_passes(model)
    """
    if model.sources:
        with _naming(model):
            _check_passes(model, (model.tensors if tensors is None else tensors).work().read)


def limit_gathering(model: Model) -> None:
    """Refuse to load all tensors if gathering some of them passes over the files too often: ``Limits.passes``.

    Tensors of the same bytes are no reason: each is read for its own copy, and copies are limited when a model is
    opened. Of a file that is mapped nothing is read but the elements themselves.
    """
    if not all(source.is_mapped for source in model.sources):
        with _naming(model):
            _check_passes(model, model.tensors.work().wasted)


def _check_passes(model: Model, read: int) -> None:
    check = Check(limits=model.limits or DEFAULT_LIMITS)
    what = f"{model.format}: passes over the files, since tensors lie in each other's ranges"
    check.limit_passes(read, _measure_files(model), what, _PASSED)


def limit_files(model: Model) -> None:
    """Refuse to make a file of each tensor if all of them take too much of a disk: ``Limits.decompression_ratio``."""
    check = Check(limits=model.limits or DEFAULT_LIMITS)
    made = model.tensors.work().made + _FILE * len(model.tensors)
    with _naming(model):
        check.limit_model(made, _measure_files(model), f"{model.format}: a file for each tensor")


@contextmanager
def _naming(model: Model) -> Iterator[None]:
    """Say of an error that it is about the first file of ``model``, not about the one that is written."""
    try:
        yield
    except LimitError as error:
        error.file = model.sources[0].name if model.sources else None
        raise


def _measure_files(model: Model) -> int:
    """The bytes of all files of the model."""
    return sum(0 if source.is_folder else source.size for source in model.sources)
