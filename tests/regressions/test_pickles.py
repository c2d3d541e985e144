"""What hand-made attacks on pickles have found, one test a case: built in code, and small."""

from __future__ import annotations

import pytest

import holdall
from holdall.errors import FormatError
from tests.formats.torch.files import checkpoint

PROTO = b"\x80\x02"
ORDERED = b"ccollections\nOrderedDict\n"


def refused(data: bytes) -> str:
    """The rule by which opening ``data`` fails, and verifying it too."""
    with pytest.raises(FormatError) as caught:
        holdall.open(data, format="torch")
    report = holdall.verify(data, format="torch", level="strict")
    assert report.findings[0].rule == caught.value.rule
    return caught.value.rule


def test_keys_of_an_ordered_dict_cannot_be_made_to_collide() -> None:
    """Multiples of 2^61 - 1 have one hash: 25,000 of them, in a list of pairs as Python 2 wrote it, took 4 seconds."""
    pairs = b"".join(
        b"\x8a\x0a" + (number * ((1 << 61) - 1)).to_bytes(10, "little", signed=True) + b"N\x86" for number in (1, 2)
    )
    assert refused(checkpoint(PROTO + ORDERED + b"](" + pairs + b"e\x85R.")) == "torch.pickle.call"
    assert holdall.open(checkpoint(PROTO + ORDERED + b"](K\1N\x86X\1\0\0\0aN\x86e\x85R.")).metadata["a"] is None
