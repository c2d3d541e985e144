"""Names out of models are text in reports: no element, link or control comes from one."""

from __future__ import annotations

import ast
import os
import unicodedata
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

import holdall
from holdall.cli import main
from tests.house.rooms import modules

NAMES = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a'\"><b>", "</td></tr></table>", "<!-- ", "]]>",
    "[text](http://evil.example)", "![i](http://evil.example/x.png)", "<http://evil.example>", "[a]: http://evil",
    "http://evil.example/x", "www.evil.example", "me@evil.example", "*bold* **b** _i_ ~~s~~", "`code` ``x``", "`", "``",
    "a|b|c", "\\|", "a\\", "\\`|", "# head", "- item", "1) one", "---", "| --- |", "&lt;b&gt;", "&#60;b&#62;", "&amp",
    "line\nfeed\n# head\n\n- item", "\r\nx", "\x1b[31mred", "\x00nul", "bell\x07", "del\x7f", "c1\x9b31m", "\u202ebidi",
    "\u2066x\u2069", "\u200ezero\u200b", "\ufeffbom", "\ue000private", " space ", " ", "\t", "plain.weight",
    "Größe 模型",
]  # fmt: skip
PLAIN = [f"plain{number}" for number in range(len(NAMES))]


def run(*words, code=0):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output


def save(path, names, shift=0.0):
    rng = np.random.default_rng(7)
    holdall.save(path, {name: rng.standard_normal((2, 256)).astype(np.float32) + np.float32(shift) for name in names})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("names")
    for kind, names in (("odd", NAMES), ("plain", PLAIN)):
        a, b = made / f"{kind}.safetensors", made / f"{kind}-b.safetensors"
        save(a, names)
        save(b, names, 0.5)
        for suffix in ("md", "html"):
            report = made / f"{kind}-quantize.{suffix}"
            run("quantize", a, made / f"{kind}.mcf", "--method", "k4", "--report", report)
        run("diff", a, b, "--report", made / f"{kind}-diff.html", code=1)
        for suffix in ("html", "svg"):
            run("diff", a, b, "--trace", "--report", made / f"{kind}-trace.{suffix}", code=1)
    return made


def no_controls(text):
    return not [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *(name for name, _ in attributes)))

    def handle_endtag(self, tag):
        self.tags.append(("/", tag))

    def handle_comment(self, data):
        self.tags.append(("comment", data))

    def handle_decl(self, decl):
        self.tags.append(("decl", decl))

    def handle_data(self, data):
        self.text.append(data)


def parse(page):
    found = Elements()
    found.feed(page)
    found.close()
    return found


def shown(name):
    """How a name is shown: what controls is a backslash and its number."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


@pytest.mark.parametrize("kind", ["quantize", "diff", "trace"])
def test_a_page_has_the_elements_that_plain_names_have(folder, kind):
    odd, plain = (folder / f"{each}-{kind}.html" for each in ("odd", "plain"))
    found = parse(odd.read_text("utf-8"))
    expected = parse(plain.read_text("utf-8"))
    assert found.tags == expected.tags and len(found.tags) > 10 * len(NAMES)
    assert no_controls(odd.read_text("utf-8"))
    for name in NAMES:
        assert shown(name) in found.text, name


def test_a_plot_is_xml_with_the_same_elements(folder):
    trees = [ElementTree.parse(folder / f"{kind}-trace.svg") for kind in ("odd", "plain")]
    odd, plain = ([each.tag for each in tree.iter()] for tree in trees)
    assert odd == plain and len(odd) > len(NAMES)
    assert no_controls((folder / "odd-trace.svg").read_text("utf-8"))


@pytest.mark.parametrize("rules", ["commonmark", "js-default"])
def test_markdown_has_the_elements_that_plain_names_have(folder, rules):
    text = (folder / "odd-quantize.md").read_text("utf-8")
    assert no_controls(text)
    found, expected = (
        list(flatten(MarkdownIt(rules, {"html": True}).enable("table").parse(each)))
        for each in (text, (folder / "plain-quantize.md").read_text("utf-8"))
    )
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert not {kind for kind, _ in found} & {"link_open", "image", "html_inline", "html_block", "em_open", "fence"}
    codes = [content for kind, content in found if kind == "code_inline"]
    for name in NAMES:
        as_code = shown(name).replace("|", "\\x7c").replace("`", "\\x60")
        assert as_code in codes or as_code.strip() in codes, name


def flatten(tokens):
    for token in tokens:
        if token.type != "text":
            yield token.type, token.content if token.type == "code_inline" else ""
        yield from flatten(token.children or ())


def test_files_of_any_name_are_reported(tmp_path):
    """Names that are not UTF-8 as well: a report is UTF-8."""
    source = os.fsdecode(b"<b>\xff|`.safetensors")
    save(tmp_path / source, ["w"])
    for suffix in ("md", "html", "json"):
        run("quantize", tmp_path / source, tmp_path / "t.mcf", "--method", "k4", "--report", tmp_path / f"r.{suffix}")
        text = (tmp_path / f"r.{suffix}").read_bytes().decode("utf-8")
        assert no_controls(text)
        assert suffix != "html" or "<b>" not in text
    assert "\\udcff" in (tmp_path / "r.md").read_text("utf-8")


def test_one_function_escapes_for_pages():
    """html.escape alone lets controls through."""
    for name, path in modules().items():
        if name == "holdall.base.text":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "html"), name


def test_notebooks_show_names_as_text():
    model = holdall.open(holdall_bytes())
    page = model._repr_html_()
    assert no_controls(page)
    assert not {tag for tag, *_ in parse(page).tags} & {"script", "img", "http:"}


def holdall_bytes():
    from holdall.numpy import save as save_bytes

    return save_bytes({name: np.zeros(2, np.float32) for name in NAMES}, format="safetensors")
