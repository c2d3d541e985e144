"""``make fuzz-native TIME=60``: the sanitized extension under hostile arguments, its own tests and the golden files.

The sanitizers end the process at the first finding; the report then follows the words that say which inputs it was.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_HOME = ROOT / "build" / "sanitized"
SOURCES = ROOT / "src" / "holdall" / "binary" / "kernels" / "native"
_SANITIZE = "-fsanitize=address,undefined,float-cast-overflow"
# As in setup.py, but for the optimization: with it compiling takes minutes, and reports are harder to read.
_FLAGS = [
    "-O1",
    "-g",
    "-std=c11",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fPIC",
    "-Wno-psabi",
]
_FLAGS += [_SANITIZE, "-fno-sanitize-recover=undefined,float-cast-overflow", "-fno-omit-frame-pointer"]
_TESTS = (
    "tests/binary/kernels",
    "tests/quant",
    "tests/binary/documents",
    "tests/model/test_ggml.py",
    "tests/runtime/test_encoder_kernels.py",
)


def build() -> Path:
    """Compile the extension with sanitizers into a separate folder; only changed files are compiled again."""
    _HOME.mkdir(parents=True, exist_ok=True)
    headers = max(path.stat().st_mtime for path in SOURCES.glob("*.h"))
    sources = sorted(SOURCES.glob("*.c"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _object(source, headers), sources))
    extension = _HOME / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run([_compiler(), "-shared", _SANITIZE, *map(str, objects), "-o", str(extension)], check=True)
    return extension


def _object(source: Path, headers: float) -> Path:
    """One source, compiled, unless it was before and neither it nor a header has changed."""
    compiled = _HOME / f"{source.stem}.o"
    if not compiled.exists() or compiled.stat().st_mtime < max(source.stat().st_mtime, headers):
        include = f"-I{sysconfig.get_paths()['include']}"
        command = [_compiler(), *_FLAGS, include, "-c", str(source), "-o", str(compiled)]
        subprocess.run(command, check=True)
    return compiled


def _compiler() -> str:
    return os.environ.get("CC", "gcc")


def environment(extension: Path) -> dict[str, str]:
    """The sanitizers come first in the process, memory is not pooled, and leaks of the interpreter are its own."""
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "HOLDALL_SANITIZED": str(extension),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }


def _library(name: str) -> str:
    command = [_compiler(), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def inside(seconds: float, seed: int) -> int:
    """What runs under the sanitizers: the campaign at each instruction set's turn, then the golden files."""
    from tests.native.sanitized import native  # isort: skip  # before anything of holdall
    from tests.native.campaign import fuzz

    note = Path(os.environ["HOLDALL_SANITIZED"]).with_suffix(".last")
    campaign = fuzz(native, seconds, seed, lambda what: note.write_text(what) and None)
    width = max(map(len, campaign.inputs))
    for name, count in sorted(campaign.inputs.items()):
        print(f"  {name:{width}}  {count:9,} inputs, {campaign.taken[name]:9,} of them taken")
    print(f"  {'all':{width}}  {campaign.inputs.total():9,} inputs")
    for finding in campaign.findings:
        print(f"FINDING {finding}")
    note.write_text("the golden files")
    print(f"  golden files read: {_golden(note)}")
    return 1 if campaign.findings else 0


def _golden(note: Path) -> int:
    from holdall.testing.damage import probe

    folder = ROOT / "tests" / "golden"
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".txt", ".md", ".npy")
    ]
    files = [path for path in files if not path.name.endswith("expected.json") and path.stat().st_size < 1 << 20]
    for path in files:
        note.write_text(str(path))
        probe(path, None)
    return len(files)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments.seconds, arguments.seed)
    extension = build()
    settings = environment(extension)
    levels = [str(level) for level in range(3)]
    for level in levels:
        print(f"SIMD level {level}", flush=True)
        command = [sys.executable, "-m", "tests.native", "--inside", "--seed", str(arguments.seed)]
        command += ["--seconds", str(arguments.seconds / len(levels))]
        if subprocess.run(command, cwd=ROOT, env={**settings, "HOLDALL_SIMD": level}).returncode:
            print(f"FINDING at {extension.with_suffix('.last').read_text()}")
            return 1
    print("the kernels' own tests", flush=True)
    began = time.monotonic()
    tests = [sys.executable, "-m", "pytest", "-p", "tests.native.sanitized", "-p", "no:cacheprovider", "-q", *_TESTS]
    failed = subprocess.run(tests, cwd=ROOT, env=settings).returncode
    print(f"  {time.monotonic() - began:.0f} s, {'failed' if failed else 'no finding'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
