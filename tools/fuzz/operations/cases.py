"""One case: two models, a call of a command or of the library on them, and what it did wrong."""

from __future__ import annotations

import json
import os
import random
import shlex
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import holdall.cli
from holdall.base.urls import find_origin
from holdall.cli import COMMANDS, main
from holdall.errors import HoldallError
from tools.fuzz.operations.desk import Desk
from tools.fuzz.operations.guard import Escape, Guard, judge_text, where
from tools.fuzz.operations.material import carriers, encoders, make_mutant, matrices, names_in, plain_seeds
from tools.fuzz.operations.recipe_files import known_models
from tools.fuzz.operations.verbs import VERBS, Scene
from tools.fuzz.operations.words import RARE, make_words
from tools.fuzz.subjects import SUBJECTS

__all__ = ["OPERATIONS", "Outcome", "run_case"]

_EXITS = (0, 1, 2, 3)  # those that `holdall --help` states
_OFTEN = {"convert": 4, "edit": 2, "extract": 2, "quantize": 2, "api convert": 3, "api save": 2, "api tensors": 2}
# Commands that leave what was there where they fail.
_WHOLE = ("convert", "restore", "quantize", "edit", "repair", "calibrate", "from-dataclass", "view")

_MAKING = ("convert", "quantize", "from-dataclass", "api convert", "api save")  # write whole new models
_AGAIN = "out/again"  # a restored original, with the faults it had
_SOCKETS = ("socket.connect", "socket.getaddrinfo", "socket.bind")
_REPORTS = (".html", ".json", ".md", ".svg", ".txt", "/report", "/a b", "/ü")

OPERATIONS = [
    name
    for name in (*COMMANDS, "completions", *(f"api {verb}" for verb in VERBS))
    if name not in RARE
    for _ in range(_OFTEN.get(name, 1))
]
_DEMO_EVERY = 1999


@dataclass(slots=True)
class Outcome:
    """A case that was run: how the operation ended (``0``, ``1``, ``FormatError``) and what was wrong."""

    number: int
    subject: str
    operation: str
    words: str
    end: str
    escapes: list[Escape]


def run_case(seed: int, number: int, base: Path, guard: Guard) -> Outcome:
    """Run the case of this number. The process stands in the case's folder afterwards."""
    chance = random.Random(f"{seed}/{number}")
    subject = list(SUBJECTS)[number % len(SUBJECTS)]
    operation = "demo" if number % _DEMO_EVERY == _DEMO_EVERY - 1 else chance.choice(OPERATIONS)
    desk = Desk(base, chance)
    os.chdir(desk.folder)
    tempfile.tempdir = str(desk.folder / "tmp")
    a, b = _put_models(desk, subject, operation, chance)
    if operation.startswith("api "):
        return _call_verb(Outcome(number, subject, operation, "", "", []), desk, guard, a, b)
    words = (
        make_words(operation, desk, a, b, chance) if operation != "completions" else _complete_words(a, desk, chance)
    )
    outcome = Outcome(number, subject, operation, shlex.join(words), "", [])
    return _call_command(outcome, desk, guard, words, a, b)


def _put_models(desk: Desk, subject: str, operation: str, chance: random.Random) -> tuple[str, str]:
    pool = plain_seeds(subject)
    if "restore" in operation and chance.random() < 0.9:
        pool = carriers(subject) or pool
    elif operation in ("embed", "calibrate", "api embedder", "api profiles") and chance.random() < 0.9:
        pool = encoders(subject) or pool
    elif "quantize" in operation and chance.random() < 0.8:
        pool = matrices(subject) or pool
    elif operation in ("convert", "api convert") and chance.random() < 0.3:
        desk.is_known = bool(known_models(subject))
        pool = known_models(subject) or pool
    elif chance.random() < 0.1:
        pool = carriers(subject) or pool
    seed = chance.choice(pool)
    desk.names = list(names_in(seed, subject))
    a = desk.put("a", make_mutant(seed, subject, chance), subject)
    match chance.randrange(4):
        case 0:
            return a, desk.put("b", seed, subject)
        case 1:
            return a, desk.put("b", make_mutant(seed, subject, chance), subject)
        case 2:
            return a, desk.put("b", make_mutant(chance.choice(pool), subject, chance), subject)
        case _:
            other = chance.choice(list(SUBJECTS))
            return a, desk.put("b", make_mutant(chance.choice(plain_seeds(other)), other, chance), other)


# -- commands ---------------------------------------------------------------------------------------------------------


