"""Finds the tensors in content with records, and names each by its path.

A record that looks like a module of PyTorch gives its tensors the names of a state dict: its parameters and buffers,
and those of its submodules, stand under their own names. In every other record the path is that of attributes and
items. What is reached from the outermost value through dicts, lists, submodules and items is named at once, each time
that it is reached; attributes of other objects come after all of that, and there each object is named once, by its
shortest path.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from holdall.base.check import Check
from holdall.format.torch.flatten import KIND, Flattener, is_own_metadata
from holdall.format.torch.keys import name_items
from holdall.format.torch.nesting import ATTRIBUTE, LONE, VALUE
from holdall.format.torch.numpy_objects import Array
from holdall.format.torch.pickle_objects import Ordered, Storage, TensorRef
from holdall.format.torch.records import Name, Record

__all__ = ["ObjectFlattener", "is_module"]

_SCRIPT = "__torch__"  # the module of classes of TorchScript, whose attributes are parameters and submodules
_SLOTS = ("_parameters", "_buffers", "_modules")
_INSIDE = ""  # the kind of values inside an object, which are no metadata
_SCALARS = (type(None), bool, int, float, str, bytes)


def is_module(value: Any) -> bool:
    """Whether a record has what every module of PyTorch has."""
    if not isinstance(value, Record) or not value.states:
        return False
    return all(isinstance(value.attribute(slot), dict) for slot in _SLOTS)


def _is_script(record: Record) -> bool:
    return isinstance(record.kind, Name) and record.kind.module.split(".")[0] == _SCRIPT


class ObjectFlattener(Flattener):
    """Walks through containers and records.

    ``objects`` are the outermost records by path, ``cut`` the paths that are not walked. ``labelled`` are the dicts, by
    identity, that have keys for which a text stands.
    """

    def __init__(self, size: int, at: int, check: Check, labelled: Mapping[int, Any]) -> None:
        super().__init__(size, at, check, None)
        self.content.flat = Ordered  # tensors are written again by their names
        self.objects: dict[str, Any] = {}
        self.classes: Counter[str] = Counter()  # of objects that are data of Python or numpy, not of a foreign class
        self.cut: list[str] = []
        self.unusual: dict[str, None] = {}  # what else no plain checkpoint has
        self._labelled = labelled
        self._start = 0  # where the pickle begins
        self._trail: set[int] = set()
        self._named: set[int] = set()
        self._waiting: deque[tuple[str, str, Any, int, str]] = deque()

    def add(self, root: Any, path: str, start: int) -> None:
        """Add the outermost value of the pickle that begins at byte ``start``, at ``path``."""
        self._start = start
        if not path and not isinstance(root, (dict, list, tuple, Record)):
            path = LONE if isinstance(root, (TensorRef, Storage)) else VALUE
        if not path and isinstance(root, Array) and root.value is not None:
            path = LONE
        self._visit(path, path, root, 0, KIND, again=True)
        while self._waiting:
            path, full, value, depth, kind = self._waiting.popleft()
            self._visit(path, full, value, depth, kind, again=False)

    def _visit(self, path: str, full: str, value: Any, depth: int, kind: str, *, again: bool) -> None:
        """Add what is at ``path``, which is ``full`` with all attributes that modules leave out.

        Plain values are metadata of this ``kind``; those ``_INSIDE`` an object are part of the object. Records and
        tensors that have a name are named ``again``, or not.
        """
        self._spend_items(1, depth)
        if isinstance(value, Storage):
            self.unusual["storages as values"] = None
            value = TensorRef(value, value.kind or "u8", value.first, (value.elements - value.first,), (1,), 0)
        if isinstance(value, TensorRef):
            if id(value) in self._named and not again:
                return
            if id(value) not in self._named:
                value.at += self._start
            self._named.add(id(value))
            self.add_tensor(full if path in self.content.tensors else path, value, depth)
        elif isinstance(value, Record):
            self._visit_record(path, full, value, depth, kind, again=again)
        elif isinstance(value, (dict, list, tuple)) and (not path or not self._plain_only(value, depth + 1)):
            if kind != _INSIDE and id(value) in self._labelled:
                self.classes["dict"] += 1
            if self._enter(path, value, depth):
                for name, _, item in name_items(value):
                    self._visit(*_join(path, full, name), item, depth + 1, kind, again=again)
                self._trail.remove(id(value))
            self._visit_attributes(path, full, value, depth, kind)
        elif isinstance(value, Name):
            if kind != _INSIDE:  # a class or function that is only named is text, and the text cannot become it again
                self.objects[path] = value
                self.classes[value.title] += 0
                self.add_entry(self.free_key(path, kind), value.title, depth + 1, kind)
        elif kind != _INSIDE:
            self.add_entry(self.free_key(path, kind), value, depth + 1, kind)

    def _visit_attributes(self, path: str, full: str, value: Any, depth: int, kind: str) -> None:
        attributes = value.attributes if isinstance(value, Ordered) else {}
        self._spend_items(len(attributes), depth)
        for key, item in attributes.items():
            if not path and is_own_metadata(key, item) and self._plain_only(item, depth + 1):
                for name, inner in item.items():
                    self.add_entry(name, inner, depth + 1, KIND)
            elif self._plain_only(item, depth + 1):
                if kind != _INSIDE:
                    self.add_entry(self.free_key(_join(path, full, key)[0], ATTRIBUTE), item, depth + 1, ATTRIBUTE)
            else:
                self.unusual["tensors as attributes"] = None
                self._wait(*_join(path, full, key), item, depth + 1, kind and ATTRIBUTE)

    def _visit_record(self, path: str, full: str, record: Record, depth: int, kind: str, *, again: bool) -> None:
        if kind != _INSIDE:
            self.objects.setdefault(path, record)
            if record.is_built_in and record.value is None:
                self.classes[record.title] += 1
        if id(record) in self._named and not again:
            self._cut(path, depth)
            return
        if not self._enter(path, record, depth):
            return
        known = id(record) in self._named
        self._named.add(id(record))
        if record.value is not None:
            self._visit(path, full, record.value, depth, _INSIDE, again=again)
        module = is_module(record)
        if module:
            for slot in _SLOTS:
                for key, value in record.attribute(slot).items():
                    after = f"{path}.{key}" if path else str(key)
                    self._visit(after, _join("", full, f"{slot}.{key}")[1], value, depth + 1, _INSIDE, again=True)
        for short, whole, value in record.members():
            self._visit(_join(path, "", short)[0], _join("", full, whole)[1], value, depth + 1, _INSIDE, again=True)
        script = _is_script(record)
        for key, value in record.parts() if script or not known else ():
            if module and key in _SLOTS:
                continue
            self._spend_items(1, depth)
            if script:
                self._visit(*_join(path, full, key), value, depth + 1, _INSIDE, again=True)
            elif type(value) not in _SCALARS and not self._plain_only(value, depth + 1):
                self._wait(*_join(path, full, key), value, depth + 1, _INSIDE)
        self._trail.remove(id(record))

    def _enter(self, path: str, value: Any, depth: int) -> bool:
        """Begin to walk through a container; False if it is inside itself, so that the path is cut."""
        self._spend_name(path, depth)
        if id(value) in self._trail:
            self._cut(path, depth)
            return False
        self._trail.add(id(value))
        return True

    def _cut(self, path: str, depth: int) -> None:
        self._spend_name(path, depth)
        self.cut.append(path)

    def _wait(self, path: str, full: str, value: Any, depth: int, kind: str) -> None:
        self._spend_name(path, depth)
        self._waiting.append((path, full, value, depth, kind))

    def _plain_only(self, value: Any, depth: int) -> bool:
        if isinstance(value, (Record, Name, Storage)) or id(value) in self._labelled:
            return False
        return super()._plain_only(value, depth)


def _join(path: str, full: str, key: str) -> tuple[str, str]:
    return f"{path}.{key}" if path else key, f"{full}.{key}" if full else key
