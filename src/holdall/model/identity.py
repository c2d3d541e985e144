"""The identity of parameters: ids from names, keys from ids, and the rules for names of parameters.

An id is a hash of the name, so it is the same in every container. A key also depends on the namespace that a program
gave its model, so that one process can use two models.

>>> base_id("lm_head") == 0xa962c72e0d59ef7a13ff91bdee235d58
True
>>> f"{param_key(1, base_id('lm_head')):032x}"
'bc874dba78a0af10e0bf65eac431acd0'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.once import computed_once
from holdall.errors import ContentError, MissingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["Identities", "base_id", "base_ids", "derived_key", "flatten", "name_breach", "nest", "param_key"]
__all__ += ["param_keys"]

_TAG = b"gpt-rs:param-key:v1"
_DERIVED_TAG = b"holdall:derived-key:v1"
_U128 = 1 << 128
_LOW = (1 << 64) - 1


def base_id(name: str) -> int:
    """The id of a parameter: the first 128 bits of the BLAKE3 hash of its name, little-endian."""
    from blake3 import blake3

    return int.from_bytes(blake3(_encode_names(name)).digest(16), "little")


def base_ids(names: Sequence[str]) -> list[int]:
    """The ids of many names, hashed in one call: 100,000 names take some hundredths of a second.

    >>> base_ids(["a"]) == [0xa2eec37a71655d9253a469d9dd2f7617]
    True
    """
    joined = "".join(names)
    data = _encode_names(joined)
    sizes = map(len, names if joined.isascii() else (name.encode() for name in names))
    return _hash_pieces(data, sizes, len(names))


def _encode_names(names: str) -> bytes:
    try:
        return names.encode()
    except UnicodeEncodeError:
        raise ContentError("a name that cannot be written as UTF-8 has no id") from None


def param_key(namespace: int, base_id: int) -> int:
    """The key of the parameter ``base_id`` in the model ``namespace``, both numbers of 128 bits."""
    return param_keys(namespace, [base_id])[0]


def param_keys(namespace: int, base_ids: Sequence[int]) -> list[int]:
    """The keys of many ids, hashed in one call."""
    for number in (namespace, *base_ids):
        if not 0 <= number < _U128:
            raise ContentError(f"{number} is not a number of 128 bits")
    head = _TAG + namespace.to_bytes(16, "little")
    data = b"".join([head + id.to_bytes(16, "little") for id in base_ids])
    return _hash_pieces(data, [len(head) + 16] * len(base_ids), len(base_ids))


def derived_key(key: int, form: str) -> int:
    """The key of another form of the parameter ``key``, such as transposed or cast; ``form`` names it.

    >>> derived_key(1, "f32.T") == derived_key(1, "f32.T") != derived_key(1, "f32")
    True
    """
    if not 0 <= key < _U128:
        raise ContentError(f"{key} is not a number of 128 bits")
    data = _DERIVED_TAG + key.to_bytes(16, "little") + form.encode("utf-8", "surrogatepass")
    return _hash_pieces(data, [len(data)], 1)[0]


def _hash_pieces(data: bytes, sizes: Iterable[int], count: int) -> list[int]:
    """Compute the first 128 bits of the BLAKE3 of consecutive pieces of ``data``."""
    import numpy as np

    from holdall.binary import kernels

    lengths = np.fromiter(sizes, np.uint64, count)
    out: NDArray[np.uint64] = np.empty((count, 2), np.uint64)
    kernels.blake3_16(data, np.cumsum(lengths, dtype=np.uint64) - lengths, lengths, out)
    return [high << 64 | low for low, high in zip(out[:, 0].tolist(), out[:, 1].tolist(), strict=True)]


class Identities:
    """The parameters of a model by id, for any container; ids are computed when first needed.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> ids = Identities(model_of({"lm_head": np.zeros(2)}))
    >>> ids.name(base_id("lm_head")), ids.tensor(base_id("lm_head")).shape
    ('lm_head', (2,))
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    @computed_once
    def by_name(self) -> dict[str, int]:
        """Name to id, in the order of the model."""
        names = list(self._tensors)
        return dict(zip(names, base_ids(names), strict=True))

    @computed_once
    def _names(self) -> dict[int, str]:
        return {id: name for name, id in self.by_name.items()}

    def __contains__(self, id: object) -> bool:
        return id in self._names

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._tensors)

    def name(self, id: int) -> str:
        """Return the name of the parameter ``id``."""
        try:
            return self._names[id]
        except KeyError:
            raise MissingError(f"there is no parameter with the id {id:032x} among the {len(self)}") from None

    def tensor(self, id: int) -> Tensor:
        """The tensor of the parameter ``id``."""
        return self._tensors[self.name(id)]

    def keys(self, namespace: int) -> dict[str, int]:
        """Name to key in ``namespace``."""
        return dict(zip(self.by_name, param_keys(namespace, list(self.by_name.values())), strict=True))


def name_breach(name: str) -> str | None:
    """What is wrong with the name of a parameter; None when nothing is.

    A name is one or more segments joined by single dots; a segment is ASCII and not empty.

    >>> name_breach("blocks.0.attention.w_qkv"), name_breach("blocks..w")
    (None, "'blocks..w': segment 1 is empty")
    """
    for place, segment in enumerate(name.split(".")):
        wrong = _segment_breach(segment)
        if wrong:
            return f"{name!r}: segment {place} {wrong}"
    return None


def _segment_breach(segment: str) -> str | None:
    if not segment:
        return "is empty"
    if "." in segment:
        return f"has a dot in it: {segment!r}"
    return None if segment.isascii() else f"is not ASCII: {segment!r}"


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of nested dictionaries under their dotted names, in order.

    The items of lists and tuples of dictionaries are numbered from 0. A segment that breaks the rules of names raises
    ContentError.

    >>> flatten({"blocks": [{"w": 1}, {"w": 2}], "lm_head": 3})
    {'blocks.0.w': 1, 'blocks.1.w': 2, 'lm_head': 3}
    """
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", tree)]
    while waiting:
        path, value = waiting.pop()
        children = _children(value)
        if children is None:
            if path in found:
                raise ContentError(f"two parameters are called {path!r}")
            found[path] = value
            continue
        for segment, _ in children:
            wrong = "is not text" if not isinstance(segment, str) else _segment_breach(segment)
            if wrong:
                raise ContentError(f"a segment of a name below {path or 'the root'!r} {wrong}")
        inner = [(f"{path}.{segment}" if path else segment, child) for segment, child in children]
        waiting += reversed(inner)
    return found


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """Segments and values below a branch; None for a leaf. A list is a branch when it holds branches."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Mapping) for item in value):
        return [(str(place), item) for place, item in enumerate(value)]
    return None


def nest(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from dotted names: the inverse of :func:`flatten`, but lists stay dictionaries.

    >>> nest({"blocks.0.w": 1, "lm_head": 3})
    {'blocks': {'0': {'w': 1}}, 'lm_head': 3}
    """
    tree: dict[str, Any] = {}
    branches: set[str] = set()
    for name, value in parameters.items():
        wrong = name_breach(name)
        if wrong:
            raise ContentError(f"the name of a parameter: {wrong}")
        *parents, leaf = name.split(".")
        at, path = tree, ""
        for parent in parents:
            path += f"{parent}."
            if parent in at and path not in branches:
                raise ContentError(f"{path[:-1]!r} is a parameter, so that {name!r} cannot lie below it")
            branches.add(path)
            at = at.setdefault(parent, {})
        if leaf in at:
            raise ContentError(f"{name!r} is a parameter, and others lie below it")
        at[leaf] = value
    return tree
