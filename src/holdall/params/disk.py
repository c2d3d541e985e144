"""Derived forms in a folder: kept for later, and shared between processes.

A form is an AERO file with hashes, called by the key of parameter and form. It is written beside its place and renamed,
so that a reader finds the old file, the new one or none. What cannot be read, is truncated or was not made from the
files of this model counts as absent, and is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from holdall.errors import HoldallError
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.open_save import open_model, save

__all__ = ["DiskForms", "stamp_of"]

_NAME = "form"  # of the tensor in the file
_STAMP = "holdall.form"  # the metadata that says what the form was made from


class DiskForms:
    """Forms of parameters in ``folder``, which is trusted like the program itself.

    A form belongs to its key and to a ``stamp``, which says from which files it was made: models with the same names in
    other files do not find it, and a model in no file has no forms here. ``pack`` turns a form that is no array into an
    array, and ``unpack`` that into the form; without them only plain arrays are kept. A new way to make a form needs a
    new name for it.

    >>> import numpy as np
    >>> forms = DiskForms("forms")
    >>> forms.get(7, "a"), forms.set(7, "a", np.ones(2)), forms.get(7, "a").tolist(), forms.get(7, "b")
    (None, True, [1.0, 1.0], None)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        pack: Callable[[Any], Any] | None = None,
        unpack: Callable[[Any], Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._pack = pack
        self._unpack = unpack

    def path(self, key: int) -> Path:
        """Return the file of the form ``key``."""
        return self.folder / f"{key:032x}.aero"

    def get(self, key: int, stamp: str) -> Any:
        """Return the form ``key`` if it has this stamp, else None."""
        try:
            with open_model(self.path(key), format="aero", mmap=False, check=True) as model:
                if model.metadata.get(_STAMP) != f"{key:032x} {stamp}":
                    return None
                values = model[_NAME].numpy()
        except (HoldallError, OSError):
            return None
        return values if self._unpack is None else self._unpack(values)

    def set(self, key: int, stamp: str, value: Any) -> bool:
        """Store the form ``key``. Return False if it cannot be stored, as on a full disk."""
        packed = value if self._pack is None else self._pack(value)
        if not _comes_back(packed):
            return False
        metadata = {_STAMP: f"{key:032x} {stamp}"}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.path(key).is_symlink():  # it would be followed, and the file that it leads to replaced
                self.path(key).unlink(missing_ok=True)
            # No fsync: a file that a crash has damaged fails its hashes, and is made again.
            save(self.path(key), {_NAME: packed}, metadata=metadata, format="aero", tensor_hash=True, fsync=False)
        except (HoldallError, OSError):
            return False
        return True


def _comes_back(value: Any) -> bool:
    """Whether a file gives back what it was given: not a masked array, a matrix, or numbers in another byte order."""
    if type(value) is not np.ndarray:
        return False
    try:
        return bool(Tensor.of(_NAME, value).numpy().dtype == value.dtype)
    except (HoldallError, TypeError, ValueError):
        return False


def stamp_of(model: Model) -> str | None:
    """Return a text that is equal only for the same files, unchanged; None if the model is not in files.

    A form may be made from several parameters, so that the files of all of them count.
    """
    found = []
    for source in model.sources:
        if not source.is_folder:
            identity = source.identity
            if not source.is_remote and identity[0] != "file":
                return None
            found.append(identity)
    return repr(found) if found else None
