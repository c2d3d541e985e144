"""The pages of the viewer in a real browser: a hundred thousand tensors, a matrix of a gigabyte, a file of 40 GB.

Every server is watched: its peak of memory is what a turn reports, up to the end of what is done on its pages.
"""

from __future__ import annotations

import atexit
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from bench.case import Case, Contender, Run, megabytes, seconds
from bench.work import Action, work

_STEP = 0.3  # seconds that a step of a page may take
_MEMORY = megabytes(400)  # that a server may take
_LARGE = 25_000, 10_000  # rows and columns of the matrices of the largest file: a gigabyte each

Step: TypeAlias = Callable[[Any], object]


def cases(run: Run) -> Iterator[Case]:
    """Nothing else does this work, so each is measured alone. The browser is started before the clock."""
    from tests.view.browsing import find_browser

    if find_browser() is None:
        run.skipped.append("the viewer: there is no chromium with its driver here")
        return
    count, side, large = run.pick(100_000, 5000), run.pick(16384, 2048), run.pick(40, 4)
    with run.folder(side * side * 4 + count * 400) as folder:
        many, matrix, sparse = (str(folder / f"{name}.safetensors") for name in ("many", "matrix", "sparse"))
        _make_files(many, matrix, sparse, count, side, large)
        rounds = run.pick(3, 1)
        steps = [
            Contender("from the command to the first page", work(first_page, many), [seconds(2.5), _MEMORY]),
            Contender("the slowest of seven jumps of the table", work(scroll, many), [seconds(_STEP), _MEMORY]),
            Contender("the slowest of five filters", work(filter_names, many), [seconds(_STEP), _MEMORY]),
            Contender("all of it, with all statistics", work(use_table, many), [seconds(120), _MEMORY]),
        ]
        yield Case(f"View: {count:,} tensors", steps, rounds)
        zooms = [
            Contender("the first heat map", work(first_map, matrix), [seconds(1.5), _MEMORY]),
            Contender(
                "the slowest step from all to single numbers", work(zoom, matrix, side), [seconds(_STEP), _MEMORY]
            ),
            Contender("all of it, with all statistics", work(use_matrix, matrix, side), [seconds(120), _MEMORY]),
        ]
        yield Case(f"View: a matrix of {side * side * 4 / 1e6:,.0f} MB", zooms, rounds)
        sizes = [
            Contender("from the command to the first page", work(first_page, sparse), [seconds(2.5), _MEMORY]),
            Contender("the first heat map of one of its tensors", work(first_map, sparse), [_MEMORY]),
        ]
        yield Case(f"View: a sparse file of {large} GB", sizes, rounds)


def _make_files(many: str, matrix: str, sparse: str, count: int, side: int, large: int) -> None:
    import numpy as np
    from tests.view.sparse import write_sparse

    import holdall

    tensors = {f"h.{n // 100}.{n % 100}.w": np.full(2, n, np.float32) for n in range(count)}
    holdall.save(many, tensors, metadata={f"key {n}": f"value {n}" for n in range(50)})
    values = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    holdall.save(matrix, {"w": values}, metadata={"license": "apache-2.0"})
    write_sparse(Path(sparse), large, *_LARGE)


