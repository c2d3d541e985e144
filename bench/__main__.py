"""Measure holdall and its alternatives side by side: ``python -m bench [--quick] [--only TOPIC ...]``.

A full run keeps docs/benchmarks.json and makes docs/benchmarks.md, its plots and the figures in the README from it.
With --quick, or with some of the topics only, all of that goes to bench/out instead. Files are made under
HOLDALL_BENCH_DIR, or where temporary files go.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import page, record
from bench.case import Run
from bench.cases import TOPICS, cases_of
from bench.figures import verdicts
from bench.measure import measure
from bench.work import ROOT

FAILED = "failed, with the rest of its topic: "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that nothing has gone wrong")
    parser.add_argument("--only", action="append", choices=list(TOPICS), metavar="TOPIC", help=", ".join(TOPICS))
    parser.add_argument("--out", type=Path, help="where the page and the record go, instead of docs or bench/out")
    parser.add_argument("--page", action="store_true", help="measure nothing: make the page from the record again")
    asked = parser.parse_args()
    if asked.page:
        page.write(record.read(page.RECORD), ROOT)
        return 0
    full = not asked.quick and asked.only is None
    where = asked.out or (ROOT if full else ROOT / "bench" / "out")
    with tempfile.TemporaryDirectory(prefix="holdall-bench-", dir=os.environ.get("HOLDALL_BENCH_DIR")) as scratch:
        # Compiled modules are kept, whatever the caller's shell says: starting is not to be what is measured.
        os.environ |= {"PYTHONPYCACHEPREFIX": f"{scratch}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        run, kept = Run(Path(scratch), asked.quick), where / "docs" / "benchmarks.json"
        for found in measure_all(run, asked.only or list(TOPICS)):
            if not full:  # a run that is stopped leaves what it had
                record.write(found, kept)
    record.write(found, kept)
    page.write(found, where)
    if asked.only:
        print("\n".join(page.list_all(found)))
    judged = list(verdicts(found))
    missed = [one for one in judged if not one.holds]
    for one in [] if asked.quick else missed:  # a quick run is too small to say
        print(f"missed: {one.title}: {one.contender}: {page.bar_text(one)}")
    print(f"{len(judged) - len(missed)} of {len(judged)} bars hold; {found.minutes:.1f} minutes; see {where / 'docs'}")
    return int(any(why.startswith(FAILED) for why in found.skipped))


def measure_all(run: Run, topics: list[str]) -> Iterator[record.Record]:
    """Every case of the topics: yields what is known after each of them, and at the end."""
    began = time.monotonic()
    machine = record.describe_machine(run.scratch)
    libraries = record.library_versions()
    results: list[record.Result] = []

    def so_far() -> record.Record:
        minutes = round((time.monotonic() - began) / 60, 1)
        return record.Record(record.today(), run.quick, machine, libraries, minutes, results, run.skipped)

    for number, topic in enumerate(topics, 1):
        try:
            for case in cases_of(topic, run):
                line = Progress(f"[{number}/{len(topics)} {topic}] {case.title}", began)
                results.append(record.result_of(topic, case, measure(case, line.show)))
                line.done()
                yield so_far()
        except RuntimeError as error:  # what a process that failed had to say; the other topics are still worth having
            print(f"{topic}: {error}", file=sys.stderr)
            run.skipped.append(FAILED + topic)
    yield so_far()


class Progress:
    """One line on a terminal that changes; elsewhere a line for every case."""

    def __init__(self, title: str, began: float) -> None:
        self._title, self._began = title, began
        self._live = sys.stderr.isatty()

    def show(self, step: str) -> None:
        """What is going on now."""
        if self._live:
            self._write(f"\r\033[K{self._stamp()} {self._title}: {step}"[:118])

    def done(self) -> None:
        """The case is measured."""
        self._write(f"{chr(13)}\033[K" * self._live + f"{self._stamp()} {self._title}\n")

    def _stamp(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes:02}:{seconds:02}"

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
