import subprocess
import sys

import numpy as np
import pytest

import holdall
from holdall.base.check import Check
from holdall.errors import FormatError, UnsupportedError
from holdall.format import registry
from holdall.format.base import Format
from holdall.model.model import Model
from holdall.source import source_of
from holdall.source.ledger import Ledger
from holdall.testing import register
from tests import toy
from tests.contract.careless import Forgetful


def test_formats_by_name():
    assert registry.find("oinf").name == "oinf"
    assert list(holdall.formats()) == registry.names()
    for name, format in holdall.formats().items():
        assert format.name == name
        assert format.title
        assert len({rule.id for rule in format.rules}) == len(format.rules), "two rules have one id"
        assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in format.suffixes)
    with pytest.raises(UnsupportedError, match="no format 'nothing'; the formats are: oinf"):
        registry.find("nothing")


def test_rows_say_what_their_formats_say():
    """A row stands for a format that is not imported yet: the two must agree."""
    for row in registry.BUILT_IN:
        format = registry.find(row.name)
        assert (row.folder, row.splits, row.beside) == (format.folder, format.splits, format.beside), row.name
        assert set(row.suffixes) >= set(format.suffixes), row.name  # the row of a set may name its main file too
        if row.magic:
            assert format.accepts(row.magic.ljust(registry.HEAD, b"\0"), source_of(row.magic.ljust(100, b"\0")))


@pytest.mark.parametrize("data", [b"", b"\0", b"OIN", b"{}", b"PK\3\4", b"\x80\2", b"GGUF", bytes(100), b"\xff" * 100])
def test_content_of_no_format_is_refused_with_a_sentence(data):
    for allowed in (None, ["oinf"], []):
        with pytest.raises((FormatError, UnsupportedError)):
            holdall.open(data, allowed=allowed)
    assert not holdall.verify(data).ok


@pytest.mark.parametrize("name", registry.names())
def test_accepts_never_raises(name, tmp_path):
    format = registry.find(name)
    sources = [source_of(data) for data in (b"", b"\0", b"{", b"\xff" * 64, bytes(7), b'{"a":' * 50)]
    for source in [*sources, source_of(tmp_path)]:
        head = source.read(0, min(registry.HEAD, source.size))
        assert isinstance(format.accepts(head, source), bool)


def test_the_reader_that_the_suffix_names_says_what_is_wrong(tmp_path):
    (tmp_path / "cut.oinf").write_bytes(b"OIN")
    with pytest.raises(FormatError) as caught:
        holdall.open(tmp_path / "cut.oinf")
    assert caught.value.rule == "oinf.header.size"
    with pytest.raises(FormatError, match="none of the formats"):
        holdall.open(tmp_path / "cut.oinf", allowed=["mcf"])


def test_folders_and_empty_files(tmp_path):
    with pytest.raises(FormatError, match="is a folder"):
        holdall.open(tmp_path)
    (tmp_path / "x").touch()
    with pytest.raises(FormatError, match="is an empty file"):
        holdall.open(tmp_path / "x")


def test_suffixes(tmp_path):
    assert registry.find_by_suffix("a/b/M.OINF").name == "oinf"
    with pytest.raises(UnsupportedError, match="no format has this suffix"):
        holdall.save(tmp_path / "m.nothing", {"w": np.zeros(1, np.float32)})
    with pytest.raises(UnsupportedError):
        registry.find_by_suffix(".oin")
    assert list(tmp_path.iterdir()) == []


def test_registered_lasts_as_long_as_its_block():
    assert "toy" not in registry.names()
    with register("tests.toy:FORMAT") as toy:
        assert registry.find("toy") is toy
        assert registry.names()[-1] == "toy"
        with pytest.raises(AssertionError, match="already"), register("tests.toy:FORMAT"):
            pass
    assert "toy" not in registry.names()


class ReadOnly(Format):
    """A format in a plain module, with nothing but what has to be written."""

    name = "read-only"

    def accepts(self, head, source):
        return False


def test_a_format_finds_its_work_in_the_modules_of_its_package():
    assert registry.find("mcf").writes
    assert toy.FORMAT.writes
    assert Forgetful().writes, "a subclass in another module uses the modules of the format that it extends"
    assert not ReadOnly().writes
    with pytest.raises(UnsupportedError, match="read-only: can be read, not written"):
        ReadOnly().plan(Model(), {})
    with pytest.raises(UnsupportedError, match="read-only: has no hashes of small ranges"):
        ReadOnly().patches(Model(), Model(), lambda count: None)
    with pytest.raises(NotImplementedError, match="neither a method read nor a module read"):
        ReadOnly().read(source_of(b""), Check(), Ledger())
    assert ReadOnly().audit(Model(), Check(), lambda count: None) is None


@pytest.mark.parametrize("name", registry.names())
def test_knowing_a_format_imports_neither_its_reader_nor_its_writer(name):
    code = (
        f"import sys; from holdall.format import registry; found = registry.find({name!r}); print(found.writes)\n"
        "print([m for m in sys.modules if m.startswith('holdall.format.') and m.endswith(('.read', '.write'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split("\n")[:2] == ["True", "[]"]
