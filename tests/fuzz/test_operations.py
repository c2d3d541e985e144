"""A short run of the operations campaign, and that it misses no command, no option and no verb."""

from __future__ import annotations

import json
import os
import random
import socket
from functools import cache
from pathlib import Path

import click
import pytest
from tools.fuzz.findings import SPENT
from tools.fuzz.operations.cases import OPERATIONS
from tools.fuzz.operations.desk import Desk
from tools.fuzz.operations.guard import Escape, Guard
from tools.fuzz.operations.words import RARE, make_words
from tools.fuzz.operations.workers import run_cases

from holdall.cli import COMMANDS, main


def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    campaign = run_cases(1, range(600), 1, tmp_path / "kept")
    assert campaign.escapes == {}, [path.read_text() for path in (tmp_path / "kept").glob("*.json")]
    assert campaign.cases == 600
    assert len(campaign.summary()["operations"]) > 30
    json.dumps(campaign.summary())


def test_every_command_is_met() -> None:
    assert set(COMMANDS) - set(OPERATIONS) == set(RARE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_met(command: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    seen: set[str] = set()
    found = main.get_command(click.Context(main), command)
    options = [param for param in found.params if isinstance(param, click.Option)]
    for _ in range(300):
        desk = Desk(tmp_path / "desk", chance)
        seen.update(make_words(command, desk, "a", "b", chance))
    assert [option.opts for option in options if not seen & set(option.opts)] == []


@cache
def guard() -> Guard:
    return Guard()  # an audit hook stays for good


def leave_open(desk: Desk) -> None:
    leave_open.kept = os.open(desk.folder, os.O_RDONLY)


def spin(desk: Desk) -> None:
    sum(range(20_000_000))


def resolve(desk: Desk) -> None:
    with socket.socket() as made:
        made.connect_ex(("127.0.0.1", 1))


WRONG = {
    "bait": lambda desk: (desk.base / "bait" / "secret").write_bytes(b""),
    "part": lambda desk: (desk.folder / "out" / ".x.0.holdall.part").write_bytes(b""),
    "file": lambda desk: (desk.folder / "a.npz").write_bytes(b"changed"),
    "event": lambda desk: (desk.base.parent / "elsewhere").write_bytes(b""),
    "descriptors": leave_open,
    "memory": lambda desk: bytes(b"x" * (3 * SPENT)),  # more than the process may have given back meanwhile
    "slow": spin,
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_guard_sees(kind: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", random.Random(1))
    (desk.folder / "a.npz").write_bytes(b"a model")
    desk.output("out/x")

    def call() -> list[Escape]:
        WRONG[kind](desk)
        return []

    found = guard().watch(desk, call, slow=0.05 if kind == "slow" else 60)
    assert kind in {escape.kind for escape in found}
    if kind == "descriptors":
        os.close(leave_open.kept)


def test_the_guard_sees_connections_and_lets_outputs_be(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", random.Random(1))
    desk.output("out/x")

    def call() -> list[Escape]:
        resolve(desk)
        (desk.folder / "out" / "x").write_bytes(b"new")
        return []

    assert [escape.place for escape in guard().watch(desk, call)] == ["socket.connect"]
