"""Metadata and assets: the two slots of a model beside its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdall.errors import HoldallError
from holdall.model.payload import InMemory, Payload

__all__ = [
    *("HASHES", "NAMES", "SKELETON"),
    *("Assets", "Entry", "Metadata", "drop_carried_keys", "is_carried_key", "same_value"),
]

# The only keys that holdall adds, each only when the caller asks for it.
SKELETON = "holdall.skeleton"  # the original that a file carries; a folder has a file of this name
HASHES = "holdall.hashes"  # the hashes of the tensors of that original
NAMES = "holdall.names"  # the full names of tensors whose names were shortened


def is_carried_key(key: str) -> bool:
    """Whether ``key`` belongs to a carried original, which is not part of the content."""
    return key in (SKELETON, HASHES) or key.startswith((f"{SKELETON}.", f"{HASHES}."))


def same_value(a: Any, b: Any) -> bool:
    """Whether two metadata values are the same; an array, a tuple and a list of the same items are.

    >>> same_value((1, float("nan")), [1, float("nan")]), same_value(1, True), same_value(1, 1.0)
    (True, False, False)
    """
    # Item by item: a copy of a vocabulary in a form that compares would take more memory than the vocabulary.
    a, b = (value.tolist() if hasattr(value, "tolist") else value for value in (a, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_value(value, b[key]) for key, value in a.items())
    if isinstance(a, (bool, float)) or isinstance(b, (bool, float)):
        return type(a) is type(b) and repr(a) == repr(b)  # True is not 1, 1.0 is not 1, and every NaN is the same
    return bool(a == b)


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata entry. ``kind`` is how its file stores it ("u8", "string"); "" leaves the choice to the writer.

    A ``pending`` text has its final size, but gets its content only after everything else was written.
    """

    key: str
    value: Any
    kind: str = ""
    pending: bool = field(default=False, repr=False)


class Metadata(Mapping[str, Any]):
    """Ordered entries; as a mapping, a view in which the last of equal keys wins.

    A reader can give a function instead of entries, which decodes them when they are first asked for.

    >>> meta = Metadata([Entry("a", 1, "u8"), Entry("a", 2, "u8")])
    >>> meta["a"], len(meta), len(meta.entries)
    (2, 1, 2)
    """

    __slots__ = ("_entries", "_found", "_load")

    def __init__(self, entries: Iterable[Entry] | Mapping[str, Any] | Callable[[], Iterable[Entry]] = ()) -> None:
        self._load: Callable[[], Iterable[Entry]] | None = None
        self._entries: tuple[Entry, ...] = ()
        self._found: dict[str, Entry] | None = None
        if isinstance(entries, Metadata):
            entries = entries.entries
        elif isinstance(entries, Mapping):
            entries = [Entry(key, value) for key, value in entries.items()]
        if callable(entries):
            self._load = entries
        else:
            self._entries = tuple(entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries in the order of the file."""
        if self._load is not None:
            self._entries, self._load = tuple(self._load()), None
        return self._entries

    @property
    def pending(self) -> bool:
        """Whether some value is not final yet."""
        return any(entry.pending for entry in self.entries)

    @property
    def _last(self) -> dict[str, Entry]:
        if self._found is None:
            self._found = {entry.key: entry for entry in self.entries}
        return self._found

    def __getitem__(self, key: str) -> Any:
        return self._last[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def replace(self, values: Mapping[str, Any], without: Iterable[str] = ()) -> Metadata:
        """Return a copy with ``values`` replaced in place or added at the end, and the keys ``without`` left out.

        >>> dict(Metadata({"a": 1, "b": 2}).replace({"a": 3, "c": 4}, without=["b"]))
        {'a': 3, 'c': 4}
        """
        gone = set(without)
        entries = [
            Entry(entry.key, values[entry.key]) if entry.key in values else entry
            for entry in self.entries
            if entry.key not in gone
        ]
        kept = {entry.key for entry in entries}
        return Metadata(entries + [Entry(key, value) for key, value in values.items() if key not in kept])

    def kind(self, key: str) -> str:
        """How the value of ``key`` is stored."""
        return self._last[key].kind

    def __repr__(self) -> str:
        return f"Metadata({dict(self)!r})"


class Assets(Mapping[str, bytes]):
    """Named byte blobs, such as ``tokenizer.json``; read when asked for."""

    __slots__ = ("_blobs", "_made")

    def __init__(
        self, blobs: Mapping[str, Payload | bytes] | Callable[[], Mapping[str, Payload | bytes]] | None = None
    ) -> None:
        self._made: dict[str, Payload] | None = None
        self._blobs = blobs or {}  # a function is called when first needed: listing may take many requests

    @property
    def _payloads(self) -> dict[str, Payload]:
        if self._made is None:
            blobs = self._blobs() if callable(self._blobs) else self._blobs
            self._made = {name: blob if isinstance(blob, Payload) else InMemory(blob) for name, blob in blobs.items()}
        return self._made

    def __getitem__(self, name: str) -> bytes:
        return self._payloads[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._payloads)

    def __len__(self) -> int:
        return len(self._payloads)

    def __contains__(self, name: object) -> bool:
        return name in self._payloads  # without reading the blob

    def payload(self, name: str) -> Payload:
        """The blob without reading it."""
        return self._payloads[name]

    def measure(self, name: str) -> int | None:
        """The bytes of the blob, or None if it cannot be opened: a link may lead out of its folder.

        >>> Assets({"vocab.txt": b"a"}).measure("vocab.txt")
        1
        """
        try:
            return self.payload(name).size
        except (HoldallError, OSError):
            return None

    def __repr__(self) -> str:
        return f"Assets({{{', '.join(f'{name!r}: {p.size} bytes' for name, p in self._payloads.items())}}})"


def drop_carried_keys(metadata: Metadata) -> Metadata:
    """Return a copy of ``metadata`` without the keys of a carried original."""
    return Metadata([entry for entry in metadata.entries if not is_carried_key(entry.key)])
