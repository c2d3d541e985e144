"""The time that a new file states."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from holdall.errors import ContentError

__all__ = ["NO_TIME", "state_time"]

NO_TIME = "1970-01-01T00:00:00Z"  # stated where no time is known


def state_time() -> str:
    """Return the time in SOURCE_DATE_EPOCH, else 1970: never the clock, so that equal models give equal files."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "0")
    try:
        moment = datetime.fromtimestamp(int(stated), UTC)
    except (ValueError, OverflowError, OSError):
        raise ContentError(f"SOURCE_DATE_EPOCH is {stated!r}, not a number of seconds") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
