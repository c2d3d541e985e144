"""Saving many tensors: what each takes beyond what the caller holds, in every format."""

from functools import partial

import numpy as np
import pytest

import holdall
from holdall.base.parallel import use_threads
from holdall.testing.isolation import cost_of, run_isolated

COUNT = 150_000
EACH = 150  # bytes; an object for each tensor and each piece took 700 to 1,700
FIXED = 36 << 20  # buffers and threads, and an index of up to 32 MiB that AERO compresses as a whole


@pytest.fixture(scope="module")
def content():
    values = np.arange(4 * COUNT, dtype=np.float32).reshape(COUNT, 4)
    return {f"model.layers.{n // 10}.block.{n % 10}.weight": values[n] for n in range(COUNT)}


def save_alone(path, content, **options):
    """Save by one thread: what several hold at once depends on who else uses the machine, and not on the tensors."""
    with use_threads(1):
        holdall.save(path, content, fsync=False, **options)


@pytest.mark.parametrize("format", sorted(holdall.formats()))
def test_memory_of_each_tensor(tmp_path, content, format):
    holdall.save(tmp_path / "small", {"w": np.ones(4, np.float32)}, format=format, fsync=False)
    save = partial(save_alone, tmp_path / "many", content, format=format)
    cost = run_isolated(partial(cost_of, save))
    assert cost.peak_bytes < EACH * COUNT + FIXED, f"{cost.peak_bytes / COUNT:.0f} bytes a tensor"
    with holdall.open(tmp_path / "many") as model:
        assert len(model) == COUNT
        for name in list(content)[:: COUNT // 7]:
            assert np.array_equal(model[name].numpy(), content[name])


@pytest.mark.parametrize("format", ["aero", pytest.param("aeroset", marks=pytest.mark.long)])
def test_hashes_of_tensors_are_no_object_each(tmp_path, content, format):
    from blake3 import blake3

    holdall.save(tmp_path / "small", {"w": np.ones(4, np.float32)}, format=format, fsync=False, tensor_hash=True)
    save = partial(save_alone, tmp_path / "many", content, format=format, tensor_hash=True)
    cost = run_isolated(partial(cost_of, save))
    fixed = FIXED + (20 << 20) * (format == "aeroset")  # the index of the set beside that of its part
    assert cost.peak_bytes < (EACH + 100) * COUNT + fixed, f"{cost.peak_bytes / COUNT:.0f} bytes a tensor"
    with holdall.open(tmp_path / "many") as model:
        for name in list(content)[:: COUNT // 7]:
            assert model[name].native.hash_b3 == blake3(content[name].tobytes()).hexdigest()
    report = holdall.verify(tmp_path / "many")
    assert report.ok, report.findings
