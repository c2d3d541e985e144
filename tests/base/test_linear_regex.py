"""Rules of the user and names of the file: every pattern ends, and means what Python's own engine says."""

from __future__ import annotations

import random
import re
import time

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.base.linear_regex import compile_regex
from holdall.cli import main
from holdall.errors import UnsupportedError

LONG = 1 << 20

CASES = [
    (
        r"^model\.layers\.(\d+)\.(.*)$",
        r"blk.\1.\2",
        ["model.layers.12.attn.w", "model.layers.x.w", ""],
    ),
    (r"(?P<a>[a-c]+)(?:-|_)(?P<b>\w*?)x", r"\g<b>\\\g<a>\n", ["abc-x", "b_yyxx", "c--x", "zzz"]),
    (r"x*", "-", ["abxd", "xx", ""]),
    (r"a|ab|abc", "<\\g<0>>", ["abcabc", "xabx"]),
    (r"(a)|(b)", r"[\1\2]", ["abba", "c"]),
    (r"(a|ab)(c|bcd)(d*)", r"\1,\2,\3", ["abcd", "acd"]),
    (r"\bw\B.", "!", ["w w1 aw wxy", "w"]),
    (r"[^\d\s.]{2,3}?", "_", ["ab.cd 12efgh", "é ü"]),
    (r"(\w+)\.\Z", r"\1", ["a.b.", "a.b"]),
    (r"a.c$", "x", ["abc\n", "a\nc", "abcabc"]),
    (r"(a{2,4})(a{0,2}?)", r"<\1|\2>", ["aaaaaaa", "a"]),
    (r"((a+)b?)+", r"\1/\2", ["aabaaab", "b"]),
]


@pytest.mark.parametrize(("pattern", "template", "texts"), CASES, ids=[case[0] for case in CASES])
def test_what_is_replaced_is_what_python_replaces(pattern, template, texts):
    for text in texts:
        assert compile_regex(pattern).search(text) == (re.search(pattern, text) is not None)
        for count in (0, 1, 2):
            assert compile_regex(pattern).replace(text, template, count) == re.sub(pattern, template, text, count=count)


def make_pattern(rng, depth):
    """A random expression without a repetition of something that may be empty, where engines differ in their groups."""
    kind = rng.randrange(9 if depth else 4)
    if kind < 4:
        return rng.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", "c", r"\d", "(?:ab)"])
    if kind < 6:
        return make_pattern(rng, depth - 1) + make_pattern(rng, depth - 1)
    if kind == 6:
        return f"({make_pattern(rng, depth - 1)}|{make_pattern(rng, depth - 1)})"
    return f"({make_pattern(rng, depth - 1)})" + rng.choice(["+", "+?", "{1,2}", "{2}", ""])


def test_random_expressions_agree_with_python():
    rng = random.Random(5)
    found = 0
    for _ in range(3000):
        pattern = make_pattern(rng, 4) + rng.choice(["", "$", "a*", "(b?)", "(?:c|)"])
        text = "".join(rng.choice("aabbc1\n.") for _ in range(rng.randrange(9)))
        groups = re.compile(pattern).groups
        template = "<" + "|".join(rf"\g<{number}>" for number in range(groups + 1)) + ">"
        expected = re.sub(pattern, template, text)
        assert compile_regex(pattern).replace(text, template) == expected, (pattern, text)
        found += expected != text
    assert found > 500


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a|aa)+$", "a*a*a*a*a*b", "((a*)*)*b", "(.*)(.*)(.*)(.*)x"])
def test_no_expression_takes_forever(pattern):
    began = time.process_time()
    assert not compile_regex(pattern).search("a" * 4000 + "c")
    assert time.process_time() - began < 3


def test_what_cannot_be_followed_is_refused():
    for pattern, what in [(r"(a)\1", "back reference"), ("(?=a)", "look ahead"), ("(?<!a)b", "look"), ("(?i)a", "flag"),
                          ("a++", "possessive"), ("(?>a)", "atomic"), ("(?i:a)", "flag")]:  # fmt: skip
        with pytest.raises(UnsupportedError, match=what):
            compile_regex(pattern)
    with pytest.raises(UnsupportedError, match="10000 steps"):
        compile_regex("((a{100}){100}){100}")
    with pytest.raises(UnsupportedError, match=r"at most 4096 letters, and 'aaaa.* has 1048576"):
        compile_regex("a+b?").search("a" * LONG)
    assert compile_regex("(x+)+y").replace("a" * LONG, "") == "a" * LONG  # it has no y


@pytest.fixture
def long_name(tmp_path):
    path = tmp_path / "long.safetensors"
    holdall.save(path, {"a" * LONG: np.zeros(2, np.float32), "b": np.ones(2, np.float32)})
    return path


GLOBS = ["*a*a*a*a*a*a*b", "*" + "?" * 20 + "b", "*[ab]*[ab]*[ab]*c", "a*" * 20 + "b"]


@pytest.mark.parametrize("glob", GLOBS)
def test_a_glob_against_a_name_of_a_megabyte_ends(glob, long_name, tmp_path):
    out = tmp_path / "out.safetensors"
    for words in (
        ["ls", long_name, glob],
        ["convert", long_name, out, "--exclude", glob],
        ["convert", long_name, out, "--include", glob],
        ["convert", long_name, out, "--cast", f"{glob}=f16"],
        ["convert", long_name, out, "--transpose", glob],
        ["quantize", long_name, tmp_path / "out.mcf", "--rule", f"{glob}=q8", "--dry-run"],
        ["quantize", long_name, tmp_path / "out.mcf", "--exclude", glob, "--dry-run"],
    ):
        began = time.process_time()
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert "should not happen" not in done.output and done.exit_code in (0, 1, 2)
        assert time.process_time() - began < 5, words[0]


def test_a_rule_against_a_name_of_a_megabyte_ends(long_name, tmp_path):
    for words in (["convert", long_name, tmp_path / "o.npz"], ["edit", long_name]):
        done = CliRunner().invoke(main, [*map(str, words), "--rename", "s/(a+)+$/x/"])
        assert done.exit_code == 1
        assert "at most 4096 letters" in done.output and len(done.output) < 1000
        for wrong in ("s/(?<!a)b/x/", r"s/(a)\1/x/"):
            done = CliRunner().invoke(main, [*map(str, words), "--rename", wrong])
            assert done.exit_code == 2 and "is not supported: the time for a name" in done.output
    holdall.save(tmp_path / "short.safetensors", {"a" * 40 + "c": np.zeros(2, np.float32), "a": np.ones(1)})
    report = holdall.convert(tmp_path / "short.safetensors", tmp_path / "s.npz", rename=["s/^(a+)+$/x/"])
    assert report.tensors == 2
    with holdall.open(tmp_path / "s.npz") as model:
        assert sorted(model) == ["a" * 40 + "c", "x"]


@pytest.mark.parametrize("depth", [250, 300, 400, 1000, 5000])
def test_groups_of_any_depth_are_matched_or_refused(depth):
    """Between what Python cannot parse and what can be followed lies what is parsed, and too deep to be compiled."""
    pattern = "(" * depth + "a" + ")*" * depth
    try:
        assert compile_regex(pattern).search("aaa")
    except (re.error, UnsupportedError) as error:
        assert "too deep" in str(error) or "not supported" in str(error) or "steps" in str(error)
