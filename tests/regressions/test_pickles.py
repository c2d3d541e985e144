"""What hand-made attacks on pickles have found, one test a case: built in code, and small."""

from __future__ import annotations

import pickle
from struct import pack

import pytest

import holdall
from holdall.binary import kernels
from holdall.errors import FormatError, LimitError
from holdall.format.torch.fast_state_dict import Memo, find_state_dict
from holdall.format.torch.pickle import Machine
from tests.attacks.files import npz
from tests.format.torch.files import checkpoint, legacy, tensor

PROTO = b"\x80\x02"
ORDERED = b"ccollections\nOrderedDict\n"
LARGE = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"  # 2^63 - 1


def text(value: str) -> bytes:
    """The opcodes of a text."""
    return b"X" + pack("<I", len(value)) + value.encode()


def reopen(function: bytes, arguments: bytes, times: int) -> bytes:
    """A checkpoint of a pickle that calls ``function`` with the same arguments again and again."""
    calls = b"h\0h\1R0" * times
    return checkpoint(PROTO + function + b"q\x000" + arguments + b"q\x010" + calls + b"}.")


def uses(value: bytes, times: int) -> bytes:
    """A checkpoint of a dict in which one value is remembered and used again and again."""
    items = b"".join(b"M" + pack("<H", number) + b"h\0" for number in range(times))
    return checkpoint(PROTO + value + b"q\x000}(" + items + b"u.", {"0": bytes(16)})


