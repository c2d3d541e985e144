"""What `make dist` finds wrong with packages, on small ones; and that packing twice gives the same bytes."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest
from tools.dist import NEEDED, SHIPPED, check_sdist, check_wheel, repack

from tests.house.rooms import PACKAGE

DATA = ["holdall/py.typed", "holdall/profiles/a.json", "holdall/recipes/a.toml", "holdall/viewer/assets/a.css"]
DATA += ["holdall/viewer/assets/a.js"]
GOOD = [*DATA, "holdall/binary/kernels/_native.abi3.so", "holdall-0.1/METADATA"]
TWINS = [name for name in GOOD if not name.endswith(".so")]


def make_wheel(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return path


def make_sdist(path, names, time=1):
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"holdall-0.1/{name}")
            member.size, member.mtime, member.uname, member.mode = 1, time, f"user{time}", 0o644 | time % 2
            archive.addfile(member, io.BytesIO(b"x"))
    return path


@pytest.mark.parametrize(
    ("names", "native", "wrong"),
    [
        (GOOD, True, []),
        (TWINS, False, []),
        (TWINS, True, ["0 compiled modules, not 1"]),
        (GOOD, False, ["1 compiled modules, not 0"]),
        ([*GOOD, "tests/a.py"], True, ["tests/a.py does not belong in it"]),
        ([*GOOD, "holdall/a.h"], True, ["holdall/a.h is a source"]),
        *(
            ([name for name in GOOD if name != lost], True, [f"{pattern} is missing"])
            for lost, pattern in zip(DATA, SHIPPED, strict=True)
        ),
    ],
)
def test_the_content_of_a_wheel_is_checked(tmp_path, names, native, wrong):
    assert check_wheel(make_wheel(tmp_path / "a.whl", names), native=native) == wrong


def test_every_kind_of_file_beside_the_modules_is_asked_for():
    kinds = {path.relative_to(PACKAGE).with_stem("*").as_posix() for path in PACKAGE.rglob("*") if is_data(path)}
    assert kinds - {"*.typed"} == {name.removeprefix("holdall/") for name in SHIPPED[1:]}


def is_data(path):
    code = (".py", ".pyi", ".pyc", ".c", ".h", ".so", ".pyd")
    return path.is_file() and path.suffix not in code


def test_the_content_of_an_sdist_is_checked(tmp_path):
    assert check_sdist(make_sdist(tmp_path / "a.tar.gz", NEEDED)) == []
    wrong = check_sdist(make_sdist(tmp_path / "b.tar.gz", [*NEEDED[1:], "src/a.so"]))
    assert wrong == ["pyproject.toml is missing", "src/a.so was built"]


def test_packing_again_forgets_when_and_by_whom(tmp_path):
    one, other = make_sdist(tmp_path / "a.tar.gz", NEEDED, 1), make_sdist(tmp_path / "b.tar.gz", NEEDED[::-1], 3)
    repack(one, 5)
    repack(other, 5)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        assert {(member.mtime, member.uname, member.mode) for member in archive} == {(5, "", 0o644)}
        assert archive.extractfile(f"holdall-0.1/{NEEDED[0]}").read() == b"x"
