"""Hostile names through the commands: nothing that is printed steers a terminal, nothing is extracted elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdall.cli import main
from holdall.format import registry
from tests.attacks.files import good
from tests.attacks.names import HOSTILE, NAMES

READING = (("ls",), ("info",), ("verify", "--level", "strict"), ("explain",))


def steers(text: str) -> set[str]:
    """The letters of ``text`` that are more than letters."""
    return {letter for letter in text if not letter.isprintable() and letter != "\n"}


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="holdall")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize("format", registry.names())
def test_what_is_printed_of_a_hostile_name_is_only_letters(format: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(good("oinf"))
    for number, attack in enumerate(NAMES.attacks(format, tmp_path)):
        path = attack.what
        if isinstance(path, bytes):
            path = tmp_path / f"{number}.bin"
            path.write_bytes(attack.what)
        commands = [(*command, path) for command in READING] + [("diff", path, other), ("diff", other, path)]
        for command in commands:
            for more in ((), ("--json",)):
                code, output = run(*command, *more)
                assert code in (0, 1, 3), (command, output[-500:])
                assert not steers(output), (attack.name, command, steers(output))
                assert max(map(len, output.splitlines()), default=0) < 5_000 or more, (attack.name, command)


@pytest.mark.parametrize("format", registry.names())
def test_what_is_extracted_lies_in_the_folder_that_was_named(format: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    for number, attack in enumerate(NAMES.attacks(format, inside)):
        path = attack.what
        if isinstance(path, bytes):
            inside.mkdir(exist_ok=True)
            path = inside / f"{number}.bin"
            path.write_bytes(attack.what)
        before = {file for file in tmp_path.rglob("*") if file.is_file()}
        out = tmp_path / f"out{number}"
        code, output = run("extract", path, "--all", out)
        assert code in (0, 1, 3) and not steers(output), (attack.name, code, output[-500:])
        made = {file for file in tmp_path.rglob("*") if file.is_file()} - before
        assert all(file.parent == out for file in made), (attack.name, made)
        assert all(file.name.isprintable() and not file.name.startswith((".", "-")) for file in made)


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\0" not in name and "/" not in name and len(name) < 200])
def test_a_file_that_is_itself_called_so(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.safetensors"
    for data in (good("safetensors"), b"", b"\xff" * 16):
        path.write_bytes(data)
        for command in (*READING, ("diff", path)):
            for more in ((), ("--json",)):
                _, output = run(*command, path, *more)
                assert not steers(output), (command, output)
    _, output = run("info", tmp_path / f"missing{name}")
    assert not steers(output), output
