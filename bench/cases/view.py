"""The pages of the viewer in a real browser: a hundred thousand tensors, and a matrix of a gigabyte."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.case import Case, Contender, Run, seconds
from bench.work import Action, work

_STEP = 0.3  # seconds that a step of a page may take
_MEGABYTES = 400  # of memory that a server may take


def cases(run: Run) -> Iterator[Case]:
    """Nothing else does this work, so each is measured alone. The browser is started before the clock."""
    from tests.view.browsing import find_browser

    if find_browser() is None:
        run.skipped.append("the viewer: there is no chromium with its driver here")
        return
    count, side = run.pick(100_000, 5000), run.pick(16384, 2048)
    with run.folder(side * side * 4 + count * 400) as folder:
        many, matrix = str(folder / "many.safetensors"), str(folder / "matrix.safetensors")
        _make_files(many, matrix, count, side)
        rounds = run.pick(3, 1)
        steps = [
            Contender("from the command to the first page", work(first_page, many), [seconds(2.5)]),
            Contender("scroll to the end", work(scroll, many), [seconds(_STEP)]),
            Contender("filter", work(filter_names, many), [seconds(_STEP)]),
        ]
        yield Case(f"View: {count:,} tensors", steps, rounds)
        zooms = [
            Contender("the first heat map", work(first_map, matrix), [seconds(1.5)]),
            Contender("zoom in", work(zoom, matrix), [seconds(_STEP)]),
        ]
        yield Case(f"View: a matrix of {side * side * 4 / 1e6:,.0f} MB", zooms, rounds)
        whole = Contender("both files, with their statistics", work(look_at_both, many, matrix), [seconds(120)])
        yield Case("View: a server below 400 MB", [whole], 1)


def _make_files(many: str, matrix: str, count: int, side: int) -> None:
    import numpy as np

    import holdall

    holdall.save(many, {f"h.{n // 100}.{n % 100}.w": np.full(2, n, np.float32) for n in range(count)})
    values = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    holdall.save(matrix, {"w": values})


class _Session:
    """A browser, and later the command that serves a file."""

    def __init__(self) -> None:
        from tests.view.browsing import Browser

        self._profile = TemporaryDirectory()
        self.browser: Any = Browser(Path(self._profile.name))
        self.process: subprocess.Popen[str] | None = None

    def serve(self, path: str) -> str:
        """Start the command; its address."""
        words = [sys.executable, "-m", "holdall", "view", path, "--no-browser"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> float:
        """End both; the peak of the server's memory in megabytes."""
        found = 0.0
        if self.process is not None:
            status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            found = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
            self.process.terminate()
            self.process.wait()
        self.browser.close()
        self._profile.cleanup()
        return found


def _timed(path: str, page: str, ready: Callable[[Any], object], act: Callable[[Any], object]) -> Action:
    """Time ``act`` on a page that is ready."""
    session = _Session()
    address = session.serve(path)
    session.browser.open(address)
    session.browser.find("#nav a")
    session.browser.open(address.split("?")[0] + page)
    ready(session.browser)
    time.sleep(2)  # what a page loads after it is ready

    def action() -> object:
        act(session.browser)
        _later(session)
        return {}

    return action


_open: list[_Session] = []


def _later(session: _Session) -> None:
    """Close a session after the clock has stopped: at the end of the process."""
    import atexit

    if not _open:
        atexit.register(lambda: [each.close() for each in _open])
    _open.append(session)


def first_page(path: str) -> Action:
    """From the start of the command, imports included, until the treemap is drawn."""
    session = _Session()

    def action() -> object:
        session.browser.open(session.serve(path))
        session.browser.find("#treemap g.slice")
        _later(session)
        return {}

    return action


def _names(browser: Any) -> Any:
    rows = "[...document.querySelectorAll('.ag-pinned-left-cols-container .ag-row')]"
    return browser.run(f"return {rows}.map(row => row.innerText)")


def scroll(path: str) -> Action:
    """To the last row."""
    import holdall

    with holdall.open(path) as model:
        names = list(model)

    def act(browser: Any) -> None:
        browser.run(f"window.dash_ag_grid.getApi('tensors').ensureIndexVisible({len(names) - 1}, 'bottom')")
        browser.wait(lambda: names[-1] in (_names(browser) or ()))

    return _timed(path, "tensors", lambda browser: browser.wait(lambda: _names(browser)), act)


def filter_names(path: str) -> Action:
    """By a pattern, which matches ten names; the pause after typing, of 150 ms, is part of it."""

    def act(browser: Any) -> None:
        browser.run(
            "const field = document.querySelector('#tensors-filter');"
            "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, 'h.1?.5.w');"
            "field.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        browser.wait(lambda: set(_names(browser) or ()) == {f"h.1{n}.5.w" for n in range(10)})

    return _timed(path, "tensors", lambda browser: browser.wait(lambda: _names(browser)), act)


_MAP = "const plot = document.querySelector('#tensor-heat .js-plotly-plot');"


def first_map(path: str) -> Action:
    """From the page of the table to the heat map of the whole matrix."""

    def act(browser: Any) -> None:
        browser.run("document.querySelector('.ag-center-cols-container .ag-row .ag-cell').click()")
        browser.wait(lambda: browser.run(f"{_MAP} return plot && plot.querySelector('.heatmaplayer image')"))

    def ready(browser: Any) -> None:
        browser.wait(lambda: _names(browser))
        browser.find_text("statistics: complete", "#tensors-progress")

    return _timed(path, "tensors", ready, act)


def zoom(path: str) -> Action:
    """To a quarter of what is shown."""

    def ready(browser: Any) -> None:
        browser.find("#tensor-largest table")

    def act(browser: Any) -> None:
        before = browser.find("#tensor-scale").text
        browser.run("document.querySelector('#tensor-in').click()")
        browser.wait(lambda: browser.find("#tensor-scale").text != before)

    return _timed(path, "tensor?row=0", ready, act)


def look_at_both(many: str, matrix: str) -> Action:
    """Both files, one after the other. A server that takes too much memory fails."""

    def action() -> object:
        peaks = []
        for path, page, sign in (
            (many, "tensors", "#tensors-progress .done"),
            (matrix, "tensor?row=0", "#tensor-largest table"),
        ):
            session = _Session()
            address = session.serve(path)
            session.browser.open(address)
            session.browser.find("#treemap g.slice")
            session.browser.open(address.split("?")[0] + page)
            session.browser.find(sign)
            peaks.append(session.close())
        if max(peaks) > _MEGABYTES:
            raise RuntimeError(f"the server took {max(peaks):.0f} MB, more than {_MEGABYTES}")
        return {"server_mb": max(peaks)}

    return action
