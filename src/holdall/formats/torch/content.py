"""What a checkpoint's pickle may hold, and the few calls it may ask for. None of it is the file's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from holdall.check import Rule
from holdall.formats.torch import rules
from holdall.formats.torch.layout import OPAQUE_BYTES, STORAGES, TYPES

__all__ = [
    "KINDS", "KNOWN", "Device", "Global", "Ordered", "Refused", "Size", "Storage", "TensorRef", "call", "is_key",
    "storage_of", "weight_of",
]  # fmt: skip

_KEY = 1 << 60  # integers below this cannot be made to collide in a dict
_STORAGE_KEY = 1024  # letters of the key of a storage, which every tensor looks up: writers count
_DEVICE = 64  # letters of a device


class Refused(Exception):
    """Why a pickle is not read any further; ``short`` when more bytes might have helped."""

    def __init__(self, rule: Rule, at: int, message: str, short: bool = False) -> None:
        super().__init__(message)
        self.rule, self.at, self.message, self.short = rule, at, message, short


@dataclass(frozen=True, slots=True)
class Global:
    """A name from the list below. It is never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Ordered(dict[Any, Any]):
    """An OrderedDict, with the attributes that the pickle sets on it."""

    __slots__ = ("attributes",)

    def __init__(self) -> None:
        super().__init__()
        self.attributes: dict[Any, Any] = {}


class Size(tuple[int, ...]):
    """A torch.Size."""

    __slots__ = ()


class Device(str):
    """A torch.device, as text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Storage:
    """A stretch of bytes by its key. ``kind`` is the dtype of a typed one, else empty; ``first`` for old views."""

    key: str
    kind: str
    elements: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor as the pickle describes it; ``at`` is where."""

    storage: Storage
    kind: str  # a dtype of holdall, or the name of an opaque torch type
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    at: int


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
    """Whether a dict may have the key ``value``."""
    return isinstance(value, str) or (type(value) is int and -_KEY < value < _KEY)


def weight_of(arguments: Any) -> int:
    """What a call goes through or copies, at most as many bytes as a pickle takes that does not repeat itself."""
    weight = 0
    for argument in arguments if type(arguments) is tuple else ():
        if type(argument) is tuple or type(argument) is list:
            weight += 2 * len(argument)
        elif isinstance(argument, str):
            weight += len(argument)
    return weight


def call(function: Any, arguments: Any, at: int) -> Any:
    """What a call in the pickle makes: one of the few below, or Refused."""
    if not isinstance(function, Global):
        raise Refused(rules.CALL, at, f"a {_kind(function)} is called")
    maker = _CALLS.get((function.module, function.name))
    if maker is None or not isinstance(arguments, tuple):
        raise Refused(rules.CALL, at, f"{function} is called, which is not a call that weights need")
    return maker(arguments, at)


def _refuse(what: str, at: int) -> NoReturn:
    raise Refused(rules.CALL, at, f"{what} is called with arguments that it does not take")


def _ordered(arguments: tuple[Any, ...], at: int) -> Ordered:
    made = Ordered()
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], list)):
        _refuse("collections.OrderedDict", at)
    for pair in arguments[0] if arguments else ():  # as Python 2 wrote it
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and is_key(pair[0])):
            _refuse("collections.OrderedDict", at)
        made[pair[0]] = pair[1]
    return made


def _size(arguments: tuple[Any, ...], at: int) -> Size:
    if len(arguments) != 1 or not _are_sizes(arguments[0]):
        _refuse("torch.Size", at)
    return Size(arguments[0])


def _device(arguments: tuple[Any, ...], at: int) -> Device:
    if not 1 <= len(arguments) <= 2 or not isinstance(arguments[0], str) or not all(map(_is_size, arguments[1:])):
        _refuse("torch.device", at)
    if len(arguments[0]) > _DEVICE:
        _refuse("torch.device", at)
    return Device(":".join(map(str, arguments)))


def _encode(arguments: tuple[Any, ...], at: int) -> bytes:
    """How protocol 2 writes bytes: as text of the same numbers."""
    if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] not in ("latin1", "latin-1"):
        _refuse("_codecs.encode", at)
    try:
        return arguments[0].encode("latin-1")
    except UnicodeEncodeError:
        _refuse("_codecs.encode", at)


def _tensor(arguments: tuple[Any, ...], at: int) -> TensorRef:
    if not 4 <= len(arguments) <= 7:
        _refuse("torch._utils._rebuild_tensor", at)
    storage, kind = arguments[0], ""
    if isinstance(storage, Storage):
        kind = storage.kind
    if not kind:
        _refuse("torch._utils._rebuild_tensor", at)
    return _placed(arguments, kind, arguments[6] if len(arguments) > 6 else None, at)


def _untyped_tensor(arguments: tuple[Any, ...], at: int) -> TensorRef:
    if not 7 <= len(arguments) <= 8 or not isinstance(arguments[0], Storage) or arguments[0].kind:
        _refuse("torch._utils._rebuild_tensor_v3", at)
    word = arguments[6]
    if not isinstance(word, Global) or word.module != "torch" or word.name not in KINDS:
        _refuse("torch._utils._rebuild_tensor_v3", at)
    return _placed(arguments, KINDS[word.name], arguments[7] if len(arguments) > 7 else None, at)


def _placed(arguments: tuple[Any, ...], kind: str, notes: Any, at: int) -> TensorRef:
    storage, first, shape, strides = arguments[:4]
    hooks = arguments[5] if len(arguments) > 5 else None
    sound = _is_size(first) and _are_sizes(shape) and _are_sizes(strides) and len(shape) == len(strides)
    if not sound or hooks or (notes is not None and not isinstance(notes, dict)):
        _refuse("a rebuild of a tensor", at)
    if notes and any(notes.get(name) for name in ("conj", "neg")):
        raise Refused(rules.VALUE, at, "a tensor is the conjugate or the negative of what is stored: resolve it first")
    return TensorRef(storage, kind, first + storage.first, tuple(shape), tuple(strides), at)


def _parameter(arguments: tuple[Any, ...], at: int) -> TensorRef:
    if not 3 <= len(arguments) <= 4 or not isinstance(arguments[0], TensorRef) or arguments[2]:
        _refuse("torch._utils._rebuild_parameter", at)
    return arguments[0]


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _are_sizes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) <= 4096 and all(map(_is_size, value))


def _kind(value: Any) -> str:
    names = {Ordered: "OrderedDict", TensorRef: "tensor", Storage: "storage"}
    return names.get(type(value), type(value).__name__)


_CALLS: dict[tuple[str, str], Callable[[tuple[Any, ...], int], Any]] = {
    (_UTILS, "_rebuild_tensor"): _tensor,
    (_UTILS, "_rebuild_tensor_v2"): _tensor,
    (_UTILS, "_rebuild_tensor_v3"): _untyped_tensor,
    (_UTILS, "_rebuild_parameter"): _parameter,
    (_UTILS, "_rebuild_parameter_with_state"): _parameter,
    ("collections", "OrderedDict"): _ordered,
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    ("_codecs", "encode"): _encode,
}
