"""Every system call of every kind of write fails once, in every way it can."""

from collections import Counter

import pytest

from holdall.testing import faults
from holdall.testing.writes import writes

NAMES = [write.name for write in writes(0)]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    try:
        return faults.build(tmp_path_factory.mktemp("faults"))
    except FileNotFoundError:
        pytest.skip("no C compiler")


@pytest.mark.parametrize("name", NAMES)
def test_any_call_may_fail(name, library, tmp_path):
    outcome = faults.run(name, library, tmp_path)
    assert outcome.wrong == []
    calls = Counter(call.partition(" ")[0] for call in outcome.calls)
    assert {"create", "flock", "rename", "close"} <= set(calls)
    assert "write" in calls or "copy_file_range" in calls
    assert ("fsync" in calls) is (name != "extract")  # which asks for none
    assert outcome.cases > 2 * len(outcome.calls)
