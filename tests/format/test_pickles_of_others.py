"""Pickles of other programs: named by what they would import, which Python's own unpickler is asked for as well."""

import bz2
import collections
import datetime
import decimal
import fractions
import gzip
import io
import lzma
import pathlib
import pickle
import random
import sys
import time
import warnings
import zlib
from types import SimpleNamespace

import joblib
import numpy as np
import pytest

import holdall
from holdall.format.foreign.pickle_names import find_names
from holdall.source import BytesSource


def ask_unpickler(data):
    """The names that Python's unpickler imports, in their order."""
    found = {}

    class Unpickler(pickle._Unpickler):
        def find_class(self, module, name):
            found[f"{module}.{name}"] = None
            return super().find_class(module, name)

    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        Unpickler(stream, encoding="bytes").load()
    return list(found)


def read(data, name="model.pkl"):
    """What holdall says of a file."""
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(BytesSource(data, name))
    return str(caught.value)


def make_value(chance, depth=0):
    kinds = [
        lambda: chance.randrange(-(2**70), 2**70), lambda: chance.random(), lambda: None, lambda: True,
        lambda: "x" * chance.choice([0, 1, 10, 255, 256, 70000]), lambda: b"y" * chance.choice([0, 300, 70000]),
        lambda: "line\nline 'quoted'", lambda: decimal.Decimal("1.5"), lambda: fractions.Fraction(1, 3),
        lambda: datetime.datetime(2020, 1, 2), lambda: pathlib.PurePosixPath("a/b"), lambda: np.arange(5.0),
        lambda: np.float32(2), lambda: collections.OrderedDict(a=1), lambda: {1, 2}, lambda: 1j,
    ]  # fmt: skip
    if depth < 3 and chance.random() < 0.5:
        inner = [make_value(chance, depth + 1) for _ in range(chance.randrange(5))]
        return chance.choice([list, tuple, lambda items: {str(n): item for n, item in enumerate(items)}])(inner * 2)
    return chance.choice(kinds)()


@pytest.mark.parametrize("protocol", range(6))
def test_names_are_those_that_the_unpickler_asks_for(protocol):
    chance = random.Random(protocol)
    for _ in range(150):
        data = pickle.dumps(make_value(chance), protocol)
        if protocol > 1 and chance.random() < 0.2:
            data += pickle.dumps(make_value(chance), protocol)
        found = find_names(BytesSource(data))
        assert (found.whole, found.reached) == (True, len(data))
        assert list(found.names) == ask_unpickler(data)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_called_so_only_when_all_was_walked(protocol):
    assert "is a pickle of plain values. It is no PyTorch checkpoint" in read(pickle.dumps({"a": [1, 2.5]}, protocol))
    arrays = {"a": np.arange(5.0), "b": np.float32(1), "c": {1, 2}}
    assert "is a pickle of plain values and numpy arrays. It" in read(pickle.dumps(arrays, protocol))
    late = {"big": "x" * 70000, "bytes": b"y" * (5 << 20), "list": list(range(300)), "m": decimal.Decimal(1)}
    assert "is a pickle that names decimal.Decimal. It is no" in read(pickle.dumps(late, protocol))


def test_built_in_functions_are_no_plain_values():
    for module, name in (
        ("builtins", "eval"),
        ("__builtin__", "exec"),
        ("numpy", "load"),
        ("collections", "namedtuple"),
    ):
        said = read(f"\x80\x02c{module}\n{name}\n(S'1'\ntR.".encode("latin-1"))
        assert f"names {module}.{name}. It is no" in said
    assert "names a computed name. It" in read(b"\x80\x04\x8c\x02os)\x93.")
    assert "names copyreg.extension 7. It" in read(b"\x80\x02\x82\x07.")
    assert "\x1b" not in read(b"\x80\x02cos\x1b[31m\nsystem\n.")


def test_several_names_are_listed_and_the_rest_is_counted():
    values = [decimal.Decimal(1), fractions.Fraction(1), datetime.date(2020, 1, 1), pathlib.PurePosixPath("a"), 1j]
    said = read(pickle.dumps(values, 2))
    assert "names decimal.Decimal, fractions.Fraction, datetime.date and 1 more. It is no" in said