def _call_command(outcome: Outcome, desk: Desk, guard: Guard, words: list[str], a: str, b: str) -> Outcome:
    home = str(desk.folder / "home")
    extra = {"HOME": home, "TMPDIR": str(desk.folder / "tmp"), "HOLDALL_DEBUG": None, "COLUMNS": "100"}
    extra |= {"XDG_CONFIG_HOME": None, "XDG_DATA_HOME": None, "HOLDALL_CACHE": f"{home}/cache", "SHELL": "/bin/bash"}
    if outcome.operation == "completions":
        extra |= {
            "_HOLDALL_COMPLETE": "bash_complete",
            "COMP_WORDS": shlex.join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        words = []

    def call() -> list[Escape]:
        with _hear_surprises() as surprises:
            done = CliRunner().invoke(main, words, prog_name="holdall", input="a text\n", env=extra)
        outcome.end = str(done.exit_code)
        return surprises + _judge_result(outcome, done, words)

    guard.allowed = _SOCKETS if _asks_server(words) else ()
    guard.named = any("/etc/" in word for word in words)
    outcome.escapes = guard.watch(desk, call, *([60.0] if outcome.operation in RARE else []))  # RARE have no input
    if outcome.operation in _WHOLE and outcome.end != "0":
        outcome.escapes += _judge_failure(desk, outcome)
    if outcome.operation in _MAKING and outcome.end == "0":
        outcome.escapes += _judge_written(desk, a, b)
    return outcome


def _asks_server(words: list[str]) -> bool:
    """Whether a URL may be a file to read. The only ones with a server are those of --follow, which -- makes files."""
    return "--" in words and any(find_origin(word) for word in words[words.index("--") :])


@contextmanager
def _hear_surprises() -> Iterator[list[Escape]]:
    """Note each exception that the command line calls one that should not happen, with where it comes from."""
    found: list[Escape] = []
    honest = holdall.cli.sentence

    def sentence(error: BaseException, path: str | None = None) -> str:
        text = honest(error, path)
        if not isinstance(error, (HoldallError, OSError)):
            found.append(_describe(error))
        elif "File too large" in text:
            found.append(Escape("growth", "", text))
        return text

    holdall.cli.sentence = sentence
    try:
        yield found
    finally:
        holdall.cli.sentence = honest


def _describe(error: BaseException) -> Escape:
    return Escape(
        "exception", f"{type(error).__name__} {where(error)}", "".join(traceback.format_exception(error))[-3000:]
    )


def _judge_result(outcome: Outcome, done: Any, words: list[str]) -> list[Escape]:
    found: list[Escape] = []
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        found.append(_describe(done.exception))
    elif done.exit_code not in _EXITS:
        found.append(Escape("exit code", str(done.exit_code), done.output[-500:]))
    signs = [sign for sign in ("Traceback (most", "Warning: ") if sign in done.output]
    found += [Escape("python", sign, done.output[-2000:]) for sign in signs]
    if outcome.operation == "completions":
        return found
    if "-" not in words:  # standard output may be a file
        found += judge_text(done.output)
    if "--json" in words and done.exit_code == 0 and outcome.operation != "from-dataclass":
        found += _judge_json(done.stdout)
    return found


def _judge_json(text: str) -> list[Escape]:
    """Each line of ``--json`` is an object, or all of it is."""
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        try:
            for line in text.splitlines():
                json.loads(line, parse_constant=_refuse)
        except ValueError as error:
            return [Escape("json", "", f"{error}: {text[:500]!r}")]
    return []


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _judge_failure(desk: Desk, outcome: Outcome) -> list[Escape]:
    made = [path for path in desk.outputs if path not in (".", "out") and (desk.folder / path).is_file()]
    changed = [path for path in made if not (desk.folder / path).is_symlink() and path.startswith("out/")]
    return [Escape("failed and wrote", outcome.operation, f"{outcome.words}: {changed}")] if changed else []


def _rules_broken(models: tuple[str, ...]) -> set[str]:
    broken: set[str] = set()
    for path in models:
        with suppress(HoldallError, OSError):
            broken |= {finding.rule for finding in holdall.verify(path, level="strict").findings}
    return broken


def _judge_written(desk: Desk, *models: str) -> list[Escape]:
    """What holdall writes passes its own checks."""
    found: list[Escape] = []
    for path in sorted(desk.outputs):
        if path.startswith("out/") and path != _AGAIN and not path.endswith(_REPORTS) and (desk.folder / path).exists():
            try:
                report = holdall.verify(path, level="strict")
            except HoldallError as error:  # such as two formats that both know the file
                found.append(Escape("written", type(error).__name__, f"{path}: {error}"))
                continue
            wrong = {one.rule: one.message for one in report.findings if one.severity == "error"}
            for rule in _rules_broken(models) if wrong else ():  # a file is copied as it is into its own format
                wrong.pop(rule, None)
            found += [Escape("written", rule, f"{path}: {message}") for rule, message in wrong.items()]
    return found


def _complete_words(a: str, desk: Desk, chance: random.Random) -> list[str]:
    """Return the words of a command line to complete; the last is being typed."""
    command = chance.choice(list(COMMANDS))
    last = chance.choice(["", "-", "--", "w", *(name[:2] for name in desk.names), "--limit=", "a"])
    return [
        "holdall",
        command,
        *([a] if chance.random() < 0.9 else []),
        *(["--asset"] if chance.random() < 0.2 else []),
        last,
    ]


# -- the library ------------------------------------------------------------------------------------------------------


def _call_verb(outcome: Outcome, desk: Desk, guard: Guard, a: str, b: str) -> Outcome:
    verb: Callable[[Scene], None] = VERBS[outcome.operation.removeprefix("api ")]
    scene = Scene(desk, a, b, desk.chance)
    guard.named = False
    guard.allowed = ("pickle.find_class",) if outcome.operation == "api pickle" else ()

    def call() -> list[Escape]:
        outcome.end = "0"
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                verb(scene)
            found = [one for one in heard if issubclass(one.category, RuntimeWarning)]
            return [Escape("python", f"{Path(one.filename).name}:{one.lineno}", str(one.message)) for one in found[:1]]
        except (HoldallError, OSError) as error:
            outcome.end = type(error).__name__
            if "File too large" in str(error):
                return [Escape("growth", "", str(error))]
        except Exception as error:
            outcome.end = type(error).__name__
            return [_describe(error)]
        return []

    outcome.escapes = guard.watch(desk, call)
    if outcome.operation in _MAKING and outcome.end == "0":
        outcome.escapes += _judge_written(desk, a, b)
    outcome.words = "; ".join([f"a={a!r} b={b!r}", *scene.said])
    return outcome
