"""Malicious checkpoints: refused naming the global, with nothing executed."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import shutil
import struct
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, LimitError
from tests.format.torch.files import Bomb, checkpoint, legacy, named, tensor, touch

F32 = np.arange(4, dtype=np.float32).tobytes()


def refused(data: bytes, rule: str, *words: str) -> FormatError:
    """Without objects allowed, open refuses ``data`` by ``rule``, saying ``words``; verify says the same."""
    with pytest.raises(FormatError) as caught:
        holdall.open(data, format="torch", allow_opaque=False)
    assert caught.value.rule == rule, caught.value
    for word in words:
        assert word in caught.value.message
    report = holdall.verify(data, format="torch", level="structure", allow_opaque=False)
    assert rule in [finding.rule for finding in report.findings]
    return caught.value


@pytest.mark.parametrize("wrap", [checkpoint, legacy], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch {}",), "posix.system"),
        (builtins.eval, ("open('{}', 'w')",), "eval"),
        (builtins.exec, ("open('{}', 'w')",), "exec"),
        (subprocess.call, (["touch", "{}"],), ".call"),
        (builtins.getattr, (os, "system"), "getattr"),
        (builtins.__import__, ("os",), "__import__"),
        (shutil.rmtree, ("{}",), "shutil.rmtree"),
    ],
    ids=["system", "eval", "exec", "subprocess", "getattr", "import", "rmtree"],
)
def test_calls_are_refused_by_name_and_not_made(wrap, protocol, function, arguments, name, tmp_path):
    trace = tmp_path / "trace"
    filled = tuple(a.format(trace) if isinstance(a, str) else a for a in arguments if a is not os)
    for content in ({"w": Bomb(function, *filled)}, [[Bomb(function, *filled)]], Bomb(function, *filled)):
        error = refused(wrap(pickle.dumps(content, protocol)), "torch.pickle.global", name)
        assert error.offset is not None and error.offset > 0
    assert not trace.exists()


def test_the_offset_is_that_of_the_global():
    pickled = named(b"cos\nsystem\n(X\x01\x00\x00\x00xtR")
    data = checkpoint(pickled)
    assert refused(data, "torch.pickle.global", "os.system").offset == data.index(b"cos\nsystem")


def test_nested_reduce(tmp_path):
    trace = tmp_path / "trace"
    inner = Bomb(os.system, touch(trace))
    refused(checkpoint(pickle.dumps({"w": Bomb(os.path.join, inner, "x")}, 2)), "torch.pickle.global", "posixpath.join")
    # allowed functions with other calls as their arguments
    ordered = b"ccollections\nOrderedDict\n(cos\nsystem\n(X\x01\x00\x00\x00xtRtR"
    refused(checkpoint(named(ordered)), "torch.pickle.global", "os.system")
    refused(checkpoint(named(b"ccollections\nOrderedDict\n(K\x01tR")), "torch.pickle.call", "OrderedDict")
    refused(checkpoint(named(b"(K\x01K\x02t)R")), "torch.pickle.call", "tuple is called")
    refused(checkpoint(named(b"ctorch\nFloatStorage\n)R")), "torch.pickle.call", "torch.FloatStorage")
    refused(checkpoint(named(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR")), "torch.pickle.call")


@pytest.mark.parametrize(
    ("opcodes", "rule"),
    [
        (b"}}(X\x0c\x00\x00\x00__setstate__cos\nsystem\nub", "torch.pickle.global"),
        (b"}}(X\x09\x00\x00\x00__class__K\x01ub", "torch.pickle.call"),  # BUILD on a plain dict
        (b"]}(X\x01\x00\x00\x00aK\x01ub", "torch.pickle.call"),  # BUILD on a list
        (b"ccollections\nOrderedDict\n}(X\x08\x00\x00\x00__init__K\x01ub", "torch.pickle.call"),  # on the class itself
        (b"ccollections\nOrderedDict\n)R(K\x01K\x02tb", "torch.pickle.call"),  # a tuple as the state
        (tensor() + b"}(X\x04\x00\x00\x00dataK\x01ub", "torch.pickle.call"),  # on a tensor
        (b"(cos\nsystem\n", "torch.pickle.global"),
        (b"(ios\nsystem\n", "torch.pickle.object"),
        (b"ccollections\nOrderedDict\n)\x81", "torch.pickle.object"),  # NEWOBJ
        (b"(o", "torch.pickle.object"),
        (b"\x82\x01", "torch.pickle.opcode"),  # EXT1
        (b"Pxyz\n", "torch.pickle.opcode"),  # PERSID
        (b"I1\n", "torch.pickle.opcode"),
    ],
)
def test_state_and_class_tricks(opcodes, rule):
    refused(checkpoint(named(opcodes), {"0": F32}), rule)


def test_attributes_of_an_ordered_dict_are_kept_beside_it_and_set_on_nothing():
    state = b"ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00w" + tensor() + b"u}(X\x05\x00\x00\x00itemsK\x01ub."
    model = holdall.open(checkpoint(b"\x80\x02" + state, {"0": F32}), format="torch")
    assert list(model) == ["w"] and dict(model.metadata) == {"items": 1}


@pytest.mark.parametrize(
    "pid",
    [
        b"X\x07\x00\x00\x00storageQ",
        b"(K\x01K\x02K\x03K\x04K\x05tQ",
        b"(X\x06\x00\x00\x00modulectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ",
        b"(X\x07\x00\x00\x00storagecollections\nOrderedDict\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ",
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ\xff\xff\xff\xfftQ",
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nK\x01X\x03\x00\x00\x00cpuK\x04tQ",
    ],
)
def test_persistent_ids_are_those_of_storages(pid):
    with pytest.raises(FormatError) as caught:
        holdall.open(checkpoint(named(pid), {"0": F32}), format="torch")
    assert caught.value.rule in ("torch.pickle.call", "torch.pickle.opcode", "torch.pickle.global")


def test_a_storage_is_no_value_by_itself():
    bare = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
    refused(checkpoint(named(bare), {"0": F32}), "torch.pickle.object", "storage")


def test_memo_bombs():
    laughs = b"]q\0(" + b"K\1" * 10 + b"e0"
    for step in range(1, 40):  # ten times ten times ten ...
        laughs += b"]" + b"q" + bytes([step]) + b"(" + (b"h" + bytes([step - 1])) * 10 + b"e0"
    start = time.process_time()
    refused(checkpoint(named(laughs + b"h\x27")), "torch.pickle.size")
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x000" + b"](" + b"h\0" * 100_000 + b"e"
    refused(checkpoint(named(text)), "torch.pickle.size")
    assert time.process_time() - start < 10


def test_memo_indexes_allocate_nothing():
    model = holdall.open(checkpoint(named(b"K\x01r\xff\xff\xff\xff")), format="torch")
    assert dict(model.metadata) == {"w": 1}
    refused(checkpoint(named(b"j\xff\xff\xff\xff")), "torch.pickle.broken", "4294967295")
    refused(checkpoint(named(b"h\x07")), "torch.pickle.broken")


def test_containers_inside_themselves():
    refused(checkpoint(named(b"]q\x00h\x00a")), "core.limit", "nested")
    refused(checkpoint(named(b"}q\x00X\x01\x00\x00\x00ah\x00s")), "core.limit", "nested")
    refused(
        checkpoint(named(b"}q\x00(X\x01\x00\x00\x00ah\x00X\x01\x00\x00\x00b" + tensor() + b"u"), {"0": F32}),
        "core.limit",
    )


def test_depth_and_long_numbers_and_stacks():
    refused(checkpoint(named(b"]" * 5000 + b"a" * 4999)), "core.limit", "nested")
    refused(checkpoint(named(b")" + b"\x85" * 100_000)), "core.limit", "nested")
    refused(checkpoint(named(b"\x8b\xff\xff\xff\x7f")), "torch.pickle.broken", "2147483647")
    refused(checkpoint(named(b"\x8a\x41" + b"\x01" * 65)), "core.limit")
    refused(checkpoint(b"\x80\x02" + b"}" * ((1 << 20) + 10) + b"."), "torch.pickle.size")
    refused(checkpoint(b"\x80\x02" + b"(" * ((1 << 20) + 10) + b"."), "torch.pickle.size")


@pytest.mark.parametrize(
    "pickled",
    [
        b"", b".", b"\x80\x02", b"\x80\x02.", b"\x80\x02NN.", b"\x80\x02N.N", b"\x80\x02(.",
        b"\x80\x02X\xff\xff\xff\xff.", b"\x80\x02\x8d" + b"\xff" * 8 + b".", b"\x80\x02X\x01\x00\x00\x00\xff.",
        b"\x80\x02s.", b"\x80\x02u.", b"\x80\x02R.", b"\x80\x02\x87.", b"\x80\x02}(K\x01u.", b"\x80\x02cos",
        b"\x80\x02G\x00.", b"\x80\x02b.", b"\x80\x02Q.", b"\x80\x02e.", b"\x80\x02K\x01q\x000q\x01.",
    ],
)  # fmt: skip
def test_broken_pickles(pickled):
    with pytest.raises(FormatError) as caught:
        holdall.open(checkpoint(pickled), format="torch")
    assert caught.value.rule.startswith("torch.pickle.")


@pytest.mark.parametrize(
    ("key", "rule"), [(b"]", "value"), (b"}", "value"), (b"]\x85", "object"), (b"\x8a\x08" + b"\x7f" * 8, "object")]
)
def test_keys_are_small_values(key, rule):
    refused(checkpoint(b"\x80\x02}(" + key + b"K\x01u."), f"torch.pickle.{rule}")


@pytest.mark.parametrize(
    ("opcodes", "rule"),
    [
        (tensor("K\x05\x85"), "torch.tensor.range"),
        (tensor(first="K\x03"), "torch.tensor.range"),
        (tensor("K\x02K\x02\x86", "K\x02K\x03\x86"), "torch.tensor.range"),
        (tensor("\x8a\x08" + "\x7f" * 7 + "\x7e\x85"), "torch.tensor.range"),
        (tensor("K\x02\x85", "K\x01K\x01\x86"), "torch.pickle.call"),
        (tensor("J\xff\xff\xff\xff\x85"), "torch.pickle.call"),
        (tensor(strides="J\xff\xff\xff\xff\x85"), "torch.pickle.call"),
        (tensor(elements="K\x05"), "torch.storage.size"),
        (tensor(key="7"), "torch.storage.missing"),
        (tensor(extra="}(X\x04\x00\x00\x00conj\x88u"), "torch.tensor.mirrored"),
    ],
)
def test_tensors_stay_inside_their_storages(opcodes, rule):
    refused(checkpoint(named(opcodes), {"0": F32}), rule)


def test_a_tensor_spread_over_nothing_is_bounded():
    huge = tensor("J\x00\x00\x00\x7fJ\x00\x00\x00\x7f\x86", "K\x00K\x00\x86")
    with pytest.raises(LimitError):
        holdall.open(checkpoint(named(huge), {"0": F32}), format="torch")


def test_legacy_storages():
    whole = named(tensor())
    good = legacy(whole, ["0"], struct.pack("<q", 4) + F32)
    assert holdall.open(good)["w"].numpy().tolist() == [0, 1]
    for tail, rule in (
        (struct.pack("<q", 5) + F32, "torch.storage.size"),
        (struct.pack("<q", -4) + F32, "torch.storage.size"),
        (struct.pack("<q", 4) + F32[:-1], "torch.storage.size"),
        (struct.pack("<q", 4) + F32 + b"x", "torch.legacy.order"),
        (b"\0\0", "torch.legacy.order"),
    ):
        refused(legacy(whole, ["0"], tail), rule)
    refused(legacy(whole, [], b""), "torch.storage.missing")
    refused(legacy(whole, ["0", "0"], struct.pack("<q", 4) + F32), "torch.legacy.order")


# -- zip tricks -------------------------------------------------------------------------------------------------------


def test_zip_names():
    def built(*names: str) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("archive/data.pkl", named(tensor()))
            for name in names:
                archive.writestr(name, F32)
        return out.getvalue()

    assert list(holdall.open(built("archive/data/0"))) == ["w"]
    refused(built("archive/data/0", "../../evil"), "zip.name.path", "evil")
    refused(built("archive/data/0", "/etc/passwd"), "zip.name.path")
    refused(built("archive/data/0", "a\\b"), "zip.name.path")
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = built("archive/data/0", "archive/data/0")
    refused(twice, "zip.name.duplicate", "archive/data/0")
    refused(built("archive/data/0", "other/data.pkl"), "torch.pickle.missing")


def test_zip_overlap_encryption_and_disagreement():
    good = checkpoint(named(tensor()), {"0": F32})
    directory = good.index(b"PK\1\2")
    entries = [at for at in range(directory, len(good) - 3) if good[at : at + 4] == b"PK\1\2"]

    def changed(at: int, data: bytes) -> bytes:
        return good[:at] + data + good[at + len(data) :]

    first_offset = good[entries[0] + 42 : entries[0] + 46]
    refused(changed(entries[2] + 42, first_offset), "zip.local.agree")  # two entries, one place
    refused(changed(entries[0] + 8, b"\x01\x00"), "zip.entry.encrypted")
    refused(changed(entries[0] + 10, b"\x0e\x00"), "zip.entry.method")
    refused(changed(good.index(b"archive/byteorder"), b"archive/byteordeR"), "zip.local.agree")
    refused(changed(entries[2] + 20, struct.pack("<II", 20, 20)), "zip.local.agree")
    refused(changed(entries[2] + 42, struct.pack("<I", 1 << 30)), "zip.entry.range")
    refused(good[:-1], "zip.end.missing")
    refused(b"x" + good, "zip.end.place")
    refused(good[:directory], "zip.end.missing")


def test_zip_bombs():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", named(tensor(elements="J\x00\x00\x00\x08")))
        archive.writestr("archive/data/0", bytes(1 << 29))
    with pytest.raises(LimitError, match="ratio"):
        holdall.open(out.getvalue())
    small = out.getvalue()
    lying = small.replace(struct.pack("<I", 1 << 29), struct.pack("<I", 16))
    assert not holdall.verify(lying).ok


def test_a_wrong_crc_is_found_at_level_full():
    good = checkpoint(named(tensor()), {"0": F32})
    bad = good.replace(F32, F32[:-1] + b"\x41")
    assert holdall.verify(bad, level="structure").ok
    assert [finding.rule for finding in holdall.verify(bad).findings] == ["zip.entry.crc"]


def test_nothing_of_torch_or_pickle_is_imported_to_read(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(checkpoint(named(tensor()), {"0": F32}))
    code = "import sys, holdall; m = holdall.open(sys.argv[1]); m['w'].numpy(); print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert ran.stdout.strip() == "False", ran.stderr


def test_bin_is_read_by_content_and_written_by_name(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    with pytest.raises(holdall.UnsupportedError, match="torch"):
        holdall.save(path, {"w": np.zeros(2)})
    holdall.save(path, {"w": np.zeros(2)}, format="torch")
    assert holdall.open(path).format == "torch"
