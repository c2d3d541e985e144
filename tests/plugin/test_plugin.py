import ast
import dataclasses
import os
import re
import struct
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path

import numpy as np
import pytest

import holdall.plugin
from holdall.format.registry import BUILT_IN
from holdall.plugin import Model, Tensor
from holdall.sink import write_file
from tests.plugin.conftest import ROOT, install

TOY = [path for path in sorted((ROOT / "tests" / "toy").glob("*.py")) if path.name != "test_toy.py"]

MODEL = """
import sys, holdall, numpy as np
from holdall.format import registry
M = {'w': np.ones((2, 2), np.float32)}
"""
SHOW = """
formats = tuple(row.module.partition(':')[0] for row in registry.BUILT_IN)
print(*sorted(name for name in sys.modules if name.startswith(('tests.toy', 'broken', *formats))))
"""


def modules_imported(path: Path) -> set[str]:
    """All modules that a file imports, inside functions too."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", TOY, ids=lambda path: path.name)
def test_a_format_is_made_of_the_names_for_authors_alone(path):
    ours = {name for name in modules_imported(path) if name.partition(".")[0] == "holdall"}
    assert ours <= {"holdall.plugin", "holdall.testing"}


def test_the_page_uses_names_for_authors_alone():
    page = (ROOT / "docs" / "adding-a-format.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in nodes if (node.module or "").partition(".")[0] == "holdall"]
    assert {node.module for node in ours} == {"holdall.plugin", "holdall.testing"}
    taken = {alias.name for node in ours if node.module == "holdall.plugin" for alias in node.names}
    assert taken <= set(holdall.plugin.__all__)
    assert set(re.findall(r"`holdall\.([a-z]+)\.[\w.]+`", page)) <= {"plugin", "testing"}


def test_the_page_names_everything_that_authors_import():
    page = (ROOT / "docs" / "adding-a-format.md").read_text()
    assert [name for name in holdall.plugin.__all__ if not re.search(rf"\b{name}\b", page)] == []


def test_the_page_names_every_method_of_a_format():
    page = (ROOT / "docs" / "adding-a-format.md").read_text()
    public = [name for name in vars(holdall.plugin.Format) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"\b{name}\b", page)] == []
    assert {"merged_assets", "edit_options", "read"} <= set(public)


def test_the_page_and_the_docstring_explain_every_field_of_holds():
    page = (ROOT / "docs" / "adding-a-format.md").read_text()
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for field in dataclasses.fields(holdall.plugin.Holds):
        assert re.search(rf"`{field.name}\b", rows), field.name
        assert re.search(rf"``{field.name}\b", holdall.plugin.Holds.__doc__), field.name


def test_the_plan_of_the_page_writes_the_checksums_that_it_states(tmp_path):
    page = (ROOT / "docs" / "adding-a-format.md").read_text()
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def _footer" in block)
    made = {}
    exec(block, made)
    payloads = [bytes(range(200)) * 30_000, b"", b"short"]  # 6 MB, above the size of any buffer
    tensors = [Tensor.of(str(n), np.frombuffer(data, np.uint8)) for n, data in enumerate(payloads)]
    write_file(tmp_path / "m.tail", made["plan"](Model(tensors), {}), fsync=False)
    data = (tmp_path / "m.tail").read_bytes()
    at, size, crc = struct.unpack("<QQI", data[-20:])
    assert data[:8] == b"TAIL" + struct.pack("<I", 3)
    assert data[8:at].rstrip(b"\0") == b"".join(payloads).rstrip(b"\0")
    assert at % 8 == 0 and at + size == len(data) - 20
    assert struct.unpack("<3I", data[at : at + size]) == tuple(map(zlib.crc32, payloads))
    assert crc == zlib.crc32(data[:-20])


def test_the_format_of_the_page_passes_the_contract(site, tmp_path):
    """As the page says: its three files, and pytest."""
    page = (ROOT / "docs" / "adding-a-format.md").read_text()
    module, test = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    (project,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (entry,) = tomllib.loads(project)["project"]["entry-points"]["holdall.formats"].items()
    install(site, "holdall-flat", " = ".join(entry))
    (site / "holdall_flat.py").write_text(module)
    (tmp_path / "test_flat.py").write_text(test)
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "HOLDALL_DAMAGE_CASES": "60"}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_flat.py"]
    ran = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert "25 passed" in ran.stdout, ran.stdout


def test_without_its_extra_the_contract_says_how_to_install_it(run):
    code = """
import sys
sys.modules["hypothesis"] = None
try:
    import holdall.testing
except ModuleNotFoundError as error:
    print(error)
