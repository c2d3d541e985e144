import pytest

pytest.register_assert_rewrite("holdall.testing")

from tests.golden import golden  # noqa: E402  # the rewriting has to come before any import of holdall


@pytest.fixture(name="golden")
def _golden():
    """The function that gives a folder of the corpus."""
    return golden
