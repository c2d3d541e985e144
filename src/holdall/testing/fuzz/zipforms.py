"""Forms of npz and torch files that their writers here do not write: see :mod:`holdall.testing.fuzz.forms`."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from holdall.ziplayout import CENTRAL_FRONT, END, END64, END64_SIGNATURE, LOCATOR, LOCATOR_SIGNATURE, ZIP64

__all__ = ["npz", "torch"]

Forms = Iterator[tuple[str, bytes]]


def npz() -> Forms:
    """Deflated entries, every version of npy, Fortran order, types that are carried as bytes."""
    for title, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        arrays = {
            "a.npy": _npy("'<f4'", "False", "(2,)", bytes(8)),
            "b.npy": _npy("'>i2'", "True", "(2, 2)", bytes(8), (2, 0)),
            "c.npy": _npy("'|u1'", "False", "()", b"\1", (3, 0)),
            "d.npy": _npy("'<U2'", "False", "(1,)", bytes(8)),
            "__metadata__.npy": _npy("'|u1'", "False", "(9,)", b'{"a":[1]}'),
        }
        yield title, _zipped(arrays, method)
    yield "structured", _zipped({"s.npy": _npy("[('x', '<f4'), ('y', '|S2', (2,))]", "False", "(1,)", bytes(8))})
    yield (
        "odd",
        _zipped(
            {"v.npy": _npy("'|V3'", "False", "(1,)", bytes(3)), "m.npy": _npy("'<M8[s]'", "False", "(1,)", bytes(8))}
        ),
    )
    one = {"a.npy": _npy("'<f4'", "False", "(2,)", bytes(8))}
    yield "wide", _wide(_zipped(one))
    yield "wide-entries", _wide_entries(_zipped(one))
    yield "described", _described(one)
    yield "alone", _npy("'<f4'", "False", "(2,)", bytes(8))


def _npy(descr: str, order: str, shape: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    width = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(width, "little") + text + data


def _zipped(entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def _wide(data: bytes) -> bytes:
    """The archive with the end records of zip64, and a comment."""
    at = len(data) - END.size
    end = END.read(data, at)
    wide = END64.pack(
        signature=END64_SIGNATURE, record_size=END64.size - 12, made_by=45, version=45, disk=0, first_disk=0,
        here=end.count, count=end.count, size=end.size, offset=end.offset,
    )  # fmt: skip
    locator = LOCATOR.pack(signature=LOCATOR_SIGNATURE, disk=0, offset=at, disks=1)
    full = {"here": 0xFFFF, "count": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF, "comment_size": 1}
    return data[:at] + wide + locator + END.pack(**{**vars(end), **full}) + b"x"


def _wide_entries(data: bytes) -> bytes:
    """The archive with sizes and offsets of its entries in the zip64 field, behind another field."""
    end = END.read(data, len(data) - END.size)
    at, directory = end.offset, b""
    for _ in range(end.count):
        entry = CENTRAL_FRONT.read(data, at)
        name = data[at + CENTRAL_FRONT.size :][: entry.name_size]
        at += CENTRAL_FRONT.size + entry.name_size
        extra = struct.pack("<2H2s", 7, 2, b"..") + struct.pack(
            "<2H3Q", ZIP64, 24, entry.size, entry.stored, entry.offset
        )
        full = dict.fromkeys(("stored", "size", "offset"), 0xFFFFFFFF)
        directory += CENTRAL_FRONT.pack(**{**vars(entry), **full, "extra_size": len(extra)}) + name + extra
    return data[: end.offset] + directory + END.pack(**{**vars(end), "size": len(directory)})


def _described(entries: Mapping[str, bytes]) -> bytes:
    """An archive as it is written into a pipe: sizes and CRC follow the data."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return pipe.getvalue()


# -- torch ------------------------------------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


_ORDERED = b"ccollections\nOrderedDict\n"
_HOOKS = _ORDERED + b")R"


