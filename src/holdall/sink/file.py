"""Plans onto a disk: streamed once, completed, synced, and only then under their real name."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from holdall.errors import ContentError, UnsupportedError
from holdall.payload import Held, Payload, Range
from holdall.plan import Constant, FolderPlan, Late, Placed, Plan, Results, Stream
from holdall.sink.ahead import SMALL, Announced, make_ahead, read_ahead, sources_of
from holdall.sink.digests import HashThreads, RunningTaps
from holdall.sink.output import NEW, Output, blamed, opened
from holdall.sink.part import Part, sync_folder
from holdall.sizes import tuned
from holdall.source import CHUNK, FileSource, contained
from holdall.source.buffers import Buffers

__all__ = ["Progress", "write_file", "write_folder", "write_output"]

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all where known
Approve = Callable[[Path, Results], None]

_ZEROS = memoryview(bytes(tuned(1 << 16)))
_PAGE = 4096  # bytes of a page of memory
_CACHED = tuned(1 << 20)  # bytes that stay in the cache between reading and writing them
_LAG = 3  # chunks whose digests may still be under way
_FILES = 4  # of a folder, written at the same time


def write_file(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    fsync: bool = True,
    progress: Progress | None = None,
    approve: Approve | None = None,
    clobber: bool = True,
) -> None:
    """Write ``plan`` to ``path``. The old file stands until the new one is whole; on any error it stays.

    ``approve`` gets the new file and the results of its taps before it takes the place of the old one, and may raise.
    Without ``clobber`` there must be no old one.
    """
    _refuse_url(path)
    target = Path(os.path.realpath(path))  # a link keeps pointing to the file that is replaced
    old = _status(target, path)
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", os.fspath(path))
    if old is not None and not stat.S_ISREG(old.st_mode):  # a device or a pipe would be replaced by a file
        raise UnsupportedError(f"{os.fspath(path)}: is not a regular file")
    if old is not None and not os.access(target, os.W_OK):  # the folder alone would allow it
        raise PermissionError(errno.EACCES, "is read-only, and would be replaced", os.fspath(path))
    _check_space(target.parent, plan.cursor)
    with Part(target, path) as part:
        output = part.file(fsync)
        if old is not None:
            output.set_mode(stat.S_IMODE(old.st_mode))
        results = _Writer(output, plan, {}, progress).run()
        output.finish()
        _ask(approve, part.path, results, path)
        part.publish(clobber)
    if fsync:
        sync_folder(target.parent, path)


def write_folder(
    path: str | os.PathLike[str],
    plan: FolderPlan,
    *,
    fsync: bool = True,
    progress: Progress | None = None,
    approve: Approve | None = None,
    clobber: bool = True,
) -> None:
    """Write the files of ``plan`` into a fresh folder that gets its name when all of them are whole.

    ``approve`` gets the folder and the results of all taps, as ``"file/tap"``, before that, and may raise.
    """
    _refuse_url(path)
    target = Path(os.path.realpath(path))
    if _status(target, path) is not None and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(errno.EEXIST, "exists already: name a new folder", os.fspath(path))
    least = sum(file.cursor for file in plan.files.values())
    total = None if any(file.size is None for file in plan.files.values()) else least
    _check_space(target.parent, least)
    with Part(target, path) as part:
        crew = _Crew(part.folder(), target, fsync, progress, total)
        folders = {parent for name in plan.files for parent in PurePosixPath(*contained(name)).parents}
        for inside in sorted(folders)[1:]:  # the first is the part itself
            crew.make_folder(inside)
        for wave in _waves(plan):
            crew.write({name: plan.files[name] for name in wave})
        if fsync:
            for inside in folders:
                sync_folder(part.path / inside, path)
        _ask(approve, part.path, crew.results, path)
        part.publish(clobber)
    if fsync:
        sync_folder(target.parent, path)


def _ask(approve: Approve | None, part: Path, results: Results, name: str | os.PathLike[str]) -> None:
    """Show what was written to ``approve``; an error of reading it back speaks of the name that people know."""
    if approve is None:
        return
    try:
        approve(part, results)
    except OSError as error:
        if error.filename is not None and not os.fspath(error.filename).startswith(os.fspath(part)):
            raise  # a source could not be read
        raise blamed(error, name) from error


def _refuse_url(path: str | os.PathLike[str]) -> None:
    from holdall.source.stores import is_url, shown

    if is_url(os.fspath(path)):
        raise UnsupportedError(f"{shown(os.fspath(path))}: URLs can be read, not written")


def write_output(output: Output, plan: Plan) -> None:
    """Carry out ``plan`` on an open, empty file."""
    _Writer(output, plan, {}, None).run()


def _waves(plan: FolderPlan) -> Iterator[list[str]]:
    """The files in order, in groups of which none needs a result of another of the same group."""
    wave: list[str] = []
    for name, file in plan.files.items():
        needs = {need for piece in file.pieces if isinstance(piece, Late) for need in piece.needs}
        needs.update(need for tail in file.tails for need in tail.needs)
        owners = {need[:at] for need in needs for at, letter in enumerate(need) if letter == "/"}
        if not owners.isdisjoint(wave):
            yield wave
            wave = []
        wave.append(name)
    if wave:
        yield wave


class _Crew:
    """Writes the files of a folder, several at the same time; when one fails or is interrupted, all stop."""

    def __init__(self, part: Path, target: Path, fsync: bool, progress: Progress | None, total: int | None) -> None:
        self._part, self._target = part, target
        self._fsync = fsync
        self._progress, self._total = progress, total
        self._known: dict[str, Any] = {}  # results of the files that are written, as "name/tap"
        self._done: dict[str, int] = {}  # bytes, by file
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def results(self) -> Results:
        """The results of all files that are written."""
        return self._known

    def make_folder(self, inside: PurePosixPath) -> None:
        """Make a folder in the part. Here, and not where files are written: there it could come after the end."""
        try:
            (self._part / inside).mkdir()
        except OSError as error:
            raise blamed(error, self._target / inside) from error

    def write(self, files: Mapping[str, Plan]) -> None:
        """Write files of which none needs results of another."""
        pool = ThreadPoolExecutor(min(len(files), _FILES), "holdall-file")
        try:
            members = {name: pool.submit(self._write, name, plan) for name, plan in files.items()}
            for member in wait(members.values(), return_when=FIRST_EXCEPTION).done:
                member.result()
            for name, member in members.items():
                self._known.update({f"{name}/{key}": value for key, value in member.result().items()})
        except BaseException:
            self._stopped = True
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _write(self, name: str, plan: Plan) -> dict[str, Any]:
        """Write one file; returns its results and its size."""
        self._go_on()
        try:
            fd = opened(self._part / name, NEW)
        except OSError as error:
            raise blamed(error, self._target / name) from error
        with Output(fd, self._target / name, self._fsync) as output:
            results = dict(_Writer(output, plan, self._known, partial(self._step, name)).run())
            return {**results, "size": output.finish()}

    def _step(self, name: str, done: int, _: int | None) -> None:
        self._go_on()
        if self._progress is not None:
            with self._lock:
                self._done[name] = done
                self._progress(sum(self._done.values()), self._total)

    def _go_on(self) -> None:
        if self._stopped:
            raise CancelledError


def _status(target: Path, name: str | os.PathLike[str]) -> os.stat_result | None:
    """What is there now; None when nothing is."""
    try:
        return target.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise blamed(error, name) from error


def _check_space(folder: Path, size: int) -> None:
    """A disk that is too full is said at once, not after most of the bytes."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise OSError(errno.ENOSPC, f"{size} bytes are needed and {free} are free", os.fspath(folder))


