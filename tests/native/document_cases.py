"""Cases of the kernels that read tables, texts, JSON and MessagePack."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

import numpy as np

from holdall.binary.kernels.scanner import Op
from tests.native.arguments import SIZES, Arguments, buffer, case, noise, numbers, pieces, put, room

# -- tables and texts -------------------------------------------------------------------------------------------------


@case
def scan(chance: Random) -> Arguments:
    """A program of random steps over random or fitting bytes."""
    steps, columns, ints, arrays = [], 0, [], []
    for _ in range(chance.choice((0, 1, 3, 6, 64))):
        op = chance.choice(list(Op))
        width = chance.choice((1, 2, 4, 8))
        step, filled = (op, width, 0, 0, 0), 1
        if op in (Op.RAW, Op.SKIP):
            step, filled = (op, chance.choice((0, 1, 3, 8)), 0, 0, 0), int(op == Op.RAW)
        elif op == Op.TEXT:
            step, filled = (op, width, chance.choice((1, 4, 8, 7)), 0, 0), 2
        elif op in (Op.ARRAY, Op.BLOB, Op.ELEMENTS) and not ints:
            continue
        elif op == Op.ARRAY:
            step = (op, chance.choice((1, 2, 4, 8, 3)), chance.choice(ints), 0, 0)
            arrays.append((columns, step))
        elif op == Op.BLOB:
            step = (op, chance.choice(ints), 0, 0, 0)
        elif op == Op.ELEMENTS:
            fitting = [(column, made) for column, made in arrays if made[1] in (4, 8)]
            if not fitting:
                continue
            column, made = chance.choice(fitting)
            step = (op, made[2], column, made[1], chance.choice((1, 2, 4)))
        if op == Op.INT:
            ints.append(columns)
        elif op == Op.TEXT:
            ints.append(columns + 1)
        steps.append(step)
        columns += filled
    count = chance.choice((0, 1, 3, 50))
    data = bytearray(noise(chance, chance.choice(SIZES)))
    for at in range(0, len(data), 3):
        data[at] = chance.choice((0, 1, 2, 4))  # small counts, so that entries are complete
    start = chance.randrange(min(len(data), 9) + 1)
    program = b"".join(struct.pack("<5q", *step) for step in steps)
    stop = len(data) - chance.randrange(min(len(data) - start, 3) + 1)
    return (
        put(chance, bytes(data)), start, stop, count, put(chance, program), room(chance, 8 * columns * count),
        room(chance, 8 * count),
    )  # fmt: skip


@case
def texts(chance: Random) -> Arguments:
    """Pieces of text, some of it no UTF-8."""
    words = ("", "a", "weight", "größe", "模型", "\U0001f600", "\0")
    data = "".join(chance.choice(words) for _ in range(chance.choice((0, 1, 40)))).encode()
    if chance.random() < 0.3:
        data += noise(chance, 5)
    starts, lengths = pieces(chance, data)
    return put(chance, data), numbers(chance, starts), numbers(chance, lengths)


# -- documents --------------------------------------------------------------------------------------------------------


def _value(chance: Random, depth: int = 0) -> Any:
    if depth < 4 and chance.random() < 0.5:
        items = [_value(chance, depth + 1) for _ in range(chance.choice((0, 1, 3, 20)) if depth < 2 else 1)]
        keys = ["dtype", "shape", "", "ä", "\\", '"', *map(str, range(20))]
        return items if chance.random() < 0.5 else dict(zip(chance.sample(keys, len(items)), items, strict=True))
    return chance.choice((None, True, False, 0, 1, 1 << 63, 1 << 70, -5, 1.5, 1e300, "", "x", "\0", "F32", "😀", 'q"'))


def _json(chance: Random) -> bytes:
    """A document, mostly whole; some with what strict readers refuse."""
    if chance.random() < 0.3:  # as safetensors has them
        entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
        data = json.dumps({f"t{n}": entry for n in range(chance.choice((0, 1, 5)))}).encode()
    else:
        data = json.dumps(_value(chance), ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    if chance.random() < 0.4:
        at = chance.randrange(len(data) + 1)
        odd = (
            b"",
            b'"',
            b"\\",
            b"\\u",
            b"\\ud800",
            b"NaN",
            b"-",
            b"1e",
            b"{",
            b"]",
            b",",
            b"\xff",
            b"\xe4",
            b"\0",
            b"[" * 90,
        )
        data = data[:at] + chance.choice(odd) + data[at + chance.choice((0, 1, 4)) :]
    return chance.choice((b"", b"", b" ", b"\xef\xbb\xbf")) + data


@case
def json_tape(chance: Random) -> Arguments:
    data = _json(chance) if chance.random() < 0.9 else noise(chance, chance.choice(SIZES))
    start = chance.choice((0, 0, min(1, len(data))))
    return put(chance, data), start, len(data), chance.choice((0, 1, 2, 64, 128))


def _tape(chance: Random) -> tuple[bytes, bytes]:
    """A document and its tape, by the twin in Python; some tapes are not of that document."""
    from holdall.binary.kernels import json_reference

    data = _json(chance)
    tape = bytes(json_reference.json_tape(data, 0, len(data), 128)[0])
    if chance.random() < 0.3 and tape:
        at = chance.randrange(0, len(tape), 4)
        number = chance.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF, len(data), len(data) + 1, len(tape) // 16))
        tape = tape[:at] + number.to_bytes(4, "little") + tape[at + 4 :]
    return data, tape


def _words(chance: Random) -> tuple[bytes, ...]:
    known = [b"dtype", b"shape", b"data_offsets", b"F32", b"", b"x", *(str(n).encode() for n in range(60))]
    return tuple(chance.sample(known, chance.choice((0, 1, 3, 64))))


def _indexes(chance: Random, tape: bytes) -> list[int]:
    tokens = len(tape) // 16
    if chance.random() < 0.5:
        return list(range(tokens))
    return [chance.choice((chance.randrange(tokens + 1), 0xFFFFFFFF)) for _ in range(chance.choice((0, 1, 9)))]


@case
def json_records(chance: Random) -> Arguments:
    data, tape = _tape(chance)
    return put(chance, data), buffer(tape, 0), chance.choice((0, 0, 0, 1, len(tape) // 16)), _words(chance)


@case
def json_uints(chance: Random) -> Arguments:
    data, tape = _tape(chance)
    kinds = np.frombuffer(tape, "<u4")[::4] & 15
    arrays = (kinds == 2).nonzero()[0].tolist()  # mostly arrays, so that more than the first one is read
    indexes = arrays if chance.random() < 0.7 else _indexes(chance, tape)
    values = buffer(bytes(8 * chance.choice((0, 1, 5, 100))), 0)
    return put(chance, data), buffer(tape, 0), numbers(chance, indexes, 4), room(chance, 8 * len(indexes)), values


@case
def json_words(chance: Random) -> Arguments:
    data, tape = _tape(chance)
    indexes = _indexes(chance, tape)
    return put(chance, data), buffer(tape, 0), numbers(chance, indexes, 4), _words(chance), room(chance, len(indexes))


_ODD_MSGPACK = (
    b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc7\x01\x01a",
    b"\xd9\x01\xff", b"\x91" * 200, b"\xca\x7f\xc0\0\0", b"\xcb" + b"\xff" * 8, b"\xd3\x80" + bytes(7),
    b"\x82\xa0\0\xa0\0",
)  # fmt: skip


def _msgpack(chance: Random) -> bytes:
    import msgspec

    value = _value(chance)
    try:
        data = msgspec.msgpack.encode(value)
    except (OverflowError, ValueError):
        data = b"\xc0"
    if chance.random() < 0.4:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice(_ODD_MSGPACK) + data[at:]
    return data


@case
def msgpack_walk(chance: Random) -> Arguments:
    data = _msgpack(chance) if chance.random() < 0.8 else noise(chance, chance.choice(SIZES))
    return put(chance, data), 0, len(data), chance.choice((1, 2, 64, 1024, 5000)), chance.choice((0, 1, 9, 1 << 40))


_ENTRY = ("name", "dtype", "shape", "offset")


@case
def msgpack_table(chance: Random) -> Arguments:
    """Maps one after the other, with keys known, unknown, missing and twice."""
    import msgspec

    data, rows = b"", chance.choice((0, 1, 3, 20))
    for _ in range(rows):
        keys = [*_ENTRY, *(f"more{n}" for n in range(chance.choice((0, 1, 40))))]
        chosen = chance.sample(keys, chance.randrange(len(keys) + 1))
        data += msgspec.msgpack.encode(
            {key: chance.choice((1, "w", [2, 3], {"a": 1}, None, -1, 1.5)) for key in chosen}
        )
    if chance.random() < 0.3:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + noise(chance, 3) + data[at:]
    count = chance.choice((rows, rows, rows + 1, 0))
    keys = b"".join(key.encode() + b"\0" for key in _ENTRY[: chance.choice((0, 2, 4))])
    cells = keys.count(b"\0") * count
    columns = [
        room(chance, cells),
        *(room(chance, 8 * cells) for _ in range(3)),
        room(chance, 8 * count),
        room(chance, count),
    ]
    return put(chance, data), 0, len(data), count, chance.choice((1, 2, 128, 2000)), keys, *columns


@case
def msgpack_dims(chance: Random) -> Arguments:
    import msgspec

    data, places, counts = b"", [], []
    for _ in range(chance.choice((0, 1, 5, 30))):
        dims = [chance.choice((0, 1, 255, 65536, 1 << 40)) for _ in range(chance.choice((0, 1, 3, 17)))]
        places.append(len(data))
        counts.append(len(dims))
        data += msgspec.msgpack.encode(dims)
    return put(chance, data), numbers(chance, places), numbers(chance, counts), room(chance, 8 * sum(counts))


@case
def protobuf_records(chance: Random) -> Arguments:
    """A window on a message with records, some of them damaged."""
    from holdall.format.onnx.wire import field

    def value() -> bytes | int:
        return chance.choice(
            (noise(chance, chance.choice((0, 1, 5, 200))), chance.choice((0, 127, 128, (1 << 64) - 1)))
        )

    data = b""
    for _ in range(chance.choice((0, 1, 4, 30))):
        inner = b"".join(field(chance.choice((0, 1, 2, 8, 13, 99)), value()) for _ in range(chance.randrange(7)))
        data += field(chance.choice((5, 5, 5, 2)), inner)
        if chance.random() < 0.3:
            data = field(chance.choice((1, 6)), data)
    if data and chance.random() < 0.4:
        at = chance.randrange(len(data))
        data = data[:at] + noise(chance, 2) + data[at + 1 :]
    base, stop = chance.choice((0, 0, 77, 1 << 40)), len(data) + chance.choice((0, 0, 0, 5))
    window = data[: chance.choice((len(data), len(data), chance.randrange(len(data) + 1)))]
    rows, values = chance.choice((0, 1, 3, 40)), chance.choice((0, 1, 3, 200))
    grammar = put(chance, b"\0\5\xff\0\1\0\0\6\1\1\5\xff\1\1\0")
    singles, odd = put(chance, b"\x42\x10"), put(chance, b"\x0d")
    stack = np.zeros(2 + 15 * chance.choice((1, 2, 5)), np.uint64)
    stack[:9] = 1, 1, base, base, base + stop, 0, 0, 0, 1
    columns = np.zeros(6 * chance.choice((0, 2, 9)), np.uint64), np.zeros(12 * rows, np.uint64)
    return put(chance, window), base, base, grammar, 1, singles, odd, stack, *columns, np.zeros(values, np.uint64)


@case
def simd_level(chance: Random) -> Arguments:
    return ()


# -- pickles ---------------------------------------------------------------------------------------------

_WORDS = (
    b"collections\nOrderedDict\n",
    b"torch._utils\n_rebuild_tensor_v2\n",
    b"torch\nFloatStorage\n",
    b"torch\nHalfStorage\n",
)


def _state_dict(chance: Random) -> bytes:
    """A state dict as torch.save writes one, some of its opcodes changed."""
    tensors, memo = [], iter(range(1 << 16))

    def put_() -> bytes:
        return b"q" + bytes([number]) if (number := next(memo)) < 256 else b"r" + struct.pack("<I", number)

    for number in range(chance.choice((0, 1, 3, 40))):
        name, key = b"layer.%d" % number, b"%d" % number
        shape = b"K" + bytes([chance.randrange(256)])
        tensors.append(
            b"X" + struct.pack("<I", len(name)) + name + put_() + b"c" + _WORDS[1] + put_() + b"((X\x07\0\0\0storage"
            + put_() + b"c" + chance.choice(_WORDS[2:]) + put_() + b"X" + struct.pack("<I", len(key)) + key + put_()
            + b"X\x03\0\0\0cpu" + put_() + b"K\x04t" + put_() + b"QK\0" + shape + b"\x85" + put_() + b"K\x01\x85"
            + put_() + b"\x89c" + _WORDS[0] + put_() + b")R" + put_() + b"t" + put_() + b"R" + put_()
        )  # fmt: skip
    start = chance.choice((b"}", b"c" + _WORDS[0] + b")R"))
    data = bytearray(b"\x80\x02" + start + b"q\0" + b"(" + b"".join(tensors) + b"u.")
    for _ in range(chance.choice((0, 0, 1, 3))):
        at = chance.randrange(len(data))
        data[at : at + chance.choice((1, 1, 4))] = chance.choice(
            (chance.randbytes(1), b"\xff\xff\xff\xff", b"", b"(" * 50)
        )
    return bytes(data)


@case
def pickle_tensors(chance: Random) -> Arguments:
    data = _state_dict(chance) if chance.random() < 0.9 else noise(chance, chance.choice(SIZES))
    most = chance.choice((1 << 30, 1 << 30, 0, 5, 200))
    rooms = [chance.choice((1000, 1000, 10, 0)) for _ in range(3)]
    out = (room(chance, 8 * rooms[0]), room(chance, 80 * rooms[1]), room(chance, 8 * rooms[2]))
    return put(chance, data), _WORDS, most, *out