def tensor_of(rank: int, dim: bytes = b"K\1") -> bytes:
    """The arguments of a tensor of one element, repeated as often as the dims say."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\4tQ"
    return b"(" + storage + b"K\0(" + dim * rank + b"t(" + b"K\0" * rank + b"t\x89Nt"


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


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
PAIRS = b"](" + b"K\0N\x86" * 2000 + b"e\x85"
CALLS = {
    "OrderedDict": (ORDERED, PAIRS),
    "encode": (b"c_codecs\nencode\n", text("a" * 4000) + text("latin1") + b"\x86"),
    "Size": (b"ctorch\nSize\n", b"](" + b"K\1" * 2000 + b"e\x85"),
    "tensor": (REBUILD, tensor_of(1000)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_pay_for_what_they_go_through(name: str) -> None:
    """Five bytes called a function on the same list or text again: 10 seconds of 137 KB, or 400 MB of 121 KB."""
    function, arguments = CALLS[name]
    assert refused(reopen(function, arguments, 500)) == "torch.pickle.size"
    assert not holdall.open(reopen(function, arguments, 20)).tensors


def test_states_pay_for_what_they_set() -> None:
    """Three bytes set the same thousands of attributes again."""
    state = b"}(" + b"".join(text(f"{number:04x}") + b"N" for number in range(2000)) + b"uq\x010"
    pickled = PROTO + ORDERED + b")R" + b"q\x000" + state + b"h\0"
    assert refused(checkpoint(pickled + b"h\1b" * 500 + b".")) == "torch.pickle.size"
    assert len(holdall.open(checkpoint(pickled + b"h\1b" * 5 + b".")).metadata) == 2000


def test_tensors_that_are_used_again_weigh_their_dims() -> None:
    """Four bytes made another tensor of 4,096 dims out of one that is remembered: 650 MB of 37 KB."""
    one = REBUILD + tensor_of(4000) + b"R"
    assert refused(uses(one, 300)) == "torch.pickle.size"
    assert len(holdall.open(uses(one, 20)).tensors) == 20


def test_dims_of_a_tensor_are_not_multiplied_out() -> None:
    """A product of 4,096 dims of 63 bits takes 40 ms, and each of 300 tensors had one."""
    data = uses(REBUILD + tensor_of(4000, LARGE) + b"R", 20)
    with pytest.raises(LimitError, match=r"bytes: about 2\^\d{3} is above"):
        holdall.open(data)
    assert not holdall.verify(data).ok


def test_plain_values_that_are_used_again_are_few() -> None:
    """Sixty-four values for each byte of the pickle made 14 seconds and 490 MB of a megabyte."""
    value = b"](" + b"N" * 20_000 + b"e"
    assert refused(uses(value, 20)) == "torch.pickle.size"
    assert len(holdall.open(uses(value, 6)).metadata) == 6


def test_names_and_texts_that_are_used_again_are_few() -> None:
    """The names of tensors begin with those of all dicts around them."""
    inner = b"](" + b"h\0" * 400 + b"e"
    one = REBUILD + tensor_of(1) + b"Rq\x000"
    long = checkpoint(PROTO + one + b"}" + text("a" * 20_000) + inner + b"s.", {"0": bytes(16)})
    assert refused(long) == "torch.pickle.size"


def test_devices_and_keys_of_storages_are_short() -> None:
    """Each tensor looks its storage up: 22,000 tensors with a key of 400 KB took 15 seconds."""
    assert refused(checkpoint(PROTO + b"ctorch\ndevice\n" + text("a" * 65) + b"\x85R.")) == "torch.pickle.call"
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0" * 1025) + text("cpu") + b"K\4tQ."
    assert refused(checkpoint(PROTO + storage)) == "torch.pickle.call"


def test_long_texts_that_are_equal_are_one() -> None:
    """A key that is there already was compared letter by letter, for each four bytes that set it again."""
    long = text("a" * 300)
    value, _ = Machine(PROTO + long + long + b"\x86.", holdall.Limits()).run(0)
    assert value[0] is value[1]


@pytest.mark.skipif(not kernels.NATIVE, reason="the C kernels are not compiled: the machine reads all of it")
def test_texts_at_the_front_are_decoded_once() -> None:
    """Each use of a name that the kernel had found decoded it anew: 12 seconds for a name of 480 KB."""
    name = text("a" * 300) + b"q\1"
    front = PROTO + b"}q\0" + name + tensor() + b"s."
    found = find_state_dict(front, holdall.Limits())
    assert found is not None
    memo = Memo(found)
    assert memo[1] == "a" * 300
    assert memo[1] is memo[1]


@pytest.mark.parametrize("pad", [0, 1])
def test_old_files_are_read_on_wherever_the_first_bytes_end(pad: int) -> None:
    """The first 64 KiB are looked at first; where they ended between an opcode and its byte, the file was refused."""
    numbers = PROTO + text("a" * pad) + b"0](" + b"K\1" * 40_000 + b"e."
    assert len(holdall.open(legacy(numbers)).metadata) == 40_000


def test_a_deflated_pickle_may_be_half_a_document() -> None:
    """Two megabytes of opcodes of 2.5 KB took a second to open, and a second to verify."""
    half = holdall.Limits().document_bytes // 2
    for size, fine in ((half - 4, True), (half, False)):
        data = npz(("archive/data.pkl", PROTO + b"}" + b"N0" * (size // 2) + b"."), deflate=True)
        if fine:
            assert holdall.open(data).format == "torch"
        else:
            assert refused(data) == "core.limit"


def test_what_real_checkpoints_share_is_read() -> None:
    """Tied weights, the same settings in every group, one device for all: used again, and not too often."""
    tensors = b"".join(text(f"layers.{number}.weight") + b"h\0" for number in range(5000))
    groups = b"](" + b"h\2" * 2000 + b"e"
    settings = b"}(" + text("betas") + b"G?\xec\xcc\xcc\xcc\xcc\xcc\xcdG?\xef\xf7\xce\xd9\x16\x87+\x86" + b"u"
    devices = b"](" + b"ctorch\ndevice\nh\3K\0\x86R" * 3000 + b"e"
    pickled = PROTO + REBUILD + tensor_of(4) + b"Rq\x000" + settings + b"q\x020" + text("privateuseone") + b"q\x030"
    pickled += b"}(" + tensors + text("groups") + groups + text("devices") + devices + b"u."
    with holdall.open(checkpoint(pickled, {"0": bytes(16)})) as model:
        assert len(model.tensors) == 5000
        assert model.metadata["groups"] == [{"betas": (0.9, 0.999)}] * 2000
        assert model.metadata["devices"] == ["privateuseone:0"] * 3000


EMPTY = {  # what is repeated, and what is before and after it
    "lists": (b"", b"]", b""),
    "a list of lists": (b"](", b"]", b"e"),
    "a tuple of dicts": (b"(", b"}", b"t"),
    "tuples in tuples": (b")", b"\x85", b""),
    "tuples of None": (b"(", b"N\x85", b"t"),
    "lists since a mark": (b"(", b"(l", b"t"),
    "dicts since a mark": (b"(", b"(d", b"t"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_pickle_makes_containers_in_proportion_to_its_bytes(name: str) -> None:
    """A megabyte of empty lists took 150 MB and more than two seconds."""
    begin, one, end = EMPTY[name]
    size = 600_000
    for pack_file in checkpoint, legacy:
        data = pack_file(PROTO + begin + one * (size // len(one)) + end + b".")
        with pytest.raises(FormatError, match="lists, tuples and dicts are too many for the pickle") as caught:
            holdall.open(data, format="torch")
        assert caught.value.rule == "torch.pickle.size"
        assert caught.value.offset is not None
        assert caught.value.offset < len(one) * (size / 4 + 131_072) + 500, "no more are made before it is refused"


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_as_many_containers_as_pickle_writes_are_read(protocol: int) -> None:
    """The smallest containers that Python's own writer makes: empty ones, and those of one value."""
    value = {"a": [[] for _ in range(100_000)], "b": [(index,) for index in range(150_000)]}
    assert dict(holdall.open(checkpoint(pickle.dumps(value, protocol))).metadata) == value
