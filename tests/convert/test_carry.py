"""Carrying an original along, and restoring it: byte for byte or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from safetensors import numpy as oracle

import holdall
from holdall import oinf
from holdall.errors import ContentError, FormatError, UnsupportedError
from holdall.model.metadata import SKELETON
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.convert.skeleton import find_skeleton

W = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
LARGE = np.random.default_rng(1).integers(0, 256, (5 << 20) + 3, np.uint8)  # more than any buffer
CARRIERS = [name for name, found in holdall.formats().items() if found.carries]


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """An OINF file with much that no other format has a place for."""
    model = oinf.model(
        {
            "w": W,
            "large": LARGE,
            "q": oinf.TensorSpec(np.arange(-4, 5), "i4"),
            "scaled": oinf.TensorSpec(np.arange(6, dtype=np.int8), quant=oinf.QuantParams([0.5])),
            "later": oinf.Uninitialized("f32", (3, 4)),
            "none": np.zeros((0, 3), np.float32),
        },
        sizevars={"B": 4},
        metadata={"mode": "fast", "n": 300, "grid": np.arange(4, dtype=np.int16)},
    )
    holdall.save(tmp_path / "rich.oinf", model, fsync=False)
    return tmp_path / "rich.oinf"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("format", CARRIERS)
def test_every_carrier_gives_the_original_back(rich: Path, tmp_path: Path, format: str) -> None:
    before = _sha256(rich)
    report = holdall.convert(rich, tmp_path / "x", format=format, carry=True, fsync=False)
    assert report.lossless
    back = tmp_path / "back.oinf"
    if format == "oinf":
        assert _sha256(tmp_path / "x") == before
        return
    assert (report.carried, report.skeleton_bytes > 0) == ("oinf", True)
    assert holdall.verify(tmp_path / "x").ok
    done = holdall.restore(tmp_path / "x", back, fsync=False)
    assert (done.restored, done.checked, done.lossless) == ("bytes", True, True)
    assert _sha256(back) == before


@pytest.mark.parametrize("format", CARRIERS)
def test_the_hashes_in_the_carrier_are_those_of_the_tensors(rich: Path, tmp_path: Path, format: str) -> None:
    holdall.convert(rich, tmp_path / "x", format=format, carry=True, fsync=False)
    with holdall.open(rich) as model, holdall.open(tmp_path / "x") as carrier:
        if format == "oinf":
            return
        skeleton, hashes = find_skeleton(carrier)
        for row, bond in enumerate(skeleton.bonds):
            raw = bytes(model[bond.name].raw()) if model[bond.name].has_data else b""
            assert hashes[32 * row : 32 * row + 32] == blake3(raw).digest(), bond.name


def test_what_travels_is_said(rich: Path, tmp_path: Path) -> None:
    report = holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    fates = {loss.name: loss.fate for loss in report.losses}
    assert fates == {"q": "opaque", "later": "carried", "n": "carried", "grid": "carried", "sizevars": "carried"}
    loaded = oracle.load_file(tmp_path / "x.safetensors")
    assert loaded["w"].tobytes() == W.tobytes()
    assert loaded["q"].dtype == np.uint8
    with holdall.open(tmp_path / "x.safetensors") as model:
        assert model.sizevars == {"B": 4}  # answered by the carried original


@pytest.mark.parametrize(
    "change",
    [
        {"cast": "bf16"},
        {"transpose": ["w"]},
        {"rename": ["s/w/x/"]},
        {"names": {"w": "x"}},
        {"include": ["w"]},
        {"exclude": ["w"]},
        {"metadata": {"a": "b"}},
        {"quantize": "k4"},
        {"dequantize": True},
        {"shorten_names": True},
    ],
)
def test_carrying_goes_with_no_change(rich: Path, tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError, match="--carry keeps the original as it is"):
        holdall.convert(rich, tmp_path / "x.mcf", carry=True, **change)
    assert not (tmp_path / "x.mcf").exists()


def test_carrying_needs_a_place_and_one_original(rich: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no place in which an original"):
        holdall.convert(rich, tmp_path / "x.gptrsten", carry=True)
    with pytest.raises(UnsupportedError, match="merged or split"):
        holdall.convert([rich, rich], tmp_path / "x.safetensors", carry=True)
    with pytest.raises(UnsupportedError, match="merged or split"):
        holdall.convert(rich, tmp_path / "x", format="safetensors", split=100, carry=True)


def test_a_writer_option_that_changes_values_is_refused(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.safetensors", {"w": W})
    target, wishes = tmp_path / "m.mcf", {"options": {"cast": "bf16"}}
    with pytest.raises(ContentError, match="options change what is to be carried: tensor 'w' goes from f32 to bf16"):
        holdall.convert(tmp_path / "m.safetensors", target, carry=True, **wishes)
    assert not target.exists()


def _change(path: Path, tensors: dict[str, Tensor | None]) -> None:
    """Write ``path`` again with other tensors and the same metadata, as another program would."""
    with holdall.open(path, mmap=False) as model:
        kept = {**dict(model), **tensors}
        content = Model([t for t in kept.values() if t is not None], metadata=dict(model.metadata))
        holdall.save(path, content, format=model.format, fsync=False)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (Tensor.of("w", W + 1), "'w' has other values"),
        (Tensor.of("w", W.T.copy()), r"'w' is f32\[8, 40\], but was carried as f32\[40, 8\]"),
        (Tensor.of("w", W.astype(np.float16)), r"'w' is f16\[40, 8\], but was carried as f32\[40, 8\]"),
        (None, "'w' is gone"),
    ],
)
def test_what_was_changed_since_is_named_and_nothing_written(
    rich: Path, tmp_path: Path, now: Tensor | None, message: str
) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    _change(tmp_path / "x.safetensors", {"w": now})
    (tmp_path / "back.oinf").write_bytes(b"old")
    with pytest.raises(ContentError, match=rf"{message}.*--with-changes"):
        holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf")
    assert (tmp_path / "back.oinf").read_bytes() == b"old"


def test_a_tensor_that_was_added_since_is_named(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    _change(tmp_path / "x.safetensors", {"more": Tensor.of("more", W)})
    with pytest.raises(ContentError, match="'more' was added since"):
        holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf")


def test_one_flipped_bit_is_noticed_in_any_tensor(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    with holdall.open(tmp_path / "x.safetensors") as model:
        places = {tensor.name: tensor.offset for tensor in model.tensors if tensor.nbytes}
    for name, offset in places.items():
        data = bytearray((tmp_path / "x.safetensors").read_bytes())
        data[offset] ^= 1
        (tmp_path / "bad.safetensors").write_bytes(data)
        with pytest.raises(ContentError, match=f"{name!r} has other values"):
            holdall.restore(tmp_path / "bad.safetensors", tmp_path / "back.oinf")


def test_aliases_are_looked_at_too(tmp_path: Path) -> None:
    """The original stores tied weights once, the carrier twice: a change of either is one."""
    torch = pytest.importorskip("torch")
    weight = torch.arange(12, dtype=torch.float32)
    torch.save({"a": weight, "b": weight}, tmp_path / "m.pt")
    before = _sha256(tmp_path / "m.pt")
    holdall.convert(tmp_path / "m.pt", tmp_path / "x.safetensors", carry=True)
    holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.pt")
    assert _sha256(tmp_path / "back.pt") == before
    for name in "ab":
        holdall.convert(tmp_path / "m.pt", tmp_path / "x.safetensors", carry=True)
        _change(tmp_path / "x.safetensors", {name: Tensor.of(name, np.zeros(12, np.float32))})
        with pytest.raises(ContentError, match=f"{name!r} has other values"):
            holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.pt")


def test_compressed_arrays_are_looked_at_too(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "m.npz", a=W, b=W[0])
    before = _sha256(tmp_path / "m.npz")
    holdall.convert(tmp_path / "m.npz", tmp_path / "x.oinf", carry=True)
    holdall.restore(tmp_path / "x.oinf", tmp_path / "back.npz")
    assert _sha256(tmp_path / "back.npz") == before
    _change(tmp_path / "x.oinf", {"a": Tensor.of("a", W + 1)})
    with pytest.raises(ContentError, match="'a' has other values"):
        holdall.restore(tmp_path / "x.oinf", tmp_path / "back.npz")


def test_with_changes_writes_the_form_around_new_values(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    _change(tmp_path / "x.safetensors", {"w": Tensor.of("w", W + 1), "more": Tensor.of("more", W[0])})
    report = holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf", with_changes=True)
    assert report.restored == "content"
    assert report.changes == ["tensor 'w' has other values", "tensor 'more' was added since"]
    assert holdall.verify(tmp_path / "back.oinf", level="strict").ok
    with holdall.open(tmp_path / "back.oinf") as back:
        assert np.array_equal(back["w"].numpy(), W + 1)
        assert np.array_equal(back["more"].numpy(), W[0])
        assert np.array_equal(back["large"].numpy(), LARGE)
        assert back.sizevars == {"B": 4}
        assert back.metadata.kind("n") == "u16"
        assert not back["later"].has_data
        assert isinstance(back["scaled"].native, oinf.QuantParams)
        assert (str(back["q"].dtype), back["q"].numpy().tolist()) == ("i4", list(range(-4, 5)))


def test_with_changes_takes_other_types_of_plain_tensors_only(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    _change(tmp_path / "x.safetensors", {"w": Tensor.of("w", W.astype(np.float16)), "large": None})
    report = holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf", with_changes=True)
    assert [(loss.name, loss.fate) for loss in report.losses] == [("large", "left out")]
    assert report.lossless is False
    with holdall.open(tmp_path / "back.oinf") as back:
        assert str(back["w"].dtype) == "f16"
        assert np.array_equal(back["w"].numpy(), W.astype(np.float16))
    _change(tmp_path / "x.safetensors", {"q": Tensor.of("q", np.zeros(3, np.float32))})
    with pytest.raises(ContentError, match=r"'q' is f32.*cannot be turned into i4"):
        holdall.restore(tmp_path / "x.safetensors", tmp_path / "no.oinf", with_changes=True)


def test_with_changes_is_exact_where_there_are_none(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    report = holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf", with_changes=True)
    assert report.restored == "bytes"
    assert _sha256(tmp_path / "back.oinf") == _sha256(rich)


def test_an_original_is_handed_on_when_asked_to(rich: Path, tmp_path: Path) -> None:
    before = _sha256(rich)
    holdall.convert(rich, tmp_path / "a.safetensors", carry=True)
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.gguf", carry=True)
    report = holdall.convert(tmp_path / "b.gguf", tmp_path / "c.weights", carry=True)
    assert report.carried == "oinf"
    holdall.restore(tmp_path / "c.weights", tmp_path / "back.oinf")
    assert _sha256(tmp_path / "back.oinf") == before


def test_a_changed_carrier_hands_nothing_on(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "a.safetensors", carry=True)
    _change(tmp_path / "a.safetensors", {"w": Tensor.of("w", W.T.copy())})
    with pytest.raises(ContentError, match=r"cannot be handed on: tensor 'w' is f32\[8, 40\]"):
        holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.oinf", carry=True)


def test_convert_never_hands_on_unasked(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W}, metadata={"n": 1})
    holdall.convert(tmp_path / "m.oinf", tmp_path / "a.safetensors", carry=True)
    for target in ("b.safetensors", "b.oinf", "b.gguf"):
        report = holdall.convert(tmp_path / "a.safetensors", tmp_path / target)
        assert (
            "the carried oinf original is not in the target: holdall restore makes it from the source" in report.changes
        )
        with holdall.open(tmp_path / target) as model:
            assert not any(key.startswith("holdall.") for key in model.metadata)
            assert np.array_equal(model["w"].numpy(), W)


def test_opaque_tensors_get_their_type_back_at_the_next_hop(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "a.safetensors", carry=True)
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.gguf", carry=True)
    report = holdall.convert(tmp_path / "b.gguf", tmp_path / "c.oinf")
    with holdall.open(tmp_path / "c.oinf") as model:
        assert (str(model["q"].dtype), model["q"].shape) == ("i4", (9,))
        assert model["q"].numpy().tolist() == list(range(-4, 5))
        assert np.array_equal(model["large"].numpy(), LARGE)
    assert report.checked
    ways = r".* Ways out with holdall convert: --cast large=i16, --exclude, --carry"
    with pytest.raises(ContentError, match=rf"gguf cannot hold 3 tensors: .*'q' i4\[9\] \(no i4\){ways}"):
        holdall.convert(tmp_path / "b.gguf", tmp_path / "d.gguf")


def test_opaque_bytes_that_were_changed_are_not_given_a_type(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "a.safetensors", carry=True)
    _change(tmp_path / "a.safetensors", {"q": Tensor.of("q", np.zeros(5, np.uint8))})
    with pytest.raises(FormatError, match="tensor 'q', which carries i4"):
        holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.oinf")
    assert not (tmp_path / "b.oinf").exists()


def test_a_file_without_an_original_says_so(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W})
    with pytest.raises(ContentError, match="carries no original to restore; holdall convert --carry"):
        holdall.restore(tmp_path / "m.oinf", tmp_path / "x.oinf")


def test_a_copy_is_the_original_and_both_commands_say_so(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.safetensors", {"w": W})
    report = holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", carry=True)
    said = (
        "is safetensors already: copied as it is, and there is nothing to carry or to restore: the copy is the original"
    )
    assert report.changes == [said]
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    with pytest.raises(ContentError, match="Into the same format it writes a copy, which is the original"):
        holdall.restore(tmp_path / "b.safetensors", tmp_path / "c.safetensors")


def test_a_damaged_skeleton_is_an_error_not_a_crash(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    data = bytearray((tmp_path / "x.safetensors").read_bytes())
    at = data.index(SKELETON.encode()) + 200
    data[at] = ord("A") if data[at] != ord("A") else ord("B")
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="skeleton"):
        holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf")


def test_restore_does_not_replace_unless_it_may(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    with pytest.raises(FileExistsError, match="not to be replaced"):
        holdall.restore(tmp_path / "x.safetensors", rich, clobber=False)
    dry = holdall.restore(tmp_path / "x.safetensors", tmp_path / "back.oinf", dry_run=True)
    assert (dry.size, dry.lossless) == (rich.stat().st_size, None)
    assert not (tmp_path / "back.oinf").exists()
