"""Several TIDX, MJSN or MMSG chunks of one file: they have to say the same, since programs may read any of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdall.base.check import Check
from holdall.base.text import value_text
from holdall.errors import FormatError
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunk
from holdall.format.aero.container import Container
from holdall.format.aero.layout import MJSN, MMSG
from holdall.format.aero.manifest import decode_json, decode_manifest
from holdall.format.aero.tidx import KEYS, Index
from holdall.model.metadata import same_value

__all__ = ["check_agreement", "check_documents"]

_PLACED = frozenset(KEYS[:6])  # what Index.describe tells
_SHOWN = 80  # letters of a value in a message


def check_agreement(index: Index, other: Index, first: Chunk, second: Chunk, check: Check) -> None:
    """Check that two indexes of a file have the same tensors, in the same order, and the same values for each."""
    row = index.find_difference(other)
    if row is not None:
        message = f"tensor {row} is {other.describe(row)}, but {index.describe(row)} in {first.what}"
        check.fail(rules.AGREE, second.offset, f"aero: {second.what}: {message}")
    for row, key, mine, others in _find_other_values(index, other):
        message = f"{index.names[row]!r}, has {_show(key, others)}, but {_show(key, mine)} in {first.what}"
        check.fail(rules.AGREE, second.offset, f"aero: {second.what}: tensor {row}, {message}")


def check_documents(container: Container, json: Any, manifest: Any, check: Check) -> None:
    """Check at level strict that further MJSN and MMSG chunks say what the first ones do, which were read as given."""
    for fourcc, decode, first in ((MJSN, decode_json, json), (MMSG, decode_manifest, manifest)):
        chunks = container.chunks.all(fourcc) if check.wants("strict") and first is not None else []
        for other in chunks[1:]:
            if (other.ulen, other.blake3) == (chunks[0].ulen, chunks[0].blake3):
                continue
            try:
                same = same_value(decode(container, other, Check(limits=check.limits)), first)
                wrong = None if same else f"it says otherwise than {chunks[0].what}"
            except FormatError as error:
                wrong = error.message.removeprefix(f"aero: {other.what}: ")
            if wrong:
                check.note(rules.DOCUMENTS_AGREE, other.offset, f"aero: {other.what}: {wrong}")


def _find_other_values(index: Index, other: Index) -> Iterator[tuple[int, str, Any, Any]]:
    """Yield row and key of values that differ, and the values: hashes, flags, quantization, keys of other programs."""
    for row in (index.detailed | other.detailed).nonzero()[0].tolist():
        if index.entry_bytes(row) == other.entry_bytes(row):
            continue
        mine, others = _list_values(index, row), _list_values(other, row)
        for key in dict.fromkeys((*mine, *others)):
            if not same_value(mine.get(key), others.get(key)):
                yield row, key, mine.get(key), others.get(key)


def _list_values(index: Index, row: int) -> dict[str, Any]:
    """List the values of an entry, without those that say the same as none."""
    digest = index.digest(row)
    values = {key: value for key, value in index.read_stated(row).items() if key not in _PLACED}
    values |= {"hash_b3": None if digest is None else digest.hex(), "flags": values.get("flags") or None}
    return values


def _show(key: str, value: Any) -> str:
    return f"no {key}" if value is None else f"{key} {value_text(value, _SHOWN)}"
