"""What a verification has checked, and what it has not, where a file was read only in part, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.text import plural

if TYPE_CHECKING:
    from holdall.operations.examine import Examination

__all__ = ["describe_reach"]


def describe_reach(seen: Examination) -> tuple[str, str]:
    """What was checked, and what was not; both empty for a damaged file, and for one of which all was looked at."""
    verdict = seen.report.verdict
    unchecked = [] if seen.format is None or seen.model is None else seen.format.list_unchecked(seen.model)
    if verdict == "not ok" or (verdict == "ok" and not unchecked):
        return "", ""
    if seen.format is None:
        return "what kind of file it is", "its content"
    if seen.model is None:
        return f"that it is {seen.format.name}, and what comes before the finding", "all tensors, and their values"
    count = plural(len(seen.model.tensors), "tensor")
    values = (
        "without their values" if seen.report.level == "structure" else f"and their bytes at level {seen.report.level}"
    )
    if verdict == "not read":
        unchecked.insert(0, "what the findings called unread are about")
    return f"{count}, {values}", "; ".join(unchecked)
