"""What the writers of many formats refuse alike. Each message begins with the name of the format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdall.base.repeats import find_repeat
from holdall.base.text import list_text, plural
from holdall.errors import ContentError
from holdall.format import registry
from holdall.model.table import ListTable

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.model.metadata import Entry
    from holdall.model.model import Model
    from holdall.model.payload import Payload
    from holdall.model.tensor import Tensor

__all__ = ["check_entries", "check_payload", "find_unplaced", "parse_number", "parse_texts", "refuse"]
__all__ += ["refuse_names", "refuse_repeats"]

_BLOCK = 1 << 13  # names that are tested together


def refuse(format: str, wrong: str | None) -> None:
    """Raise ContentError if something is ``wrong``."""
    if wrong:
        raise ContentError(f"{format}: {wrong}")


def parse_number(value: Any) -> int:
    """Return the whole number that the value of an option states; -1, which no option takes, where it states none.

    >>> parse_number("64"), parse_number("x"), parse_number(None), parse_number(float("inf"))
    (64, -1, -1, -1)
    """
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return -1


def parse_texts(value: Any) -> list[str] | None:
    """Return the texts that the value of an option lists; None where it is no list of texts.

    >>> parse_texts(("a", "b")), parse_texts([1]), parse_texts(5)
    (['a', 'b'], None, None)
    """
    texts = list(value) if isinstance(value, Iterable) else [value]
    return texts if all(isinstance(text, str) for text in texts) else None


def find_unplaced(model: Model, target: Format) -> dict[str, str]:
    """Find the content of ``model``'s own format that ``target`` has no place for: a description for each name.

    >>> from holdall import oinf
    >>> find_unplaced(oinf.model({"w": [1.0]}, sizevars={"D": 3}), registry.find("npz"))
    {'sizevars': 'size variables D=3'}
    """
    source = None if model.format is None else registry.find(model.format)
    if source is None or target.keeps_unique_content(model):
        found = dict(target.clashing_content(model))
    else:
        found = dict(source.unique_content(model))
    trained = 0 if target.holds.requires_grad else _count_marks(model, source)
    return found | ({"requires_grad": f"the mark of {plural(trained, 'trained tensor')}"} if trained else {})


def _count_marks(model: Model, source: Format | None) -> int:
    """Count the tensors that are marked as trained. Tables of files whose format stores no marks are not walked."""
    marked = source is None or source.holds.requires_grad or isinstance(model.tensors, ListTable)
    return int(model.tensors.find_trained().sum()) if marked else 0


def refuse_repeats(format: str, names: Sequence[str], what: str = "tensors") -> None:
    """Raise ContentError if a name comes twice."""
    repeat = find_repeat(names)
    if repeat is not None:
        raise ContentError(f"{format}: two {what} are called {names[repeat]!r}")


def refuse_names(format: str, names: Sequence[str], find_breach: Callable[[str], str | None], longest: int) -> None:
    """Raise ContentError for a name that breaks a rule of the format.

    Printable ASCII of at most ``longest`` letters breaks none, and is not looked at name by name.
    """
    rest = iter(names)
    while block := list(islice(rest, _BLOCK)):
        text = "".join(block)
        if all(block) and text.isascii() and text.isprintable() and max(map(len, block)) <= longest:
            continue
        for name in block:
            refuse(format, find_breach(name))


def check_entries(
    format: str, entries: Iterable[Entry], find_breach: Callable[[str, Any], str | None]
) -> dict[str, Any]:
    """Return the values of metadata by key; ContentError for an entry that breaks a rule or has the key of another."""
    found: dict[str, Any] = {}
    for entry in entries:
        wrong = find_breach(entry.key, entry.value)
        refuse(format, wrong and f"metadata {entry.key!r}: {wrong}")
        refuse(format, f"two metadata entries are called {entry.key!r}" if entry.key in found else None)
        found[entry.key] = entry.value
    return found


def check_payload(format: str, tensor: Tensor, title: str, dtypes: Collection[str]) -> Payload:
    """Return the payload of a tensor; ContentError if it has none, another size, or a dtype not in ``dtypes``."""
    payload, dtype, shape = tensor.payload, tensor.dtype, tensor.shape
    if str(dtype) not in dtypes:
        wrong = f": {title} has no {dtype}, but {list_text([*dtypes])}"
    elif payload is None:
        wrong = f" is declared without data, which {title} cannot say"
    elif payload.size != dtype.nbytes(shape):
        wrong = f" takes {dtype.nbytes(shape)} bytes, not {payload.size}"
    else:
        return payload
    raise ContentError(f"{format}: tensor {tensor.name!r}: {dtype}{list(shape)}{wrong}")
