"""Hostile skeletons: what a conversion would carry of its source, written to do harm."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import rmtree

import msgspec
from blake3 import blake3

import holdall
from holdall.binary.compression import compress
from holdall.errors import ContentError
from holdall.model.metadata import HASHES, SKELETON
from holdall.operations.convert.skeleton import Bond, Skeleton, SkeletonFile
from tests.attacks.files import OPTIONS, TENSORS, good
from tests.attacks.kit import Attack, family

SKELETONS = family("skeletons", "a carried skeleton is read like any file: it opens nothing, and lies are refused")

HUGE = 1 << 45


def _text(value: object, size: int | None = None) -> str:
    data = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    letters = urlsafe_b64encode(compress(data, 9)).decode().rstrip("=")
    return f"2.{len(data) if size is None else size}.{blake3(data).hexdigest()}.{letters}"


@cache
def texts() -> dict[str, str]:
    """What to carry, by what is wrong with it."""
    oinf = good("oinf")
    bond = Bond("first", "f32", (2, 3), 24, "first", "f32", (2, 3))
    whole = SkeletonFile("", len(oinf), (), oinf)
    vast = Bond("gone", "u8", (_vast(oinf).holes[0][1],), _vast(oinf).holes[0][1], "", "", ())
    zeros = compress(bytes(100 << 20), 19)
    made: dict[str, object] = {
        "of nothing": Skeleton("oinf", (), (), False),
        "of no format": Skeleton("", (), (whole,), False),
        "of a format that is none": Skeleton("../../evil", (), (whole,), False),
        "of a file that is another": Skeleton("oinf", (), (SkeletonFile("", 8, (), b"PK\3\4abcd"),), False),
        "of two files": Skeleton("oinf", (), (whole, whole), False),
        "of a folder with a path": Skeleton("hf", (), (SkeletonFile("../../etc/passwd", 1, (), b"x"),), True),
        "of a folder with an absolute path": Skeleton("hf", (), (SkeletonFile("/etc/passwd", 1, (), b"x"),), True),
        "of a folder with an escape": Skeleton("hf", (), (SkeletonFile("\x1b[2J", 1, (), b"x"),), True),
        "with a hole past the end": Skeleton("oinf", (bond,), (
            SkeletonFile("", 80, ((72, HUGE, 0),), oinf[:72]),), False),
        "with holes that overlap": Skeleton("oinf", (bond,), (
            SkeletonFile("", 100, ((72, 24, 0), (80, 24, 0)), oinf[:72]),), False),
        "with a hole before the start": Skeleton("oinf", (bond,), (
            SkeletonFile("", 80, ((-8, 16, 0),), oinf[:72]),), False),
        "with a hole of a bond that is not there": Skeleton("oinf", (bond,), (
            SkeletonFile("", 80, ((72, 8, 7),), oinf[:72]),), False),
        "with less than it says": Skeleton("oinf", (), (SkeletonFile("", HUGE, (), oinf),), False),
        "with a hole of terabytes": Skeleton("oinf", (bond,), (SkeletonFile("", HUGE, ((0, HUGE, 0),), b""),), False),
        "with a table larger than its bond": Skeleton("oinf", (bond,), (_vast(oinf),), False),
        "with a table of gigabytes that are not there": Skeleton("oinf", (vast,), (_vast(oinf),), False),
        "with a tensor that is not there": Skeleton("oinf", (Bond("w", "f32", (2,), 8, "missing", "f32", (2,)),), (
            SkeletonFile("", 80, ((72, 8, 0),), oinf[:72]),), False),
        "with a bond larger than its tensor": Skeleton("oinf", (Bond("w", "f32", (7,), 30, "first", "f32", (2, 3)),), (
            SkeletonFile("", 102, ((72, 30, 0),), oinf[:72]),), False),
        "with a hole larger than its bond": Skeleton("oinf", (bond,), (
            SkeletonFile("", 272, ((72, 200, 0),), oinf[:72]),), False),
        "within a skeleton": Skeleton("safetensors", (), (_carrying(),), False),
        "that is a list": [[[[]]]],
        "that is nested deep": b"\x91" * 100_000,
        "of a hundred thousand bonds": Skeleton("oinf", (bond,) * 100_000, (whole,), False),
    }  # fmt: skip
    found = {name: _text(value) for name, value in made.items()}  # compressed, however little remains
    return {
        **found,
        "that is empty": "",
        "that is no text of one": "x",
        "of a version that is none": "\x1b[2J.1.00.KLUv_SAAAQAA",
        "with a size that is none": "2.abc.00.KLUv_SAAAQAA",
        "with a negative size": "2.-1.00.KLUv_SAAAQAA",
        "with a size of 5,000 digits": "2." + "9" * 5000 + ".00.KLUv_SAAAQAA",
        "with a size of terabytes": f"2.{HUGE}.00.KLUv_SAAAQAA",
        "that is a bomb": f"2.{100 << 20}.00." + urlsafe_b64encode(zeros).decode().rstrip("="),
        "that inflates to more than it says": "2.10.00." + urlsafe_b64encode(zeros).decode().rstrip("="),
    }


def _vast(oinf: bytes) -> SkeletonFile:
    """An OINF header whose tables are all of a file of 1.9 GB, none of it kept."""
    from holdall.format.oinf.layout import HEADER

    size = (1900 << 20) & ~7
    fields = vars(HEADER.read(oinf, 0)) | {"n_tensors": 1, "n_metadata": 0, "offset_data": size, "file_size": size}
    return SkeletonFile("", size, ((HEADER.size, size - HEADER.size, 0),), HEADER.pack(**fields))


def _carrying() -> SkeletonFile:
    from tests.format.safetensors.files import build

    data = build({"__metadata__": {SKELETON: Skeleton("oinf", (), (), False).to_text(), HASHES: ""}})
    return SkeletonFile("", len(data), (), data)


_DISGUISE, _HIDDEN = "holdall.Skeleton", "holdall.Hashes"
_LOOKS = ("embd", "gptrs-checkpoint")  # for a configuration or a vocabulary; nothing in their files sums up the key


_HASHES = "A" * 43  # of one tensor, which is how many most of them have


def _carriers(folder: Path, format: str) -> Iterator[Attack]:
    for number, (name, text) in enumerate(texts().items()):
        path = folder / f"{number}"
        options = OPTIONS.get(format, {})
        try:  # under another name, since some writers look into a skeleton
            holdall.save(
                path, TENSORS, format=format, metadata={_DISGUISE: text, _HIDDEN: _HASHES}, fsync=False, **options
            )
        except ContentError:
            continue  # a text that it cannot hold
        if format in _LOOKS:
            path.write_bytes(
                path.read_bytes()
                .replace(_DISGUISE.encode(), SKELETON.encode())
                .replace(_HIDDEN.encode(), HASHES.encode())
            )
        else:
            rmtree(path) if path.is_dir() else path.unlink()
            holdall.save(path, TENSORS, format=format, metadata={SKELETON: text, HASHES: _HASHES}, fsync=False)
        yield Attack(f"a skeleton {name}", path, "never")


for _format, _found in holdall.formats().items():
    if _found.holds.free_text:
        SKELETONS.on(_format)(_carriers)
    else:
        SKELETONS.spare("it has no place for free text, so that it carries none", _format)
