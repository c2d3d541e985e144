import importlib
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdall.binary.kernels.json_tokens import ABSENT, ARRAY, ESCAPED, INT, KEY, OBJECT, STRING

FIELDS = (b"dtype", b"shape")


@pytest.fixture(scope="session", params=["json_reference", "_native"])
def kernels(request):
    try:
        return importlib.import_module(f"holdall.binary.kernels.{request.param}")
    except ImportError:
        pytest.skip("the C kernels are not compiled")


@pytest.fixture(scope="session")
def twins():
    native = pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")
    return importlib.import_module("holdall.binary.kernels.json_reference"), native


def tape(kernels, data, depth=20):
    stored, at, reason = kernels.json_tape(data, 0, len(data), depth)
    return np.frombuffer(stored, "<u4").reshape(-1, 4).tolist(), at, reason


ACCEPTED = [
    b"{}", b"[]", b"0", b"-0", b"-0.0", b"1e5", b"1E+5", b"1e-05", b"123.456e7", b"true", b"false", b"null", b'""',
    b" \t\r\n[ 1 , 2 ] \n", b'{"a":{"b":[{}]}}', b'"\\u0000"', b'"\\ud83d\\ude00"', b'"\\/\\b\\f\\n\\r\\t\\"\\\\"',
    '"é€😀\x7f"'.encode(), b'{"":0}', b"[[[[]]]]", b"100000000000000000000000000000", b'"\xef\xbf\xbf"',
    b'"\xf4\x8f\xbf\xbf"', b'"0123456789abcdef0123456789abcdef"', b'{"a":1,"a":2}', b"[0,[],{},\"\"]",
]  # fmt: skip

REJECTED = {
    b"": (0, "the document ends too early"),
    b"  ": (2, "the document ends too early"),
    b"\xef\xbb\xbf{}": (0, "a byte order mark"),
    b"[": (1, "the document ends too early"),
    b"{": (1, "the document ends too early"),
    b'{"a"': (4, "the document ends too early"),
    b'{"a":': (5, "the document ends too early"),
    b'{"a":1': (6, "the document ends too early"),
    b'{"a":1,': (7, "the document ends too early"),
    b'"abc': (4, "the document ends too early"),
    b'"\\': (2, "the document ends too early"),
    b'"\\u12': (5, "the document ends too early"),
    b"-": (1, "the document ends too early"),
    b"1.": (2, "the document ends too early"),
    b"1e+": (3, "the document ends too early"),
    b"[1.]": (3, "a digit is expected"),
    b"[-]": (2, "a digit is expected"),
    b"[1e]": (3, "a digit is expected"),
    b"[-a]": (2, "a digit is expected"),
    b"[.5]": (1, "a value is expected"),
    b"[+1]": (1, "a value is expected"),
    b"[01]": (2, "a comma or ] is expected"),
    b"[0x1]": (2, "a comma or ] is expected"),
    b"[1_000]": (2, "a comma or ] is expected"),
    b"NaN": (0, "a value is expected"),
    b"[Infinity]": (1, "a value is expected"),
    b"[-Infinity]": (2, "a digit is expected"),
    b"[nul]": (1, "a value is expected"),
    b"[True]": (1, "a value is expected"),
    b"['a']": (1, "a value is expected"),
    b"[1,]": (3, "a value is expected"),
    b"[,1]": (1, "a value is expected"),
    b"[1 2]": (3, "a comma or ] is expected"),
    b"[1}": (2, "a comma or ] is expected"),
    b'{"a":1]': (6, "a comma or } is expected"),
    b'{"a":1,}': (7, "a key is expected"),
    b"{1:2}": (1, "a key is expected"),
    b"{a:1}": (1, "a key is expected"),
    b'{"a" 1}': (5, "a colon is expected"),
    b'{"a",1}': (4, "a colon is expected"),
    b"{}{}": (2, "something follows the document"),
    b"{}\0": (2, "something follows the document"),
    b"1 2": (2, "something follows the document"),
    b"// c\n1": (0, "a value is expected"),
    b"[1/*c*/]": (2, "a comma or ] is expected"),
    b'"\x00"': (1, "a control character in a string"),
    b'"a\nb"': (2, "a control character in a string"),
    b'"\x1f"': (1, "a control character in a string"),
    b'"\\x41"': (1, "no such escape"),
    b'"\\u12G4"': (1, "no such escape"),
    b'"\\a"': (1, "no such escape"),
    b'"\\ud800"': (1, "half of a surrogate pair"),
    b'"\\udc00"': (1, "half of a surrogate pair"),
    b'"\\ud800\\u0041"': (1, "half of a surrogate pair"),
    b'"\\ud800\\ud800"': (1, "half of a surrogate pair"),
    b'"\xff"': (1, "not UTF-8"),
    b'"\xc3"': (1, "not UTF-8"),
    b'"\xc0\x80"': (1, "not UTF-8"),
    b'"\xed\xa0\x80"': (1, "not UTF-8"),
    b'"\xf4\x90\x80\x80"': (1, "not UTF-8"),
    b'"\xe0\x80\x80"': (1, "not UTF-8"),
    b"[\xc3\xa9]": (1, "a value is expected"),
    b"\x00": (0, "a value is expected"),
    b"[" * 21: (20, "nested too deep"),
    b'{"a":' * 21: (100, "nested too deep"),
    "{}".encode("utf-16"): (0, "a value is expected"),
}


