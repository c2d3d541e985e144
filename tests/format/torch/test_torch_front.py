"""Tensors that the kernel finds at the front of a pickle are those that the machine alone finds."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdall
from holdall.binary import kernels
from holdall.format.torch import read
from tests.format.torch.files import checkpoint, named, tensor


def pickled(*items: bytes, end: bytes = b"", root: bytes = b"}q\x00") -> bytes:
    """A dict of opcodes, in one batch, and what follows it."""
    return b"\x80\x02" + root + b"(" + b"".join(items) + b"u" + end + b"."


def item(name: str, key: str = "0", value: bytes | None = None) -> bytes:
    stored = name.encode()
    return b"X" + len(stored).to_bytes(4, "little") + stored + (tensor(key=key) if value is None else value)


ORDERED = b"ccollections\nOrderedDict\n)R"
ATTRIBUTE = b"}X\x09\0\0\0_metadata}X\x01\0\0\0vK\x01ssb"
FRONTS = {
    "tensors": pickled(item("a"), item("b", "1"), item("c")),
    "ordered": pickled(item("a"), item("b", "1"), root=ORDERED, end=ATTRIBUTE),
    "then a value": pickled(item("a"), item("b", "1"), end=b"(" + item("n", value=b"K\x05") + item("c") + b"u"),
    "a name again": pickled(item("a"), item("b", "1"), end=b"(" + item("a", value=b"K\x05") + b"u"),
    "a name twice": pickled(item("a"), item("a", "1")),
    "a nested name again": pickled(item("a.b"), end=b"(" + item("a", value=named(tensor(), b"b")[2:-1]) + b"u"),
    "itself": pickled(item("a"), end=b"(" + item("me", value=b"h\x00") + b"u"),
    "what is left over": pickled(item("a"), end=b"K\x01"),
    "what follows": pickled(item("a")) + b"N.",
    "remembered": pickled(item("a", value=tensor() + b"q\x01"), end=b"(" + item("b", value=b"h\x01") + b"u"),
    "remembered anew": pickled(item("a", value=tensor() + b"q\x01"), end=b"(" + item("b", value=b"K\x01q\x00") + b"u"),
    "no such storage": pickled(item("a"), item("b", "7")),
    "not a number": pickled(item("a", "x")),
    "not text": pickled(item("a"), item("b").replace(b"b", b"\xff", 1)),
}


def judged(pickle: bytes) -> Any:
    """The results of opening and verifying."""
    data = checkpoint(pickle, {"0": bytes(16), "1": bytes(range(16)), "x": bytes(16)})
    report = holdall.verify(io.BytesIO(data).getvalue(), format="torch").findings
    try:
        with holdall.open(data, format="torch") as model:
            rows = [(t.name, str(t.dtype), t.shape, t.offset, bytes(t.raw())) for t in model.tensors]
            return rows, [(entry.key, entry.value, entry.kind) for entry in model.metadata.entries], report
    except holdall.FormatError as error:
        return error.rule, error.offset, error.message, report


@pytest.mark.parametrize("name", FRONTS)
def test_the_machine_alone_comes_to_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(FRONTS[name])
    monkeypatch.setattr(read, "find_state_dict", lambda data, limits: None)
    assert judged(FRONTS[name]) == found


@pytest.mark.skipif(not kernels.NATIVE, reason="the C kernels are not compiled: the machine reads all of it")
def test_the_front_is_found() -> None:
    from holdall.format.torch.fast_state_dict import find_state_dict
    from holdall.limits import Limits

    front = find_state_dict(FRONTS["then a value"], Limits())
    assert front is not None
    assert front.refs.names == ["a", "b"]
    assert find_state_dict(FRONTS["then a value"], Limits(metadata_entries=2)) is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_pickles_are_judged_alike(data: st.DataObject) -> None:
    pickle = bytearray(data.draw(st.sampled_from(list(FRONTS.values()))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(pickle) - 1))
        pickle[at] = data.draw(st.one_of(st.sampled_from(b"(t)}KMJXchjqrQRsu."), st.integers(0, 255)))
    found = judged(bytes(pickle))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "find_state_dict", lambda data, limits: None)
        assert judged(bytes(pickle)) == found
