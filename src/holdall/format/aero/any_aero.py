"""What AERO files and sets of them have in common.

The class stands in a plain module, so that a set does not take the modules of the single file for its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.format.base import Format

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["AnyAero"]


class AnyAero(Format):
    """An AERO file, or a set of them: content that only they have a place for."""

    def clashing_content(self, model: Model) -> Mapping[str, str]:
        """What is made anew without a place for what it held, and what several files have under one name."""
        from holdall.format.aero.own_content import list_unkept
        from holdall.format.aero.read import list_files

        return list_unkept(list_files(model))

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """Hashes of chunks, and keys of MMSG, that the format does not define."""
        from holdall.format.aero.own_content import list_values
        from holdall.format.aero.read import list_files

        return list_values(list_files(model))

    def join_native(self, models: Sequence[Model]) -> object:
        """The AERO files of all models, whose chunks and kinds of hashes the joined one gets."""
        from holdall.format.aero.read import JoinedFiles

        return JoinedFiles.of(models)