class _Session:
    """A browser, and later the command that serves a file. Both end with the process, after the clock."""

    def __init__(self) -> None:
        from tests.view.browsing import Browser

        self._profile = TemporaryDirectory()
        self.browser: Any = Browser(Path(self._profile.name))
        self.process: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def serve(self, path: str) -> str:
        """Start the command; its address."""
        words = [sys.executable, "-m", "holdall", "view", path, "--no-browser"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def open(self, path: str, page: str) -> None:
        """Serve a file, and go to one of its pages."""
        address = self.serve(path)
        self.browser.open(address)
        self.browser.find("#nav a")
        self.browser.open(address.split("?")[0] + page)

    def take(self, steps: Iterable[Step]) -> dict[str, float]:
        """The time of the slowest of the steps, and the peak of the server's memory after them."""
        taken = []
        for step in steps:
            began = time.perf_counter()
            step(self.browser)
            taken.append(time.perf_counter() - began)
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        return {"seconds": max(taken), "peak_mb": peak}

    def close(self) -> None:
        """End both."""
        self.browser.close()
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        self._profile.cleanup()


def _timed(path: str, page: str, ready: Step, steps: Iterable[Step]) -> Action:
    """Time steps on a page that is ready."""
    session = _Session()
    session.open(path, page)
    ready(session.browser)
    time.sleep(2)  # what a page loads after it is ready
    return lambda: session.take(steps)


def _watched(path: str, page: str, steps: Iterable[Step]) -> Action:
    """Steps from the start of the command on, for the memory that they take together."""
    session = _Session()

    def action() -> object:
        began = time.perf_counter()
        session.open(path, page)
        return session.take(steps) | {"seconds": time.perf_counter() - began}

    return action


# -- the first page, and the table ------------------------------------------------------------------------------------


def first_page(path: str) -> Action:
    """From the start of the command, imports included, until the page has treemap, metadata and findings."""
    session = _Session()

    def see(browser: Any) -> None:
        browser.open(session.serve(path))
        browser.find("#treemap g.slice")
        browser.find_text("Nothing is wrong", "#findings")
        browser.wait(lambda: re.search("value 0|There is no metadata", browser.text))

    return lambda: session.take([see])


def _list_names(path: str) -> list[str]:
    import holdall

    with holdall.open(path) as model:
        return list(model)


def _see_rows(browser: Any) -> None:
    from tests.view.test_tensors import names

    browser.wait(lambda: names(browser), "the rows")


def _jump(row: int, name: str) -> Step:
    """Scroll to a row; it is there when all rows around it are."""
    from tests.view.test_tensors import names

    def step(browser: Any) -> None:
        browser.run(f"window.dash_ag_grid.getApi('tensors').ensureIndexVisible({row}, 'middle')")
        browser.wait(lambda: name in (names(browser) or ()), f"row {row}")

    return step


def _jumps(path: str) -> list[Step]:
    """To rows near and far, which were not shown before, and to the last."""
    names = _list_names(path)
    last = len(names) - 1
    rows = [30, last // 2, last // 2 + 300, last // 5, last * 4 // 5, last // 100, last]
    return [_jump(row, names[row]) for row in rows]


def _filter(text: str, found: list[str]) -> Step:
    """Set the filter in one go; the pause after typing, of 150 ms, is part of the step."""
    from tests.view.test_tensors import names

    def step(browser: Any) -> None:
        browser.run(
            "const field = document.querySelector('#tensors-filter');"
            "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, arguments[0]);"
            "field.dispatchEvent(new Event('input', {bubbles: true}))",
            text,
        )
        browser.wait(lambda: (names(browser) or [])[:10] == found[:10], f"the rows of {text!r}")

    return step


def _filters(path: str) -> list[Step]:
    """Patterns that find few rows and many, a part of a name, and none."""
    names = _list_names(path)
    patterns = ("h.1?.5.w", "*.7.w", "h.4?.*")
    found = [(pattern, [name for name in names if fnmatch(name, pattern)]) for pattern in patterns]
    return [_filter(*each) for each in (*found, ("9.99.", [name for name in names if "9.99." in name]), ("", names))]


def scroll(path: str) -> Action:
    """The slowest of several jumps in the table."""
    return _timed(path, "tensors", _see_rows, _jumps(path))


def filter_names(path: str) -> Action:
    """The slowest of several filters of the table."""
    return _timed(path, "tensors", _see_rows, _filters(path))


def use_table(path: str) -> Action:
    """The table until all statistics are there, jumps, filters, and the statistics on the treemap."""

    def color(browser: Any) -> None:
        browser.click("#nav a")
        browser.choose("#treemap-by", "std")
        browser.find_text("the standard deviation", "#treemap-key")

    def fill(browser: Any) -> None:
        browser.find_text("statistics: complete", "#tensors-progress")

    return _watched(path, "tensors", [_see_rows, fill, *_jumps(path), *_filters(path), color])


# -- the heat map -----------------------------------------------------------------------------------------------------


def _see_map(top: int, left: int) -> Step:
    from tests.view.test_tensor import wait_for_drawing

    return lambda browser: wait_for_drawing(browser, top, left)


def _open_first(browser: Any) -> None:
    browser.run("document.querySelector('.ag-center-cols-container .ag-row .ag-cell').click()")
    _see_map(0, 0)(browser)


def _see_all(browser: Any) -> None:
    """Wait for what stands around the heat map too."""
    _see_map(0, 0)(browser)
    browser.find("#tensor-largest table")
    browser.find_text("median", "#tensor-facts")


def _press(button: str, top: int, left: int) -> Step:
    def step(browser: Any) -> None:
        browser.run(f"document.querySelector('#tensor-{button}').click()")
        _see_map(top, left)(browser)

    return step


def _zooms(side: int) -> list[Step]:
    """Into the middle until each cell is one number with its text, to the left, and back to all."""
    steps, start, size = [], 0, side
    while size > 16:
        start, size = start + size // 4, size // 2
        steps.append(_press("in", start, start))
    return [*steps, _press("left", start, start - size // 2), _press("whole", 0, 0)]


def first_map(path: str) -> Action:
    """From the table to the heat map of the first tensor, drawn. Of a large file the statistics go on meanwhile."""
    return _timed(path, "tensors", _see_rows, [_open_first])


def zoom(path: str, side: int) -> Action:
    """The slowest of the steps to single numbers and back."""
    return _timed(path, "tensor?row=0", _see_all, _zooms(side))


def use_matrix(path: str, side: int) -> Action:
    """The page of the matrix with all that stands on it, each zoom, and the other ways to pool."""

    def pool(browser: Any) -> None:
        for name in ("mean", "std"):
            browser.choose("#tensor-by", name)
            browser.wait(lambda name=name: browser.find("#tensor-by").text == name)

    return _watched(path, "tensor?row=0", [_see_all, *_zooms(side), pool])
