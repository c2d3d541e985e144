"""The workflows of .github: they run what the Makefile has, with as few rights as they can, and hold no token."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from tests.supply.pin import ROOT

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_there_are_the_three():
    assert [path.stem for path in FILES] == ["docs", "tests", "wheels"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workflow_reads_only_and_ends(path):
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert True in workflow, "YAML 1.1 reads the key `on` as true"
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40)), "a tag can be moved"
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"] == {"persist-credentials": False}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_that_exist(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    called = re.findall(r"run: make ([a-z-]+)", path.read_text())
    assert called
    assert set(called) <= set(targets)


def test_only_publishing_may_ask_for_an_identity_and_nothing_has_a_token():
    asking = [(path.stem, name) for path in FILES for name, job in load(path)["jobs"].items() if "permissions" in job]
    assert asking == [("wheels", "publish")]
    publish = load(FOLDER / "wheels.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    assert "refs/tags/v" in publish["if"]
    assert set(publish["needs"]) == {"wheels", "sdist"}
    assert not [path for path in FILES if re.search(r"secrets\.|password|api-token", path.read_text())]


def test_the_oldest_python_builds_the_wheel_that_serves_all():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = project["project"]["requires-python"].removeprefix(">=").replace(".", "")
    wheels = project["tool"]["cibuildwheel"]
    assert f"cp{oldest}-*" in wheels["build"]
    assert set(wheels["test-groups"]) <= set(project["dependency-groups"])
    assert f'"py_limited_api": "cp{oldest}"' in (ROOT / "setup.py").read_text()
