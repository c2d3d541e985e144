"""Writes killed at random moments: forty here, thousands by ``make soak``."""

from holdall.testing.kills import soak


def test_killed_writes_leave_the_old_file_or_the_new_one(tmp_path):
    rows = soak(40, tmp_path, size=512 << 10)
    assert [text for row in rows for text in row.damage] == []
    assert sum(row.kills for row in rows) == 40
    assert {"save", "convert", "edit", "repair"} <= {row.name.partition(" ")[0] for row in rows}
    assert sum(row.old for row in rows) > 4  # else they came too late to say anything