def test_a_walk_ends_in_time_and_says_how_far_it_came():
    data = pickle.dumps([[number, str(number)] for number in range(400_000)], 2)[:-1]
    data += b"cos\nsystem\na."
    before = time.perf_counter()
    found = find_names(BytesSource(data))
    assert time.perf_counter() - before < 20
    assert not found.whole and not found.stopped and 1 << 20 < found.reached < len(data)
    said = read(data)
    assert f"is a pickle whose first {found.reached:,} bytes are plain values; the rest was not looked at. It" in said


def test_a_damaged_pickle_is_called_so():
    data = pickle.dumps({"a": decimal.Decimal(1), "b": "text"}, 2)
    assert "bytes name decimal.Decimal; then it is damaged, or no pickle. It" in read(data[:-3])


def test_text_that_begins_like_an_old_pickle_is_text():
    for text in (
        b"(hello) world, a text",
        b"I am a text.\nIndeed.",
        b"Nothing. Really nothing",
        b"Some 'text' here.\n.",
    ):
        assert "is text, which begins with" in read(text, "notes.txt")
    assert "is text" in read(pickle.dumps({"a": 1}, 0) + b"and more", "notes.txt")


def test_names_that_are_made_of_remembered_texts():
    """The second class of a module takes the name of the module out of the memo."""
    data = pickle.dumps([datetime.date(2020, 1, 1), "x" * 100, datetime.time(1), datetime.date(2021, 1, 1)], 4)
    assert list(find_names(BytesSource(data)).names) == ["datetime.date", "datetime.time"]


PACKERS = {
    "zlib": zlib.compress, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
}  # fmt: skip


@pytest.mark.parametrize("kind", PACKERS)
def test_compressed_pickles(kind):
    noise = random.Random(1).randbytes(3 << 20)  # beyond every buffer
    data = PACKERS[kind](pickle.dumps({"n": noise, "d": decimal.Decimal(1)}))
    said = read(data)
    assert f"is a pickle compressed with {kind}, as joblib writes them, that names decimal.Decimal. It" in said
    assert ("is compressed with" in read(PACKERS[kind](b"text" * 100))) == (kind not in ("zlib", "lzma"))


def test_a_compressed_bomb_is_unpacked_in_part():
    said = read(zlib.compress(b"\x80\x04]" + b"N0" * (100 << 20)))
    assert "; the rest was not looked at" in said


@pytest.mark.parametrize("compress", [0, 3, ("lzma", 3), ("xz", 3), ("bz2", 3), ("gzip", 3)])
def test_joblib_dumps(tmp_path, compress):
    joblib.dump({"d": decimal.Decimal(1), "a": np.arange(5.0), "b": np.arange(9)}, tmp_path / "m.joblib", compress)
    said = read((tmp_path / "m.joblib").read_bytes(), "m.joblib")
    assert "is a joblib dump" in said and "name decimal.Decimal; then come the bytes of an array" in said
    joblib.dump({"a": np.arange(5.0)}, tmp_path / "m.joblib")
    assert "bytes are plain values and numpy arrays; then" in read((tmp_path / "m.joblib").read_bytes(), "m.joblib")


def test_models_of_scikit_learn(monkeypatch):
    name = "sklearn.linear_model._logistic"  # a pickle holds the name alone, so a class of that name will do
    kind = type("LogisticRegression", (), {"__module__": name})
    monkeypatch.setitem(sys.modules, "sklearn", SimpleNamespace())
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(LogisticRegression=kind))
    for protocol in range(6):
        said = read(pickle.dumps({"big": "x" * 70000, "m": kind()}, protocol))
        assert "names sklearn.linear_model._logistic.LogisticRegression (scikit-learn): save the model with" in said


def test_changed_bytes_never_raise():
    chance = random.Random(7)
    for _ in range(3000):
        data = bytearray(pickle.dumps(make_value(chance), chance.randrange(6)))[: chance.choice([50, 200, 1000])]
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        found = find_names(BytesSource(bytes(data)))
        assert found.reached <= len(data) and not (found.whole and found.stopped)


