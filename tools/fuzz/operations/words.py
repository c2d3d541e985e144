"""A random command line for a command, made from the parameters that click knows of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from holdall.cli import main
from holdall.format import registry
from holdall.limits import Limits
from holdall.model.dtypes import DTYPES
from holdall.quant.methods import METHODS
from tools.fuzz.operations.desk import Desk
from tools.fuzz.operations.recipe_files import RECIPES, TARGETS
from tools.fuzz.trees import NUMBERS, TEXTS

__all__ = ["FORMATS", "RARE", "make_words", "target"]

FORMATS = registry.names()
RARE = ("demo",)  # converts everything into everything: a second each time

_JUNK = (
    *(text for text in TEXTS if "\0" not in text), "\udcff", "-", "--", "-1", "nan", "inf", "1e999", "9" * 30,
    "x" * 5000, "*", "**", "[", "[!", "(?", "((((a+)+)+)+)$", "=", "==", "a=", "=a", ",", ":", "::", "0:9:0", "...",
    "@", "@nothing", "s/a/", "s/(/x/", "s/a/\\9/", "http://", "https://[", "[" * 3000, '{"a":' * 300, " ", "\t", "1_0",
    "0x10", "٣", "²",
)  # fmt: skip
_DTYPES = (*DTYPES, "f8", "q4_0", "int7")
_GLOBS = ("*", "w*", "?", "*.f32", "a", "encoder.*", "[a-c]*", "none")
_NUMBERS = ("0", "1", "2", "3", "5", "7", "64", "1000", "65536", "4294967296", "18446744073709551616", "1" + "0" * 40)
# Servers that no network has, since -- among the words makes a file to read of them.
_ORIGINS = ("https://h.invalid", "http://h.invalid:1", "host", "https://h.invalid/path", "file://x")
_WIDE = 1 << 16  # the largest alignment that is asked for
_SIZES = ("1", "8B", "16", "64", "1KB", "2 MiB", "5GB", "0", "-1", "1e3", "9" * 40 + "GB", "1.5MB")

# The share of command lines that have an option, where it is not the usual one: few of those that end most calls.
_OFTEN: dict[str | None, float] = {
    **dict.fromkeys(("changed", "allow", "follow", "dry_run", "format", "no_clobber", "top_k"), 0.03),
    **dict.fromkeys(("vocab_path", "config_path"), 0.6),
    **dict.fromkeys(("folder", "rules", "tensors", "recipe"), 0.25),
    "export": 1,  # without it holdall view serves until it is ended
}


def make_words(command: str, desk: Desk, a: str, b: str, chance: random.Random) -> list[str]:
    """Return the words of a call of ``command`` on the models ``a`` and ``b`` of the desk."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    line = _Line(command, desk, a, b, chance)
    options: list[list[str]] = []
    arguments: list[str] = []
    for param in found.params:
        if isinstance(param, click.Argument):
            arguments += line.argument(param)
        elif isinstance(param, click.Option) and (param.required or chance.random() < _how_often(param)):
            options += [line.option(param) for _ in range(chance.choice((1, 1, 2)) if param.multiple else 1)]
    chance.shuffle(options)
    words = [word for option in options for word in option]
    return [command, *words, *arguments] if chance.random() < 0.5 else [command, *arguments, *words]


def _how_often(option: click.Option) -> float:
    """Return the share of command lines that have an option."""
    if option.name in _OFTEN:
        return _OFTEN[option.name]
    return 0.12 if option.is_flag else 0.07


def target(desk: Desk, chance: random.Random, source: str = "", format: str = "") -> str:
    """Return a name to write to: mostly a new file of some format."""
    known = registry.find(format or chance.choice(FORMATS))
    name = chance.choice(("model", "model", "x", "größe", "a b", "model.part", "n" * 200, "-x"))
    suffix = chance.choice(known.suffixes) if known.suffixes else ""
    path = f"out/{name}{suffix}"
    if chance.random() < 0.05:
        path = chance.choice(("out", "out/missing/x.npz", "x", "out/model.", "out/..", ".", source or "x.npz"))
    return desk.output(path)


