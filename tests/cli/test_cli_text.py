from __future__ import annotations

import json

import numpy as np
import pytest

from holdall.base.text import clean, count_text, percent, plain, shape_text, shorten, size_text, value_text
from holdall.cli.output import emit_table


@pytest.mark.parametrize("text", ["plain", "Größe", "模型", "a b", ""])
def test_ordinary_text_stays(text):
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202e", "\\u202e"),
        ("\u200b", "\\u200b"),
        ("\n", "\\n"),
        ("\x00", "\\x00"),
        ("\x9b", "\\x9b"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_could_steer_a_terminal_is_escaped(text, shown):
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9_999, "10.0 kB"), (99_960, "100 kB"), (999_499, "999 kB"),
     (999_500, "1.00 MB"), (1_200_000_000, "1.20 GB"), (10**30, "1.00e+12 EB")],
)  # fmt: skip
def test_sizes_are_in_powers_of_ten(count, text):
    assert size_text(count) == text


def test_counts_and_shares():
    assert [count_text(n) for n in (0, 999, 1500, 7_240_000_000)] == ["0", "999", "1.50k", "7.24B"]
    assert (percent(1, 4), percent(0, 0)) == ("25.0%", "0.0%")


def test_shapes_of_many_dims_are_cut():
    assert shape_text((1,) * 100, 3) == "[1, 1, 1, … 100 dims]"


def test_shortened_text_is_clean_and_short():
    assert shorten("\x1b" * 100, 10) == "\\x1b\\x1b\\…"
    assert len(shorten("x" * 10**6, 20)) == 20


def test_values_take_one_line():
    assert value_text(np.arange(20, dtype=np.int16), 100) == "int16[20]: 0, 1, 2, 3, 4, 5, 6, 7, …"
    assert value_text(np.float32(0.5), 20) == "0.5"
    assert value_text(list(range(10**5)), 30).endswith("…")
    assert value_text(b"\x00" * 100, 30) == "100 bytes: 000000000000000000…"
    assert value_text(True, 10) == "True"
    assert value_text({"d": 1, "deep": {"x": [1, 2]}}, 60) == "{d: 1, deep: {x: [1, 2]}}"
    assert len(value_text({str(n): n for n in range(10**5)}, 60)) == 60


def test_plain_values_are_json():
    value = {"a": np.arange(3), "b": [float("inf"), b"\xff"], "c": np.zeros(1 << 17), "d": np.float32(2.5), "e": {1}}
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "a": [0, 1, 2],
        "b": ["inf", "ff"],
        "c": "float64[131072]",
        "d": 2.5,
        "e": "{1}",
    }


def test_tables_line_up(capsys):
    emit_table(("name", "n"), [("a", "1"), ("long", "1000")], right=("n",), indent=" ")
    assert capsys.readouterr().out == " name     n\n a        1\n long  1000\n"


def shown_at(columns, capsys, monkeypatch, *arguments, **options):
    monkeypatch.setattr("holdall.cli.output.on_terminal", lambda: True)
    monkeypatch.setattr("holdall.cli.output.width", lambda: columns)
    emit_table(*arguments, **options)
    return capsys.readouterr().out  # no terminal: without the escapes


def test_a_terminal_gets_tables_without_markup(capsys, monkeypatch):
    assert shown_at(80, capsys, monkeypatch, ("name",), [("[red]x[/red]",)]) == "name\n[red]x[/red]\n"


PROSE = [("a", "10", "one two three four five"), ("long", "1000", "six")]


def test_a_narrow_terminal_folds_prose_between_words(capsys, monkeypatch):
    shown = shown_at(28, capsys, monkeypatch, ("name", "n", "what"), PROSE, right=("n",), prose=("what",))
    assert shown == (
        "name     n  what\n"
        "a       10  one two three\n"
        "            four five\n"
        "long  1000  six\n"
    )  # fmt: skip


@pytest.mark.parametrize("columns", range(1, 40))
def test_no_terminal_is_so_narrow_that_a_cell_is_cut(capsys, monkeypatch, columns):
    shown = shown_at(columns, capsys, monkeypatch, ("name", "n", "what"), PROSE, right=("n",), prose=("what",))
    assert sorted(shown.split()) == sorted(" ".join(["name n what", *map(" ".join, PROSE)]).split())
    whole = max(len(word) for word in shown.split())
    assert max(map(len, shown.splitlines())) <= max(columns, 4 + 16, whole)


def test_a_table_that_cannot_fit_breaks_between_columns(capsys, monkeypatch):
    rows = [("first", "f32", "100.0%"), ("second", "bf16", "0.1%")]
    shown = shown_at(13, capsys, monkeypatch, ("name", "dtype", "share"), rows, right=("share",), indent=" ")
    assert shown == " name\n     dtype\n      share\n first\n     f32\n     100.0%\n second\n     bf16\n       0.1%\n"


def test_wide_letters_take_two_columns(capsys):
    emit_table(("name", "n"), [("模型", "1"), ("abcd", "2")])
    assert capsys.readouterr().out == "name  n\n模型  1\nabcd  2\n"