@pytest.mark.parametrize("data", ACCEPTED)
def test_accepted(kernels, data):
    assert tape(kernels, data)[1:] == (len(data), None)
    json.loads(data)


@pytest.mark.parametrize("data", REJECTED)
def test_rejected(kernels, data):
    assert tape(kernels, data)[1:] == REJECTED[data]


def test_the_tape(kernels):
    data = b' {"a\\n": [1, {"b": "c"}], "d": 2}'
    tokens, _, _ = tape(kernels, data)
    assert [(kind & 31, kind >> 8, data[start:end], link) for kind, start, end, link in tokens] == [
        (OBJECT, 0, data[1:], 9),
        (KEY | ESCAPED, 1, b"a\\n", 2),
        (ARRAY, 1, b'[1, {"b": "c"}]', 7),
        (INT, 2, b"1", 4),
        (OBJECT, 2, b'{"b": "c"}', 7),
        (KEY, 3, b"b", 6),
        (STRING, 3, b"c", 7),
        (KEY, 1, b"d", 8),
        (INT, 1, b"2", 9),
    ]


def test_a_range_of_the_buffer(kernels):
    stored, at, reason = kernels.json_tape(b"xx[1]yy", 2, 5, 3)
    assert (np.frombuffer(stored, "<u4").reshape(-1, 4)[:, 1].tolist(), at, reason) == ([2, 3], 5, None)
    for start, stop in ((3, 2), (0, 8), (8, 8)):
        with pytest.raises(ValueError, match="no range"):
            kernels.json_tape(b"xx[1]yy", start, stop, 3)


def test_deep_documents_need_no_stack(kernels):
    data = b"[" * 100_000 + b"]" * 100_000
    assert tape(kernels, data, 100_000)[2] is None
    assert tape(kernels, data, 99_999)[1:] == (99_999, "nested too deep")


def test_the_tape_grows(kernels):
    data = b"[" + b",".join([b"0"] * 10_000) + b"]"
    tokens, _, reason = tape(kernels, data)
    assert (len(tokens), reason, tokens[0][3]) == (10_001, None, 10_001)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_what_python_writes_is_accepted(kernels, value, ascii_only, indent):
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert (tape(kernels, data, 100)[2] is None) == _strict(data)


def _strict(data):
    """Whether the standard library, with its leniencies taken away, reads the document."""

    def refuse(text):
        raise ValueError(text)

    try:
        value = json.loads(data.decode(), parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except ValueError:
        return False
    return not data.startswith(b"\xef\xbb\xbf")


pieces = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b":", b'"', b'"a"', b'"dtype"', b'"shape"', b"1", b"-", b"0", b".5", b"e3", b" ",
     b"\\", b"\\u12", b"\\ud83d\\ude00", b"\\ud83d", b"\xc3\xa9", b"\xff", b"\x00", b"true", b"nul", b"[1,2]", b"{}"]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(pieces, max_size=12).map(b"".join))
