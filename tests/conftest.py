import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Whoever starts tests in the background may have ctrl-C ignored, which children would inherit; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get("HOLDALL_TINY_BUFFERS") == "1":  # everything takes longer, and how long is not what is tested
    settings.register_profile("tiny", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tiny")

pytest.register_assert_rewrite("holdall.testing")

from tests.golden import golden  # noqa: E402  # the rewriting has to come before any import of holdall


@pytest.fixture(name="golden")
def _golden():
    """The function that gives a folder of the corpus."""
    return golden
