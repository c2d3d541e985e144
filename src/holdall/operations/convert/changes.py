"""Changes to tensors on their way from one file to another: choosing, renaming, casting, transposing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from holdall.casts import cast, dequantized, transposed
from holdall.dtypes import DTYPES, DType, named
from holdall.errors import UnsupportedError
from holdall.tensor import Tensor

__all__ = ["Changes", "parse_cast", "parse_rename"]


@dataclass(frozen=True, slots=True)
class Changes:
    """What to do to each tensor; the empty one changes nothing.

    Patterns are shell globs over names as they are in the source. ``cast`` pairs a pattern with a dtype, the
    first match counts; the empty pattern means every tensor of floats. ``rename`` is a list of (regular expression,
    replacement, how often), applied in order.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    rename: Sequence[tuple[str, str, int]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    cast: Sequence[tuple[str, str]] = ()
    transpose: Sequence[str] = ()
    dequantize: Sequence[str] = ()

    def options(self) -> list[str]:
        """The options of the command line that are in use."""
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
        """What the tensor called ``name`` is called afterwards."""
        renamed = self.names.get(name, name)
        for pattern, replacement, often in self.rename:
            renamed = re.sub(pattern, replacement, renamed, count=often)
        return renamed

    def transposes(self, name: str) -> bool:
        """Whether the axes of the tensor called ``name`` are to be reversed."""
        return any(fnmatchcase(name, pattern) for pattern in self.transpose)

    def dequantizes(self, name: str) -> bool:
        """Whether the tensor called ``name`` is to become plain numbers."""
        return any(fnmatchcase(name, pattern) for pattern in self.dequantize)

    def idle(self, names: Sequence[str], chosen: Sequence[str]) -> list[str]:
        """The patterns and rules that no tensor answers to, of all or of the chosen: most likely a slip of the pen."""
        globs = [
            *(("include", pattern, names) for pattern in self.include),
            *(("exclude", pattern, names) for pattern in self.exclude),
            *(("cast", pattern, chosen) for pattern, _ in self.cast if pattern),
            *(("transpose", pattern, chosen) for pattern in self.transpose),
        ]
        found = [f"{what} {p!r}" for what, p, among in globs if not any(fnmatchcase(name, p) for name in among)]
        known = set(chosen)
        found += [f"rename {old!r}" for old in self.names if old not in known]
        for pattern, _, _ in self.rename:
            if not any(re.search(pattern, name) for name in chosen):
                found.append(f"rename {pattern!r}")
        return found

    def apply(self, tensor: Tensor, on_warning: Callable[[str], None] = lambda text: None) -> Tensor:
        """The tensor as asked for, with its bytes still to be made; ``on_warning`` receives overflow messages."""
        name = tensor.name
        if self.dequantizes(name) and not isinstance(tensor.dtype, DType):
            tensor = dequantized(tensor)
        if self.transposes(name):
            tensor = transposed(tensor)
        for pattern, dtype in self.cast:
            if fnmatchcase(name, pattern) if pattern else _is_float(tensor):
                tensor = cast(tensor, named(dtype), on_warning)
                break
        return tensor.replace(name=self.new_name(name))


def _is_float(tensor: Tensor) -> bool:
    return isinstance(tensor.dtype, DType) and tensor.dtype.kind == "float"


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

    Any character can stand for the slash.

    >>> parse_rename(["s/^model[.]//", "s|/|.|g"])
    [('^model[.]', '', 1), ('/', '.', 0)]
    """
    pairs = []
    for rule in rules:
        parts = rule[2:].split(rule[1]) if len(rule) > 3 and rule[0] == "s" else []
        if len(parts) != 3 or parts[2] not in ("", "g") or not parts[0]:
            raise UnsupportedError(f"a rename rule looks like s/old/new/, not {rule!r}")
        try:
            re.sub(parts[0], parts[1], "")  # also reads the replacement, whose groups may not exist
        except (re.error, IndexError) as error:
            raise UnsupportedError(f"the rename rule {rule!r} is no regular expression: {error}") from None
        pairs.append((parts[0], parts[1], 0 if parts[2] else 1))
    return pairs
