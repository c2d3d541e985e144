"""Pickles that would run code, with objects allowed and not: nothing that they name is imported or called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdall
from holdall.errors import FormatError, UnsupportedError
from tests.attacks.kit import Attack
from tests.attacks.pickles import PICKLES
from tests.attacks.records import RECORDS

_ROOT = Path(__file__).parents[2]

# Runs in a process of its own, because an audit hook stays. Every module is imported before the hook watches.
_WATCH = """
import sys
from pathlib import Path
import holdall, holdall.format.torch.read, holdall.format.torch.write, holdall.operations.examine
from holdall.errors import FormatError, UnsupportedError
from holdall.testing.damage import exercise

folder = Path(sys.argv[1])
def each(read):
    for path in sorted(folder.glob("*.pt")):
        data = path.read_bytes()
        watching[0] = True
        try:
            read(data)
        except (FormatError, UnsupportedError):
            pass
        finally:
            watching[0] = False

def tolerant(data):
    with holdall.open(data, format="torch") as model:
        exercise(model)
        opened.append(len(model.native.opaque.classes) if model.native.opaque else 0)

watching, opened, seen = [False], [], []
quiet = {"object.__getattr__", "object.__setattr__", "sys._getframe", "marshal.loads", "gc.get_objects", "builtins.id"}
each(tolerant)  # once before, so that what holdall itself imports late is there
each(lambda data: holdall.verify(data, format="torch", level="strict"))
opened.clear()
def hook(event, given):
    if watching[0] and event not in quiet:
        seen.append((event, str(given)[:200]))

sys.addaudithook(hook)
each(tolerant)
each(lambda data: holdall.open(data, format="torch", allow_opaque=False))
each(lambda data: holdall.verify(data, format="torch", level="strict"))
print(len(opened), max(opened, default=0), seen[:20])
assert not seen, seen[:20]
assert not {"evil", "posix.system"} & set(sys.modules)
"""


def malicious(folder: Path) -> list[Attack]:
    """The whole collection, as far as it is bytes."""
    attacks = [*PICKLES.attacks("torch", folder), *RECORDS.attacks("torch", folder)]
    return [attack for attack in attacks if isinstance(attack.what, bytes)]


def test_nothing_of_a_sample_is_imported_called_or_opened(tmp_path: Path) -> None:
    watch_readers(tmp_path, malicious(tmp_path)[::10], 10, 2)


@pytest.mark.long
def test_nothing_is_imported_called_or_opened(tmp_path: Path) -> None:
    watch_readers(tmp_path, malicious(tmp_path), 60, 1000)


def watch_readers(tmp_path: Path, attacks: list[Attack], least: int, classes: int) -> None:
    """Let an audit hook watch while all readers see the attacks; ``least`` of them open, one with many ``classes``."""
    files = tmp_path / "files"
    files.mkdir()
    for number, attack in enumerate(attacks):
        (files / f"{number:04}.pt").write_bytes(attack.what)  # type: ignore[arg-type]
    line = [sys.executable, "-c", _WATCH, str(files)]
    ran = subprocess.run(line, capture_output=True, text=True, cwd=_ROOT, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    opened, most = map(int, ran.stdout.split()[:2])
    assert opened > least and most > classes, "the tolerant reader did not get to see the collection"
    assert not (tmp_path / "canary").exists()


def test_the_hook_sees_what_it_must(tmp_path: Path) -> None:
    """Python's own pickle module, in the place of holdall, is caught."""
    files = tmp_path / "files"
    files.mkdir()
    attack = next(each for each in malicious(tmp_path) if each.name == "STACK_GLOBAL, alone")
    (files / "0.pt").write_bytes(attack.what)  # type: ignore[arg-type]
    code = _WATCH.replace("each(tolerant)\n", "import pickle; each(pickle.loads)\n")
    ran = subprocess.run([sys.executable, "-c", code, str(files)], capture_output=True, text=True, cwd=_ROOT)
    assert ran.returncode == 1 and "os.system" in ran.stdout


def test_without_objects_every_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    for attack in PICKLES.attacks("torch", tmp_path):
        with pytest.raises((FormatError, UnsupportedError)):
            holdall.open(attack.what, format="torch", allow_opaque=False)  # type: ignore[arg-type]
    assert not (tmp_path / "canary").exists()


def test_attacks_on_records_are_refused_for_what_they_are(tmp_path: Path) -> None:
    """None of them is merely broken, which would hide what it is about."""
    for attack in RECORDS.attacks("torch", tmp_path):
        found = {finding.rule for finding in holdall.verify(attack.what, format="torch").findings}  # type: ignore[arg-type]
        assert "torch.pickle.broken" not in found, attack.name
