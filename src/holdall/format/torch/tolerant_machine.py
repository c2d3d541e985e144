"""A pickle machine for files with objects of unknown classes, which become records.

It runs what :class:`~holdall.format.torch.pickle.Machine` refuses: opcodes that make objects and set their state. Like
that machine it imports no name and calls no function that a pickle names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdall.base.check import LIMIT
from holdall.format.torch import rules
from holdall.format.torch.numpy_objects import Array, ArrayStore, ArrayType
from holdall.format.torch.pickle import Machine
from holdall.format.torch.pickle_objects import KNOWN, Global, Ordered, Refused, Storage, storage_of, weight_of
from holdall.format.torch.records import Name, Record, identify_key, label_key
from holdall.format.torch.tolerant_calls import QUANTIZED, Caller
from holdall.limits import Limits

__all__ = ["Findings", "TolerantMachine"]

_STATES = 4  # how often the state of an object may be set; writers do it once
_LABEL = 8  # the work of a key for which a text stands, in items that a call reads
_SET, _FROZEN, _BYTES = Name("builtins", "set"), Name("builtins", "frozenset"), Name("builtins", "bytearray")


@dataclass(slots=True, eq=False)
class Findings:
    """What the pickles of a file hold beside their values.

    ``classes`` counts records by class, ``storages`` are those that the pickles use, by key, ``arrays`` has the bytes
    of numpy arrays, and ``labelled`` the dicts, by identity, with keys for which a text stands. ``scripts`` are the
    objects of TorchScript in a torch.package, by their number; such a file has storages that are ``numbered``.
    ``ambiguous`` is the place and key of a storage that is described in two ways.
    """

    classes: Counter[str] = field(default_factory=Counter)
    storages: dict[str, Storage] = field(default_factory=dict)
    arrays: ArrayStore = field(default_factory=ArrayStore)
    labelled: dict[int, dict[Any, Any]] = field(default_factory=dict)
    scripts: dict[str, Any] = field(default_factory=dict)
    numbered: bool = False
    ambiguous: tuple[int, str] | None = None
    made: int = 0  # records so far

    def begin(self) -> Findings:
        """Findings for one more pickle of the file, which may turn out to be none; see :meth:`add`."""
        arrays = ArrayStore(self.arrays.first + self.arrays.count)
        return Findings(arrays=arrays, scripts=self.scripts, numbered=self.numbered, made=self.made)

    def add(self, more: Findings) -> None:
        """Add what one more pickle has, after :meth:`begin`."""
        for name, count in more.classes.items():
            self.classes[name] += count  # 0 too, for a class that is only named
        for key, storage in more.storages.items():
            self.storages.setdefault(key, storage)
        self.arrays.add(more.arrays)
        self.labelled |= more.labelled
        self.made = more.made


class TolerantMachine(Machine):
    """Runs pickles one after the other, and adds to ``found``. ``locate`` makes the names of storages of their keys."""

    def __init__(self, data: bytes, limits: Limits, found: Findings, locate: Callable[[str], str] = str) -> None:
        super().__init__(data, limits)
        self._found = found
        self._locate = locate
        self._most = limits.opaque_objects
        self._names: dict[tuple[str, str], Name] = {}
        self._labels: Counter[tuple[int, str]] = Counter()
        self._same: dict[tuple[int, str], str] = {}  # the labels of keys by what equal keys share
        self._caller = Caller(self._make_record, self._pay, found.arrays)

    def _steps(self) -> list[Callable[[int], int]]:
        steps, stack = super()._steps(), self._stack

        def push(value: Any, at: int) -> int:
            stack.append(value)
            return at

        steps[ord("Q")] = lambda at: push(self._resolve(stack.pop(), at - 1), at)
        steps[ord("i")] = self._instance
        steps[ord("o")] = self._object
        steps[0x81] = lambda at: self._new_object(None, at)
        steps[0x92] = lambda at: self._new_object(stack.pop(), at)
        steps[0x8F] = lambda at: push(self._make_record(_SET, (), at - 1), at)
        steps[0x90] = lambda at: self._append(self._since_mark(), at)
        steps[0x91] = lambda at: push(self._collect(_FROZEN, self._since_mark(), at - 1), at)
        steps[0x96] = self._byte_array
        return steps

    # -- records --------------------------------------------------------------------------------------------------

    def _make_record(self, kind: Name | Record, arguments: Any, at: int) -> Record:
        self._count(at)
        made = Record(kind, arguments, at)
        if not made.is_built_in:
            self._found.classes[made.title] += 1
        return made

    def _count(self, at: int) -> None:
        self._found.made += 1
        if self._found.made > self._most:
            refused = Refused(LIMIT, at, f"the pickles make more than {self._most} objects of unknown classes")
            refused.limit = "opaque_objects"
            raise refused

    def _collect(self, kind: Name, items: list[Any], at: int) -> Record:
        made = self._make_record(kind, (), at)
        made.items = items
        return made

    def _byte_array(self, at: int) -> int:
        data, after = self._read_counted(at, 8)
        self._stack.append(self._make_record(_BYTES, (data,), at - 1))
        return after

    def _name(self, module: str, name: str, at: int) -> None:
        module = "builtins" if module == "__builtin__" else module  # as Python 2 and protocol 2 call it
        known: Any = KNOWN.get((module, name)) or self._names.get((module, name))
        if known is None:
            self._count(at)
            known = self._names[module, name] = Name(module, name)
            if not self._caller.knows(module, name):
                self._found.classes[known.title] += 0
        self._stack.append(known)

    def _new_object(self, keywords: Any, at: int) -> int:
        arguments, kind = self._stack.pop(), self._stack.pop()
        if isinstance(kind, Global):  # a class that is known, such as OrderedDict
            self._stack += [kind, arguments]
            return self._reduce(at)
        if not isinstance(kind, Name):
            raise Refused(rules.CALL, at - 1, f"an object is made of a {type(kind).__name__}, not of a class")
        if keywords:  # what a known class makes of them is not known
            made = self._make_record(kind, arguments, at - 1)
            made.keywords = keywords
        else:
            made = self._caller.call(kind, arguments, at - 1)
        self._stack.append(made)
        return at

    def _instance(self, at: int) -> int:
        """INST: a class by name, with the arguments since the mark."""
        module, after = self._line(at)
        name, after = self._line(after)
        arguments = tuple(self._since_mark())
        self._name(module, name, at - 1)
        self._stack.append(arguments)
        return self._new_object(None, after)

    def _object(self, at: int) -> int:
        """OBJ: the class and the arguments since the mark."""
        kind, *arguments = self._since_mark() or [None]
        self._stack += [kind, tuple(arguments)]
        return self._new_object(None, at)

    # -- what the other machine does too, with records ------------------------------------------------------------

    def _reduce(self, at: int) -> int:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._pay(weight_of(arguments), at - 1)
        self._stack.append(self._caller.call(function, arguments, at - 1))
        return at

    def _resolve(self, pid: Any, at: int) -> Any:
        """What a persistent id stands for: a storage, a class of a legacy file, or an object of a torch.package."""
        if type(pid) is tuple and len(pid) == 4 and pid[0] == "module" and isinstance(pid[1], (Name, Global)):
            return pid[1]
        if type(pid) is tuple and len(pid) == 4 and pid[0] == "reduce_package" and isinstance(pid[2], Name):
            number = pid[3][0] if type(pid[3]) is tuple and pid[3] else None
            found = self._found.scripts.get(number) if isinstance(number, str) else None
            return self._caller.call(pid[2], pid[3], at) if found is None else found
        if type(pid) is tuple and len(pid) > 1 and isinstance(pid[1], Name) and pid[1].module == "torch":
            kind = KNOWN.get(("torch", QUANTIZED.get(pid[1].name, "")), pid[1])
            pid = (pid[0], kind, *pid[2:])
        if self._found.numbered and type(pid) is tuple and len(pid) > 2 and type(pid[2]) is int:
            pid = (*pid[:2], str(pid[2]), *pid[3:])
        storage = storage_of(pid, at)
        storage.key = self._locate(storage.key)
        known = self._found.storages.setdefault(storage.key, storage)
        if not known.agrees_with(storage):
            self._found.ambiguous = self._found.ambiguous or (at, known.key)
        return storage

    def _append(self, items: list[Any], at: int) -> int:
        target = self._stack[-1]
        if not isinstance(target, Record):
            return super()._append(items, at)
        self._refuse_change(target, at)
        target.items = [] if target.items is None else target.items
        target.items += items
        return at

    @staticmethod
    def _refuse_change(target: Record, at: int) -> None:
        """Refuse items that are set where they would change the values of a tensor or an array."""
        if target.value is not None or isinstance(target, (Array, ArrayType)) or target.title == _BYTES.title:
            raise Refused(
                rules.UNUSUAL, at - 1, f"items are set in an object of class {target.title} after it was made"
            )

    def _set_items(self, items: list[Any], at: int) -> int:
        target = self._stack[-1]
        home = target
        if isinstance(target, Record):
            self._refuse_change(target, at)
            home = target.pairs = {} if target.pairs is None else target.pairs
        elif type(target) is not dict and type(target) is not Ordered:
            return super()._set_items(items, at)
        if len(items) % 2:
            raise Refused(rules.BROKEN, at - 1, "a key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            plain = self._may_be_key(key) and (id(home), key) not in self._labels  # no label stands where the key would
            home[key if plain else self._label(home, key, at)] = value
        return at

    def _label(self, home: dict[Any, Any], key: Any, at: int) -> str:
        """A text in the place of a key that no plain value is, and that no other key has."""
        self._pay(_LABEL, at - 1)
        same = identify_key(key)
        self._pay(len(same or ""), at - 1)
        known = None if same is None else self._same.get((id(home), same))
        if known is not None:  # an equal key, whose value is replaced
            return known
        label = label_key(key)
        if label is None:
            raise Refused(rules.VALUE, at - 1, f"a dict has a key that is a {type(key).__name__}, which no dict has")
        self._found.labelled[id(home)] = home
        number = self._labels[id(home), label] = self._labels[id(home), label] + 1
        while (found := label if number == 1 else f"{label}#{number}") in home:
            number = self._labels[id(home), label] = number + 1
        if same is not None:
            self._same[id(home), same] = found
        return found

    def _build(self, at: int) -> int:
        target = self._stack[-2] if len(self._stack) > 1 else None
        if not isinstance(target, Record):
            return super()._build(at)
        state = self._stack.pop()
        if isinstance(target, ArrayType):
            target.set_state(state, at - 1)
        elif isinstance(target, Array):
            self._found.arrays.fill(target, state, at - 1)
        else:
            if target.value is not None:  # a tensor takes its storage from such a state
                raise Refused(rules.STATE, at - 1, "the state of a tensor is set after it was made")
            target.states = [*(target.states or ()), state]
            if len(target.states) > _STATES:
                raise Refused(rules.CALL, at - 1, f"the state of an object is set more than {_STATES} times")
        return at
