"""Pickles of objects, which become records: made to be deep, endless, large, or to be taken for something else."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.attacks.kit import Attack, Family, family
from tests.format.torch.files import checkpoint, legacy, named, tensor, touch

RECORDS: Family = family("records", "an object is data of bounded size: it is cut where it leads back, or refused")

_F32 = bytes(16)
_NEW = b"cevil\nThing\n)\x81"  # an object
_GET = b"h\0"


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _module(parts: bytes, modules: bytes = b"}", parameters: bytes = b"}") -> bytes:
    """An object with what modules have; ``parts`` are further attributes, as keys and values."""
    slots = _text("_parameters") + parameters + _text("_buffers") + b"}" + _text("_modules") + modules
    return b"cevil\nModule\n)\x81q\0}(" + slots + parts + b"ub"


def _deep(count: int) -> bytes:
    """Objects that are the only argument of each other."""
    return b"cevil\nThing\nq\x000" + b"h\0" * count + b")" + b"R\x85" * count + b"0"


def _laughs(step: bytes, levels: int = 40, width: int = 10) -> bytes:
    """Each level is remembered, and is ten times in the next one."""
    out = tensor() + b"q\0" + b"0"
    for level in range(1, levels):
        inner = b"".join(_text(f"k{place}") + b"h" + bytes([level - 1]) for place in range(width))
        out += step.replace(b"INNER", inner) + b"q" + bytes([level]) + b"0"
    return out + b"h" + bytes([levels - 1])


def _pickles(canary: Path) -> Iterator[tuple[str, bytes, str]]:
    """Opcodes of a value, its name, and by when something must be said against it."""
    command = _text(touch(canary))
    yield "an object inside itself, as an attribute", _NEW + b"q\0}" + _text("me") + _GET + b"sb", "warning"
    yield "an object inside itself, as its state", _NEW + b"q\0h\0b", "warning"
    yield "an object inside itself, as an item", _NEW + b"q\0h\0a", "warning"
    yield "an object inside itself, as its value", _NEW + b"q\0" + _text("k") + b"h\0s", "warning"
    yield "a module that is its own child", _module(b"", b"}q\1" + _text("me") + b"h\0s"), "warning"
    child = b"}" + _text("c") + _module(_text("parent") + _GET).replace(b"q\0", b"q\1") + b"s"
    yield "a module and its child that know each other", _module(b"", child), "warning"
    yield "BUILD with __setstate__", _NEW + b"}" + _text("__setstate__") + b"cposix\nsystem\nsb", "warning"
    yield "BUILD with __class__ and __reduce__", _NEW + b"}(" + _text("__class__") + b"cposix\nsystem\n" + _text(
        "__reduce__"
    ) + b"cbuiltins\neval\nub", "warning"  # fmt: skip
    yield "BUILD a hundred thousand times", _NEW + b"}q\1b" + b"h\1b" * 100_000, "open"
    yield "BUILD with text", _NEW + command + b"b", "warning"
    yield "BUILD of a large state on many objects", (
        b"}q\1(" + b"".join(_text(f"{n}") + b"]" for n in range(9000)) + b"u0](" + (_NEW + b"h\1b") * 9000 + b"e"
    ), "open"  # fmt: skip
    yield "objects inside each other, forty thousand levels", _NEW + _deep(40_000), "warning"
    yield "objects inside each other that stay", b"cevil\nThing\nq\x000" + b"h\0" * 200 + b")" + b"R\x85" * 200, "open"
    yield (
        "a million objects inside each other",
        b"cevil\nThing\nq\x000" + b"h\0" * 250_000 + b")" + b"R\x85" * 250_000,
        "open",
    )
    start = b"cevil\nT\nq\0" + _text("a") + b"q\x0100"
    yield "attributes two thousand levels deep", start + b"h\0)\x81}h\1" * 2000 + b"N" + b"sb" * 2000, "open"
    yield "laughs in attributes", _laughs(_NEW + b"}(INNERub"), "warning"
    yield "laughs in submodules", _laughs(_module(b"", b"}(INNERu").replace(b"q\0", b"")), "open"
    yield "laughs in dicts in an object", _laughs(b"}(INNERu"), "open"
    yield "laughs in items", _laughs(_NEW + b"(INNERu"), "open"
    yield "laughs in TorchScript", _laughs(b"c__torch__\nM\n)\x81}(INNERub"), "open"
    yield "an object as a key", b"}" + _NEW + b"K\1s", "warning"
    yield "many equal keys that are none", b"}(" + (_NEW + b"K\1") * 20_000 + b"u", "warning"
    yield "floats of one hash as keys", b"}(" + b"".join(
        b"G" + struct.pack(">d", float(n << 61)) + b"K\1" for n in range(20_000)
    ) + b"u", "never"  # fmt: skip
    yield "the key None a quarter of a million times", b"}(" + b"NN" * 250_000 + b"u", "never"
    yield "a quarter of a million keys that are tuples in tuples", b"}(" + b")\x85\x85N" * 250_000 + b"u", "open"
    yield "a list as a key", _NEW + b"0}]K\1s", "open"
    yield "a dict as a key", _NEW + b"0}}K\1s", "open"
    yield (
        "tuples of tuples as a key",
        _NEW + b"0}" + b")" + b"\x86".join([b"q\0" + b"h\0"] * 60) + b"\x86K\1s",
        "warning",
    )
    yield "long bytes as many keys", (
        _NEW + b"0B" + struct.pack("<I", 500_000) + b"x" * 500_000 + b"q\0" + b"0}(" + b"h\0\x85K\1" * 25_000 + b"u"
    ), "warning"  # fmt: skip
    storage = b"X\1\0\0\x000X\3\0\0\0cpuK\4tQ"
    yield "an object as the class of a storage", _NEW + b"0(" + _text("storage") + _NEW + storage, "open"
    yield "a function as the class of a storage", b"(" + _text("storage") + b"cposix\nsystem\n" + storage, "open"
    yield "an object as a persistent id", _NEW + b"Q", "open"
    yield "an object in a persistent id", b"(" + _text("module") + _NEW + b"NNtQ", "open"
    yield (
        "a function as the class of a legacy file",
        b"(" + _text("module") + b"cposix\nsystem\nNNtQ" + command + b"\x85R",
        "warning",
    )
    yield "the reduction of a package", (
        b"(" + _text("reduce_package") + b"K\1cposix\nsystem\n" + command + b"\x85tQ"
    ), "warning"  # fmt: skip
    yield "an object that is called", _NEW + command + b"\x85R", "warning"
    yield "an object that makes objects", _NEW + b")\x81", "open"
    yield "an object as a storage", b"ctorch._utils\n_rebuild_tensor_v2\n(" + _NEW + b"K\0)" + b")\x89NtR", "open"
    yield "an object as a shape", tensor().replace(b"K\2\x85", _NEW, 1), "open"
    yield "an object as a parameter", b"ctorch._utils\n_rebuild_parameter\n(" + _NEW + b"\x88NtR", "warning"
    yield "a tensor subclass inside itself, many levels", (
        b"ctorch._tensor\n_rebuild_from_type_v2\nq\0" + b"(h\0h\0" * 5000 + b")" + b"Nt" * 5000 + b"R"
    ), "open"  # fmt: skip
    yield "a subclass that calls what it likes", (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cposix\nsystem\ncevil\nThing\n" + command + b"\x85NtR"
    ), "warning"  # fmt: skip
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR"
    kind = b"cnumpy\ndtype\n(X\2\0\0\0f4\x89\x88tR"
    yield "an array larger than its bytes", array + b"(K\1K\x10\x85" + kind + b"\x89C\4abcdtb", "warning"
    yield (
        "an array of huge dims",
        array + b"(K\1(" + b"J\xff\xff\xff\x7f" * 64 + b"t" + kind + b"\x89C\4abcdtb",
        "warning",
    )
    yield "an array with negative dims", array + b"(K\1J\xff\xff\xff\xff\x85" + kind + b"\x89C\4abcdtb", "warning"
    yield (
        "an array of objects",
        array + b"(K\1K\1\x85cnumpy\ndtype\n(X\2\0\0\0O8\x89\x88tR\x89](" + _NEW + b"etb",
        "warning",
    )
    state = b"(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    shape_and_order = b"J\xa0\x86\1\0\x85q\3X\1\0\0\0Cq\x040000"
    same = b"B" + struct.pack("<I", 400_000) + bytes(400_000) + b"q\1" + kind + state + b"q\2" + shape_and_order
    buffer = b"cnumpy.core.numeric\n_frombuffer\nq\x000](" + b"h\0(h\1h\2h\3h\4tR" * 20_000 + b"e"
    yield "twenty thousand arrays of the same bytes", same + buffer, "open"
    yield "an array without a state that numpy writes", array + b"K\1b", "warning"
    yield "a type of numpy with a function", b"cnumpy\ndtype\n(cposix\nsystem\n\x89\x88tR", "warning"
    yield "a number of numpy with too many bytes", b"cnumpy.core.multiarray\nscalar\n(" + kind + b"C\3abctR", "warning"
    yield "a set of itself", b"\x8fq\0(h\0\x90", "warning"
    yield "a class called by control characters", b"cev\x1b[2Jil\nTh\x07ing\n)\x81", "warning"
    long = b"\x8c\1m" + b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"\x93)\x81"
    yield "a class with a name of a megabyte", long, "warning"
    names = b"".join(b"cm\nC%d\n0" % n for n in range(45_000))
    yield "forty-five thousand classes", names + _NEW, "warning"
    yield "fifty thousand objects and more", b"cm\nC\nq\x000" + b"h\0)\x810" * 50_001 + b"N", "open"
    yield "OBJ many levels deep", b"(cevil\nThing\n" * 500 + b"o" * 500, "open"


@RECORDS.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, value, by in _pickles(folder / "canary"):
        data = named(value)
        yield Attack(name, checkpoint(data, {"0": _F32}), by)  # type: ignore[arg-type]
        if len(data) < 10_000:
            late = "open" if b"storage" in data else by  # a legacy file has no storage here
            yield Attack(f"{name}, in an old file", legacy(data), late)  # type: ignore[arg-type]
    constants = b"\x80\x02" + tensor() + b"q\0" + b"0(" + b"h\0" * 9_000 + b"cm\nC\nt."
    script = {"a/data.pkl": b"\x80\x02c__torch__\nM\n)\x81.", "a/code/__torch__.py": b"", "a/constants/0": _F32}
    yield Attack("nine thousand constants", _zip({**script, "a/constants.pkl": constants}), "warning")
    each = b"\x80\x02" + tensor().replace(b"X\1\0\0\x000", b"K\0") + b"cm\nC\n\x86."
    package = {"p/.data/extern_modules": b"", "p/.data/0.storage": _F32}
    yield Attack("two thousand pickles", _zip({**package, **{f"p/{n}.pkl": each for n in range(2000)}}), "warning")
    bomb = named(b"cm\nC\nq\x000](" + b"h\0)\x81" * 35_000 + b"e")
    yield Attack("many objects, deflated", _zip({"archive/data.pkl": bomb}, zipfile.ZIP_DEFLATED), "warning")


def _zip(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


RECORDS.spare(
    "no objects in it",
    "oinf", "embd", "gptrs-checkpoint", "gptrs-archive", "mcf", "aero", "aeroset", "safetensors", "hf", "gguf", "onnx",
    "npz",
)  # fmt: skip
