import numpy as np
import pytest

from holdall.base.check import LEVELS, Check, Finding, Report, Rule, figure
from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.limits import Limits

RULE = Rule("t.rule", "a rule")
FULL = Rule("t.full", "looked at with payloads", "full")
STRICT = Rule("t.strict", "looked at strictly", "strict", "warning")


def collecting(level="strict", **limits):
    report = Report("f", "t", level)
    return Check(limits=Limits(**limits), report=report), report


def test_opening_raises_at_the_first_breach():
    with pytest.raises(FormatError) as caught:
        Check().fail(RULE, 7, "broken", inner="$.a")
    assert (caught.value.rule, caught.value.offset) == ("t.rule", 7)
    assert str(caught.value) == "broken [$.a] (at byte 0x7)"
    with pytest.raises(LimitError, match="pens: 11 is above the limit of 10"):
        Check(limits=Limits(tensors=10)).limit("tensors", 11, None, "pens")
    Check(limits=Limits(tensors=10)).limit("tensors", 10, None, "pens")


def test_opening_notes_nothing_and_scopes_hold_nothing_back():
    check = Check()
    check.note(RULE, 0, "never mind")
    with pytest.raises(FormatError), check.together(), check.scope():
        check.fail(RULE, 0, "broken")


def test_scopes_end_where_they_fail():
    check, report = collecting()
    reached = []
    with check.scope():
        with check.scope():
            reached.append(1)
            check.fail(RULE, 1, "inner")
        reached.append(2)
        check.fail(RULE, 2, "outer", hint="h", inner="i")
    reached.append(3)
    assert reached == [1, 2, 3]
    assert report.findings == [
        Finding("t.rule", "error", 1, "inner"),
        Finding("t.rule", "error", 2, "outer", "h", "i"),
    ]
    assert not report.ok


def test_errors_from_below_end_in_the_scope():
    check, report = collecting()
    check.file = "part"
    with check.scope():
        raise LimitError("core.limit", 5, "too much")
    with check.scope():
        raise UnsupportedError("not this")
    assert [(f.rule, f.offset, f.file) for f in report.findings] == [
        ("core.limit", 5, "part"),
        ("core.unsupported", None, "part"),
    ]
    assert not report.ok
    for error in (KeyError, ValueError, MemoryError, RecursionError, OSError):
        with pytest.raises(error), check.scope():
            raise error


def test_together_all_run_and_stand_or_fall_as_one():
    check, report = collecting()
    reached = []
    with check.scope():
        with check.together():
            with check.scope():
                check.fail(RULE, 1, "one")
            with check.scope():
                check.fail(RULE, 2, "two")
            with check.scope():
                reached.append("three")
        reached.append("not here")
    assert reached == ["three"]
    assert [finding.offset for finding in report.findings] == [1, 2]
    with check.scope(), check.together():
        with check.scope():
            reached.append("fine")
        reached.append("fine after")
    assert reached[1:] == ["fine", "fine after"]


def test_an_earlier_failure_is_no_failure_of_later_ones():
    check, _ = collecting()
    with check.scope():
        check.fail(RULE, 1, "before")
    reached = []
    with check.scope():
        with check.together(), check.scope():
            pass
        reached.append(1)
    assert reached == [1]


@pytest.mark.parametrize("level", LEVELS)
def test_levels(level):
    check, report = collecting(level)
    for rule in (RULE, FULL, STRICT):
        assert check.wants(rule.level) == (LEVELS.index(rule.level) <= LEVELS.index(level))
        check.note(rule, 0, "x")
        check.rows(np.array([True, False]), Rule(rule.id, "", "full", "note") if rule is RULE else rule, [0, 9], str)
    found = [finding.rule for finding in report.findings]
    assert ("t.full" in found) == (level != "structure")
    assert ("t.strict" in found) == (level == "strict")
    assert Check().wants("structure")
    assert not Check().wants("full")


def test_rows():
    ok = np.array([True, False, True, False])
    with pytest.raises(FormatError) as caught:
        Check().rows(ok, RULE, np.array([5, 6, 7, 8], np.uint64), lambda row: f"row {row}")
    assert (caught.value.offset, caught.value.message) == (6, "row 1")
    Check().rows(ok, FULL, [0] * 4, str)
    Check().rows(np.ones(3, bool), RULE, [0] * 3, str)
    Check().rows(np.ones(0, bool), RULE, [], str)
    check, report = collecting()
    after = []
    with check.scope():
        check.rows(ok, RULE, lambda row: row * 100, lambda row: f"row {row}", hint="h")
        after.append(1)
    with check.scope():
        check.rows(ok, STRICT, [1, 2, 3, 4], str)
        after.append(2)
    assert after == [2]
    assert [(f.rule, f.offset, f.message) for f in report.findings] == [
        ("t.rule", 100, "row 1"), ("t.rule", 300, "row 3"), ("t.strict", 2, "1"), ("t.strict", 4, "3"),
    ]  # fmt: skip


def test_findings_are_capped_by_rule_and_the_rest_counted():
    check, report = collecting(findings_per_rule=3)
    made = []
    with check.scope():
        check.rows(np.zeros(10**6, bool), STRICT, lambda row: row, lambda row: made.append(row) or "m")
    assert len(made) == 3
    check.note(STRICT, 0, "one more")
    for _ in range(5):
        with check.scope():
            check.fail(RULE, 0, "x")
    assert report.suppressed == {"t.strict": 10**6 - 2, "t.rule": 2}
    assert len(report.findings) == 6
    check.rows(np.zeros(4, bool), STRICT, lambda row: row, str)
    assert report.suppressed["t.strict"] == 10**6 + 2


def test_what_is_not_listed_counts_with_its_severity():
    for cap in range(3):
        check, report = collecting(findings_per_rule=cap)
        for _ in range(2):
            check.note(STRICT, 0, "hm")
        assert report.ok
        assert str(report) == "f: 2 warnings (t, level strict)"
        with check.scope():
            check.fail(RULE, 0, "x")
        with check.scope():
            check.rows(np.zeros(4, bool), RULE, lambda row: row, str)
        assert not report.ok
        assert report.counts == {"error": 5, "warning": 2}
        assert str(report) == "f: 5 errors, 2 warnings (t, level strict)"
        assert len(report.findings) == 2 * cap


def test_reports_say_what_they_are():
    check, report = collecting()
    assert report.ok
    assert str(report) == "f: ok (t, level strict)"
    check.note(STRICT, 0, "hm")
    assert report.ok
    check.note(RULE, 0, "no")
    check.note(RULE, 0, "no")
    assert not report.ok
    assert str(report) == "f: 2 errors, 1 warning (t, level strict)"


def test_numbers_of_any_size_can_be_printed():
    assert figure(2**64 - 1) == str(2**64 - 1)
    assert figure(0) == "0"
    assert figure(2**300000) == "about 2^300000"
    with pytest.raises(LimitError, match=r"about 2\^99999"):
        Check().limit("rank", 2**99999, None, "x")
