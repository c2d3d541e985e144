import signal

import pytest

# Whoever starts tests in the background may have ctrl-C ignored, which children would inherit; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("holdall.testing")

from tests.golden import golden  # noqa: E402  # the rewriting has to come before any import of holdall


@pytest.fixture(name="golden")
def _golden():
    """The function that gives a folder of the corpus."""
    return golden