def _tensor(dims: bytes = b"K\2\x85K\1\x85", *, view: bytes = b"", notes: bytes = b"", version: int = 2) -> bytes:
    """The opcodes of a tensor: by default of two numbers."""
    kind = b"ctorch.storage\nUntypedStorage\n" if version == 3 else b"ctorch\nFloatStorage\n"
    storage = b"(" + _text("storage") + kind + _text("0") + _text("cpu") + (b"K\x08" if version == 3 else b"K\2") + view
    call = f"ctorch._utils\n_rebuild_tensor_v{version}\n(".encode()
    return call + storage + b"tQK\0" + dims + b"\x89" + _HOOKS + notes + b"tR"


def _named(value: bytes) -> bytes:
    return b"\x80\x02}(" + _text("w") + value + _text("step") + b"K\5u."


def _remembered() -> bytes:
    """A state dict as torch.save writes it, then a batch that uses what was remembered in other ways."""
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\nq\2((" + _text("storage") + b"q\3ctorch\nFloatStorage\nq\4" + _text("0")
        + b"q\5" + _text("cpu") + b"q\6K\2tq\7QK\0K\2\x85q\x08K\1\x85q\x09\x89" + _ORDERED + b"q\x0a)Rq\x0btq\x0cRq\x0d"
    )  # fmt: skip
    again = b"h\2((h\3h\4h\5h\6K\2tQK\0K\2\x85K\1\x85\x89h\x0a)RtR"
    rest = _text("tied") + b"h\x0d" + _text("again") + again + _text("text") + b"h\6" + _text("size") + b"h\x08"
    return b"\x80\x02}q\0(" + _text("w") + b"q\1" + tensor + b"u(" + rest + b"u."


def torch() -> Forms:
    """Legacy files, parameters, untyped storages, other values and pickles, both byte orders, odd archives."""
    plain = _named(_tensor())
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2}}
    front = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, system))
    back = pickle.dumps(["0"], 2) + struct.pack("<q", 2) + bytes(8)
    yield "legacy", front + plain + back
    yield "legacy-view", front + _named(_tensor(b"K\1\x85K\1\x85", view=b"(" + _text("1") + b"K\1K\1t")) + back
    for order in ("little", "big"):
        yield order, _checkpoint(plain, order)
    values: Any = {"a": [1, 2.5, None, True, "x", b"y", (1, 2), -(1 << 40), {"b": 1 << 70}], "long": "t" * 300}
    for protocol in (2, 3, 4, 5):
        yield f"values-{protocol}", _checkpoint(pickle.dumps(values, protocol))
    parameter = b"ctorch._utils\n_rebuild_parameter\n(" + _tensor() + b"\x88" + _HOOKS + b"tR"
    yield "parameter", _checkpoint(_named(parameter))
    yield "ordered", _checkpoint(b"\x80\x02" + _HOOKS + b"(" + _text("w") + _tensor() + b"u}" + _text("m") + b"K\1sb.")
    yield "pairs", _checkpoint(b"\x80\x02" + _ORDERED + b"](](" + _text("w") + _tensor() + b"ee\x85R.")
    words = b"\x80\x04\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R(" + _text("size") + b"ctorch\nSize\n(K\1K\2t\x85R"
    yield "words", _checkpoint(words + _text("device") + b"ctorch\ndevice\n" + _text("cuda") + b"K\0\x86Ru.")
    yield "remembered", _checkpoint(_remembered())
    yield "shared", _checkpoint(_named(_tensor(b"J\0\0\1\0K\2\x86K\0K\1\x86")))
    yield "untyped", _checkpoint(_named(_tensor(version=3, notes=b"ctorch\ncomplex32\n")))
    yield "refused-conjugate", _checkpoint(_named(_tensor(notes=b"}" + _text("conj") + b"\x88s")))
    yield "wide", _wide(_checkpoint(plain))
    yield "wide-entries", _wide_entries(_checkpoint(plain))
    yield "deflated", _zipped({"a/data.pkl": plain, "a/data/0": bytes(8), "a/version": b"3\n"}, zipfile.ZIP_DEFLATED)
    yield "described", _described({"a/data.pkl": plain, "a/data/0": bytes(8), "a/version": b"3\n"})


def _checkpoint(pickled: bytes, order: str = "little") -> bytes:
    return _zipped({"a/data.pkl": pickled, "a/byteorder": order.encode(), "a/data/0": bytes(8), "a/version": b"3\n"})
