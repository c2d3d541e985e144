"""Reads the archives that hold objects: TorchScript, torch.package, and what ``torch.save`` writes of any object."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from zlib import crc32

import numpy as np

from holdall.base.check import Check
from holdall.base.text import list_text, plural
from holdall.format.torch import rules
from holdall.format.torch.flatten import Content, flatten
from holdall.format.torch.layout import LEGACY
from holdall.format.torch.numpy_objects import Array, ArrayStore
from holdall.format.torch.object_paths import ObjectFlattener, is_module
from holdall.format.torch.pickle_objects import Refused, TensorRef
from holdall.format.torch.records import OpaqueContent, Record
from holdall.format.torch.refs import Refs
from holdall.format.torch.tensors import StoragePlace, Storages
from holdall.format.torch.tolerant_machine import Findings, TolerantMachine
from holdall.format.zip.archive import Archive
from holdall.format.zip.inflate import InflatedPayload, read_part
from holdall.model.payload import InMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.base.check import Rule

__all__ = [
    "ArrayStorages", "ObjectContent", "fail_at", "find_package", "flatten_objects",
    "is_tolerable", "load_pickle", "name_archive",
    "read_archive_objects", "read_package", "refuse_objects",
]  # fmt: skip

_TOLERABLE: tuple[Rule, ...] = (rules.OPCODE, rules.GLOBAL, rules.OBJECT, rules.CALL, rules.VALUE)
_NO_PICKLE: tuple[Rule, ...] = (rules.BROKEN, rules.OPCODE)  # what other bytes break, and pickles of PyTorch never do
_PROTOCOLS = (b"\2", b"\3", b"\4", b"\5")  # of pickles, in their second byte
_ARRAYS = "numpy.ndarray"
_DATA = {
    "builtins.set": "sets", "builtins.frozenset": "frozen sets", "builtins.bytearray": "byte arrays",
    "builtins.complex": "complex numbers", "numpy.dtype": "types of numpy",
    _ARRAYS: "arrays of numpy that no tensor can hold",
}  # fmt: skip
_SCRIPT = re.compile(r"ts_code/(\d+)/data\.pkl")


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """What the pickles of a file with objects hold."""

    content: Content
    opaque: OpaqueContent
    arrays: ArrayStore


class ArrayStorages(Storages):
    """The storages of a file, and beside them those of numpy arrays, whose bytes are in the pickle."""

    def __init__(self, inner: Storages, arrays: ArrayStore, big_endian: bool) -> None:
        self.starts, self.sizes, self.plain = inner.starts, inner.sizes, inner.plain
        self._inner, self._arrays, self._big_endian = inner, arrays, big_endian

    def rows(self, refs: Refs) -> NDArray[np.intp]:
        return self._inner.rows(refs)

    def place(self, ref: TensorRef) -> StoragePlace:
        if ref.storage.key in self._arrays.data:
            return StoragePlace(InMemory(self._arrays.read(ref.storage.key, self._big_endian)), 0)
        return self._inner.place(ref)


def load_pickle(archive: Archive, row: int, file_size: int, check: Check) -> bytes:
    """Read a pickle of the archive, if it is not too large."""
    pickle, base = archive.payload(row), int(archive.starts[row])
    what = f"torch: bytes of {archive.names[row].rpartition('/')[2]}"
    check.limit("index_bytes", pickle.size, base, what)
    if isinstance(pickle, InflatedPayload):
        # Pickle bytes count double: they are slower to parse.
        check.limit_document(2 * pickle.size, file_size, base, f"{what}, inflated, twice")
    return read_part(pickle, 0, pickle.size)


def fail_at(refused: Refused, base: int, check: Check) -> NoReturn:
    """Fail with what a machine says of the pickle that begins at byte ``base``."""
    message = f"torch: {refused.message}"
    if refused.limit:
        check.exceed(refused.limit, base + refused.at, message)
    check.fail(refused.rule, base + refused.at, message)


def is_tolerable(refused: Refused, check: Check) -> bool:
    """Whether what was refused may be an object that is kept as data."""
    return refused.rule in _TOLERABLE and bool(check.limits.opaque_objects)


def refuse_objects(refused: Refused, base: int, what: str, check: Check) -> None:
    """Fail where a pickle is damaged, or holds objects that are not allowed; ``what`` is the file."""
    if refused.rule not in _TOLERABLE:
        fail_at(refused, base, check)
    if not check.limits.opaque_objects:
        message = f"torch: {refused.message}"
        what = what or (f"a pickled object of class {refused.root}" if refused.root else "")
        check.fail(refused.rule, base + refused.at, f"{message}; the file is {what}" if what else message)


def name_archive(archive: Archive, root: str) -> str:
    """What an archive is by its entries; empty if they do not say it."""
    code = archive.directory.starts_with(f"{root}code/").any()
    return "a TorchScript archive" if code and archive.row(f"{root}constants.pkl") is not None else ""


def read_archive_objects(archive: Archive, root: str, data: bytes, file_size: int, check: Check) -> ObjectContent:
    """Read the objects of ``data.pkl`` and, of TorchScript, of ``constants.pkl``."""
    what, found = name_archive(archive, root), Findings()
    row = archive.row(f"{root}data.pkl")
    assert row is not None, "the caller has read it"
    value = _run(archive, row, data, _in_folder(f"{root}data/"), found, check)
    values = [("", value, int(archive.starts[row]))]
    constants = archive.row(f"{root}constants.pkl") if what else None
    size = len(data)
    if constants is not None:
        more = load_pickle(archive, constants, file_size, check)
        size += len(more)
        items = _run(archive, constants, more, _in_folder(f"{root}constants/"), found, check)
        values += _list_constants(items, "CONSTANTS", int(archive.starts[constants]))
    return flatten_objects(values, size, found, what, check, code=bool(what))


def _list_constants(items: Any, path: str, base: int) -> list[tuple[str, Any, int]]:
    """The constants of a program, under the names that the program has for them."""
    named = {f"c{place}": item for place, item in enumerate(items if type(items) is tuple else ())}
    return [(path, named, base)] if named else []


def find_package(archive: Archive) -> str | None:
    """Find the top folder of a torch.package; None if the archive is none."""
    rows = archive.directory.ends_with("/.data/extern_modules").nonzero()[0].tolist()
    roots = [archive.names[row].removesuffix(".data/extern_modules") for row in rows]
    return roots[0] if len(roots) == 1 and roots[0].count("/") == 1 else None


def read_package(archive: Archive, root: str, file_size: int, check: Check) -> ObjectContent:
    """Read all pickles of a torch.package. Each stands under its own name: ``model/net.pkl`` under ``model.net``."""
    found, values, size = Findings(numbered=True), [], 0
    inner = f"{root}.data/"

    def locate(key: str) -> str:
        return f"{inner}{key.removesuffix('.storage')}.storage"

    named = [(row, name.removeprefix(root)) for row, name in enumerate(archive.names) if name.startswith(root)]
    scripts = [(row, script[1]) for row, name in named if (script := _SCRIPT.fullmatch(name.removeprefix(".data/")))]
    resources = [(row, name) for row, name in named if not name.startswith(".data/") and not _is_source(name)]
    if not check.limits.opaque_objects:
        refused = Refused(rules.GLOBAL, 0, "the pickles of a torch.package name classes, which no weights need")
        refuse_objects(refused, 0, "a torch.package", check)
    for row, number in scripts:
        data = load_pickle(archive, row, file_size, check)
        found.scripts[number] = _run(archive, row, data, locate, found, check)
        constants = archive.row(f"{inner}ts_code/{number}/constants.pkl")
        more = b"" if constants is None else load_pickle(archive, constants, file_size, check)
        if constants is not None:
            items = _run(archive, constants, more, locate, found, check)
            values += _list_constants(items, f"ts_code.{number}.CONSTANTS", int(archive.starts[constants]))
        size += len(data) + len(more)
    pickles: list[str] = []
    others: list[str] = []
    broken: tuple[int, Refused] | None = None
    for row, name in resources:
        resource = _load_if_pickle(archive, row, file_size, check)
        if resource is None:
            others.append(name)
            continue
        try:
            value = _run_resource(archive, row, resource, locate, found, check)
        except Refused as refused:
            others.append(name)
            if broken is None and name.endswith(".pkl"):
                broken = int(archive.starts[row]), refused
            continue
        pickles.append(name)
        values.append((name.removesuffix(".pkl").replace("/", "."), value, int(archive.starts[row])))
        size += len(resource)
    if broken is not None and not pickles:
        fail_at(broken[1], broken[0], check)
    what = f"a torch.package with {plural(len(pickles), 'pickle')}"
    what += f" ({list_text(pickles, most=3)})" if pickles else ""
    return flatten_objects(values, size, found, what, check, code=True, others=others)


def _is_source(name: str) -> bool:
    """Whether an entry of a package is what its exporter adds to the resources."""
    return name.endswith(".py") or name == "byteorder"


def _load_if_pickle(archive: Archive, row: int, file_size: int, check: Check) -> bytes | None:
    """Read a resource of a package if it is a pickle, whatever its name is; None if it is not."""
    payload = archive.payload(row)
    head = read_part(payload, 0, min(payload.size, max(map(len, LEGACY))))
    if head[:1] != b"\x80" or head[1:2] not in _PROTOCOLS or head.startswith(LEGACY):
        return None
    whole = archive.names[row].endswith(".pkl") or read_part(payload, payload.size - 1, payload.size) == b"."
    return load_pickle(archive, row, file_size, check) if whole else None


def _run_resource(
    archive: Archive, row: int, data: bytes, locate: Callable[[str], str], found: Findings, check: Check
) -> Any:  # fmt: skip
    """The value of a resource that begins as a pickle; raises Refused if it is another one, which only looks like that.

    Nothing in a package says which resources are pickles: one that is none to its end is a resource like any other,
    unless its bytes are not those that were written.
    """
    trial = found.begin()
    try:
        value, end = TolerantMachine(data, check.limits, trial, locate).run(0)
        if end != len(data):
            raise Refused(rules.BROKEN, end, f"{len(data) - end} bytes follow the pickle")
    except Refused as refused:
        if refused.rule not in _NO_PICKLE or crc32(data) != archive.directory.crcs[row]:
            fail_at(refused, int(archive.starts[row]), check)
        found.made = trial.made  # the work is done
        raise
    found.add(trial)
    return value


def _in_folder(folder: str) -> Callable[[str], str]:
    return lambda key: f"{folder}{key}"


def _run(
    archive: Archive, row: int, data: bytes, locate: Callable[[str], str], found: Findings, check: Check
) -> Any:  # fmt: skip
    """The value of the one pickle in ``data``."""
    value, end = None, 0
    base = int(archive.starts[row])
    try:
        value, end = TolerantMachine(data, check.limits, found, locate).run(0)
    except Refused as refused:
        fail_at(refused, base, check)
    if end != len(data):
        check.fail(rules.BROKEN, base + end, f"torch: {len(data) - end} bytes follow the pickle")
    return value


def flatten_objects(
    values: Sequence[tuple[str, Any, int]], size: int, found: Findings, what: str, check: Check, *,
    code: bool = False, others: Sequence[str] = (),
) -> ObjectContent:  # fmt: skip
    """Name the tensors of ``values``: the path of each, the value, and the byte at which its pickle begins.

    ``what`` is the file; empty if its one value says it. ``code`` tells of a program in the file, and ``others`` are
    its resources that are not read.
    """
    base = values[0][2] if values else 0
    if found.ambiguous is not None and not code:  # programs state the type of each tensor, and are read by that
        at, key = found.ambiguous
        check.fail(rules.STORAGE_SIZE, base + at, f"torch: storage {key!r} is described in two ways")
    held = sum(len(data) for data, _ in found.arrays.data.values())
    check.limit_growth(size, held, base, "torch: numpy arrays")  # several may be the same bytes of the pickle
    flattener = ObjectFlattener(size, base, check, found.labelled)
    try:
        for path, value, start in values:
            flattener.add(value, path, start)
    except Refused as refused:  # a tensor in values that are inside themselves
        fail_at(refused, base, check)
    check.limit("tensors", len(flattener.content.tensors), base, "torch: tensors")
    what = what or _name_object(values[0][1], found, flattener)
    classes = found.classes + flattener.classes
    classes.update(dict.fromkeys([*found.classes, *flattener.classes], 0))
    nested = None if code or classes or flattener.cut else _keep_nesting(values[0][1], flattener.content, size, check)
    opaque = OpaqueContent(
        what, classes, flattener.objects, flattener.cut, found.arrays.count, found.arrays.numbers, code, others,
        nested is not None,
    )  # fmt: skip
    _report(opaque, base, check)
    return ObjectContent(nested or flattener.content, opaque, found.arrays)


def _keep_nesting(value: Any, content: Content, size: int, check: Check) -> Content | None:
    """The same ``content`` with its containers, if it is plain but for numpy; None for any other."""
    try:
        nested = flatten(value, size, 0, check)
    except Refused:
        return None
    same = [entry.key for entry in nested.entries] == [entry.key for entry in content.entries]
    return nested if same and list(nested.tensors) == list(content.tensors) else None


def _name_object(value: Any, found: Findings, flattener: ObjectFlattener) -> str:
    """What a file is whose pickle holds ``value``, and what was ``found`` in it."""
    if isinstance(value, Record) and not (isinstance(value, Array) and value.value is not None):
        return f"a pickled {'module' if is_module(value) else 'object'} of class {value.title}"
    version = value.get("pytorch-lightning_version") if isinstance(value, dict) else None
    if isinstance(version, str):
        return f"a checkpoint of PyTorch Lightning {version[:20]}"
    if found.classes or found.labelled or not flattener.classes.keys() <= _DATA.keys():
        return "a checkpoint with objects"
    numpy = ["arrays or numbers of numpy"] if found.arrays.count or found.arrays.numbers else []
    parts = [*numpy, *(_DATA[name] for name in flattener.classes if not (numpy and name == _ARRAYS))]
    return f"a checkpoint with {' and '.join(parts or flattener.unusual or ['values of an unusual form'])}"


def _report(opaque: OpaqueContent, at: int, check: Check) -> None:
    """Say when verifying which classes stay opaque, but for those of a TorchScript program, and which paths are cut."""
    names = [name for name, _ in opaque.list_classes() if not name.startswith("__torch__")]
    if names:
        message = f"torch: the file is {opaque.what}, and names {list_text(names)}: kept as data, nothing was run"
        check.note(rules.OPAQUE, at, message)
    if opaque.others:
        shown = list_text(opaque.others, most=3)
        message = f"resources that are no pickles of protocol 2 or later are not read: {shown}"
        check.note(rules.RESOURCE, at, f"torch: the file is {opaque.what}; {message}")
    if opaque.cut:
        paths = list_text(opaque.cut, most=3)
        check.note(rules.CUT, at, f"torch: objects that have a path already are not walked again at {paths}")
