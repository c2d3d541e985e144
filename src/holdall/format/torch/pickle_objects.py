"""The values that the pickle of a checkpoint may hold, and the few calls it may make. None of them runs its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from holdall.base.check import Rule
from holdall.format.torch import rules
from holdall.format.torch.layout import OPAQUE_BYTES, STORAGES, TYPES
from holdall.format.torch.mirrors import CONJUGATE, NEGATIVE, can_mirror

__all__ = [
    "KINDS", "KNOWN", "Device", "Global", "Ordered", "Refused", "Size", "Storage", "TensorRef", "call", "check_state",
    "describe", "is_key", "storage_of", "weight_of",
]  # fmt: skip

_KEY = 1 << 60  # integers below this have different hashes, so that no file can make them collide
_KEY_BYTES = 256  # bytes of a key of bytes: equal ones are compared byte by byte
_KEY_ITEMS, _KEY_LETTERS = 8, 64  # items of a key that is a tuple, and letters or bytes of each
_STORAGE_KEY = 1024  # characters of the key of a storage; every tensor looks it up, and writers use small numbers
_DEVICE = 64  # characters of a device
_VALUES = frozenset({"data", "real", "imag"})  # attributes of a tensor that are its elements


class Refused(Exception):
    """Why the machine stops; ``short`` when the pickle may only have been cut off.

    ``root`` is the class of the object that the whole pickle is, if it is refused for that, and ``limit`` the name of
    the limit that is exceeded.
    """

    root = ""
    limit = ""

    def __init__(self, rule: Rule, at: int, message: str, short: bool = False) -> None:
        super().__init__(message)
        self.rule, self.at, self.message, self.short = rule, at, message, short


@dataclass(frozen=True, slots=True)
class Global:
    """A name from ``KNOWN``. It is never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Ordered(dict[Any, Any]):
    """An OrderedDict with the attributes that the pickle sets on it."""

    __slots__ = ("attributes",)

    def __init__(self) -> None:
        super().__init__()
        self.attributes: dict[Any, Any] = {}


class Size(tuple[int, ...]):
    """A torch.Size."""

    __slots__ = ()


