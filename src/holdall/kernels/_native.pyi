# The same functions as reference.py, which documents them.
from .buffers import Bytes
from .msgpack_reference import Step

def scan(
    data: Bytes, start: int, stop: int, count: int, program: Bytes, columns: Bytes, starts: Bytes, /
) -> tuple[int, int, int]: ...
def texts(data: Bytes, positions: Bytes, lengths: Bytes, /) -> tuple[list[str], int]: ...
def fnv1a(data: Bytes, positions: Bytes, lengths: Bytes, out: Bytes, /) -> None: ...
def blake3_16(data: Bytes, positions: Bytes, lengths: Bytes, out: Bytes, /) -> None: ...
def unpack(data: Bytes, bit_offset: int, bits: int, count: int, kind: int, out: Bytes, /) -> None: ...
def pack(codes: Bytes, bits: int, out: Bytes, /) -> None: ...
def ggml_decode(kind: int, data: Bytes, out: Bytes, /) -> None: ...
def widen(kind: str, data: Bytes, out: Bytes, /) -> None: ...
def narrow(kind: str, data: Bytes, out: Bytes, /) -> None: ...
def distance(a: Bytes, b: Bytes, /) -> tuple[int, int, float, float, float, float, float]: ...
def bias_gelu(values: Bytes, bias: Bytes, /) -> None: ...
def add_norm(values: Bytes, residual: Bytes, bias: Bytes, weight: Bytes, shift: Bytes, eps: float, /) -> None: ...
def softmax(values: Bytes, width: int, /) -> None: ...
def json_tape(data: Bytes, start: int, stop: int, depth: int, /) -> tuple[bytearray, int, str | None]: ...
def json_records(data: Bytes, tape: Bytes, at: int, fields: tuple[bytes, ...], /) -> bytearray: ...
def json_uints(data: Bytes, tape: Bytes, indexes: Bytes, counts: Bytes, values: Bytes, /) -> tuple[int, int]: ...
def json_words(data: Bytes, tape: Bytes, indexes: Bytes, words: tuple[bytes, ...], out: Bytes, /) -> None: ...
def msgpack_walk(data: Bytes, start: int, stop: int, depth: int, /) -> tuple[int, int, int, list[Step]]: ...
def msgpack_table(
    data: Bytes,
    start: int,
    stop: int,
    count: int,
    depth: int,
    keys: bytes,
    kinds: Bytes,
    ats: Bytes,
    values: Bytes,
    ends: Bytes,
    starts: Bytes,
    extras: Bytes,
    /,
) -> tuple[int, int, int, int, int, list[Step]]: ...
def msgpack_dims(data: Bytes, positions: Bytes, counts: Bytes, out: Bytes, /) -> tuple[int, int]: ...
def pickle_tensors(
    data: Bytes, words: tuple[bytes, ...], most: int, memo: Bytes, rows: Bytes, values: Bytes, /
) -> tuple[int, int, int, int, int]: ...
def protobuf_records(
    data: Bytes,
    base: int,
    at: int,
    stop: int,
    record: int,
    repeated: int,
    singles: Bytes,
    odd: Bytes,
    rows: Bytes,
    values: Bytes,
    /,
) -> tuple[int, int, int, int]: ...

# As quant/reference.py has them.
def quantize_blocks(
    bits: int,
    group: int,
    mode: int,
    rows: int,
    cols: int,
    values: Bytes,
    low: float,
    high: float,
    importance: Bytes,
    scales: Bytes,
    subs: Bytes,
    codes: Bytes,
    /,
) -> float: ...
def dequantize_blocks(
    bits: int, group: int, rows: int, cols: int, scales: Bytes, subs: Bytes, codes: Bytes, out: Bytes, /
) -> None: ...
def quantize_flat(
    bits: int,
    count: int,
    inverse: float,
    zero: float,
    lowest: int,
    values: Bytes,
    low: float,
    high: float,
    codes: Bytes,
    /,
) -> None: ...
def dequantize_flat(bits: int, count: int, scale: float, zero: float, codes: Bytes, out: Bytes, /) -> None: ...
def simd_level() -> int: ...
