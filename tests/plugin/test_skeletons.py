"""A file that carries an original names its format: that imports no plug-in and no module, whatever is done with it."""

import pytest

from tests.plugin.conftest import install

MAKE = """
import sys, warnings
import msgspec, numpy as np
import holdall
from holdall.cli import main
from holdall.model.metadata import SKELETON
from holdall.operations.convert.skeleton import Skeleton

holdall.save('m.oinf', {'w': np.ones(4, np.float32)})
holdall.convert('m.oinf', 'c.%(suffix)s', carry=True, fsync=False)
with holdall.open('c.%(suffix)s') as model:
    tensors, metadata = {name: model[name].numpy() for name in model}, dict(model.metadata)
skeleton = Skeleton.from_text(metadata[SKELETON])
metadata[SKELETON] = msgspec.structs.replace(skeleton, format=%(format)r).to_text()
holdall.save('c.%(suffix)s', tensors, metadata=metadata)
"""
WATCH = """
loaded = set()
def watch(event, given):  # 'exec' is the body of a module too, however it is imported
    loaded.update(sys.modules if event == 'exec' else given[:1] if event == 'import' else ())
sys.addaudithook(watch)

def call(*words):
    try:
        main([*words], standalone_mode=False)
    except (Exception, SystemExit) as error:
        print(type(error).__name__, str(error)[:200], file=sys.stderr)

f = 'c.%(suffix)s'
for words in (
    ['info', f], ['ls', f], ['verify', f, '--level', 'strict', '--stats'], ['explain', f], ['assets', f],
    ['restore', f, 'again.oinf'], ['convert', f, 'again.oinf'], ['convert', f, 'again.npz', '--carry'],
    ['convert', f, 'm.oinf', 'both.aero'], ['diff', f, 'm.oinf'], ['edit', f, '--set', 'a=b'], ['extract', f, 'w'],
    ['extract', f, '--all', 'out'], ['repair', f, '--from', f], ['convert', f, 'again', '--format', 'hf', '--carry'],
):
    call(*words)
print('IMPORTED', *sorted(name for name in loaded if name.split('.')[0] in %(watched)r))
"""


@pytest.mark.parametrize(
    ("suffix", "format"),
    [
        ("safetensors", "evil"),
        ("gguf", "evil"),
        ("aero", "evil"),
        ("safetensors", "evil.module"),
        ("safetensors", "colorsys"),
    ],
)
def test_a_carried_original_imports_nothing(run, site, suffix, format):
    install(site, "evil-plugin", f"{format} = evil.module:FORMAT")
    (site / "evil").mkdir()
    (site / "evil" / "__init__.py").write_text("")
    (site / "evil" / "module.py").write_text("open('ran', 'w').close()\nraise SystemExit('ran')\n")
    filled = {"suffix": suffix, "format": format, "watched": ("evil", "colorsys")}
    printed = run((MAKE + WATCH) % filled).splitlines()[-1]
    assert printed == "IMPORTED"
    assert not (site.parent / "ran").exists()


def test_the_watch_sees_a_plug_in_that_is_asked_for(run, site):
    install(site, "evil-plugin", "evil = evil.module:FORMAT")
    (site / "evil").mkdir()
    (site / "evil" / "__init__.py").write_text("")
    (site / "evil" / "module.py").write_text("open('ran', 'w').close()\n")
    filled = {"suffix": "safetensors", "format": "evil", "watched": ("evil",)}
    code = (MAKE + WATCH) % filled + "\ncall('info', f, '--format', 'evil')\nprint('evil.module' in loaded)"
    assert run(code).splitlines()[-1] == "True"
    assert (site.parent / "ran").exists()


def test_restoring_says_which_format_is_not_read(run, site):
    install(site, "evil-plugin", "evil = tests.toy:FORMAT")
    filled = {"suffix": "safetensors", "format": "evil"}
    code = (
        MAKE % filled
        + """
try:
    holdall.restore('c.safetensors', 'again')
except holdall.UnsupportedError as error:
    print(error)
"""
    )
    assert run(code) == "c.safetensors: carries a file of the format 'evil', not an allowed one"
