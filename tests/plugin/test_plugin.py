from tests.plugin.conftest import install

MODEL = "import sys, holdall, numpy as np; from holdall import registry; M = {'w': np.ones((2, 2), np.float32)}\n"
SHOW = "\nprint(*sorted(m for m in sys.modules if m.startswith(('tests.toy', 'broken', 'holdall.formats.'))))"


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
    assert "holdall.formats.oinf" in modules
    assert not [name for name in modules if "toy" in name]
    assert not [name for name in modules if name.startswith("holdall.formats.") and "oinf" not in name]


def test_naming_the_formats_imports_none(run):
    assert run(MODEL + "registry.names()" + SHOW) == ""


def test_an_allowlist_keeps_it_out_unimported(run):
    code = """
holdall.save('m.toy', M)
for name in [name for name in sys.modules if name.startswith('tests.toy')]:
    del sys.modules[name]
registry._plug_in.cache_clear()
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
    assert not [name for name in run(MODEL + code + SHOW).split() if "oinf" not in name]


def test_nobody_takes_the_name_of_a_built_in_format(run, site):
    install(site, "thief", "oinf = tests.toy:FORMAT")
    code = "holdall.save('m.oinf', M); print(holdall.open('m.oinf').format, registry.names().count('oinf'))"
    assert run(MODEL + code) == "oinf 1"


def test_a_broken_plug_in_is_warned_of_and_in_nobodys_way(run, site):
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


def test_the_contract_runs_from_a_plug_ins_own_tests(run, tmp_path):
    """The three lines of the documentation, in a folder that knows nothing of this project's tests."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "test_theirs.py").write_text(
        "from holdall.testing import FormatContract\n\n"
        "class TestToy(FormatContract):\n    format = 'toy'\n    large_bytes = 64 << 20\n    damage_cases = 60\n"
    )
    code = "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'theirs']))"
    assert "20 passed" in run(code)
