"""The kernels in plain C, which a compiler other than GCC and clang gets, compute the same bits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.native.__main__ import ROOT, SOURCES

COMPILER = shutil.which(os.environ.get("CC", "cc"))
EXTENSIONS = re.compile(
    r"__attribute__|__builtin|__asm|__int128|__typeof|__declspec|__forceinline|__restrict|__extension__|\(\{"
    r"|_Pragma|^ *#pragma|__GNUC__|__clang__|_MSC_VER|__x86_64__|__aarch64__|__BYTE_ORDER__|intrin\.h",
    re.M,
)
TESTS = ["tests/binary/kernels", "tests/quant/test_quant_kernels.py", "tests/runtime/test_encoder_kernels.py"]


def test_extensions_of_compilers_are_in_one_header() -> None:
    found = {path.name: EXTENSIONS.findall(path.read_text()) for path in SOURCES.glob("*.[ch]")}
    assert len(found.pop("compiler.h")) > 10
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.long
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to try")
def test_plain_c_computes_the_same_bits(tmp_path: Path) -> None:
    assert COMPILER is not None
    extension = tmp_path / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ["-DHOLDALL_PLAIN_C", "-O1", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared"]
    include = f"-I{sysconfig.get_paths()['include']}"
    command = [COMPILER, *flags, "-Wall", "-Wextra", "-Wvla", "-Werror", include, *map(str, SOURCES.glob("*.c"))]
    subprocess.run([*command, "-o", str(extension)], check=True)
    settings = {**os.environ, "HOLDALL_SANITIZED": str(extension), "PYTHONPATH": os.pathsep.join(sys.path)}
    level = "from tests.native.sanitized import native; print(native.simd_level(), native.__file__)"
    told = subprocess.run([sys.executable, "-c", level], cwd=ROOT, env=settings, capture_output=True, text=True)
    assert told.stdout == f"0 {extension}\n"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "tests.native.sanitized", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(tests, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
