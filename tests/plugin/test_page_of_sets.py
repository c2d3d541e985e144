"""The shorter examples of docs/adding-a-format.md run: a set of two files, and the hashes of pages."""

from __future__ import annotations

import importlib
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall.testing import register
from tests.plugin.conftest import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-format.md").read_text(), re.DOTALL)

# What the examples take for granted. A row of the main file: name, elements, offset, and where the bytes are.
AROUND = """
from types import SimpleNamespace

import numpy as np

from holdall.plugin import *

MAGIC, MAIN, SIDE = b"MINE", "main.mine", "side.bin"
HEAD = Layout("head", magic=raw(4), count=U32)
ROW = Layout("row", name=raw(4), elements=U64, offset=U64, place=U64)
PAGE = 64
SIDE_MAGIC = Rule("mine.side", "the side file begins with SIDE")
CRC = Rule("mine.page", "every page has the hash that the file states", "full")
RULES = (SIDE_MAGIC, CRC)
HOLDS = Holds(dtypes=frozenset({"f32"}), declared=True)
"""
READING = """
DTYPES = [find_dtype("f32")]  # in place of all of them


def scan_table(source, check, ledger):
    count = HEAD.read(source.read(0, HEAD.size), 0).count
    rows = ROW.table(source.read(HEAD.size, ROW.size * count), 0, count)
    return SimpleNamespace(
        names=[name.decode() for name in rows["name"].tolist()],
        codes=np.zeros(count, np.intp),
        shapes=[(n,) for n in rows["elements"].tolist()],
        offsets=rows["offset"],
        sizes=rows["elements"] * np.uint64(4),
        stored=rows["place"] < 2,
        in_side=rows["place"] == 1,
    )


def check_side(side, check, ledger):
    if side.read(0, 4) != b"SIDE":
        check.fail(SIDE_MAGIC, 0, "mine: the file does not begin with SIDE")
"""
PAGED = """
class Paged(Format):
    name = "paged"
    title = "A file of one tensor; another file has the hashes of its pages"
    suffixes = (".paged",)
    holds = HOLDS
    rules = RULES

    def accepts(self, head, source):
        return head.startswith(b"PAGE")

    def read(self, source, check, ledger):
        stated = source.sibling("hashes")
        native = SimpleNamespace(hashes=[bytes(stated.read(at, 32)) for at in range(0, stated.size, 32)])
        size = source.size - 4
        tensor = Tensor("w", find_dtype("f32"), (size // 4,), SourceRange(source, 4, size))
        return Model(ListTable([tensor]), format="paged", native=native, sources=[source, stated])


Paged.proofs = proofs
FORMAT = Paged()
"""


def block_with(words: str) -> str:
    (found,) = (block for block in BLOCKS if words in block and "class Flat" not in block)
    return found


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a package of these modules, imports it and registers its format."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    made = []

    def make(name: str, **modules: str) -> None:
        folder = tmp_path / "site" / name
        folder.mkdir(parents=True)
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        importlib.invalidate_caches()
        made.append(register(f"{name}:FORMAT"))
        made[-1].__enter__()

    yield make
    for each in made:
        each.__exit__(None, None, None)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("holdall_mine", "holdall_paged")]:
        del sys.modules[name]


@pytest.fixture
def set_of_two(package, tmp_path) -> Path:
    package(
        "holdall_mine",
        __init__=AROUND + block_with("class Mine"),
        read=AROUND + READING + block_with("source = source.sibling(MAIN)"),
    )
    rows = [(b"main", 3, 8 + 3 * 28, 0), (b"side", 2, 4, 1), (b"none", 5, 0, 2)]
    folder = tmp_path / "set.mine"
    folder.mkdir()
    main = b"MINE" + struct.pack("<I", 3) + b"".join(struct.pack("<4sQQQ", *row) for row in rows)
    (folder / "main.mine").write_bytes(main + struct.pack("<3f", 1, 2, 3))
    (folder / "side.bin").write_bytes(b"SIDE" + struct.pack("<2f", 4, 5))
    return folder


@pytest.mark.parametrize("given", ["", "main.mine"], ids=["by its folder", "by its main file"])
def test_the_set_of_the_page_is_opened(set_of_two, given):
    with holdall.open(set_of_two / given) as model:
        assert model.format == "mine"
        assert model["main"].numpy().tolist() == [1, 2, 3]
        assert model["side"].numpy().tolist() == [4, 5]
        assert model["none"].shape == (5,) and not model["none"].has_data
    assert holdall.verify(set_of_two / given).findings == []


def test_a_finding_in_its_side_file_names_the_file(set_of_two):
    (set_of_two / "side.bin").write_bytes(b"SIGH" + struct.pack("<2f", 4, 5))
    (finding,) = holdall.verify(set_of_two).findings
    assert (finding.rule, finding.file) == ("mine.side", "side.bin")
    with pytest.raises(holdall.FormatError):
        holdall.open(set_of_two)


def test_its_options_are_those_of_the_page(set_of_two):
    (option,) = holdall.formats()["mine"].options
    assert (option.name, option.default) == ("align", "8")


@pytest.mark.parametrize("elements", [1, 15, 16, 100])
def test_the_proofs_of_the_page_cover_every_byte_that_is_read(package, tmp_path, elements):
    package("holdall_paged", __init__=AROUND + block_with("def proofs") + PAGED)
    values = np.arange(elements, dtype="<f4")
    data = b"PAGE" + values.tobytes()
    hashes = b"".join(blake3(data[at : at + 64]).digest() for at in range(0, len(data), 64))
    (tmp_path / "hashes").write_bytes(hashes)
    path = tmp_path / "model.paged"
    path.write_bytes(data)
    assert holdall.convert(path, tmp_path / "whole.npz").checked
    with holdall.open(path, check=True) as model:
        assert model["w"].numpy().tolist() == values.tolist()
    for at in range(4, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(holdall.FormatError) as caught:
            holdall.convert(path, tmp_path / "damaged.npz")
        assert caught.value.rule == "mine.page"
        assert f"page {at // 64}" in str(caught.value)
    assert not (tmp_path / "damaged.npz").exists()
