"""What a verification has checked, and what it has not, where a file cannot be read, or only in part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.text import plural

if TYPE_CHECKING:
    from holdall.operations.examine import Examination

__all__ = ["describe_reach"]


def describe_reach(seen: Examination) -> tuple[str, str]:
    """What was checked, and what was not; both empty where the verdict is not ``not read``."""
    if seen.report.verdict != "not read":
        return "", ""
    if seen.format is None:
        return "what kind of file it is", "its content"
    if seen.model is None:
        return f"that it is {seen.format.name}, and what comes before the finding", "all tensors, and their values"
    count = plural(len(seen.model.tensors), "tensor")
    values = (
        "without their values" if seen.report.level == "structure" else f"and their bytes at level {seen.report.level}"
    )
    return f"{count}, {values}", "what the findings called unread are about"