def load_without_importing(data, kind):
    """The names that an unpickler asks for, none of which is imported; None if it refuses the pickle."""
    found = {}

    class Unpickler(kind):
        def find_class(self, module, name):
            found[f"{module}.{name}"] = None
            return list

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of unknown escapes
            Unpickler(io.BytesIO(data)).load()
    except Exception:  # damaged pickles raise anything
        return None
    return list(found)


ODD = {
    "values below": b"\x80\x02K\x01K\x02cos\nsystem\n.",
    "a mark below": b"\x80\x02(K\x02cos\nsystem\n.",
    "a blank in GET": b"\x80\x04\x8c\x02osp01000\n0\x8c\x06systemp1_001\n0j\xe8\x03\x00\x00g 1001\n\x93.",
    "signs and blanks": b"\x80\x04\x8c\x02osp\t+5 \n0\x8c\x06systemp 07\r\n0g5\ng+7\n\x93.",
    "a zero byte in GET": b"\x80\x04\x8c\x02osp5\n0\x8c\x06systemp6\n0g5\0junk\ng6\n\x93.",
    "escapes of text": b"V\\u006fs\nVsyste\\U0000006d\n\x93.",
    "backslashes of text": b"Vo\\\\u0073\nV\\x41\\n\xe9\n\x93.",
    "escapes of bytes": b"S'\\x6f\\163'\nS\"sys\\\\t\\'\\d\\u0065\\\"m\"\n\x93.",
    "numbers of C": b"I0xBCD\nI010\nI-0x5 \nL-5L\nFinfinity\nF-NaN\ncos\nsystem\n.",
    "numbers of Python": b"I0xBCD\nI 7 \nL-5L\nFinfinity\nF 1_0.5e3 \ncos\nsystem\n.",
}


@pytest.mark.parametrize("what", ODD)
def test_odd_pickles_name_what_an_unpickler_asks_for(what):
    data = ODD[what]
    asked = [names for kind in (pickle.Unpickler, pickle._Unpickler) if (names := load_without_importing(data, kind))]
    assert asked, "no unpickler takes this"
    found = find_names(BytesSource(data))
    assert found.whole and all(list(found.names) == names for names in asked)
    name = asked[0][0] if asked[0][0].isprintable() else ascii(asked[0][0])
    assert f"is a pickle that names {name}. It is no PyTorch checkpoint" in read(data)


def test_whatever_an_unpickler_takes_is_walked_to_its_end():
    chance = random.Random(22)
    numbers = [
        b"1",
        b" 1",
        b"1 ",
        b"+1",
        b"0_1",
        b"01",
        b"-1",
        b"2",
        b"\t2\r",
        b"1\0x",
        b"",
        b"0x1",
        b"1L",
        b"1.5",
        b"nan",
    ]
    texts = [
        b"os",
        b"\\u006fs",
        b"\\x6fs",
        b"\\157s",
        b"a\\",
        b"\\u12",
        b"\xe9",
        b"sys\\tem",
        b"\\\\u0041",
        b"\\U00000041",
    ]
    quotes = [b"'%s'", b'"%s"', b"'%s", b" '%s'", b"%s"]

    def make_opcode():
        number, text = chance.choice(numbers), chance.choice(texts)
        kinds = [
            *[b"V" + text + b"\n"] * 3, *[b"S" + chance.choice(quotes) % text + b"\n"] * 2, b"p" + number + b"\n",
            *[b"g" + number + b"\n"] * 2, chance.choice([b"I", b"L", b"F"]) + number + b"\n", b"(", b"0", b"1", b"2",
            b"t", b"l", b"]", b"\x93", b"\x93", b"\x94", b"q\1", b"h\1", b"c" + text + b"\n" + text + b"\n", b"a", b"N",
        ]  # fmt: skip
        return chance.choice(kinds)

    taken = 0
    for _ in range(30_000):
        data = b"\x80\x04" + b"".join(make_opcode() for _ in range(chance.randrange(1, 9))) + b"."
        for kind in (pickle.Unpickler, pickle._Unpickler):
            asked = load_without_importing(data, kind)
            if asked is not None:
                found = find_names(BytesSource(data))
                assert (found.whole, list(found.names)) == (True, asked), data
                taken += len(asked) > 0
    assert taken > 300