@example(b'{"x":{"dtype":"F32","shape":[1,2]}}')
@example(b'{"x":{"dtype":"F32","dtype":"F32"},"y":[],"z":{"dt\\u0079pe":1}}')
def test_twins_agree(twins, data):
    reference, native = (kernels.json_tape(data, 0, len(data), 5) for kernels in twins)
    assert reference == native
    assert (reference[2] is None) == (_strict(data) and _depth(data) <= 5)
    if reference[2] is not None:
        return
    stored = reference[0]
    count = len(stored) // 16
    rows = [kernels.json_records(data, stored, 0, FIELDS) for kernels in twins]
    assert rows[0] == rows[1]
    for index in range(count + 1):
        at, found = np.array([index], np.uint32), []
        for kernels in twins:
            counts, values, codes = np.zeros(1, np.uint64), np.zeros(8, np.uint64), np.zeros(1, np.uint8)
            used, bad = kernels.json_uints(data, stored, at, counts, values)
            kernels.json_words(data, stored, at, (b"a", b"F32"), codes)
            found.append((used, bad, counts.tolist(), values[:used].tolist(), codes.tolist()))
        assert found[0] == found[1]


def _depth(data):
    value = json.loads(data)
    deep, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, (list, dict))]:
        deep += 1
        layer = [inner for item in layer for inner in (item.values() if isinstance(item, dict) else item)]
    return deep


def test_records(kernels):
    data = b'{"w":{"shape":[3],"dtype":"F32"},"bad":7,"odd":{"dtype":1,"more":2,"dtype":3},"none":{}}'
    stored, _, reason = kernels.json_tape(data, 0, len(data), 5)
    assert reason is None
    tokens = np.frombuffer(stored, "<u4").reshape(-1, 4)
    rows = np.frombuffer(kernels.json_records(data, stored, 0, FIELDS), "<u4").reshape(-1, 5)

    def text(index):
        return data[tokens[index, 1] : tokens[index, 2]] if index else None

    assert [[text(index) for index in row] for row in rows.tolist()] == [
        [b"w", b'{"shape":[3],"dtype":"F32"}', b"F32", b"[3]", None],
        [b"bad", b"7", None, None, b"7"],
        [b"odd", b'{"dtype":1,"more":2,"dtype":3}', b"1", None, b"more"],
        [b"none", b"{}", None, None, None],
    ]
    assert kernels.json_records(b"[]", kernels.json_tape(b"[]", 0, 2, 5)[0], 0, FIELDS) == b""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[]", []),
        (b"[0,18446744073709551615]", [0, 2**64 - 1]),
        (b"[18446744073709551616]", None),
        (b"[99999999999999999999999999]", None),
        (b"[-1]", None),
        (b"[-0]", None),
        (b"[1.0]", None),
        (b"[1e3]", None),
        (b"[true]", None),
        (b"[[1]]", None),
        (b'["1"]', None),
        (b"7", None),
        (b"[1,2,3,4]", None),  # no room
    ],
)
def test_uints(kernels, text, expected):
    stored, _, _ = kernels.json_tape(text, 0, len(text), 5)
    counts, values = np.zeros(1, np.uint64), np.zeros(3, np.uint64)
    used, bad = kernels.json_uints(text, stored, np.zeros(1, np.uint32), counts, values)
    assert (bad, values[:used].tolist()) == ((-1, expected) if expected is not None else (0, []))


def test_words(kernels):
    data = b'["F32","F\\u0033","","BF16",5]'
    stored, _, _ = kernels.json_tape(data, 0, len(data), 5)
    codes = np.zeros(7, np.uint8)
    kernels.json_words(data, stored, np.arange(7, dtype=np.uint32), (b"F32", b"BF16"), codes)
    assert codes.tolist() == [ABSENT, 0, ABSENT, ABSENT, 1, ABSENT, ABSENT]


def test_the_extension_does_not_trust_a_tape(twins):
    _, kernels = twins
    random = np.random.default_rng(1)
    for _ in range(500):
        tokens = random.integers(0, 40, (6, 4), np.uint32)
        tokens[:, 0] = random.integers(0, 32, 6)
        stored = tokens.tobytes()
        kernels.json_records(b"[1,2]", stored, 0, FIELDS)
        counts, values, codes = np.zeros(6, np.uint64), np.zeros(4, np.uint64), np.zeros(6, np.uint8)
        kernels.json_uints(b"[1,2]", stored, np.arange(6, dtype=np.uint32), counts, values)
        kernels.json_words(b"[1,2]", stored, np.arange(6, dtype=np.uint32), (b"1",), codes)
    with pytest.raises(ValueError, match="tape"):
        kernels.json_records(b"", b"123", 0, FIELDS)
