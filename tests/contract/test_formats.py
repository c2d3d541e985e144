"""Every registered format through the contract: a new one joins by being registered."""

from holdall.format import registry
from holdall.testing import FormatContract
from tests.contract.demands import DEMANDS
from tests.golden import ROOT

# Where the files of a format are in the corpus: folder, prefix, suffixes; by default its own name and suffixes.
_CORPUS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "gptrs-checkpoint": ("gptrs", "chk_", (".bin",)),
    "gptrs-archive": ("gptrs", "ten_", (".bin",)),
    "aeroset": ("aero", "", ("model.aeroset.json",)),
}


def _contract(name: str) -> type[FormatContract]:
    folder, prefix, suffixes = _CORPUS.get(name, (name, "", ()))
    corpus = ROOT / folder if (ROOT / folder).is_dir() else None
    facts = {"format": name, "corpus": corpus, "corpus_prefix": prefix, "corpus_suffixes": suffixes}
    facts["damage_cases"] = FormatContract.damage_cases // 4  # test_damage has all of them
    title = "Test" + name.title().replace("-", "")
    return type(title, (DEMANDS.get(name, FormatContract),), {**facts, "__module__": __name__})


for _name in registry.names():
    _made = _contract(_name)
    globals()[_made.__name__] = _made
del _made  # the last one would be collected twice
