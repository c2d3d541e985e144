"""Many tensors of a model, whose bytes are fetched before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from holdall.base.buffer_sizes import buffer_size
from holdall.model.payload import SourceRange
from holdall.model.tensor import Tensor
from holdall.source import Source

__all__ = ["prefetch"]

_BATCH = buffer_size(64 << 20)  # bytes whose requests are planned together
_COUNT = buffer_size(4096)  # the most tensors of a batch
_BATCHES = 2  # batches that are fetched at once


def prefetch(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors in order, while the next ones are being fetched."""
    batches = _split_batches(tensors)
    under_way: deque[list[Tensor]] = deque()
    while True:
        while len(under_way) < _BATCHES and (batch := next(batches, None)) is not None:
            under_way.append(_start_fetch(batch))
        if not under_way:
            return
        yield from under_way.popleft()


def _split_batches(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
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


def _start_fetch(batch: list[Tensor]) -> list[Tensor]:
    """Start one fetch for each remote source of the batch; the tensors then read from it."""
    ranges: dict[int, tuple[Source, list[tuple[int, int]]]] = {}
    for tensor in batch:
        payload = tensor.payload
        if isinstance(payload, SourceRange) and payload.source.is_remote:
            ranges.setdefault(id(payload.source), (payload.source, []))[1].append(payload.reach)
    fetched = {key: source.fetch(spans) for key, (source, spans) in ranges.items()}
    return [_read_from(tensor, fetched) for tensor in batch]


def _read_from(tensor: Tensor, fetched: dict[int, Source]) -> Tensor:
    payload = tensor.payload
    if not isinstance(payload, SourceRange) or id(payload.source) not in fetched:
        return tensor
    return tensor.replace(payload=replace(payload, source=fetched[id(payload.source)]))
