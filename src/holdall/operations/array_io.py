"""Loading and saving, shared by the modules for numpy, torch and jax."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order
from holdall.errors import UnsupportedError
from holdall.model.growth import limit_gathering
from holdall.model.passes import split_reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model
    from holdall.model.tensor import Tensor
    from holdall.source import Openable

__all__ = ["ToTensors", "map_copies", "open_to_load", "save_to", "save_to_bytes"]

T = TypeVar("T")

_LARGE = buffer_size(1 << 20)  # bytes: a tensor of that size is worth a thread
_FORMAT = "safetensors"  # the default of save() for arrays: there is no path whose suffix names a format

ToTensors: TypeAlias = "Callable[[Mapping[str, Any]], Iterable[Tensor]]"


@contextmanager
def open_to_load(what: Openable, check: bool, options: Mapping[str, Any], decode: bool = False) -> Iterator[Model]:
    """Open the model in ``what``. With ``check`` its hashes are checked in the background.

    A mismatch raises HashError at the end of the block. With ``decode`` weights that are made of several tensors are
    plain ones.
    """
    from holdall.format.proof import Prover, proofs_of
    from holdall.operations.open_save import open_model

    with open_model(what, **options) as model, Prover(proofs_of(model) if check else []):
        if decode:
            from holdall.packed import decode_weights

            yield decode_weights(model)
        else:
            yield model


def map_copies(work: Callable[[Tensor, NDArray[Any]], T], model: Model) -> dict[str, T]:
    """``work(tensor, values)`` for all tensors by name; the values are copies, safe to modify.

    Threads read the large ones: a small one would cost them more.
    """
    limit_gathering(model)
    tensors = list(model.tensors)
    large = _copy_large([tensor for tensor in tensors if tensor.nbytes >= _LARGE])
    return {tensor.name: work(tensor, next(large) if tensor.nbytes >= _LARGE else tensor.copy()) for tensor in tensors}


def _copy_large(tensors: Iterable[Tensor]) -> Iterator[NDArray[Any]]:
    """Yield copies of the tensors, read as one stream of pieces, so that no thread waits for the end of a tensor."""

    def list_jobs() -> Iterator[Callable[[], NDArray[Any] | None]]:
        for tensor in tensors:
            begun = tensor.begin_copy()
            if begun is None:
                yield tensor.copy
                continue
            values, payload = begun
            jobs = list(split_reads(payload, values.reshape(-1).view("u1").data))
            yield from jobs[:-1]
            yield partial(_finish, jobs[-1], values)

    copies = map_in_order(lambda job: job(), list_jobs())
    return (values for values in copies if values is not None)


def _finish(read: Callable[[], None], values: NDArray[Any]) -> NDArray[Any]:
    read()
    return values


def save_to(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    to_tensors: ToTensors,
    metadata: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> None:
    """Write ``tensors`` to ``path``; the format comes from the suffix unless the options name it.

    A model is written as a whole. Other mappings hold the arrays of a framework, which ``to_tensors`` converts.
    """
    from holdall.operations.open_save import save

    save(path, _content_of(tensors, to_tensors), metadata=metadata, **options)


def save_to_bytes(
    tensors: Mapping[str, Any],
    to_tensors: ToTensors,
    metadata: Mapping[str, Any] | None,
    format: str | None,
    options: Mapping[str, Any],
) -> bytes:
    """Return the file that holds ``tensors``, as bytes: of ``format``, or of the model's own, or safetensors."""
    from holdall.format import registry
    from holdall.model.model import Model
    from holdall.operations.open_save import plan_content
    from holdall.sink.memory import write_bytes
    from holdall.sink.plan import Plan

    own = tensors.format if isinstance(tensors, Model) else None
    target = registry.find(format or own or _FORMAT)
    plan = plan_content(_content_of(tensors, to_tensors), target, metadata=metadata, options=options)
    if not isinstance(plan, Plan):
        raise UnsupportedError(f"{target.name} writes a folder: use save_file")
    return write_bytes(plan)


def _content_of(tensors: Mapping[str, Any], to_tensors: ToTensors) -> Model | list[Tensor]:
    """Return a model unchanged, else the converted tensors."""
    from holdall.model.model import Model

    return tensors if isinstance(tensors, Model) else list(to_tensors(tensors))
