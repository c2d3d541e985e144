"""Measure where there is no network: ``python -m bench.bare WHEELS [--out FOLDER] [--only TOPIC ...] [--quick]``.

The machine has Python, numpy and a C compiler; all else that the topics need is in the folder WHEELS, as wheels. They
are unpacked into a temporary folder, the C extension is built in place, and files are made in memory where there is
room. Headers of Python may lie in WHEELS/include, for a Python that came without.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IN_MEMORY = Path("/dev/shm")
ROOM = 34 * 10**9  # bytes that the topic "cores" takes on sixteen cores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "out")
    parser.add_argument("--only", action="append", metavar="TOPIC")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdall-bare-") as name:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([name, str(ROOT / "src")]),
            "C_INCLUDE_PATH": str(asked.wheels.resolve() / "include"),  # looked into after Python's own folder
        }
        environment.setdefault("HOLDALL_BENCH_DIR", str(_find_room()))
        for wheel in asked.wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(name)
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--force"]
        subprocess.run(build, check=False, cwd=ROOT, env=environment)  # one that was built before will do as well
        kernels = "from holdall.binary.kernels import _native"
        subprocess.run([sys.executable, "-c", kernels], check=True, env=environment)
        topics = [word for topic in asked.only or ["cores"] for word in ("--only", topic)]
        command = [sys.executable, "-m", "bench", *topics, "--out", str(asked.out), *["--quick"] * asked.quick]
        return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def _find_room() -> Path:
    """A folder in memory with enough room, or that of temporary files."""
    if IN_MEMORY.is_dir():
        free = os.statvfs(IN_MEMORY)
        if free.f_bavail * free.f_frsize > ROOM:
            return IN_MEMORY
    return Path(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main())
