"""Metadata and assets: the two slots of a model beside its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdall.payload import Held, Payload

__all__ = ["HASHES", "NAMES", "SKELETON", "Assets", "Entry", "Metadata", "is_own", "without_own"]

# The only keys that holdall writes on its own account, each when it is asked to.
SKELETON = "holdall.skeleton"  # the original that a file carries; a folder has a file of this name
HASHES = "holdall.hashes"  # of the tensors of that original
NAMES = "holdall.names"  # what shortened names were before


def is_own(key: str) -> bool:
    """Whether ``key`` is part of a carried original, which is not content of the file that carries it."""
    return key in (SKELETON, HASHES) or key.startswith((f"{SKELETON}.", f"{HASHES}."))


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata entry as its file has it. ``kind`` is how it is stored ("u8", "string"); "" leaves the choice.

    The letters of a ``pending`` text come when all else is written: a digest over it is taken as it passes.
    """

    key: str
    value: Any
    kind: str = ""
    pending: bool = field(default=False, repr=False)


class Metadata(Mapping[str, Any]):
    """Ordered entries; as a mapping, a view in which the last of equal keys wins.

    A reader whose entries are a document of their own gives a function that decodes it when it is first asked for.

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

    def updated(self, values: Mapping[str, Any], without: Iterable[str] = ()) -> Metadata:
        """These entries with some replaced or added, at the place of the old one or the end, and some left out.

        >>> dict(Metadata({"a": 1, "b": 2}).updated({"a": 3, "c": 4}, without=["b"]))
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
        self._blobs = blobs or {}  # a function is asked when somebody looks: finding out may mean many requests

    @property
    def _payloads(self) -> dict[str, Payload]:
        if self._made is None:
            blobs = self._blobs() if callable(self._blobs) else self._blobs
            self._made = {name: blob if isinstance(blob, Payload) else Held(blob) for name, blob in blobs.items()}
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

    def __repr__(self) -> str:
        return f"Assets({{{', '.join(f'{name!r}: {p.size} bytes' for name, p in self._payloads.items())}}})"


def without_own(metadata: Metadata) -> Metadata:
    """``metadata`` without a carried original."""
    return Metadata([entry for entry in metadata.entries if not is_own(entry.key)])
