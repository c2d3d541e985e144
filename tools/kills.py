"""Kills writes at random moments: ``python -m tools.kills --kills 2000``, which is ``make soak``.

Each kind of write runs in a forked child on real files, with fsync, and gets SIGKILL at a random moment of the time
that it usually takes. The destination must then be the whole old file or the whole new one, byte for byte, and every
source unchanged; and the next write must remove what the killed one left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from tools.writes import Write, fill, is_part, snapshot, writes

__all__ = ["Tally", "soak"]

SIZE = 2 << 20  # bytes of a tensor: enough for a kill to come at any step of the write


@dataclass(slots=True)
class Tally:
    """How the kills of one write ended."""

    name: str
    milliseconds: float = 0.0  # that the write takes without a kill
    kills: int = 0
    old: int = 0
    new: int = 0
    finished: int = 0  # had ended before the kill
    parts: int = 0  # left a part, which the next write removed
    damage: list[str] = field(default_factory=list)


class _Victim:
    """One write, killed again and again."""

    def __init__(self, write: Write, folder: Path) -> None:
        self.row = Tally(write.name)
        self._write, self._folder = write, folder
        fill(folder, {})
        write.prepare(folder)
        self._old = snapshot(folder)
        write.run(folder)
        assert write.whole(folder), f"{write.name}: does not write a whole file even undisturbed"
        self._new = snapshot(folder)
        self._seconds = sorted(self._time() for _ in range(3))[1]
        self.row.milliseconds = 1000 * self._seconds

    def kill(self, share: float) -> None:
        """Kill the write after ``share`` of its time, and judge what it left."""
        row = self.row
        fill(self._folder, self._old)
        child = self._start()
        time.sleep(share * self._seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        row.kills += 1
        finished = not os.WIFSIGNALED(status)
        # Keeps the share of writes that finish at about one in five, however busy the machine is.
        self._seconds *= 0.9 if finished else 1.03
        there = snapshot(self._folder)
        parts = [name for name in there if is_part(name)]
        settled = {name: data for name, data in there.items() if name not in parts}
        if settled not in (self._old, self._new) or (finished and there != self._new):
            row.damage.append(
                f"{self._write.name}: after {share:.3f} of its time there is {self._describe(settled, parts)}"
            )
            return
        row.finished += finished
        row.old, row.new = row.old + (settled == self._old), row.new + (settled == self._new)
        if parts:
            row.parts += 1
            self._write.run(self._folder)
            if snapshot(self._folder) != self._new:
                row.damage.append(f"{self._write.name}: the next write did not remove {parts}")

    def _describe(self, there: dict[str, bytes | None], parts: list[str]) -> str:
        names = sorted({*there, *self._old, *self._new})
        odd = [name for name in names if there.get(name, 0) not in (self._old.get(name, 0), self._new.get(name, 0))]
        return f"{odd or names} beside {parts}"

    def _start(self) -> int:
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                self._write.run(self._folder)
                os._exit(0)
            os._exit(1)
        return child

    def _time(self) -> float:
        """Return the seconds of a run in a child that is not killed."""
        fill(self._folder, self._old)
        began = time.perf_counter()
        _, status = os.waitpid(self._start(), 0)
        assert status == 0, f"{self._write.name}: fails undisturbed in a child"
        return time.perf_counter() - began


def soak(
    kills: int,
    folder: Path,
    *,
    size: int = SIZE,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Tally]:
    """Kill writes ``kills`` times, each verb as often as the others. ``on_progress`` receives kills done and damage."""
    chance = random.Random(seed)
    victims: dict[str, _Victim] = {}
    damage = 0
    for number, write in enumerate(islice(_turns(size), kills), 1):
        if write.name not in victims:
            victims[write.name] = _Victim(write, folder / str(len(victims)))
        victim = victims[write.name]
        before = len(victim.row.damage)
        victim.kill(chance.uniform(0, 1.05))
        damage += len(victim.row.damage) - before
        on_progress(number, damage)
    return [victim.row for victim in victims.values()]


def _turns(size: int) -> Iterator[Write]:
    """Yield writes without end: verbs take turns, and formats within each verb."""
    verbs: dict[str, list[Write]] = {}
    for write in writes(size):
        verbs.setdefault(write.name.partition(" ")[0], []).append(write)
    turns = [cycle(group) for group in verbs.values()]
    while True:
        for turn in turns:
            yield next(turn)


def _format_table(rows: list[Tally]) -> str:
    total = Tally("together")
    for row in rows:
        for name in ("kills", "old", "new", "finished", "parts"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.damage += row.damage
    lines = [f"{'write':42} {'ms':>6} {'kills':>6} {'old':>6} {'new':>6} {'part left':>10} {'damaged':>8}"]
    for row in (*sorted(rows, key=lambda row: row.name), total):
        duration = f"{row.milliseconds:.0f}" if row.milliseconds else ""
        numbers = f"{row.kills:>6} {row.old:>6} {row.new:>6} {row.parts:>10} {len(row.damage):>8}"
        lines.append(f"{row.name:42} {duration:>6} {numbers}")
    return "\n".join(lines)


def main() -> None:
    """Run it; exit 1 if a file was damaged."""
    parser = argparse.ArgumentParser(description="Kill writes at random moments and look at what they leave.")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began = time.monotonic()

    def show(done: int, damage: int) -> None:
        if done % 100 == 0 or done == asked.kills:
            print(f"{done}/{asked.kills} kills, {time.monotonic() - began:.0f} s, {damage} damaged", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        rows = soak(asked.kills, Path(folder), seed=asked.seed, on_progress=show)
    print(f"\n{_format_table(rows)}")
    damage = [text for row in rows for text in row.damage]
    print("\n".join(damage[:50]) or "nothing was damaged")
    sys.exit(1 if damage else 0)


if __name__ == "__main__":
    main()
