"""The writer keeps to the caps that readers enforce, and says so before it writes."""

from __future__ import annotations

import numpy as np
import pytest

import holdall


@pytest.mark.shows("A33")
def test_more_than_two_gigabytes_of_metadata_are_not_written(tmp_path):
    """A hash of 32 bytes, and what MessagePack adds to it, for each of 70 million pages."""
    with pytest.raises(holdall.ContentError, match=r"PHSH .* 2147483648 .*page_hash"):
        holdall.save(tmp_path / "a.aero", {"w": np.zeros(70_000_000, np.uint8)}, page_hash=1)
    assert list(tmp_path.iterdir()) == []
