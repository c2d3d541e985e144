"""Many tensors of a model, their bytes fetched before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from holdall.payload import Range
from holdall.sizes import tuned
from holdall.source import Source
from holdall.tensor import Tensor

__all__ = ["ahead"]

_BATCH = tuned(64 << 20)  # bytes whose requests are planned together
_COUNT = tuned(4096)  # tensors of a batch
_BATCHES = 2  # under way at once


def ahead(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors in order, the bytes of those to come being on their way."""
    batches = _batches(tensors)
    under_way: deque[list[Tensor]] = deque()
    while True:
        while len(under_way) < _BATCHES and (batch := next(batches, None)) is not None:
            under_way.append(_started(batch))
        if not under_way:
            return
        yield from under_way.popleft()


def _batches(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    size = 0
    for tensor in tensors:
        batch.append(tensor)
        size += tensor.nbytes
        if size >= _BATCH or len(batch) >= _COUNT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _started(batch: list[Tensor]) -> list[Tensor]:
    """The tensors of a batch on top of one fetch a source."""
    ranges: dict[int, tuple[Source, list[tuple[int, int]]]] = {}
    for tensor in batch:
        payload = tensor.payload
        if isinstance(payload, Range) and payload.source.far:
            ranges.setdefault(id(payload.source), (payload.source, []))[1].append(payload.reach)
    fetched = {key: source.fetch(spans) for key, (source, spans) in ranges.items()}
    return [_on(tensor, fetched) for tensor in batch]


def _on(tensor: Tensor, fetched: dict[int, Source]) -> Tensor:
    payload = tensor.payload
    if not isinstance(payload, Range) or id(payload.source) not in fetched:
        return tensor
    return tensor.replace(payload=replace(payload, source=fetched[id(payload.source)]))
