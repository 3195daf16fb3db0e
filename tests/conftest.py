"""What every test gets: the event loop's kind, the `requirement` marker, and the rule that promises are not skipped.

A test that proves a promise may be skipped on a laptop that lacks something. In CI (`CI=true`) such a skip
fails the run, because a promise that nobody checked would look kept.
"""

from __future__ import annotations

import os
import signal

import hypothesis
import pytest

# A run in the background of a shell ignores SIGINT, and so would every command that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two shared cores make single examples slow now and then; the time limit of each test still holds.
# `quick` takes the same examples each time, so a red run is never bad luck; HYPOTHESIS_PROFILE=nightly looks further.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """nats-py runs on asyncio only, so all async tests do."""
    return "asyncio"


class SkippedPromises:
    """Fails a CI run in which a test of a promise, or a whole module, was skipped."""

    def __init__(self) -> None:
        self.nodeids: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A module that is skipped whole cannot show which of its tests are marked.
        if report.skipped:
            self.nodeids.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # xfail reports as skipped too; such a test did run.
        if report.skipped and "requirement" in report.keywords and not hasattr(report, "wasxfail"):
            self.nodeids.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.nodeids:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in sorted(self.nodeids):
            terminalreporter.write_line(f"CI: a promise was not checked: {nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "requirement(id, ...): the promises of tests/requirements.py that this test proves",
    )
    is_worker = hasattr(config, "workerinput")  # pytest-xdist: the controller judges the run
    if os.environ.get("CI") == "true" and not is_worker:
        config.pluginmanager.register(SkippedPromises(), "skipped-promises")
