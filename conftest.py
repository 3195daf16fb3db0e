"""How the tests run: the `requirement` marker, time limits, what is repeated, and that no promise is skipped.

A test that proves a promise may be skipped on a laptop that lacks something. In CI (`CI=true`) such a skip
fails the run, because a promise that nobody checked would look kept. What a test gets is said in tests/conftest.py.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import secrets
import signal
import sys
from asyncio import CancelledError
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
from _pytest.faulthandler import fault_handler_stderr_fd_key
from anyio import pytest_plugin

from postroom import inherited

# A run in the background of a shell ignores SIGINT, and so would every command that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As the control plane does: no child of ours calls gRPC (`control.a2a.grpc`).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

ROOT = Path(__file__).parent
SLOWEST = (
    "agents",
    "e2e",
    "docs",
    "benchmarks",
    "sidecar",
    "a2a",
    "control",
    "sandbox",
    "attack",
    "bus",
    "manifest",
    "cli",
)
"""Folders whose files take longest; where one is missing a run is a little slower."""

MOST_REPEATED = 6
"""Tests of a run that may fail once and pass when they are repeated: fewer than one in a thousand."""

REASON = 1500
"""Characters of a repeated test's first failure that the end of the run tells."""


AGAIN = 5.0
"""Seconds after which a test that is over its time is interrupted once more."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """Interrupt a test that is over its time until it ends, and not only once.

    asyncio keeps what is raised in a callback or in a task for itself, and so it may swallow the first interruption.
    """
    done = yield
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if left:
        signal.setitimer(signal.ITIMER_REAL, left, AGAIN)
    return done


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell of a failure that pytest cannot show, and would end the run for: as Python itself shows it.

    A test that was interrupted between two lines is one, and where Python 3.11 cannot parse a source another.
    """
    if call.excinfo is not None:
        show_lines_alone(call.excinfo.tb)
    try:
        return (yield)
    except SystemError:  # "AST constructor recursion depth mismatch": while another thread parses
        option, style = item.config.option, item.config.option.tbstyle
        option.tbstyle = "native"
        try:
            return pytest.TestReport.from_item_and_call(item, call)
        finally:
            option.tbstyle = style


def show_lines_alone(place: Any) -> None:
    """Take out of a traceback what has no line (`tb_lineno` is None): where a signal came as a coroutine began."""
    while place.tb_next is not None:
        if place.tb_next.tb_lineno is None:
            place.tb_next = place.tb_next.tb_next
        else:
            place = place.tb_next


@pytest.hookimpl(wrapper=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> Generator[None]:
    """Set both time limits anew after a failure, for what cleans up behind the test and for its repetition.

    pytest and pytest-timeout take them off at each failure, for a debugger that might begin there.
    """
    yield
    if not isinstance(node, pytest.Item) or node.config.getoption("usepdb"):
        return
    settings = pytest_timeout._get_item_settings(node)
    if settings.timeout:
        node.ihook.pytest_timeout_set_timer(item=node, settings=settings)
    if limit := float(node.config.getini("faulthandler_timeout") or 0):
        _end_process_after(limit, node.config)


def _end_process_after(limit: float, config: pytest.Config) -> None:
    """Where the Makefile says so; else only the stacks are printed."""
    ends = config.getini("faulthandler_exit_on_timeout")
    stderr = config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(limit, file=stderr, exit=bool(ends))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """End an asynchronous test that was interrupted: what cleans up behind it runs in the same task."""
    try:
        return (yield)
    except pytest.fail.Exception as error:
        if "from pytest-timeout" in str(error):
            _end_interrupted()
        raise


def _end_interrupted() -> None:
    runner: Any = pytest_plugin._current_runner
    task = getattr(runner, "_runner_task", None)
    if task is None:
        return
    runner._runner_task = None  # the next call gets a new one
    task.cancel()
    with suppress(CancelledError):
        runner.get_loop().run_until_complete(task)


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


class RepeatedTests:
    """Lists the tests that failed and passed at once when repeated (`--reruns`), and fails a run with many of them.

    The tests start some thousand processes on shared cores. One that meets a slow moment is a defect to mend, and no
    reason to hold up a change; several are a reason.
    """

    def __init__(self) -> None:
        self.nodeids: list[str] = []
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":
            self.nodeids.append(report.nodeid)
            self.reasons[report.nodeid] = report.longreprtext[-REASON:]

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        # pytest-xdist gives the rest of the file to another worker, this test too.
        if crashitem not in self.nodeids:
            report.outcome = "rerun"  # ty: ignore[invalid-assignment]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.nodeids) > MOST_REPEATED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.nodeids:
            terminalreporter.write_line(f"failed once, to be mended: {nodeid}", yellow=True)
            terminalreporter.write_line(self.reasons.get(nodeid, "its process ended"))
        if len(self.nodeids) > MOST_REPEATED:
            terminalreporter.write_line(f"more than {MOST_REPEATED} tests failed once", red=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: half of the time a test waits for servers and processes, so two cores have work for six."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(2 * cores + 2, cores + 4)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector off what is there from the first test to the last: 300,000 objects a worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow folders first, so that at the end of a run no worker is left with a long file."""
    last = len(SLOWEST)
    order = {folder: place for place, folder in enumerate(SLOWEST)}

    def place(item: pytest.Item) -> int:
        parts = item.path.relative_to(ROOT).parts  # the tests of the library lie below `a2a`
        return min((order[part] for part in parts if part in order), default=last)

    items.sort(key=place)


def end_with_us() -> None:
    """Mark this run, and have tests/guard.py end what it has started, however it ends itself.

    Many tests give what they start an environment of its own, but everything inherits a limit; that of realtime means
    nothing to processes without realtime scheduling.
    """
    if not hasattr(os, "pidfd_open"):
        return
    mark = str(secrets.randbits(40) | 1 << 40)  # microseconds: 12 days or more
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_RTTIME, (int(mark), hard))
    os.environ["POSTROOM_TEST_RUN"] = mark
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", str(ROOT / "tests" / "guard.py"), str(os.getpid()), mark],
        {},
        file_actions=quiet,
        setsid=True,  # it outlives the signal that ends the run, and its terminal
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "requirement(id, ...): the promises of tests/requirements.py that this test proves",
    )
    is_worker = hasattr(config, "workerinput")  # pytest-xdist: the controller judges the run
    if is_worker or not config.getoption("numprocesses", None):
        inherited.settle()  # nohup holds for a run and its workers, not for what they start
    if not is_worker:
        config.pluginmanager.register(RepeatedTests(), "repeated-tests")
        end_with_us()
    if os.environ.get("CI") == "true" and not is_worker:
        config.pluginmanager.register(SkippedPromises(), "skipped-promises")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was collected out of every later collection of garbage: some million objects that stay to the end."""
    gc.collect()
    gc.freeze()
