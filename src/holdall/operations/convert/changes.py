"""The changes that a conversion makes to tensors: choose, rename, cast, transpose, dequantize."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.linear_regex import compile_regex
from holdall.base.text import plural
from holdall.errors import UnsupportedError
from holdall.model.cast_table import CastTable
from holdall.model.casts import dequantize, transpose
from holdall.model.dtypes import DTYPES, DType, find_dtype
from holdall.model.forms import Form
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Changes", "parse_cast", "parse_rename"]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes to make to each tensor; the defaults make none.

    Patterns are shell globs over the names in the source. ``cast`` pairs a pattern with a dtype, and the first match
    counts; the empty pattern means every tensor of floats. ``rename`` has (regular expression, replacement, count),
    applied in order; a count of 0 replaces every match.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    rename: Sequence[tuple[str, str, int]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    cast: Sequence[tuple[str, str]] = ()
    transpose: Sequence[str] = ()
    dequantize: Sequence[str] = ()

    def options(self) -> list[str]:
        """The options in use, as the command line calls them."""
        given = {
            "--include": self.include,
            "--exclude": self.exclude,
            "--rename": self.rename or self.names,
            "--cast": self.cast,
            "--transpose": self.transpose,
            "--dequantize": self.dequantize,
        }
        return [name for name, value in given.items() if value]

    def chooses(self, name: str) -> bool:
        """Whether the tensor called ``name`` is wanted."""
        if self.include and not any(fnmatchcase(name, pattern) for pattern in self.include):
            return False
        return not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def new_name(self, name: str) -> str:
        """The new name of the tensor called ``name``."""
        renamed = self.names.get(name, name)
        for pattern, replacement, often in self.rename:
            renamed = compile_regex(pattern).replace(renamed, replacement, often)
        return renamed

    def transposes(self, name: str) -> bool:
        """Whether the axes of the tensor called ``name`` are to be reversed."""
        return bool(self.transpose) and any(fnmatchcase(name, pattern) for pattern in self.transpose)

    def dequantizes(self, name: str) -> bool:
        """Whether the tensor called ``name`` is to become plain numbers."""
        return bool(self.dequantize) and any(fnmatchcase(name, pattern) for pattern in self.dequantize)

    def find_unmatched(self, names: Sequence[str], chosen: Sequence[str]) -> list[str]:
        """Find the patterns and rules that match none of ``names``, or none of the ``chosen``: probably misspelt."""
        globs = [
            *(("include", pattern, names) for pattern in self.include),
            *(("exclude", pattern, names) for pattern in self.exclude),
            *(("cast", pattern, chosen) for pattern, _ in self.cast if pattern),
            *(("transpose", pattern, chosen) for pattern in self.transpose),
        ]
        found = [f"{what} {p!r}" for what, p, given in globs if not any(fnmatchcase(name, p) for name in given)]
        among = set(chosen)
        found += [f"rename {old!r}" for old in self.names if old not in among]
        for pattern, _, _ in self.rename:
            if not any(compile_regex(pattern).search(name) for name in chosen):
                found.append(f"rename {pattern!r}")
        return found

    def find_uncast(self, table: TensorTable) -> list[str]:
        """Say that a dtype without a pattern left tensors unchanged, if that was probably not meant.

        It is meant that f16 leaves integers; i16 was probably meant for them, and so was a cast of nothing.
        """
        bare = next((number for number, rule in enumerate(self.cast) if not rule[0]), None)
        if bare is None:
            return []
        dtype, table = self.cast[bare][1], self._decode(table)
        rules, is_other = self._find_casts(table), table.forms().column(lambda form: str(form.dtype) != dtype, np.bool_)
        left = ((rules < 0) & is_other).nonzero()[0].tolist()
        if not left or (bare in rules and DTYPES[dtype].kind == "float"):
            return []
        first = table.tensor(left[0])
        others = f"not {plural(len(left), 'other')}, {first.name!r} {first.dtype} first"
        return [f"cast {dtype} reaches tensors of floats, {others}; --cast 'GLOB={dtype}' casts those it names"]

    def _decode(self, table: TensorTable, on_warning: Callable[[str], None] = lambda text: None) -> TensorTable:
        if not self.dequantize:
            return table
        return ListTable(
            [dequantize(each, on_warning=on_warning) if self.dequantizes(each.name) else each for each in table]
        )

    def _find_casts(self, table: TensorTable) -> NDArray[np.intp]:
        """Find the number of the rule for each tensor, -1 for none. They are dequantized where that was asked for."""
        found = np.full(len(table), -1, np.intp)
        for number in reversed(range(len(self.cast))):  # so that the first rule is written last
            pattern = self.cast[number][0]
            names = (fnmatchcase(name, pattern) for name in table.names)
            matches = np.fromiter(names, np.bool_, len(table)) if pattern else table.forms().column(_is_float, np.bool_)
            found[matches] = number
        return found

    def change_values(
        self, table: TensorTable, on_warning: Callable[[str], None] = lambda text: None
    ) -> TensorTable:  # fmt: skip
        """Return the tensors with new values, under their old names.

        Reading a tensor computes its bytes; ``on_warning`` then receives overflow messages.
        """
        table = self._decode(table, on_warning)
        if self.transpose:
            table = ListTable([transpose(tensor) if self.transposes(tensor.name) else tensor for tensor in table])
        if not self.cast:
            return table
        return CastTable(table, [find_dtype(dtype) for _, dtype in self.cast], self._find_casts(table), on_warning)

    def apply(self, tensor: Tensor, on_warning: Callable[[str], None] = lambda text: None) -> Tensor:
        """Return the changed tensor; see :meth:`change_values`."""
        return self.change_values(ListTable([tensor]), on_warning)[0].replace(name=self.new_name(tensor.name))


def _is_float(form: Form) -> bool:
    return isinstance(form.dtype, DType) and form.dtype.kind == "float"


def parse_cast(rules: str | Iterable[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    """Cast rules from ``"bf16"`` (every tensor of floats), ``["*.norm*=f32", "bf16"]`` or ``{"*.norm*": "f32"}``.

    >>> parse_cast(["*.norm*=f32", "bf16"])
    [('*.norm*', 'f32'), ('', 'bf16')]
    """
    if isinstance(rules, Mapping):
        pairs = list(rules.items())
    else:
        texts = [rules] if isinstance(rules, str) else rules
        parts = (text.rpartition("=") for text in texts)
        pairs = [(pattern, dtype) for pattern, _, dtype in parts]
    for _, dtype in pairs:
        if dtype not in DTYPES:
            raise UnsupportedError(f"there is no dtype {dtype!r} to cast to; the dtypes are {' '.join(DTYPES)}")
    return pairs


def parse_rename(rules: Iterable[str]) -> list[tuple[str, str, int]]:
    """Rename rules written as ``s/old/new/``, as in sed: the first match, or with a ``g`` at the end all of them.

    Any character can take the place of the slash.

    >>> parse_rename(["s/^model[.]//", "s|/|.|g"])
    [('^model[.]', '', 1), ('/', '.', 0)]
    """
    pairs = []
    for rule in rules:
        parts = rule[2:].split(rule[1]) if len(rule) > 3 and rule[0] == "s" else []
        if len(parts) != 3 or parts[2] not in ("", "g") or not parts[0]:
            raise UnsupportedError(f"a rename rule looks like s/old/new/, not {rule!r}")
        try:
            compile_regex(parts[0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                re.sub(parts[0], parts[1], "")  # finds groups of the replacement that do not exist
        except (re.error, IndexError) as error:
            raise UnsupportedError(f"the rename rule {rule!r} is no regular expression: {error}") from None
        except UnsupportedError as error:
            raise UnsupportedError(f"the rename rule {rule!r}: {error}") from None
        pairs.append((parts[0], parts[1], 0 if parts[2] else 1))
    return pairs