class _Line:
    def __init__(self, command: str, desk: Desk, a: str, b: str, chance: random.Random) -> None:
        self.command, self.desk, self.a, self.b, self.chance = command, desk, a, b, chance
        formats = TARGETS if desk.is_known and chance.random() < 0.7 else FORMATS
        self.format = "mcf" if command == "quantize" else chance.choice(formats)  # of the target

    def argument(self, param: click.Argument) -> list[str]:
        """Return the words of an argument."""
        chance, name = self.chance, str(param.name)
        if param.nargs == -1:
            needed = name in ("files", "sources")
            count = chance.choice((1, 1, 1, 2)) if needed else chance.choice((0, 1, 1, 2, 3))
        else:
            seldom = name == "other"  # a second model, which holdall view exports no page of
            count = 1 if param.required or chance.random() < (0.05 if seldom else 0.6) else 0
        return [self.value(param) for _ in range(count)]

    def option(self, option: click.Option) -> list[str]:
        """Return the words of an option: its name, and a value unless it is a flag."""
        name = self.chance.choice(option.opts)
        return [name] if option.is_flag else [name, *(self.value(option) for _ in range(option.nargs))]

    def value(self, param: click.Parameter) -> str:
        """Return a value for a parameter: what it asks for as a rule, anything now and then."""
        chance, name = self.chance, str(param.name)
        writes = name in _OUTPUTS or (self.command, name) in _OUTPUTS
        if not writes and chance.random() < 0.03:
            return self.allow_files(name, chance.choice(_JUNK))
        made = _VALUES.get(f"{self.command}.{name}") or _VALUES.get(name)
        if made is not None:
            return made(self)
        if isinstance(param.type, click.Choice):
            return str(chance.choice(list(param.type.choices)))
        if isinstance(param.type, (click.IntRange, click.FloatRange, click.types.IntParamType)):
            return chance.choice(_NUMBERS)
        return chance.choice([*_JUNK, *_GLOBS])

    def allow_files(self, param: str, value: str) -> str:
        """Allow the files that extract writes under the name ``value`` where -o names none, and return it.

        The caller names them: what is called so is replaced, be it the other model.
        """
        if self.command == "extract" and param in _NAMES:
            self.desk.output(".")
            if "/" not in value:
                for suffix in _NAMES[param]:
                    self.desk.output(f"{value}{suffix}")
        return value

    # -- what the values are made of -----------------------------------------------------------------------------------

    def model(self) -> str:
        """Return a file to read: as a rule the first model."""
        chance = self.chance
        if chance.random() < 0.03:
            return chance.choice(("out", ".", "missing", "-", self.desk.side("json"), self.desk.side("npz")))
        return self.a if chance.random() < 0.9 else self.b

    def word(self) -> str:
        """Return a name that is in the model, or might be."""
        return self.chance.choice([*self.desk.names, *self.desk.names, "w", "a", "x"]).replace("\0", "")

    def glob(self) -> str:
        """Return a pattern."""
        return self.chance.choice(_GLOBS) if self.chance.random() < 0.7 else self.word()

    def rename(self) -> str:
        """Return a rule that renames."""
        chance = self.chance
        if chance.random() < 0.4:
            return f"{self.word()}={self.word()}{chance.choice(('', '2'))}"
        return chance.choice(("s/w/v/", "s/.*/x/", "s/^/p./", r"s/(.)/\1\1/", "s|a|/|", "s/a//g", "s/$/\n/", "s/x*/-/"))

    def number(self) -> str:
        """Return a number as text."""
        return str(self.chance.choice(NUMBERS)) if self.chance.random() < 0.5 else self.chance.choice(_NUMBERS)

    def recipe(self) -> str:
        """Return a recipe: one of holdall's, or a file."""
        chance = self.chance
        return self.desk.side("toml") if chance.random() < 0.5 else chance.choice(("auto", "none", *RECIPES, "x"))

    def value_text(self) -> str:
        """Return a value for metadata."""
        return self.chance.choice((
            "1", "-1", "1.5", "true", "null", "x", "", "[1,2]", '["a"]', "[[1],[2,3]]", "[1,2.5]", '{"a":{"b":[1]}}',
            "1e400", "NaN", "9" * 40, "[" * 100 + "]" * 100, '"\\ud800"', "é", "[]", "{}", '{"a":1,"a":2}', "\x1b[2J",
        ))  # fmt: skip

    def option_text(self) -> str:
        """Return an option of a writer."""
        chance = self.chance
        own = registry.find(self.format).options
        known = [option for name in FORMATS for option in registry.find(name).options]
        option: Any = chance.choice(own if own and chance.random() < 0.9 else known)
        if option.choices:
            value = str(chance.choice(option.choices))
        elif chance.random() < 0.3:
            value = "@" + self.desk.side(chance.choice(("json", "txt")))
        else:
            value = chance.choice(
                ("true", "false", "8", "64", "4096", "auto", self.number(), self.value_text(), self.word())
            )
        if option.name == "alignment" and value.isascii() and value.isdigit() and _WIDE < int(value) < 1 << 32:
            value = str(_WIDE)  # who asks for gigabytes between tensors gets them, which is no escape
        return f"{option.name}={value}"

    def slice_text(self) -> str:
        """Return an index in Python's notation."""
        parts = (
            "0",
            "-1",
            "1",
            ":",
            "0:1",
            "1:",
            "::2",
            "::-1",
            "...",
            "None",
            "5:2",
            "0:99999999999999999999",
            "7",
            "-9",
        )
        return ",".join(self.chance.choice(parts) for _ in range(self.chance.choice((1, 1, 2, 3))))

    def new(self, *names: str) -> str:
        """Return one of the names, to be written to."""
        return self.desk.output(f"out/{self.chance.choice(names)}")

    def report(self) -> str:
        """Return a name for a report."""
        name = self.chance.choice(("report", "a b", "ü"))
        return self.desk.output(f"out/{name}{self.chance.choice(('.html', '.json', '.md', '.svg', '.txt', ''))}")

    def output(self) -> str:
        """Return where extract, embed and calibrate write to."""
        chance = self.chance
        if chance.random() < 0.2:
            return "-"
        return self.new("w1.npy", "x.bin", "x", "r.json", "x.npz", "ü.npy", "m/x.npy")


