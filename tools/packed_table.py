"""Fills in the table of docs/packed.md: for each scheme, what the tests do with packed models of its libraries.

``python -m tools.packed_table`` rewrites it. The rows are the models in tests/golden/packed, by scheme; the columns are
the tests that are marked with ``@pytest.mark.operation("read")``, each of which runs with every model.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import holdall
from holdall.packed import SCHEMES, find_weights

__all__ = ["PAGE", "fill_in", "list_operations"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "packed.md"
_TESTS = "tests/packed/test_operations.py"
_GOLDEN = ROOT / "tests" / "golden" / "packed"
_TABLE = re.compile(r"(?<=<!-- made by python -m tools\.packed_table: begin -->\n).*?(?=<!-- end -->)", re.DOTALL)
_EVERY = "every_model"


def list_operations() -> list[str]:
    """The operations that are tested with every model, in the order of the tests."""
    found = []
    for node in ast.parse((ROOT / _TESTS).read_text()).body:
        marks = {ast.unparse(mark) for mark in node.decorator_list} if isinstance(node, ast.FunctionDef) else set()
        names = [re.fullmatch(r"pytest\.mark\.operation\('(.*)'\)", mark) for mark in marks]
        found += [name[1] for name in names if name is not None and _EVERY in marks]
    return found


def fill_in(page: str) -> str:
    """The page with its table made anew."""
    return _TABLE.sub(lambda _: "".join(f"{line}\n" for line in _list_lines()), page)


def _list_lines() -> Iterator[str]:
    operations = list_operations()
    yield f"| scheme | kinds | proven by | {' | '.join(operations)} |"
    yield "|---|---|---|" + "--:|" * len(operations)
    models = [_describe(path) for path in sorted(_GOLDEN.glob("*.expected.safetensors"))]
    for scheme in SCHEMES:
        own = [each for each in models if each[0] == scheme.name]
        if own:
            kinds = " ".join(sorted({kind for each in own for kind in each[2]}))
            oracles = "; ".join(dict.fromkeys(each[1] for each in own))
            yield f"| {scheme.title} | {kinds} | {oracles} | {' | '.join([str(len(own))] * len(operations))} |"


def _describe(path: Path) -> tuple[str, str, set[str]]:
    """Scheme, oracle and kinds of the weights of a model."""
    folder = path.with_name(path.name.removesuffix(".expected.safetensors"))
    with holdall.open(path) as expected:
        scheme, oracle = str(expected.metadata["scheme"]), str(expected.metadata["oracle"])
    with holdall.open(folder if (folder / "config.json").exists() else folder / "model.safetensors") as model:
        found = find_weights(model)
        assert found is not None
        return scheme, oracle, {str(weight.encoding).partition(".")[2] for weight in found.weights}


if __name__ == "__main__":
    PAGE.write_text(fill_in(PAGE.read_text()))