class Device(str):
    """A torch.device, as text. As a key of a dict it is not equal to the text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is Device and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Device, str(self)))


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which would make a million of them slow
class Storage:
    """A storage by its key. ``kind`` is its dtype, empty for an untyped one; ``first`` is the offset of an old view."""

    key: str
    kind: str
    elements: int
    first: int = 0

    def agrees_with(self, other: Storage) -> bool:
        """Whether both have the same type and size; old files may state different views of one storage."""
        return self.kind == other.kind and self.elements == other.elements


@dataclass(slots=True, unsafe_hash=True)
class TensorRef:
    """A tensor as the pickle describes it, at byte ``at``; ``mirrored`` as in :mod:`holdall.format.torch.mirrors`."""

    storage: Storage
    kind: str  # a dtype of holdall, or the name of an opaque torch type
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    at: int
    mirrored: int = 0


_UTILS = "torch._utils"
_REBUILDS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter")
KINDS = {**TYPES, **{name: name for name in OPAQUE_BYTES}}  # torch.dtype objects
KNOWN: dict[tuple[str, str], Global] = {
    (module, name): Global(module, name)
    for module, names in (
        (_UTILS, (*_REBUILDS, "_rebuild_parameter_with_state")),
        ("collections", ("OrderedDict",)),
        ("torch", ("Size", "device", *STORAGES, *KINDS)),
        ("torch.storage", ("UntypedStorage",)),
        ("_codecs", ("encode",)),
    )
    for name in names
}


def storage_of(pid: Any, at: int) -> Storage:
    """The storage that a persistent id names: ('storage', class, key, device, elements), and in old files a view."""
    if not (
        isinstance(pid, tuple)
        and 5 <= len(pid) <= 6
        and pid[0] == "storage"
        and isinstance(pid[1], Global)
        and (pid[1].name in STORAGES or pid[1].name == "UntypedStorage")
        and isinstance(pid[2], str)
        and len(pid[2]) <= _STORAGE_KEY
        and isinstance(pid[3], str)
        and _is_size(pid[4])
    ):
        raise Refused(rules.CALL, at, "a persistent id is not that of a storage")
    key, first, elements = pid[2], 0, pid[4]
    view = pid[5] if len(pid) == 6 else None
    if view is not None:
        if not (isinstance(view, tuple) and len(view) == 3 and _is_size(view[1]) and _is_size(view[2])):
            raise Refused(rules.CALL, at, "a persistent id has a view that is none")
        first = view[1]
        if view[2] > elements or first > elements - view[2]:
            raise Refused(rules.TENSOR, at, f"the view of storage {key!r} ends outside of its {elements} elements")
    return Storage(key, STORAGES.get(pid[1].name, ""), elements, first)


def is_key(value: Any) -> bool:
    """Whether a dict may have the key ``value``. What a file can make collide must be short: see also Machine."""
    if isinstance(value, tuple):
        return len(value) <= _KEY_ITEMS and all(map(_is_key_item, value))
    return isinstance(value, str) or (isinstance(value, bytes) and len(value) <= _KEY_BYTES) or _is_key_item(value)


def _is_key_item(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return len(value) <= _KEY_LETTERS
    if type(value) is int:
        return -_KEY < value < _KEY
    return value is None or isinstance(value, (bool, float, Global))


def weight_of(arguments: Any) -> int:
    """The work of a call; at most the bytes of its arguments in a pickle that does not use its memo."""
    weight = 0
    for argument in arguments if type(arguments) is tuple else ():
        if type(argument) is tuple or type(argument) is list:
            weight += 2 * len(argument)
        elif isinstance(argument, str):
            weight += len(argument)
    return weight


def call(function: Any, arguments: Any, at: int) -> Any:
    """Make the value of a call in the pickle; Refused for any function but those in ``_CALLS``."""
    if not isinstance(function, Global):
        raise Refused(rules.CALL, at, f"a {describe(function)} is called")
    maker = _CALLS.get((function.module, function.name))
    if maker is None or not isinstance(arguments, tuple):
        raise Refused(rules.CALL, at, f"{function} is called, which is not a call that weights need")
    return maker(arguments, at)


def _refuse(what: str, at: int) -> NoReturn:
    raise Refused(rules.CALL, at, f"{what} is called with arguments that it does not take")


def _make_ordered_dict(arguments: tuple[Any, ...], at: int) -> Ordered:
    made = Ordered()
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], list)):
        _refuse("collections.OrderedDict", at)
    for pair in arguments[0] if arguments else ():  # as Python 2 wrote it
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and is_key(pair[0])) or type(pair[0]) is tuple:
            _refuse("collections.OrderedDict", at)
        made[pair[0]] = pair[1]
    return made


def _make_size(arguments: tuple[Any, ...], at: int) -> Size:
    if len(arguments) != 1 or not _are_sizes(arguments[0]):
        _refuse("torch.Size", at)
    return Size(arguments[0])


def _make_device(arguments: tuple[Any, ...], at: int) -> Device:
    if not 1 <= len(arguments) <= 2 or not isinstance(arguments[0], str) or not all(map(_is_size, arguments[1:])):
        _refuse("torch.device", at)
    if len(arguments[0]) > _DEVICE:
        _refuse("torch.device", at)
    return Device(":".join(map(str, arguments)))


def _encode(arguments: tuple[Any, ...], at: int) -> bytes:
    """Encode bytes, which protocol 2 writes as text of the same character codes."""
    if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] not in ("latin1", "latin-1"):
        _refuse("_codecs.encode", at)
    try:
        return arguments[0].encode("latin-1")
    except UnicodeEncodeError:
        _refuse("_codecs.encode", at)


def _make_tensor(arguments: tuple[Any, ...], at: int) -> TensorRef:
    if not 4 <= len(arguments) <= 7:
        _refuse("torch._utils._rebuild_tensor", at)
    storage, kind = arguments[0], ""
    if isinstance(storage, Storage):
        kind = storage.kind
    if not kind:
        _refuse("torch._utils._rebuild_tensor", at)
    return _make_ref(arguments, kind, arguments[6] if len(arguments) > 6 else None, at)


def _make_untyped_tensor(arguments: tuple[Any, ...], at: int) -> TensorRef:
    if not 7 <= len(arguments) <= 8 or not isinstance(arguments[0], Storage) or arguments[0].kind:
        _refuse("torch._utils._rebuild_tensor_v3", at)
    word = arguments[6]
    if not isinstance(word, Global) or word.module != "torch" or word.name not in KINDS:
        _refuse("torch._utils._rebuild_tensor_v3", at)
    return _make_ref(arguments, KINDS[word.name], arguments[7] if len(arguments) > 7 else None, at)


def _make_ref(arguments: tuple[Any, ...], kind: str, notes: Any, at: int) -> TensorRef:
    storage, first, shape, strides = arguments[:4]
    hooks = arguments[5] if len(arguments) > 5 else None
    sound = _is_size(first) and _are_sizes(shape) and _are_sizes(strides) and len(shape) == len(strides)
    if not sound or hooks or (notes is not None and not isinstance(notes, dict)):
        _refuse("a rebuild of a tensor", at)
    # PyTorch looks whether the keys are there, and not at their values.
    mirrored = 0 if not notes else CONJUGATE * ("conj" in notes) + NEGATIVE * ("neg" in notes)
    if mirrored and not can_mirror(kind, mirrored):
        what = "conjugate" if mirrored & CONJUGATE else "negative"
        raise Refused(rules.MIRRORED, at, f"a tensor is the {what} of {kind} numbers, which PyTorch cannot compute")
    return TensorRef(storage, kind, first + storage.first, tuple(shape), tuple(strides), at, mirrored)


def _take_parameter(arguments: tuple[Any, ...], at: int) -> TensorRef:
    if not 3 <= len(arguments) <= 4 or not isinstance(arguments[0], TensorRef) or arguments[2]:
        _refuse("torch._utils._rebuild_parameter", at)
    check_state(arguments[3] if len(arguments) > 3 else None, at)
    return arguments[0]


def check_state(state: Any, at: int) -> None:
    """Refuse a state of a tensor that gives it other elements: PyTorch sets whatever attributes the state has."""
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    for part in parts:
        if part and not isinstance(part, dict):
            raise Refused(rules.STATE, at, f"the state of a tensor is a {describe(part)}, not a dict of attributes")
        for key in part or ():
            if not isinstance(key, str) or key in _VALUES or key.startswith("__"):
                raise Refused(
                    rules.STATE, at, f"the state of a tensor sets {str(key)[:40]!r}, which changes its values"
                )


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _are_sizes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) <= 4096 and all(map(_is_size, value))


def describe(value: Any) -> str:
    """The word for a value in a message."""
    names = {Ordered: "OrderedDict", TensorRef: "tensor", Storage: "storage"}
    return names.get(type(value), type(value).__name__)


_CALLS: dict[tuple[str, str], Callable[[tuple[Any, ...], int], Any]] = {
    (_UTILS, "_rebuild_tensor"): _make_tensor,
    (_UTILS, "_rebuild_tensor_v2"): _make_tensor,
    (_UTILS, "_rebuild_tensor_v3"): _make_untyped_tensor,
    (_UTILS, "_rebuild_parameter"): _take_parameter,
    (_UTILS, "_rebuild_parameter_with_state"): _take_parameter,
    ("collections", "OrderedDict"): _make_ordered_dict,
    ("torch", "Size"): _make_size,
    ("torch", "device"): _make_device,
    ("_codecs", "encode"): _encode,
}
