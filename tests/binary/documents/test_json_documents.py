import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdall.binary.documents.json import Document, DocumentError, Duplicate, _build_by_token, breach, decode, encode
from holdall.errors import ContentError

keys = st.text(max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(values, st.booleans())
def test_values_are_the_standard_librarys(value, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    document = decode(data)
    assert document.duplicates == []
    assert repr(document.value) == repr(json.loads(data))
    assert repr(_build_by_token(document.tape)[0]) == repr(document.value)


@settings(deadline=None)
@given(values)
def test_every_value_is_where_offset_says(value):
    data = json.dumps(value).encode()
    document = decode(data)
    for index in range(len(document.tape)):
        path = document.tape.path(index)
        assert document.offset(path) <= document.tape.offset(index) or document.tape.kind(index) == 3
        found, _ = json.JSONDecoder().raw_decode(data.decode(), document.offset(path))
        assert repr(found) == repr(_walk(json.loads(data), document, path))


def _walk(value, document, path):
    from holdall.binary.documents.json import _split_path

    for key, place in _split_path(path):
        value = value[key if key is not None else place]
    return value


def test_the_last_of_equal_keys_wins_and_the_others_are_reported():
    data = b'{"a":1,"b":[{"x":1,"\\u0078":2,"x":3}],"a":{"y":4}}'
    document = decode(data)
    assert document.value == {"a": {"y": 4}, "b": [{"x": 3}]}
    assert document.duplicates == [
        Duplicate("$.b[0].x", data.index(b'"\\u')),
        Duplicate("$.b[0].x", data.rindex(b'"x"')),
        Duplicate("$.a", data.rindex(b'"a"')),
    ]
    assert document.offset("$.a.y") == data.index(b"4")
    assert document.offset("$.b[0].x") == data.index(b"3")


def test_many_duplicates_take_linear_time():
    document = decode(b"{" + b",".join([b'"k":1'] * 50_000) + b"}")
    assert len(document.duplicates) == 49_999


@pytest.mark.parametrize(
    ("data", "offset", "path", "message"),
    [
        (b'{"a":{"b":[1,2,{"x":NaN}]}}', 20, "$.a.b[2].x", "a value is expected, not 'N'"),
        (b'{"a b":[1,tru]}', 10, '$["a b"][1]', "a value is expected"),
        (b'{"a":[1,1e400]}', 8, "$.a[1]", "1e400 is beyond the range of float64"),
        (b"[" + b"9" * 5000 + b"]", 1, "$[0]", "an integer of 5000 digits is too long"),
        (b'{"a":"\\ud800"}', 6, "$.a", "half of a surrogate pair"),
        (b"", 0, "$", "the document ends too early"),
        (b"[" * 129, 128, "$" + "[0]" * 128, "nested deeper than 128"),
    ],
)
def test_errors_say_where(data, offset, path, message):
    with pytest.raises(DocumentError) as caught:
        decode(data)
    assert (caught.value.offset, caught.value.path) == (offset, path)
    assert caught.value.message.startswith(message)
    assert isinstance(caught.value, ValueError)
    assert str(offset) in str(caught.value)


def test_integers_are_exact_and_depth_is_the_callers():
    assert decode(b"123456789012345678901234567890").value == 123456789012345678901234567890
    deep = b"[" * 5000 + b"]" * 5000
    value = decode(deep, depth=5000).value
    for _ in range(4999):
        (value,) = value
    assert value == []
    assert isinstance(decode(memoryview(b"[1]")), Document)


@pytest.mark.parametrize("path", ["$.b", "$.a[3]", "$.a.b", "a", "$..a", "$[0]"])
def test_paths_that_lead_nowhere(path):
    with pytest.raises(KeyError):
        decode(b'{"a":[1,2]}').offset(path)


def nest(levels, wrap):
    value = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_what_is_encoded_is_decoded_up_to_the_depth(wrap):
    deepest = nest(128, wrap)
    assert breach(deepest) is None
    assert decode(encode(deepest)).value == deepest
    deeper = wrap(deepest)
    assert breach(deeper) == "nested deeper than 128"
    with pytest.raises(ContentError, match="JSON cannot hold the value: nested deeper than 128"):
        encode(deeper)
    with pytest.raises(DocumentError, match="nested deeper than 128"):
        decode(json.dumps(deeper).encode())
    assert breach(nest(3, wrap), 2) == "nested deeper than 2"


@given(values)
def test_encoding_gives_the_value_back(value):
    assert decode(encode(value)).value == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["\ud800"], "half of a surrogate pair"),
        ({"a": ["\ud800"]}, "half of a surrogate pair"),
        ({"\ud800": 1}, "half of a surrogate pair"),
        ([float("inf")], "inf is not a number of JSON"),
        ({1: 2}, "the key 1 is not text"),
        ([10**5000], "an integer of 16610 bits is too long"),
        (b"", "JSON holds no bytes"),
    ],
)
def test_what_json_cannot_hold_is_refused(value, said):
    assert said in (breach(value) or "")
    with pytest.raises(ContentError, match="JSON cannot hold the value"):
        encode(value)


def test_integers_are_encoded_up_to_the_length_that_is_decoded():
    longest = (1 << 14_284) - 1
    assert decode(encode(longest)).value == longest
    assert breach(longest + 1) is not None


def test_a_key_that_comes_twice_is_refused_where_keys_are_unique():
    text = b'{"a": {"b": 1, "c": 2, "b": 3}}'
    assert [twice.path for twice in decode(text).duplicates] == ["$.a.b"]
    with pytest.raises(DocumentError) as caught:
        decode(text, unique=True)
    assert (caught.value.offset, caught.value.message, caught.value.path) == (23, "a key comes twice", "$.a.b")
    assert decode(b'{"a": {"b": 1}, "b": 2}', unique=True).value == {"a": {"b": 1}, "b": 2}
