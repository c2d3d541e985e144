"""One part of a set, an AERO file that is opened when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from holdall.base.locks import make_lock
from holdall.base.once import computed_once
from holdall.errors import FormatError, HoldallError
from holdall.format.aero.read import AeroTable
from holdall.format.aero.read import read as read_aero
from holdall.format.aeroset import rules
from holdall.format.aeroset.places import open_file, pin_file
from holdall.format.proof import Proof
from holdall.model.model import Model
from holdall.model.payload import Payload
from holdall.model.table import ColumnTable
from holdall.source import CHUNK
from holdall.source.deferred import DeferredSource
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.base.check import Check
    from holdall.format.aeroset.document import SetFile
    from holdall.model.forms import Form
    from holdall.source import Source
    from holdall.source.pinned_source import PinnedSource

__all__ = ["SetPart", "UnreadablePayload"]


class UnreadablePayload(Payload):
    """The payload of a tensor whose part is missing or disagrees with the index: reading it raises the reason."""

    def __init__(self, size: int, error: HoldallError) -> None:
        self.size = size
        self._error = error

    def slice(self, start: int, stop: int) -> memoryview:
        raise self._error

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        raise self._error


class SetPart:
    """One part of a set, read when it is first needed.

    With ``verified`` the caller compares the SHA-256 of all parts; else a part at another origin is compared here.
    """

    def __init__(self, file: SetFile, home: Source, check: Check, verified: bool = False) -> None:
        self.file = file
        self.source = DeferredSource(file.path, file.size, self._open)
        self._home = home
        self._pinned: PinnedSource | None = None  # the source behind it, if it was fetched from another origin
        self._is_verified = verified  # the caller compares the hashes of all files
        self._check = check
        self._model: Model | None = None
        self._refused: FormatError | None = None  # why the part cannot be read; kept, so that it is read once
        self._lock = make_lock()

    def proof(self) -> Proof:
        """The SHA-256 of the whole part, which the document of the set states."""
        file = self.file
        return Proof(
            self.source, 0, file.size, "sha256", bytes.fromhex(file.sha256), rules.HASH.id,
            f"aeroset: {file.path!r}", stated="the document of the set", wide=True, holds=self._names,
        )  # fmt: skip

    def _names(self, start: int, stop: int) -> str:
        """The tensors in a range of the part, for a message."""
        tensors = self.model.tensors
        return tensors.names_between(start, stop) if isinstance(tensors, ColumnTable) else f"{len(tensors)} tensors"

    @computed_once
    def _places(self) -> dict[int, int]:
        """The number inside the part of each of its shards."""
        return {shard: place for place, shard in enumerate(self.file.shards)}

    @property
    def model(self) -> Model:
        """The part as a model; raises FormatError if it cannot be read."""
        with self._lock:
            if self._model is None:
                self._model = self._read()
            return self._model

    @property
    def known(self) -> Model | None:
        """The model if it has been read, else None."""
        return self._model

    def _open(self) -> Source:
        opened = open_file(self._home, self.file)
        if self.file.url is None or self._is_verified:
            return opened
        self._pinned = pin_file(opened, self.file)
        return self._pinned

    def _read(self) -> Model:
        self.source.real  # noqa: B018  # opens the file: a missing one may be there the next time
        if self._refused is None:
            try:
                model = read_aero(self.source, self._check, Ledger())
                if self._pinned is not None:
                    self._pinned.pin()  # the index can be listed without the rest of the file, values cannot be read
                return model
            except FormatError as error:
                self._refused = error.with_traceback(None)
        wrong = self._refused
        raise type(wrong)(wrong.rule, wrong.offset, f"{self.file.path}: {wrong.message}")

    @property
    def stored_bytes(self) -> int:
        """The size of the part; 0 if it is missing or of another size than stated."""
        try:
            return self.source.real.size
        except FormatError:
            return 0

    def verify(self, check: Check, ledger: Ledger) -> None:
        """Read the part with a collecting check; the set then uses this model."""
        own = Ledger()
        self._model = read_aero(self.source, check, own)
        ledger.members.append((self.source, own))

    def match(self, index: AeroTable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Find the rows of the part with the tensors in ``rows`` of the global index; -1 where one is not as there.

        FormatError if the part cannot be read.
        """
        own = self.table
        if own is None:
            return np.full(len(rows), -1, np.intp)
        names, numbers = index.names, dict(zip(own.names, range(len(own)), strict=True))
        found = np.fromiter((numbers.get(names[row], -1) for row in rows.tolist()), np.intp, len(rows))
        known = found >= 0
        mine, theirs = found[known], rows[known]
        described: dict[tuple[str, tuple[int, ...]], int] = {}

        def number(form: Form) -> int:
            return described.setdefault((str(form.dtype), form.shape), len(described))

        same = own.forms().column(number, np.intp)[mine] == index.forms().column(number, np.intp)[theirs]
        same &= own.tidx.offsets[mine] == index.tidx.offsets[theirs]
        same &= own.tidx.stored[mine] == index.tidx.stored[theirs]
        shards, stated = own.tidx.shards[mine], index.tidx.shards[theirs]
        inside = np.fromiter((self._places[shard] for shard in stated.tolist()), np.uint64, len(stated))
        known[known] = same & ((shards == stated) | (shards == inside))
        return np.where(known, found, -1)

    @property
    def table(self) -> AeroTable | None:
        """The tensors of the part, None if its index is damaged; FormatError if it cannot be read."""
        own = self.model.tensors
        return own if isinstance(own, AeroTable) else None

    def refuse(self, index: AeroTable, row: int) -> NoReturn:
        """Raise FormatError for a tensor of the global index that is not in the part, or otherwise."""
        name, path, own = index.names[row], self.file.path, self.table
        try:
            place = self.model.tensors.row(name)
        except KeyError:
            raise FormatError(rules.AGREE.id, None, f"aeroset: {path!r} has no tensor {name!r}") from None
        assert own is not None, "a part without an index has no tensors"
        (ours, shard), (theirs, found) = _describe(index, row), _describe(own, place)
        message = f"aeroset: tensor {name!r} is {theirs} of shard {found} in {path!r}, "
        raise FormatError(rules.AGREE.id, None, message + f"but {ours} of shard {shard} in the global index")


def _describe(table: AeroTable, row: int) -> tuple[tuple[str, tuple[int, ...], int, int], int]:
    """Type, shape, place and stored bytes of a tensor, and its shard."""
    index = table.tidx
    described = (index.type_name(row), index.shapes[row], int(index.offsets[row]), int(index.stored[row]))
    return described, int(index.shards[row])
