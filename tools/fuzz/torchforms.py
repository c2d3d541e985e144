"""Forms of torch files that the writer here does not write: see :mod:`tools.fuzz.forms`."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

from tools.fuzz.objectforms import objects
from tools.fuzz.zipforms import make_streamed_zip, make_zip, with_zip64, with_zip64_entries

__all__ = ["torch"]

Forms = Iterator[tuple[str, bytes]]


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


_ORDERED = b"ccollections\nOrderedDict\n"
_HOOKS = _ORDERED + b")R"


def _tensor(
    dims: bytes = b"K\2\x85K\1\x85", *, kind: bytes = b"ctorch\nFloatStorage\n", title: bytes = _text("storage"),
    key: bytes = _text("0"), device: bytes = _text("cpu"), count: bytes = b"K\2", view: bytes = b"",
    first: bytes = b"K\0", hooks: bytes = _HOOKS, notes: bytes = b"", version: int = 2,
) -> bytes:  # fmt: skip
    """Return the opcodes of a tensor, by default of two numbers."""
    storage = b"(" + title + kind + key + device + count + view + b"tQ"
    call = f"ctorch._utils\n_rebuild_tensor_v{version}\n(".encode()
    return call + storage + first + dims + b"\x89" + hooks + notes + b"tR"


def _untyped(word: bytes, kind: bytes = b"ctorch.storage\nUntypedStorage\n") -> bytes:
    return _tensor(version=3, kind=kind, count=b"K\x08", notes=word)


def _parameter(tensor: bytes, rest: bytes = b"\x88" + _HOOKS) -> bytes:
    return b"ctorch._utils\n_rebuild_parameter\n(" + tensor + rest + b"tR"


def _wrong() -> Iterator[bytes]:
    """Yield calls with one wrong argument each."""
    for title in (b"", _text("nothing"), b"N"):
        yield _tensor(title=title)
    for kind in (b"ctorch\nSize\n", _text("FloatStorage")):
        yield _tensor(kind=kind)
    yield _tensor(key=b"K\0")
    yield _tensor(key=_text("0" * 1025))
    yield _tensor(device=b"N")
    for count in (b"N", b"J\xff\xff\xff\xff"):
        yield _tensor(count=count)
    for view in (b"K\1", b")", b"NNK\1\x87", b"NK\1N\x87", b"NK\0K\3\x87", b"NK\2K\1\x87", b"NN"):
        yield _tensor(view=view)
    for dims in (b"NK\1\x85", b"K\2\x85N", b"K\2\x85)", b"N\x85K\1\x85"):
        yield _tensor(dims)
    yield _tensor(first=b"N")
    yield _tensor(hooks=b"K\1")
    for notes in (b"K\1", b"}" + _text("conj") + b"\x88s", b"NN"):
        yield _tensor(notes=notes)
    for word in (b"N", b"ctorch\nSize\n", b"ccollections\nOrderedDict\n", b""):
        yield _untyped(word)
    yield _untyped(b"ctorch\ncomplex32\n", b"ctorch\nFloatStorage\n")
    yield _parameter(b"N")
    for rest in (b"", b"\x88K\1"):
        yield _parameter(_tensor(), rest)
    calls = {
        _ORDERED: (b"NN\x86", b")\x85", b"](Ne\x85", b"](](Nee\x85", b"](](]Nee\x85", b"N"),
        b"ctorch\nSize\n": (b")", b"N\x85", b"N\x85\x85"),
        b"ctorch\ndevice\n": (b")", b"N\x85", _text("cuda") + b"N\x86", _text("c" * 65) + b"\x85", b"NNN\x87"),
        b"c_codecs\nencode\n": tuple(
            text + codec + b"\x86"
            for text, codec in (
                (b"N", _text("latin1")), (_text("a"), _text("utf8")), (_text("a"), b"N"), (_text("€"), _text("latin1")),
            )
        ),
    }  # fmt: skip
    for function, choices in calls.items():
        yield from (function + arguments + b"R" for arguments in choices)


def _named(value: bytes) -> bytes:
    return b"\x80\x02}(" + _text("w") + value + _text("step") + b"K\5u."


def _with_memo() -> bytes:
    """Return a state dict as torch.save writes it, then a batch that uses the memo in other ways."""
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\nq\2((" + _text("storage") + b"q\3ctorch\nFloatStorage\nq\4" + _text("0")
        + b"q\5" + _text("cpu") + b"q\6K\2tq\7QK\0K\2\x85q\x08K\1\x85q\x09\x89" + _ORDERED + b"q\x0a)Rq\x0btq\x0cRq\x0d"
    )  # fmt: skip
    again = b"h\2((h\3h\4h\5h\6K\2tQK\0K\2\x85K\1\x85\x89h\x0a)RtR"
    rest = _text("tied") + b"h\x0d" + _text("again") + again + _text("text") + b"h\6" + _text("size") + b"h\x08"
    return b"\x80\x02}q\0(" + _text("w") + b"q\1" + tensor + b"u(" + rest + b"u."


def torch() -> Forms:
    """Yield legacy files, parameters, untyped storages, other values and pickles, both byte orders, odd archives."""
    plain = _named(_tensor())
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2}}
    front = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, system))
    back = pickle.dumps(["0"], 2) + struct.pack("<q", 2) + bytes(8)
    yield "legacy", front + plain + back
    yield "legacy-whole", front + _named(_tensor(view=b"N")) + back  # PyTorch's own writer always says what is viewed
    bits = _named(_tensor(kind=b"ctorch\nBoolStorage\n", view=b"N"))
    yield "legacy-bool", front + bits + pickle.dumps(["0"], 2) + struct.pack("<q", 2) + b"\0\2"
    yield "legacy-view", front + _named(_tensor(b"K\1\x85K\1\x85", view=b"(" + _text("1") + b"K\1K\1t")) + back
    for order in ("little", "big"):
        yield order, _checkpoint(plain, order)
    values: Any = {"a": [1, 2.5, None, True, "x", b"y", (1, 2), -(1 << 40), {"b": 1 << 70}], "long": "t" * 300}
    for protocol in (2, 3, 4, 5):
        yield f"values-{protocol}", _checkpoint(pickle.dumps(values, protocol))
    yield "negative", _checkpoint(_named(_tensor(notes=b"}" + _text("neg") + b"\x88s")))
    yield "parameter", _checkpoint(_named(_parameter(_tensor())))
    yield "ordered", _checkpoint(b"\x80\x02" + _HOOKS + b"(" + _text("w") + _tensor() + b"u}" + _text("m") + b"K\1sb.")
    yield "pairs", _checkpoint(b"\x80\x02" + _ORDERED + b"](](" + _text("w") + _tensor() + b"ee\x85R.")
    words = b"\x80\x04\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R(" + _text("size") + b"ctorch\nSize\n(K\1K\2t\x85R"
    yield "words", _checkpoint(words + _text("device") + b"ctorch\ndevice\n" + _text("cuda") + b"K\0\x86Ru.")
    yield "remembered", _checkpoint(_with_memo())
    yield "shared", _checkpoint(_named(_tensor(b"J\0\0\1\0K\2\x86K\0K\1\x86")))
    yield "untyped", _checkpoint(_named(_untyped(b"ctorch\ncomplex32\n")))
    yield "wide", with_zip64(_checkpoint(plain))
    yield "wide-entries", with_zip64_entries(_checkpoint(plain))
    yield "deflated", make_zip({"a/data.pkl": plain, "a/data/0": bytes(8), "a/version": b"3\n"}, zipfile.ZIP_DEFLATED)
    yield "described", make_streamed_zip({"a/data.pkl": plain, "a/data/0": bytes(8), "a/version": b"3\n"})
    for number, value in enumerate(_wrong()):
        yield f"refused-{number}", _checkpoint(_named(value))
    for number, keys in enumerate(({"0": 1}, [0], ["0", "0"], ["1"])):
        yield f"refused-keys-{number}", front + plain + pickle.dumps(keys, 2) + back
    yield from objects(_text, _tensor(), _checkpoint, front, back)
    twice = _tensor() + _text("v") + _tensor(count=b"K\1")
    yield "refused-twice", front + _named(twice) + back


def _checkpoint(pickled: bytes, order: str = "little") -> bytes:
    return make_zip({"a/data.pkl": pickled, "a/byteorder": order.encode(), "a/data/0": bytes(8), "a/version": b"3\n"})
