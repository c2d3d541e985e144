"""Names pickles by what they would import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.format.foreign import Content
from holdall.format.foreign.pickle_names import PickleNames, find_names

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["describe_pickle", "find_pickle", "has_magic", "name_pickle"]

_SHOWN = 3
_LONGEST = 120  # characters of a name that are shown
_BUILT_IN = (
    "bool bytearray bytes complex dict float frozenset int list long object range set slice str tuple unicode xrange"
)
_SCALARS = (
    "ndarray dtype bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128 str_ bytes_"
)
# Exact names: a module such as builtins also has what runs code.
_PLAIN = frozenset(
    [f"{module}.{name}" for module in ("builtins", "__builtin__") for name in _BUILT_IN.split()]
    + [f"{module}._reconstructor" for module in ("copyreg", "copy_reg")]
    + [f"collections.{name}" for name in ("OrderedDict", "defaultdict", "deque", "Counter")]
    + ["_codecs.encode"]
)
_ARRAYS = frozenset(
    [f"numpy.{name}" for name in _SCALARS.split()]
    + [f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")]
    + [f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")]
)
_WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"  # also at other places: scikit-learn had a copy of joblib
_LEAST = 5  # bytes of a pickle without a magic
_FIRST = frozenset(b"(]})INJKMLFGSTUVXBCc\x88\x89\x8a")  # what a pickle without a magic may begin with


def has_magic(front: bytes) -> bool:
    """Whether a file begins as pickles from protocol 2 on do."""
    return front[:1] == b"\x80" and front[1:2] in (b"\2", b"\3", b"\4", b"\5")


def find_pickle(source: Source, front: bytes) -> PickleNames | None:
    """Walk through the pickle that a file is; None if it is none.

    Protocols 0 and 1 have no magic: such a file is a pickle from its first byte to its last.
    """
    if has_magic(front):
        return find_names(source)
    if source.size < _LEAST or front[0] not in _FIRST:
        return None
    found = find_names(source)
    return None if found.stopped or (found.whole and found.reached != source.size) else found


def name_pickle(source: Source, front: bytes) -> Content | None:
    """Name a pickle; None if the file is none."""
    found = find_pickle(source, front)
    return None if found is None else Content(describe_pickle(found))


def describe_pickle(found: PickleNames, packed: str = "") -> str:
    """Say what a pickle is, as the end of a sentence; ``packed`` says how it is compressed."""
    others = [name for name in found.names if name not in _PLAIN and name not in _ARRAYS]
    joblib = any(name.endswith(_WRAPPER) for name in others)
    others = [name for name in others if not name.endswith(_WRAPPER)]
    arrays = joblib or not _ARRAYS.isdisjoint(found.names)
    values = "plain values and numpy arrays" if arrays else "plain values"
    what = f"is a {'joblib dump' if joblib else 'pickle'}{packed}"
    if found.whole:
        what += f" that names {_list(others)}" if others else f" of {values}"
    else:
        what += f" whose first {found.reached:,} bytes " + (f"name {_list(others)}" if others else f"are {values}")
        if joblib:
            what += "; then come the bytes of an array, and what follows them was not looked at"
        else:
            what += "; then it is damaged, or no pickle" if found.stopped else "; the rest was not looked at"
    if any(name.startswith("sklearn.") for name in others):
        return f"{what} (scikit-learn): save the model with skops, or its arrays with numpy.savez"
    return (
        f"{what}. It is no PyTorch checkpoint, and loading it may run any code: "
        "where you trust it, save its arrays with numpy.savez or safetensors"
    )


def _list(names: list[str]) -> str:
    shown = [name if name.isprintable() else ascii(name) for name in names[:_SHOWN]]
    shown = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in shown]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