def _folder(line: _Line) -> str:
    return line.desk.output("out" + line.chance.choice(("", "/new", "/new/newer")))


def _edit_file(line: _Line) -> str:
    path = line.model()
    line.desk.edits.add(path.split("/")[0])
    return path


def _limit(line: _Line) -> str:
    return f"{line.chance.choice(fields(Limits)).name}={line.number()}"


# Parameters that are written to: never a word from outside the folder of the case.
# What extract calls the file that it makes of a tensor or an asset.
_NAMES = {"name": (".npy", ".bin"), "asset": ("",)}
_OUTPUTS: set[Any] = {
    "target", "report", "output", "folder", "out", "export",
    ("restore", "original"), ("repair", "file"), ("edit", "file"),
}  # fmt: skip

_VALUES: dict[str, Callable[[_Line], str]] = {
    **dict.fromkeys(("files", "file", "a", "source", "sources", "view.model", "view.other"), _Line.model),
    "edit.file": _edit_file,
    "repair.file": _edit_file,
    "repair.copy": lambda line: line.b,
    "b": lambda line: line.b if line.chance.random() < 0.8 else line.a,
    **dict.fromkeys(("target", "original"), lambda line: target(line.desk, line.chance, line.a, line.format)),
    "quantize.target": lambda line: line.new("q.mcf", "q.mcf", "q.mcf", "ü.mcf", "q.npz"),
    "from-dataclass.target": lambda line: line.chance.choice((
        *(f"tools.fuzz.operations.layers{name}" for name in (":Layer", ":LAYER", ":Odd", ":nothing", "")),
        "json:dumps", ":", "",
    )),
    "from-dataclass.out": lambda line: line.new("m.oinf", "m.oinf", "ü.oinf", "m.npz"),
    "from-dataclass.values": lambda line: line.desk.side("json"),
    "demo.out": lambda line: line.new("demo", "."),
    "format": lambda line: line.chance.choice(FORMATS),
    "formats.name": lambda line: line.chance.choice(FORMATS),
    "allow": lambda line: line.chance.choice(FORMATS),
    "follow": lambda line: line.chance.choice(_ORIGINS),
    "changed": _limit,
    **dict.fromkeys(("globs", "include", "exclude", "transpose", "view.tensors"), _Line.glob),
    **dict.fromkeys(("convert.recipe", "recipes.name"), _Line.recipe),
    "requires_grad": lambda line: line.glob() + line.chance.choice(("", "=false", "=true", "=x")),
    "rename": _Line.rename,
    "rename_file": lambda line: line.desk.side(line.chance.choice(("json", "txt"))),
    "convert.cast": lambda line: line.chance.choice(("", f"{line.glob()}=")) + line.chance.choice(_DTYPES),
    "extract.cast": lambda line: line.chance.choice(_DTYPES),
    **dict.fromkeys(("split", "max_shard_size", "min_size", "budget"), lambda line: line.chance.choice(_SIZES)),
    **dict.fromkeys(("meta", "edit.values"), lambda line: f"{line.word()}={line.value_text()}"),
    "unset": _Line.word,
    "options": _Line.option_text,
    "assets": lambda line: f"{line.word()}={line.chance.choice(('', line.desk.side('json'), line.desk.side('txt')))}",
    "key": _Line.slice_text,
    "extract.name": lambda line: line.allow_files("name", line.word()),
    "folder": _folder,
    "asset": lambda line: line.allow_files("asset", line.word()),
    "output": _Line.output,
    "report": _Line.report,
    "view.export": lambda line: line.new(*3 * ("page.html", "ü.html", "a b.html"), "page.npz"),
    "at": lambda line: line.chance.choice(("0x1f", line.number(), line.number())),
    "wanted": lambda line: line.chance.choice(("tensor", "header", "toc entry", "entry", "metadata", "w", "x")),
    "profile": lambda line: line.chance.choice(("all-MiniLM-L6-v2", line.desk.side("json"), "x")),
    "rules": lambda line: f"{line.glob()}={line.chance.choice([*METHODS, 'none', 'x'])}",
    "clip": lambda line: line.chance.choice(("0", "-1", "1", "1e39", "nan", "-inf", "1e-50", "2")),
    "tolerance": lambda line: line.chance.choice(("0", "1e-5", "inf", "nan", "1e400", "-1")),
    "clips": lambda line: line.desk.side("json"),
    "importance": lambda line: line.desk.side("npz"),
    "order": lambda line: line.desk.side("txt"),
    "texts": lambda line: line.chance.choice(("the cats sit.", "a mat", "", "cat " * 40, "é😀", "\u202e", "[MASK]")),
    **dict.fromkeys(("inputs", "against"), lambda line: line.desk.side("txt")),
    "vocab_path": lambda line: line.desk.side("vocab"),
    "config_path": lambda line: line.desk.side("config"),
}  # fmt: skip
