"""Every option of every command with odd values: a usage error or a plain sentence, and nothing else."""

from __future__ import annotations

import click
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import COMMANDS, main

VALUES = [
    "", "0", "-1", "1e400", "nan", "9" * 30, "0x10", "w", "[", "(", "\\", "=", "a=", "=b", "a=b=c", "a=[1,[2,[3]]]",
    "s/(/x/", "s/./x/", "s/a/\\9/", "@missing", "a=@missing", "a=@empty", "a=@bytes", "empty", "bytes", "*=k4", "::0",
    "...", "-99999999999999999999:", "1,2,3,4,5", "é\u202e\x1b", "../x", "tensors=0", "nesting=0", "passes=-1", "null",
]  # fmt: skip
LEFT_OUT = {"--debug", "--install", "--help"}


def cases():
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and not LEFT_OUT & {*option.opts}:
                yield pytest.param(name, option.opts[-1], option.nargs, id=f"{name} {option.opts[-1]}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    holdall.save("m.safetensors", {"w": values, "": np.ones(2, np.float32), "e": np.zeros((0, 2), np.float32)})
    holdall.save("n.oinf", {"w": values + np.float32(0.1)}, metadata={"a": 1})
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b"\xff\x00\x01PK\x03\x04")
    return tmp_path


ARGUMENTS = {
    "convert": ["m.safetensors", "out.aero"], "restore": ["m.safetensors", "out.oinf"],
    "diff": ["m.safetensors", "n.oinf"],
    "quantize": ["m.safetensors", "out.mcf"], "extract": ["m.safetensors", "w"], "repair": ["n.oinf"],
    "embed": ["m.safetensors", "text"], "calibrate": ["m.safetensors", "text"], "demo": ["out"], "completion": ["bash"],
    "formats": [], "from-dataclass": ["json:JSONDecoder", "out.oinf"], "edit": ["n.oinf"],
    "view": ["m.safetensors", "--export", "page.html"], "recipes": [],
}  # fmt: skip


@pytest.mark.parametrize(("command", "option", "count"), list(cases()))
def test_no_value_surprises(folder, command, option, count):
    words = [command, *ARGUMENTS.get(command, ["m.safetensors"]), option]
    for value in VALUES:
        done = CliRunner().invoke(main, [*words, *[value] * max(1, count)], input="text\n")
        assert "should not happen" not in done.output, (value, done.output)
        assert done.exception is None or isinstance(done.exception, SystemExit), (value, done.exception)
        assert done.exit_code in (0, 1, 2, 3), (value, done.output)
