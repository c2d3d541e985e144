import os
import re
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

# In the background of a shell, or under nohup, ctrl-C and hang-ups are ignored, and children would inherit that; tests
# send both. A handler is not inherited: children start with the default, and a hang-up still does not end the suite.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# These need terminals, file locks, limits or signals of POSIX as soon as they are imported.
NEEDS_POSIX = [
    "cli/test_cli_conventions.py",
    "cli/test_completion_in_shells.py",
    "faults/test_parts.py",
    "remote/test_download.py",
    "remote/test_no_secret_on_a_terminal.py",
    "survival/test_descriptors.py",
]
collect_ignore = [] if os.name == "posix" else NEEDS_POSIX

if os.environ.get("HOLDALL_TINY_BUFFERS") == "1":  # everything takes longer, and how long is not what is tested
    settings.register_profile("tiny", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tiny")

pytest.register_assert_rewrite("holdall.testing")

from holdall.binary import kernels  # noqa: E402
from tests.golden import golden  # noqa: E402  # the rewriting has to come before any import of holdall


@pytest.fixture(name="golden")
def _golden():
    """The function that gives a folder of the corpus."""
    return golden


# The reasons that a test may be skipped for on Linux; any other one is something that the environment of `make` should
# hold. Other systems lack more than can be listed here.
SKIPPED_FOR = re.compile(
    r"could not import '(torch|jax|transformers|xllamacpp)[.']|needs the extra (torch|jax)$"
    r"|the published golden files are not here"
    r"|this is another environment|only root mounts|this file system does not copy in the kernel"
    r"|there is no C compiler to try"
    r"|there is no (bash|zsh|fish) here|this file system has no access lists|there is no browser here"
    + ("" if kernels.NATIVE else r"|the C kernels are not compiled")
)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """A test that is skipped for another reason makes the run fail: it would be skipped for ever without notice."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skips = reporter.stats.get("skipped", []) if reporter else []
    checked = skips if sys.platform == "linux" else []
    reasons = {report.longrepr[2] for report in checked if not SKIPPED_FOR.search(report.longrepr[2])}
    for reason in sorted(reasons):
        reporter.write_line(f"\nno reason to skip a test: {reason}", red=True)
    if reasons and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
