"""``holdall completion``: teach a shell the commands, options, formats and tensor names."""

from __future__ import annotations

import os
from pathlib import Path

import click

from holdall.base.text import clean, file_text
from holdall.cli.output import echo

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog="Example: holdall completion bash --install")
@click.argument("shell", required=False, type=click.Choice(SHELLS))
@click.option("--install", is_flag=True, help="Write it where the shell looks, instead of printing it.")
def completion(shell: str | None, install: bool) -> None:
    """Print the completion script of a SHELL (by default that of $SHELL), or install it."""
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        raise click.UsageError(f"which shell? One of {', '.join(SHELLS)}.")
    script = _make_script(chosen)
    if not install:
        echo(script)
        return
    path = _find_script_path(chosen)
    from holdall.sink.text import write_text

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, script + "\n")
    echo(f"{file_text(path)}: written; it works in new shells")
    if chosen == "zsh":
        echo(f"zsh needs, in ~/.zshrc before compinit: fpath=({clean(str(path.parent))} $fpath)")


def _make_script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from holdall.cli import main

    found = get_completion_class(shell)
    assert found is not None, shell
    # source() would run the shell to ask for its version, which printing a script does not need.
    complete = found(main, {}, "holdall", "_HOLDALL_COMPLETE")
    return (complete.source_template % complete.source_vars()).strip()


def _find_script_path(shell: str) -> Path:
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "holdall",
        "zsh": data / "zsh" / "site-functions" / "_holdall",
        "fish": config / "fish" / "completions" / "holdall.fish",
    }[shell]
