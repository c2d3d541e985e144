"""Every registered format through the contract: a new one joins by being registered."""

from holdall import registry
from holdall.testing import FormatContract
from tests.contract.demands import DEMANDS
from tests.golden import ROOT

_CORPUS = {"gptrs-checkpoint": ("gptrs", "chk_"), "gptrs-archive": ("gptrs", "ten_"), "aeroset": ("aero", "")}


def _contract(name: str) -> type[FormatContract]:
    folder, prefix = _CORPUS.get(name, (name, ""))
    corpus = ROOT / folder if (ROOT / folder).is_dir() else None
    facts = {"format": name, "corpus": corpus, "corpus_prefix": prefix, "__module__": __name__}
    title = "Test" + name.title().replace("-", "")
    return type(title, (DEMANDS.get(name, FormatContract),), facts)


for _name in registry.names():
    _made = _contract(_name)
    globals()[_made.__name__] = _made
del _made  # the last one would be collected twice
