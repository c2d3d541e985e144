"""Cases of the kernels that hash, pack, convert, quantize and encode."""

from __future__ import annotations

from random import Random

from tests.native.arguments import SIZES, SPECIAL, Arguments, case, floats, noise, numbers, pieces, put, room

# -- hashes ----------------------------------------------------------------------------------------------------------


@case
def fnv1a(chance: Random) -> Arguments:
    data = noise(chance, chance.choice((*SIZES, 1024, 1025, 2048, 5000)))
    starts, lengths = pieces(chance, data)
    if chance.random() < 0.3:
        starts, lengths = [0], [len(data)]
    return put(chance, data), numbers(chance, starts), numbers(chance, lengths), room(chance, 4 * len(starts))


# -- bits and numbers -------------------------------------------------------------------------------------------------


@case
def unpack(chance: Random) -> Arguments:
    """Every width, from every bit."""
    bits, count = chance.choice((1, 2, 3, 4, 6)), chance.choice(SIZES)
    offset = chance.choice((0, 0, 1, 7, 8, 9, 64))
    data = noise(chance, (offset + bits * count + 7) // 8 + chance.choice((0, 0, 1, 8)))
    return (
        put(chance, data),
        offset,
        bits,
        count,
        chance.choice((0, 1, 2) if bits == 1 else (0, 1)),
        room(chance, count),
    )


@case
def pack(chance: Random) -> Arguments:
    bits, count = chance.choice((1, 2, 3, 4, 6)), chance.choice(SIZES)
    return put(chance, noise(chance, count)), bits, room(chance, (bits * count + 7) // 8)


_WIDTHS = {"bf16": 2, "f16": 2, "f8_e4m3": 1, "f8_e5m2": 1}


@case
def widen(chance: Random) -> Arguments:
    kind, count = chance.choice(list(_WIDTHS)), chance.choice(SIZES)
    return kind, put(chance, noise(chance, _WIDTHS[kind] * count)), room(chance, 4 * count)


@case
def narrow(chance: Random) -> Arguments:
    kind, count = chance.choice(list(_WIDTHS)), chance.choice(SIZES)
    return kind, floats(chance, count), room(chance, _WIDTHS[kind] * count)


@case
def equal(chance: Random) -> Arguments:
    data = noise(chance, chance.choice(SIZES))
    return put(chance, data), put(chance, data if chance.random() < 0.5 else noise(chance, chance.choice(SIZES)))


@case
def extremes(chance: Random) -> Arguments:
    kind, count = chance.choice([*_WIDTHS, "f32"]), chance.choice(SIZES)
    return kind, put(chance, noise(chance, _WIDTHS.get(kind, 4) * count))


@case
def distance(chance: Random) -> Arguments:
    count = chance.choice(SIZES)
    return floats(chance, count), floats(chance, count)


_MEASURED = {"f32": 4, "f64": 8, "i32": 4, "u32": 4, "i64": 8, "u64": 8}


@case
def measure(chance: Random) -> Arguments:
    kind, count = chance.choice(list(_MEASURED)), chance.choice((*SIZES, 1023, 1024, 1025, 3000))
    width = _MEASURED[kind]
    data = floats(chance, count) if kind == "f32" else put(chance, noise(chance, width * count))
    counts = room(chance, chance.choice((0, 8 << 16)))
    return kind, data, room(chance, width), chance.choice((1.0, 0.5, 2.0**-900)), counts


@case
def count_codes(chance: Random) -> Arguments:
    width, count = chance.choice((1, 2)), chance.choice(SIZES)
    return put(chance, noise(chance, width * count)), width, room(chance, 8 << 8 * width)


@case
def count_reached(chance: Random) -> Arguments:
    kind, count, edges = chance.choice(list(_MEASURED)), chance.choice((*SIZES, 1025)), chance.choice((0, 1, 9))
    data, borders = (put(chance, noise(chance, _MEASURED[kind] * size)) for size in (count, edges))
    return kind, data, borders, room(chance, 8 * edges)


_GGML = {2: (18, 32), 3: (20, 32), 6: (22, 32), 7: (24, 32), 8: (34, 32), 9: (40, 32), 10: (84, 256), 11: (110, 256),
         12: (144, 256), 13: (176, 256), 14: (210, 256), 15: (292, 256), 42: (18, 64)}  # fmt: skip


@case
def ggml_decode(chance: Random) -> Arguments:
    kind, blocks = chance.choice(list(_GGML)), chance.choice((0, 1, 2, 5))
    size, elements = _GGML[kind]
    return kind, put(chance, noise(chance, size * blocks)), room(chance, 4 * elements * blocks)


# -- quantization -----------------------------------------------------------------------------------------------------


def _regions(chance: Random) -> tuple[int, int, int, int, tuple[int, int, int]]:
    """Bits, group, rows, columns, and how many scales, sub-scales and bytes of codes they take."""
    bits, group = chance.choice(((8, 0), (4, 0), (6, 8), (4, 8), (3, 8), (2, 8)))
    rows, columns = chance.choice((0, 1, 2, 5)), chance.choice((1, 2, 31, 32, 33, 255, 256, 257, 300))
    blocks = -(-columns // 32)
    scales = -(-blocks // 8) if group else blocks
    return bits, group, rows, columns, (rows * scales, rows * blocks if group else 0, rows * blocks * 4 * bits)


def _bounds(chance: Random) -> tuple[float, float]:
    return chance.choice(((float("-inf"), float("inf")), (-1.0, 1.0), (1.0, -1.0), (0.0, 0.0)))


@case
def quantize_blocks(chance: Random) -> Arguments:
    bits, group, rows, columns, (scales, subs, codes) = _regions(chance)
    low, high = _bounds(chance)
    importance = floats(chance, chance.choice((0, columns)))
    return (
        bits, group, chance.randrange(4), rows, columns, floats(chance, rows * columns), low, high, importance,
        put(chance, noise(chance, 2 * scales)), put(chance, noise(chance, subs)), room(chance, codes),
    )  # fmt: skip


@case
def dequantize_blocks(chance: Random) -> Arguments:
    bits, group, rows, columns, (scales, subs, codes) = _regions(chance)
    stored = [put(chance, noise(chance, size)) for size in (2 * scales, subs, codes)]
    return bits, group, rows, columns, *stored, room(chance, 4 * rows * columns)


@case
def quantize_flat(chance: Random) -> Arguments:
    bits, count = chance.choice((4, 8)), chance.choice(SIZES)
    low, high = _bounds(chance)
    lowest = chance.choice((-128, -8, 0, -127, 1 << 30, -(1 << 31)))
    scale, zero = chance.choice(SPECIAL), chance.choice(SPECIAL)
    return bits, count, scale, zero, lowest, floats(chance, count), low, high, room(chance, (count * bits + 7) // 8)


@case
def dequantize_flat(chance: Random) -> Arguments:
    bits, count = chance.choice((4, 8)), chance.choice(SIZES)
    codes = put(chance, noise(chance, (count * bits + 7) // 8))
    return bits, count, chance.choice(SPECIAL), chance.choice(SPECIAL), codes, room(chance, 4 * count)


# -- the encoder ------------------------------------------------------------------------------------------------------


def _rows(chance: Random) -> tuple[int, int]:
    return chance.choice((0, 1, 2, 5)), chance.choice((1, 3, 7, 8, 9, 16, 33))


@case
def bias_gelu(chance: Random) -> Arguments:
    rows, width = _rows(chance)
    return floats(chance, rows * width), floats(chance, width)


@case
def add_norm(chance: Random) -> Arguments:
    rows, width = _rows(chance)
    same = [floats(chance, width) for _ in range(3)]
    return floats(chance, rows * width), floats(chance, rows * width), *same, chance.choice(SPECIAL)


@case
def softmax(chance: Random) -> Arguments:
    rows, width = _rows(chance)
    return floats(chance, rows * width), width
