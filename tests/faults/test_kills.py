"""Writes killed at random moments: forty here, thousands by ``make soak``."""

import pytest
from tools.kills import soak


@pytest.mark.long
def test_killed_writes_leave_the_old_file_or_the_new_one(tmp_path):
    for seed in range(4):
        rows = soak(40, tmp_path / str(seed), size=512 << 10, seed=seed)
        assert [text for row in rows for text in row.damage] == []
        assert sum(row.kills for row in rows) == 40
        assert {"save", "convert", "edit", "repair"} <= {row.name.partition(" ")[0] for row in rows}
        if sum(row.old for row in rows) > 4:
            return
    pytest.fail("on a busy machine all kills came too late to say anything")
