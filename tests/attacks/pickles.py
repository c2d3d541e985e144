"""Pickles that would run code, were they run."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.attacks.files import npy, npz
from tests.attacks.kit import Attack, family
from tests.format.torch.files import Bomb, checkpoint, legacy, touch

PICKLES = family(
    "pickles", "no pickle is run: what is not plain values and tensors is data, with a warning, or refused"
)


def _opcodes(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Pickles that would make the file ``canary``, were they run."""
    command = touch(canary)
    for protocol in range(6):
        yield f"os.system, protocol {protocol}", pickle.dumps({"w": Bomb(os.system, command)}, protocol)
        yield f"eval, protocol {protocol}", pickle.dumps(Bomb(builtins.eval, f"open({str(canary)!r}, 'w')"), protocol)
    text = command.encode()
    short = b"\x8c" + bytes([len(text)]) + text
    yield "STACK_GLOBAL", b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + short + b"\x85R."
    yield (
        "a name with dots",
        b"\x80\x04\x8c\x02os\x8c\x0bpath.os.popen\x93".replace(b"\x0b", b"\x0d") + short + b"\x85R.",
    )
    yield "INST", b"(S'" + text + b"'\niposix\nsystem\n."
    yield "OBJ", b"(cposix\nsystem\nS'" + text + b"'\no."
    yield "NEWOBJ", b"\x80\x02cposix\nsystem\n" + b"U" + bytes([len(text)]) + text + b"\x85\x81."
    yield "NEWOBJ_EX", b"\x80\x04cposix\nsystem\n" + short + b"\x85}\x92."
    yield "BUILD with __setstate__", b"\x80\x02ccollections\nOrderedDict\n)R}X\x0c\0\0\0__setstate__cposix\nsystem\nsb."
    yield "a persistent id", b"\x80\x02cposix\nsystem\nQ."
    yield "a persistent id as text", b"Pposix.system\n."
    yield "a storage class that is none", b"\x80\x02(X\7\0\0\0storagecposix\nsystem\nX\1\0\0\x000X\3\0\0\0cpuK\1tQ."
    yield "a buffer out of band", b"\x80\x05\x97."
    yield "extension codes", b"\x80\x02\x82\x01."
    yield "REDUCE of what is remembered", b"\x80\x02cbuiltins\neval\nq\x000h\0X\x02\0\0\x0011\x85R."
    yield "torch.load in a pickle", b"\x80\x02ctorch\nload\nX\x01\0\0\0x\x85R."
    yield (
        "_rebuild_tensor with a function",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cposix\nsystem\nK\0K\1\x85K\1\x85\x89NtR.",
    )
    yield "a codec of its choosing", b"\x80\x02c_codecs\nencode\nX\x01\0\0\0xX\x03\0\0\0hex\x86R."
    yield "a module called like torch", b"\x80\x02ctorch.serialization\nos\n."


@PICKLES.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, data in _opcodes(folder / "canary"):
        yield Attack(name, checkpoint(data), "warning")
        yield Attack(f"{name}, in an old file", legacy(data), "warning")
        yield Attack(f"{name}, as keys of an old file", legacy(pickle.dumps({}, 2))[: -len(pickle.dumps([], 2))] + data)
        place = "warning" if data.startswith(b"\x80") else "never"  # a package has no pickles of protocol 0 and 1
        yield Attack(f"{name}, in a package", npz(("p/.data/extern_modules", b""), ("p/m/x.pkl", data)), place)
        script = ("a/data.pkl", b"\x80\x02c__torch__\nM\n)\x81."), ("a/code/__torch__.py", b"")
        yield Attack(f"{name}, as constants of TorchScript", npz(*script, ("a/constants.pkl", data)), "warning")
        yield Attack(f"{name}, alone", data)
        yield Attack(f"{name}, in a tar", _tar(data))
    yield Attack("two pickles", _two_pickles(folder / "canary"))
    both = ("p/data.pkl", b"\x80\x02}."), ("p/.data/extern_modules", b""), ("p/m/x.pkl", b"\x80\x02}.")
    yield Attack("a package that is a checkpoint", npz(*both))


def _tar(data: bytes) -> bytes:
    """A checkpoint of the oldest kind, a tar of pickles."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _two_pickles(canary: Path) -> bytes:
    """A harmless pickle, and one that another reader may take instead."""
    evil = pickle.dumps(Bomb(os.system, touch(canary)), 2)
    return npz(("a/data.pkl", b"\x80\x02}."), ("b/data.pkl", evil))


@PICKLES.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    evil = pickle.dumps(Bomb(os.system, touch(folder / "canary")), 2)
    for descr in ("'|O'", "'O'", "'O8'", "[('a', '|O')]", "[('a', [('b', '|O')])]", "'|O8'", "'<O'"):
        yield Attack(f"type {descr}", npz(("w.npy", npy("(1,)", descr, evil))))
        yield Attack(f"type {descr}, alone", npy("(1,)", descr, evil))
    for shape in ("(__import__('os').system('id'),)", "(lambda: 2)()", "[x for x in (2,)]", "(2 if 1 else 3,)"):
        yield Attack(f"shape {shape}", npz(("w.npy", npy(shape))))
    yield Attack("an entry that is a pickle", npz(("w.npy", evil)))


PICKLES.spare(
    "no pickle in it, and no other format's reader unpickles",
    "oinf", "embd", "gptrs-checkpoint", "gptrs-archive", "mcf", "aero", "aeroset", "safetensors", "hf", "gguf", "onnx",
)  # fmt: skip
