"""No network unless a URL was given: every command and every public function on files that are here."""

from __future__ import annotations

import pytest

import holdall
from holdall.cli import COMMANDS
from tests.supply.watch import events
from tests.survival import shelf

# Each command on PATH, a file of some format, and OUT, a folder. What a format refuses is no matter here.
LINES = {
    "info": ["info PATH", "info PATH --json --untrusted"],
    "ls": ["ls PATH", "ls PATH --tree"],
    "verify": ["verify PATH --level strict --stats"],
    "explain": ["explain PATH"],
    "extract": ["extract PATH layers.0.weight -o OUT/w.npy", "extract PATH --all OUT/all"],
    "convert": ["convert PATH OUT/copy.safetensors", "convert OUT/copy.safetensors OUT/back.oinf --cast bf16"],
    "restore": ["convert PATH OUT/carrier.gguf --carry", "restore OUT/carrier.gguf OUT/again.oinf"],
    "quantize": ["quantize PATH OUT/small.mcf --method q8 --report OUT/report.html"],
    "diff": ["diff PATH OUT/copy.safetensors --report OUT/diff.html"],
    "edit": ["edit OUT/copy.safetensors --set a=b"],
    "repair": ["repair OUT/copy.safetensors --from OUT/copy.safetensors", "repair PATH --from PATH"],
    "embed": ["embed PATH text"],
    "calibrate": ["calibrate PATH -o OUT/ranges.json -i PATH"],
    "assets": ["assets PATH"],
    "formats": ["formats", "formats oinf"],
    "from-dataclass": ["from-dataclass tests.supply.sample:Sample OUT/sample.oinf"],
    "recipes": ["recipes", "recipes llama-gguf"],
    "view": ["view PATH --export OUT/page.html"],
    "demo": [],  # below, on its own: it takes longer
    "completion": ["completion bash"],
}

RUN = """
import sys
from holdall.cli import main
path, out = sys.argv[1], sys.argv[2]
for line in {lines!r}:
    words = [word.replace("PATH", path).replace("OUT", out) for word in line.split()]
    try:
        main(words, standalone_mode=False)
    except (Exception, SystemExit) as error:
        if "should not happen" in str(error):
            raise
"""

CALLS = """
import sys, holdall, numpy as np
from holdall import identity, numpy as fronts
path, out = sys.argv[1], sys.argv[2]
with holdall.open(path) as model:
    for tensor in model.fetch():
        tensor.numpy()
    model.config, model.vocab, model.sizevars, repr(model), model._repr_html_()
    identity.base_id("layers.0.weight")
    holdall.ParamStore().add(model)["layers.0.weight"]
    fronts.save_file({t.name: t.numpy() for t in model.tensors}, out + "/front.safetensors")
holdall.verify(path), holdall.formats()
holdall.convert(path, out + "/api.npz")
carrier = out + ("/carrier.oinf" if path.endswith(".gguf") else "/carrier.gguf")
holdall.convert(path, carrier, carry=True), holdall.restore(carrier, out + "/again")
holdall.diff(path, out + "/api.npz"), holdall.diff_trace(path, path)
holdall.edit(out + "/api.npz", set={"a": "b"}, dry_run=True)
fronts.load_file(path), fronts.load(open(out + "/front.safetensors", "rb").read())
holdall.quant.quantize(np.ones((8, 64), np.float32), "k4").numpy()
holdall.profiles.load("all-MiniLM-L6-v2")
"""


CLIENTS = ("obstore", "urllib3", "huggingface_hub", "holdall.source.remote.remote_source")


def network(told):
    loaded = [event for event in told if event[0] == "import" and event[1] in CLIENTS]
    return [event for event in told if event[0] == "network"] + loaded


def test_every_command_is_here():
    assert set(LINES) == set(COMMANDS)


@pytest.mark.parametrize("name", shelf.writers())
def test_no_command_uses_the_network(tmp_path, name):
    path, out = shelf.put(tmp_path, name), tmp_path / "out"
    out.mkdir()
    lines = [line for lines in LINES.values() for line in lines]
    told = events(RUN.format(lines=lines), "imports", arguments=(str(path), str(out)))
    made = {file.name for file in out.iterdir()}
    assert {"w.npy", "all", "copy.safetensors", "small.mcf", "report.html", "page.html"} <= made
    assert network(told) == []


@pytest.mark.parametrize("name", shelf.writers())
def test_no_function_uses_the_network(tmp_path, name):
    path = shelf.put(tmp_path, name)
    told = events(CALLS, "imports", arguments=(str(path), str(tmp_path)))
    assert (tmp_path / "api.npz").is_file()
    assert network(told) == []


def test_the_demo_does_not_either(tmp_path):
    told = events(RUN.format(lines=["demo"]), "imports", arguments=("", ""))
    assert network(told) == []


SERVING = {"view"}  # to this machine, which tests of its own look at


def test_the_public_verbs_are_all_called():
    verbs = {name for name in holdall.__all__ if name[0].islower() and callable(getattr(holdall, name))}
    assert {name for name in verbs if f"holdall.{name}(" not in CALLS and f"{name}(" not in CALLS} == SERVING | {"save"}


def test_a_url_does():
    """The watch sees it when there is something to see."""
    pytest.importorskip("obstore")
    code = "import holdall\ntry:\n    holdall.open('http://127.0.0.1:9/x.oinf')\nexcept Exception as e:\n    print(e)"
    assert network(events(code, "imports"))
    assert network(events("import socket\nsocket.socket()"))