class _Writer:
    """Carries out one plan on one open file: eager pieces in order, then tails, then late pieces."""

    def __init__(self, output: Output, plan: Plan, known: Mapping[str, Any], progress: Progress | None) -> None:
        self._output = output
        self._plan = plan
        self._results: dict[str, Any] = dict(known)
        self._known = known
        self._progress = progress
        self._taps = RunningTaps(plan)
        self._hashing = HashThreads()
        self._lagging: deque[Future[None]] = deque()
        self._at = 0
        self._batch = bytearray()

    def run(self) -> Mapping[str, Any]:
        """Write everything; returns the results of this plan."""
        plan = self._plan
        lanes = max((source.lanes for source in sources_of(plan)), default=1)
        announced = Announced(plan)
        # Read ahead, in use, and seen by digests that lag: fresh memory costs as much as what is read into it.
        buffers = Buffers(CHUNK, lanes + 2 + _LAG + 1)
        with ThreadPoolExecutor(lanes, "holdall-read") as pool, self._hashing:
            for number, piece in enumerate(plan.pieces):
                self._zeros(piece.offset - self._position)
                match piece:
                    case Constant():
                        self._gather(memoryview(piece.data))
                    case Late():
                        self._zeros(piece.size)
                    case Stream() if piece.size <= SMALL:
                        announced.reach(number)
                        if type(piece.payload) is Held:
                            self._gather(piece.payload.data)
                        else:
                            for chunk in piece.payload.chunks():
                                self._gather(chunk)
                    case Stream():
                        self._flush()
                        self._large(piece.payload, pool, buffers)
                if self._position != piece.offset + piece.size:
                    wrong = f"{self._position - piece.offset} bytes came for a piece of {piece.size} at {piece.offset}"
                    raise ContentError(f"the plan does not hold: {wrong}")
            self._zeros(plan.cursor - self._position)
            self._flush()
            self._finish()
        return {name: result for name, result in self._results.items() if name not in self._known}

    @property
    def _position(self) -> int:
        return self._at + len(self._batch)

    # -- eager pieces -----------------------------------------------------------------------------------------------

    def _gather(self, data: memoryview) -> None:
        if len(data) > CHUNK:
            self._flush()
            self._put(data)
            return
        self._batch += data
        if len(self._batch) >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, bytearray()
            self._put(memoryview(batch))

    def _zeros(self, count: int) -> None:
        while count > 0:
            step = min(count, len(_ZEROS))
            self._gather(_ZEROS[:step])
            count -= step

    def _large(self, payload: Payload, pool: ThreadPoolExecutor, buffers: Buffers) -> None:
        if isinstance(payload, Held):
            for chunk in payload.chunks():
                self._put(chunk)
        elif type(payload) is Range and not payload.source.checked:  # else its bytes are proven in their order
            moved = self._copy_in_kernel(payload)
            rest = Range(payload.source, payload.offset + moved, payload.size - moved)
            for chunk in read_ahead(rest, pool, buffers):
                self._put(chunk)
        else:
            for chunk in make_ahead(payload, pool):
                self._put(chunk)

    def _copy_in_kernel(self, payload: Range) -> int:
        """Copy a range between files where no tap needs the bytes. Returns the bytes copied.

        The kernel moves them where both places lie alike in their pages. Where they do not it is slow: a small buffer
        that stays in the cache is faster.
        """
        if not isinstance(payload.source, FileSource) or self._taps.touching(self._at, payload.size):
            return 0
        if (payload.offset - self._at) % _PAGE:
            return self._copy_by_buffer(payload)
        done = 0
        with payload.source.held() as fd:
            while done < payload.size:
                moved = self._output.copy(fd, payload.offset + done, min(payload.size - done, 8 * CHUNK), self._at)
                if not moved:  # reading the rest finds out why
                    break
                done += moved
                self._advance(moved)
        return done

    def _copy_by_buffer(self, payload: Range) -> int:
        buffer = memoryview(bytearray(min(_CACHED, payload.size)))
        for start in range(0, payload.size, len(buffer)):
            window = buffer[: payload.size - start]
            payload.source.read_into(payload.offset + start, window)
            self._output.write(window, self._at)
            self._advance(len(window))
        return payload.size

    def _put(self, data: memoryview) -> None:
        """Write one chunk while digests of the last few are still being taken: they may lag, and no more than that."""
        jobs = self._taps.jobs(self._at, data)
        if len(data) < SMALL and not self._lagging:
            for job in jobs:
                job()
        elif jobs:
            self._lagging.append(self._hashing.submit(jobs))
        self._output.write(data, self._at)
        while len(self._lagging) > _LAG:
            self._lagging.popleft().result()
        self._advance(len(data))

    def _catch_up(self) -> None:
        """Wait until every digest has seen every byte."""
        while self._lagging:
            self._lagging.popleft().result()

    def _advance(self, count: int) -> None:
        self._at += count
        if self._progress is not None:
            self._progress(self._at, self._plan.size)

    # -- tails and late pieces --------------------------------------------------------------------------------------

    def _finish(self) -> None:
        waiting = {piece.name: piece for piece in self._plan.pieces if isinstance(piece, Late)}
        for tail in self._plan.tails:
            self._zeros(-self._position % tail.align)
            self._flush()
            self._catch_up()
            offset = self._at
            self._taps.end(tail.name, offset)
            self._complete(waiting)
            self._need(tail.name, tail.needs)
            data = tail.make(self._results)
            self._put(memoryview(data))
            self._results[tail.name] = Placed(offset, data)
        self._catch_up()
        self._taps.end(None, self._at)
        self._complete(waiting)
        for late in waiting.values():
            self._need(late.name, late.needs)

    def _complete(self, waiting: dict[str, Late]) -> None:
        """Make every late piece that can be made by now, each as soon as the digests it needs are settled."""
        while True:
            self._settle_taps(waiting)
            ready = [late for late in waiting.values() if all(need in self._results for need in late.needs)]
            if not ready:
                return
            for late in ready:
                data = late.make(self._results)
                assert len(data) == late.size, f"late piece {late.name!r}: {len(data)} bytes, planned {late.size}"
                self._output.write(memoryview(data), late.offset)
                self._results[late.name] = Placed(late.offset, data)
                del waiting[late.name]

    def _need(self, name: str, needs: tuple[str, ...]) -> None:
        missing = [need for need in needs if need not in self._results]
        assert not missing, f"the piece {name!r} needs {missing}, which cannot be known before it is written"

    def _settle_taps(self, waiting: Mapping[str, Late]) -> None:
        """Take the results of the taps whose bytes are all there."""
        for name, running in self._taps.by_name.items():
            complete = running.stop is not None and running.stop <= self._at
            if name in self._results or not complete or any(late.name in waiting for late in running.lates):
                continue
            self._results[name] = running.result(lambda late: self._results[late].data, self._read_back)

    def _read_back(self, start: int, stop: int) -> Iterator[memoryview]:
        buffers = Buffers(min(CHUNK, stop - start))
        while start < stop:
            piece = buffers.take(min(CHUNK, stop - start))
            got = self._output.read_into(piece, start)
            yield piece[:got]
            del piece  # or it would look as if it were kept
            start += got
