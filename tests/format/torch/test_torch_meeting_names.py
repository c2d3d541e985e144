"""Names that meet when containers are flattened: each tensor and each value has a name, and returns to its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdall
from tests.format.torch.framework import Mode

torch = pytest.importorskip("torch")
package = pytest.importorskip("torch.package")
PackageExporter = package.PackageExporter


def values(path: Path) -> dict[str, list[float]]:
    with holdall.open(path) as model:
        return {name: model[name].numpy().tolist() for name in model}


MEETING = {
    "a.b": torch.ones(1), "a": {"b": torch.zeros(2), "b#2": torch.full((3,), 3.0), "n": 1}, "a.n": 2, "a.b#2": 4,
    "list": [torch.ones(2)], "list.0": torch.zeros(1),
}  # fmt: skip
NAMES = {"a.b": [1], "a.b#2": [0, 0], "a.b#2#2": [3, 3, 3], "list.0": [1, 1], "list.0#2": [0]}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_tensors_and_values_with_one_name(tmp_path, legacy):
    path = tmp_path / "m.pt"
    torch.save(MEETING, path, _use_new_zipfile_serialization=not legacy)
    assert values(path) == NAMES
    with holdall.open(path, allow_opaque=False) as model:
        assert dict(model.metadata) == {"a.n": 1, "a.n#2": 2, "a.b#2": 4}
    report = holdall.verify(path, level="strict")
    assert report.ok and not report.findings
    with holdall.open(path) as model:
        holdall.save(tmp_path / "again.pt", model)
    again = torch.load(tmp_path / "again.pt", weights_only=True)
    assert str(again) == str(torch.load(path, weights_only=True))
    if not legacy:
        holdall.edit(path, set={"a.n#2": 5}, rename={"a.b#2": "a.c"})
        edited = torch.load(path, weights_only=True)
        assert edited["a.n"] == 5 and edited["a"]["n"] == 1
        assert torch.equal(edited["a.b"], torch.ones(1)) and torch.equal(edited["a"]["c"], torch.zeros(2))


def test_the_same_with_an_object_beside_them(tmp_path):
    torch.save({**MEETING, "mode": Mode.FAST}, tmp_path / "m.pt")
    assert values(tmp_path / "m.pt") == NAMES
    with holdall.open(tmp_path / "m.pt") as model:
        assert {key: model.metadata[key] for key in ("a.n", "a.n#2", "a.b#2")} == {"a.n": 1, "a.n#2": 2, "a.b#2": 4}
    assert holdall.verify(tmp_path / "m.pt").ok


def test_many_names_that_meet_take_no_time_for_each_other(tmp_path):
    content = {"a": {f"{place}.w": torch.ones(1) for place in range(300)}}
    content |= {f"a.{place}": {"w": torch.zeros(1)} for place in range(300)}
    torch.save(content, tmp_path / "m.pt")
    found = values(tmp_path / "m.pt")
    assert len(found) == 600 and found["a.7.w"] == [1] and found["a.7.w#2"] == [0]


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c0 = torch.nn.Parameter(torch.full((3,), 9.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.c0


class Outer(torch.nn.Module):
    """A submodule that is called like the constants of a program."""

    def __init__(self) -> None:
        super().__init__()
        self.CONSTANTS = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.CONSTANTS(x) * torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.filterwarnings("ignore")
def test_a_submodule_called_like_the_constants(tmp_path):
    path = tmp_path / "s.pt"
    torch.jit.save(torch.jit.trace(Outer(), torch.ones(3)), path)
    found = values(path)
    for name, tensor in torch.jit.load(path).state_dict().items():
        assert found[name] == tensor.tolist()
    assert found["CONSTANTS.c0#2"] == [1, 2, 3]
    assert holdall.verify(path).ok


def test_pickles_of_a_package_with_one_name(tmp_path):
    path = tmp_path / "p.pt"
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        exporter.save_pickle("a.b", "c.pkl", {"w": torch.ones(2), "n": 1})
        exporter.save_pickle("a", "b.c.pkl", {"w": torch.zeros(2), "n": 2})
    assert values(path) == {"a.b.c.w": [1, 1], "a.b.c.w#2": [0, 0]}
    with holdall.open(path) as model:
        assert dict(model.metadata) == {"a.b.c.n": 1, "a.b.c.n#2": 2}
    assert holdall.verify(path).ok
