"""What holds on macOS and on Windows, where names ignore case; run by tests/platforms/reduced.py."""

import os

import pytest

from holdall.errors import ContentError
from holdall.sink import write_folder
from holdall.sink.plan import FolderPlan, Plan


def plan_of(data):
    plan = Plan()
    plan.put(data)
    return plan


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["A", "a"], "'A' and 'a' differ"),
        (["A/x", "a/y"], "'A' and 'a' differ"),
        (["A", "a/x"], "'A' and 'a' differ"),
        (["deep/A/x", "deep/a/x"], "'deep/A/x' and 'deep/a/x' differ"),
        (["\u00e9.bin", "e\u0301.bin"], "'\u00e9.bin' and 'e\u0301.bin' differ"),
        (["\u00c9/x", "e\u0301/y"], "'\u00c9' and 'e\u0301' differ"),
    ],
)
def test_names_that_are_one_name_here_are_refused(tmp_path, names, shown):
    with pytest.raises(ContentError, match=f"^{shown} in case or in the form of letters only"):
        write_folder(tmp_path / "set", FolderPlan({name: plan_of(b"1") for name in names}))
    assert os.listdir(tmp_path) == []


def test_names_in_one_folder_are_written(tmp_path):
    write_folder(tmp_path / "set", FolderPlan({name: plan_of(b"1") for name in ["A/x", "A/y/z", "A/y/e", "B/x", "x"]}))
    assert sorted(os.listdir(tmp_path / "set")) == ["A", "B", "x"]
