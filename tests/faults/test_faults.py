"""Every system call of every kind of write fails once, in every way it can."""

from collections import Counter

import pytest
from tools import faults
from tools.writes import writes

# Those of many system calls, each of which fails in turn.
MANY_CALLS = {
    "convert safetensors to a split folder",
    "convert safetensors to aeroset",
    "convert safetensors to a quantized mcf",
    "repair aero",
    "edit aero",
}
NAMES = [pytest.param(write.name, marks=pytest.mark.long if write.name in MANY_CALLS else ()) for write in writes(0)]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    try:
        return faults.build(tmp_path_factory.mktemp("faults"))
    except FileNotFoundError:
        pytest.skip("there is no C compiler to try")


@pytest.mark.parametrize("name", NAMES)
def test_any_call_may_fail(name, library, tmp_path):
    outcome = faults.run(name, library, tmp_path)
    assert outcome.wrong == []
    calls = Counter(call.partition(" ")[0] for call in outcome.calls)
    assert {"create", "flock", "rename", "close"} <= set(calls)
    assert "write" in calls or "copy_file_range" in calls
    assert ("fsync" in calls) is (name != "extract")  # which asks for none
    assert outcome.cases > 2 * len(outcome.calls)