"""
    assert run(code) == "holdall.testing needs pytest and hypothesis: pip install 'holdall[testing]'"


def test_an_installed_format_is_named_found_and_described(run):
    assert run(MODEL + "print('toy' in registry.names(), registry.names()[0])") == "True oinf"
    assert run(MODEL + "print(registry.find('toy').title)") == "Toy (the worst traits together)"
    assert run(MODEL + "print('f32' in holdall.formats()['toy'].holds.dtypes)") == "True"


def test_it_is_written_by_its_suffix_and_opened_by_its_content(run):
    code = "holdall.save('m.toy', M); m = holdall.open('m.toy'); print(m.format, m['w'].numpy().sum())"
    assert run(MODEL + code) == "toy 4.0"
    code = "import os; os.rename('m.toy/main.toy', 'x'); print(holdall.open('x').format, holdall.verify('x').ok)"
    assert run(MODEL + "holdall.save('n.toy', M); os_ = 0\n" + code.replace("m.toy", "n.toy")) == "toy True"


def test_its_pickled_models_travel(run):
    code = "import pickle; holdall.save('m.toy', M); print(len(pickle.loads(pickle.dumps(holdall.open('m.toy')))))"
    assert run(MODEL + code) == "1"


def test_built_in_formats_do_not_import_it(run):
    code = "holdall.save('m.oinf', M); holdall.open('m.oinf').close(); holdall.verify('m.oinf')"
    modules = run(MODEL + code + SHOW).split()
    assert "holdall.format.oinf" in modules
    assert not [name for name in modules if "toy" in name]
    assert not {row.module for row in BUILT_IN if row.name != "oinf"} & set(modules)


def test_naming_the_formats_imports_none(run):
    assert not {row.module for row in BUILT_IN} & set(run(MODEL + "registry.names()" + SHOW).split())


def test_an_allowlist_keeps_it_out_unimported(run):
    code = """
holdall.save('m.toy', M)
for name in [name for name in sys.modules if name.startswith('tests.toy')]:
    del sys.modules[name]
registry._load_plug_in.cache_clear()
for what in ('m.toy', 'm.toy/main.toy'):
    for allowed in (['oinf'], ['oinf', 'safetensors'], []):
        try:
            holdall.open(what, allowed=allowed)
        except holdall.FormatError as error:
            assert error.rule == 'core.format', error
        else:
            raise AssertionError('opened')
    try:
        holdall.open(what, format='toy', allowed=['oinf'])
    except holdall.UnsupportedError as error:
        print('refused')
"""
    printed = run(MODEL + code + "print('tests.toy.read' in sys.modules)")
    assert printed.split() == ["refused", "refused", "False"]
    code = "holdall.save('n.toy', M); print(holdall.open('n.toy', allowed=['toy']).format)"
    assert run(MODEL + code) == "toy"


def test_the_allowlist_imports_only_what_it_allows(run):
    code = """
open('what', 'wb').write(b'no format begins like this')
try:
    holdall.open('what', allowed=['oinf'])
except holdall.FormatError as error:
    pass"""
    assert not {row.module for row in BUILT_IN if row.name != "oinf"} & set(run(MODEL + code + SHOW).split())


def test_a_plug_in_cannot_take_the_name_of_a_built_in_format(run, site):
    install(site, "thief", "oinf = tests.toy:FORMAT")
    code = "holdall.save('m.oinf', M); print(holdall.open('m.oinf').format, registry.names().count('oinf'))"
    assert run(MODEL + code) == "oinf 1"


def test_a_broken_plug_in_causes_a_warning_and_other_files_open(run, site):
    install(site, "broken-plugin", "broken = broken.nowhere:FORMAT\nother = tests.toy:FORMAT\nwrong = json:loads")
    code = """
import warnings
holdall.save('m.oinf', M)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    holdall.open('m.oinf')
    assert not caught
    holdall.save('m.toy', M)
    print(holdall.open('m.toy').format)
texts = {str(warning.message) for warning in caught}
print(len(texts))
for name in ('broken', 'other', 'wrong'):
    try:
        registry.find(name)
    except holdall.UnsupportedError as error:
        print(error)
"""
    lines = run(MODEL + code).splitlines()
    assert lines[:2] == ["toy", "3"]
    assert lines[2].startswith("the format 'broken' (broken.nowhere:FORMAT) cannot be imported")
    assert lines[3] == "tests.toy:FORMAT is not a holdall Format called 'other'"
    assert lines[4] == "json:loads is not a holdall Format called 'wrong'"


@pytest.mark.long
def test_the_contract_runs_from_a_plug_ins_own_tests(run, tmp_path):
    """The three lines of the documentation, in a folder that knows nothing of this project's tests."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "test_theirs.py").write_text(
        "from holdall.testing import FormatContract\n\n"
        "class TestToy(FormatContract):\n    format = 'toy'\n    large_bytes = 64 << 20\n    damage_cases = 60\n"
    )
    code = "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'theirs']))"
    assert "25 passed" in run(code)
