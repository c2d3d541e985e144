"""What a model is made of, by the names, uses and places of its tensors: kinds of layers, and equal tensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from holdall.format import registry
from holdall.model.arranged_table import ArrangedTable

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.table import TensorTable

__all__ = ["OTHER", "KindTotals", "count_kinds", "find_duplicates", "find_tied", "name_kind"]

# The first pattern that is found in a name decides: `attn_norm` is a norm, `attn.c_proj` is attention.
_KINDS = {
    "norm": r"norm|(?:^|[._])(?:ln|bn|rms)(?:_?\w{0,3}\d?)?(?:[._]|$)|running_(?:mean|var)|num_batches_tracked",
    "embedding": r"embed|embd|(?:^|[._])w[tp]e(?:[._]|$)|position_ids|rotary|inv_freq|rel_pos",
    "attention": r"att(?:n|ention)|(?:^|[._])(?:qkv|[qkvo]_?(?:proj|lin))[._]|(?:^|[._])qkv_|kv_",
    "feed-forward": r"mlp|ffn|feed_?forward|intermediate|\.\d+\.output\."
    r"|(?:^|[._])(?:fc\d?|w[123]|gate|up|down|experts?)(?:_proj|[._])",
    "recurrent": r"lstm|gru|rnn|(?:weight|bias)_[ih]h_l\d|ssm|mamba",
    "convolution": r"conv",
    "head": r"lm_head|^output[._]|(?:^|[._])(?:head|classifier|score|pooler|logits?|cls|predictions)[._]",
}
_KIND = re.compile("|".join(f"(?P<{kind.replace('-', '_')}>{pattern})" for kind, pattern in _KINDS.items()), re.I)
# A part of attention only beside others of it: `W_o` alone may be anything.
_PART = re.compile(r"(?:^|[._])([qkvo]|query|key|value|out)_?(?:proj|a|b)?[._]", re.I)
_ORDER = {kind.replace("-", "_"): number for number, kind in enumerate(_KINDS)}
_NAMES = tuple(_KINDS)
_READ = 256  # letters of a name that are looked at, from its end
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer or an expert: it says nothing of the kind
OTHER = "other"


@dataclass(slots=True)
class KindTotals:
    """How many tensors and parameters a kind of layer has."""

    tensors: int = 0
    parameters: int = 0


def name_kind(name: str, parts: Collection[tuple[str, str]] = ()) -> str:
    """Tell the kind of layer from the name of a tensor, as the usual frameworks name them.

    ``parts`` are the parts of attention among all names of the model, without numbers: see :func:`_find_part`.

    >>> [name_kind(name) for name in ("h.0.attn.c_attn.weight", "blk.0.attn_norm.weight", "w")]
    ['attention', 'norm', 'other']
    """
    return _find_kind(_drop_numbers(name), parts)


def _drop_numbers(name: str) -> str:
    """The end of a name without the numbers of layers and experts: thousands of names have one kind."""
    return _NUMBER.sub("0", name[-_READ:])


def _find_kind(name: str, parts: Collection[tuple[str, str]]) -> str:
    found = {match.lastgroup for match in _KIND.finditer(name)}
    place, letter = _find_part(name)
    if letter and any((place, other) in parts for other in "qkv" if other != letter):
        found.add("attention")
    best = min((_ORDER[kind] for kind in found if kind is not None), default=None)
    return OTHER if best is None else _NAMES[best]


def _find_part(name: str) -> tuple[str, str]:
    """Find what comes before the part of attention that a name may have, and its first letter; empty if it has none.

    >>> _find_part("h.0.W_q.weight"), _find_part("h.0.key.bias"), _find_part("h.0.bias")
    (('h.0.W_', 'q'), ('h.0.', 'k'), ('', ''))
    """
    found = _PART.search(name)
    return ("", "") if found is None else (name[: found.start(1)], found[1][0].lower())


def count_kinds(model: Model, table: TensorTable | None = None) -> dict[str, KindTotals]:
    """Count tensors and parameters by kind of layer, those with the most parameters first.

    Where a name tells nothing, the format of ``model`` may know the kind. ``table`` has the tensors to count, if they
    are others than those of the model.
    """
    table = model.tensors if table is None else table
    totals: dict[str, KindTotals] = {}
    forms = table.forms()
    counts = [prod(form.shape) for form in forms.kinds]
    plain = list(map(_drop_numbers, table.names))
    parts = set(map(_find_part, set(plain)))
    kinds = {name: _find_kind(name, parts) for name in set(plain)}
    known = registry.find(model.format).find_layer_kinds(model) if model.format and OTHER in kinds.values() else {}
    for name, short, code in zip(table.names, plain, forms.codes.tolist(), strict=True):
        kind = kinds[short] if kinds[short] != OTHER else known.get(name, OTHER)
        total = totals.setdefault(kind, KindTotals())
        total.tensors += 1
        total.parameters += counts[code]
    return dict(sorted(totals.items(), key=lambda item: -item[1].parameters))


def find_tied(table: TensorTable) -> list[list[str]]:
    """Find the tensors that are stored once and have several names, such as tied embeddings. Reads no payload."""
    return _group(_list_stored(table), table.names)


def find_duplicates(model: Model) -> list[list[str]]:
    """Find the tensors that are stored several times: the same dtype, shape and bytes. Reads payloads."""
    from holdall.model.equal_tensors import find_equal

    first: dict[Hashable, int] = {}
    for key, row in _list_stored(model.tensors):
        first.setdefault(key, row)
    single = ArrangedTable(model.tensors, np.array(list(first.values()), np.intp))
    equal = find_equal(single)
    return _group(((equal.get(row, row), row) for row in range(len(single))), single.names)


def _list_stored(table: TensorTable) -> Iterator[tuple[Hashable, int]]:
    """List the rows of tensors that have bytes, each with a key that is the same for those that are stored once."""
    ranges = table.ranges()
    places = zip(ranges.owners.tolist(), ranges.starts.tolist(), ranges.sizes.tolist(), strict=True)
    held = []  # a payload that is no longer there could leave its id to another
    for row, place in enumerate(places):
        if place[0] >= 0:
            if place[2]:
                yield place, row
            continue
        payload = table.payload(row)
        if payload is not None and payload.size:
            held.append(payload)
            yield id(payload), row


def _group(keyed: Iterable[tuple[Hashable, int]], names: Sequence[str]) -> list[list[str]]:
    groups: dict[Hashable, list[int]] = {}
    for key, row in keyed:
        groups.setdefault(key, []).append(row)
    return [[names[row] for row in rows] for rows in groups.values() if len(rows) > 1]
