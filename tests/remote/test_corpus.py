"""The corpus over HTTP: good, bad and odd files get the same verdicts as on a disk."""

from __future__ import annotations

import pytest

import holdall
from holdall.errors import HoldallError
from tests.golden import golden
from tests.remote.servers import range_server

LARGEST = 4 << 20
FORMATS = ["oinf", "embd", "gptrs", "mcf", "aero"]


def judged(what, home):
    try:
        report = holdall.verify(what, level="strict")
    except (HoldallError, OSError) as error:
        return type(error).__name__
    return report.format, [
        (found.rule, found.offset, found.message.replace(str(home), "")) for found in report.findings
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_judged_alike(format):
    folder = golden(format)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size <= LARGEST]
    with range_server({f"/{path.relative_to(folder)}": path.read_bytes() for path in paths}) as running:
        different = []
        for path in paths:
            if path.suffix in (".json", ".md", ".txt", ".py", ".npy", ".npz") and "aeroset" not in path.name:
                continue  # what is said about the files
            url = f"{running.url}/{path.relative_to(folder)}"
            if judged(path, folder) != judged(url, running.url):
                different.append(url)
        assert not different
