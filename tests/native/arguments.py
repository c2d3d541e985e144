"""What the cases of the kernels share: hostile numbers, sizes and buffers.

A case makes arguments that its kernel accepts, out of random sizes and bytes; :func:`twisted` then breaks some of
them. Buffers end where their memory ends, so that a byte read too far is one that the sanitizer sees, and begin at any
address.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

Arguments = tuple[Any, ...]
Case = Callable[[Random], Arguments]

CASES: dict[str, Case] = {}

NUMBERS = (0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1)
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-45, 3.4e38, -3.4e38, 65504.0)
SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000)


def case(make: Case) -> Case:
    """Registers the case of the kernel that it is called after."""
    CASES[make.__name__] = make
    return make


# -- buffers ----------------------------------------------------------------------------------------------------------


def buffer(data: bytes, shift: int) -> np.ndarray:
    """A new buffer that ends with ``data`` and has ``shift`` bytes before it."""
    whole = np.empty(len(data) + shift, np.uint8)
    whole[shift:] = np.frombuffer(data, np.uint8)
    return whole[shift:]


def put(chance: Random, data: bytes) -> np.ndarray:
    return buffer(data, chance.choice((0, 0, 1, 3, 4, 8)))


def room(chance: Random, size: int) -> np.ndarray:
    return put(chance, bytes(size))


def numbers(chance: Random, values: list[int], width: int = 8) -> np.ndarray:
    return put(chance, np.array([value % (1 << 8 * width) for value in values], f"<u{width}").tobytes())


def noise(chance: Random, size: int) -> bytes:
    return chance.choice((chance.randbytes(size), bytes(size), b"\xff" * size))


def floats(chance: Random, count: int) -> np.ndarray:
    if chance.random() < 0.3:
        return put(chance, chance.randbytes(4 * count))  # every pattern of bits there is
    values = [chance.choice(SPECIAL) if chance.random() < 0.2 else chance.gauss(0, 1) for _ in range(count)]
    with np.errstate(over="ignore"):
        return put(chance, np.array(values, "<f4").tobytes())


def twisted(arguments: Arguments, chance: Random) -> Arguments:
    """The arguments with one to three of them broken: another number, another length, the memory of another."""
    broken = list(arguments)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if not broken:
            break
        place = chance.randrange(len(broken))
        value = broken[place]
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int):
            broken[place] = chance.choice((chance.choice(NUMBERS), value + 1, value - 1, 2 * value))
        elif isinstance(value, float):
            broken[place] = chance.choice(SPECIAL)
        elif isinstance(value, np.ndarray):
            broken[place] = _twisted_buffer(value, broken, chance)
        elif isinstance(value, str):
            broken[place] = chance.choice(("", "f16", "bf16", "f8_e4m3", "f8_e5m2", "f32", "\0", "f16\0"))
        elif isinstance(value, (bytes, tuple)):
            broken[place] = chance.choice((value[:-1], value + value, type(value)()))
    return tuple(broken)


def _twisted_buffer(value: np.ndarray, others: list[Any], chance: Random) -> Any:
    data = value.tobytes()
    at = chance.randrange(len(data) + 1)
    match chance.randrange(8):
        case 0:
            return put(chance, data[:at])
        case 1:
            return put(chance, data + chance.randbytes(chance.choice((1, 4, 8))))
        case 2:
            return put(chance, noise(chance, len(data)))
        case 3:
            number = chance.choice(NUMBERS) % (1 << 64)
            return put(chance, (data[:at] + number.to_bytes(8, "little") + data[at + 8 :])[: len(data)])
        case 4:
            return bytes(data)  # nothing may be written to it
        case 5:  # no contiguous memory
            return np.repeat(value, 2)[::2] if value.size else value
        case 6:  # the memory of another argument, or a part of it
            shared = [other for other in others if isinstance(other, np.ndarray) and other.size >= value.size]
            return chance.choice(shared)[: value.size] if shared else value
        case _:
            return chance.choice((None, 0, "text", bytearray(data), memoryview(data)))


def pieces(chance: Random, data: bytes) -> tuple[list[int], list[int]]:
    """Where pieces of ``data`` begin, and how long they are."""
    starts = [chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 1, 7, 8, 9, 33)))]
    return starts, [min(len(data) - at, chance.choice(SIZES)) for at in starts]
