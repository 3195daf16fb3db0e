"""The supervisor under all background work."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postroom
from postroom.errors import BusDisconnected, DatabaseAway, StateUnwritable
from postroom.observe import supervision
from postroom.observe.supervision import FAILING, failing, guarded, supervisor, well
from postroom.protocol.alerts import Alert
from tests.supervised import QUICK

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("background-supervised")]

SECONDS = 10.0


class Faulty:
    """Work that a test breaks and mends."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.rounds = asyncio.Semaphore(0)
        self.tries = 0

    async def once(self) -> None:
        self.tries += 1
        self.rounds.release()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    async def run(self) -> None:
        while True:
            await self.once()
            well()
            await asyncio.sleep(0.001)

    async def go_round(self, times: int = 3) -> None:
        async with asyncio.timeout(SECONDS):
            for _ in range(times):
                await self.rounds.acquire()


@pytest.mark.parametrize("every", [0.0, 0.001])
@pytest.mark.parametrize(
    "error", [DatabaseAway("away"), OSError(28, "No space left on device"), KeyError("x")]
)
async def test_work_that_fails_is_begun_again_and_says_so_until_it_succeeds(
    every: float, error: Exception
):
    work = Faulty()
    async with supervisor("default") as background:
        background.supervise("work", work.once if every else work.run, every=every, retry=QUICK)
        await work.go_round()
        assert background.failing == []
        work.error = error
        await work.go_round()
        (fails,) = background.failing
        assert (fails["name"], background.loops["work"].total > 0) == ("work", True)
        assert error.args[-1] in fails["error"]
        work.error = None
        await work.go_round()
        assert background.failing == []


async def test_only_what_is_fatal_ends_what_it_serves():
    work, other = Faulty(), Faulty()

    async def live() -> None:
        async with supervisor() as background:
            background.supervise("work", work.run, fatal=(StateUnwritable,), retry=QUICK)
            background.supervise("other", other.run, retry=QUICK)
            other.error = StateUnwritable("the disk is full")
            work.error = DatabaseAway("away")
            await work.go_round()
            await other.go_round()
            work.error = StateUnwritable("the disk is full")
            async with asyncio.timeout(SECONDS):
                await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        await live()
    assert ended.value.subgroup(StateUnwritable) is not None


async def test_work_that_returns_is_over_and_a_name_is_given_once():
    async def nothing() -> None:
        pass

    async with supervisor() as background:
        background.supervise("work", nothing)
        with pytest.raises(ValueError, match="already"):
            background.supervise("work", nothing)
        async with asyncio.timeout(SECONDS):
            await asyncio.wait(background._tasks)


async def test_work_may_wait_a_fault_out_by_itself():
    noted = asyncio.Event()

    async def waits() -> None:
        failing(BusDisconnected("there is no bus"))
        noted.set()
        await asyncio.Event().wait()

    async with supervisor() as background:
        background.supervise("work", waits)
        async with asyncio.timeout(SECONDS):
            await noted.wait()
        assert [each["error"] for each in background.failing] == ["there is no bus"]


async def test_people_are_told_once_of_what_fails_for_long_and_once_that_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(supervision, "PATIENCE", 0.05)
    monkeypatch.setattr(supervision, "RETRY", QUICK)
    told: asyncio.Queue[Alert] = asyncio.Queue()
    bus: list[Exception] = []

    async def tell(alert: Alert) -> None:
        if bus:
            raise bus.pop()
        told.put_nowait(alert)

    work = Faulty()
    async with supervisor("default") as background, asyncio.timeout(SECONDS):
        background.supervise("work", work.run, retry=QUICK)
        background.tell_by(tell, left=True)
        assert await told.get() == Alert(FAILING, "")  # what an earlier process has left
        bus += [BusDisconnected("gone"), DatabaseAway("away"), RuntimeError("x")]
        work.error = DatabaseAway("the database is away")
        raised = await told.get()
        assert (raised.kind, raised.about) == (FAILING, "work")
        assert "the database is away" in raised.text
        await work.go_round(20)
        assert told.empty()
        bus += [BusDisconnected("gone"), DatabaseAway("away")]
        work.error = None
        assert await told.get() == Alert(FAILING, "", about="work")
        await work.go_round(20)
        assert told.empty()


async def test_nobody_is_told_of_what_fails_for_a_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervision, "PATIENCE", 5.0)
    told: list[Alert] = []

    async def tell(alert: Alert) -> None:
        told.append(alert)

    work = Faulty()
    async with supervisor() as background:
        background.supervise("work", work.run, retry=QUICK)
        background.tell_by(tell)
        work.error = DatabaseAway("away")
        await work.go_round()
        work.error = None
        await work.go_round()
    assert told == []


KNOWN = {
    "control/http_protocol.py DeadlineProtocol": "one request; its end is the end of its connection",
    "control/orgs.py Orgs": "keeps an organisation open: its own pauses, its alert org-failed, its state in `org list`",
    "control/ops/terminals.py": "one terminal, for as long as its request",
    "control/up.py _PostRoom": "nats-server and the listeners: without them there is no post room",
    "gateway/http/exchange.py Exchange": "one request",
    "gateway/http/tunnel.py Tunnel": "one connection",
    "gateway/listener.py TlsListener": "one connection",
    "gateway/server.py Gateway": "one connection, one alert",
    "projection/fold.py Fold": "the parts of the fold, which is one work and fatal",
    "remote/task.py RemoteTask": "one task of another's agent, guarded by `RemoteWork`",
    "remote/work.py RemoteWork": "one task each, guarded and begun again one by one",
    "webhooks/lanes.py Lanes": "one receiver each, guarded and tried again one by one",
    "workers/following.py WorkFollower": "the parts of one work; what one of them meets ends it, and it begins again",
    "workers/runs.py Runs": "one sandbox each, from its start to its end",
    "workers/runs.py Unwalled": "ends when no worker waits for a wall; a start that fails is tried again",
}
"""Where the control plane begins tasks that no supervisor keeps, and why."""

PACKAGES = [
    *("audit", "backup", "blobs", "control", "directory", "events", "feed", "gateway", "identity"),
    *("mail", "observe", "projection", "push", "remote", "store", "tasks", "templates", "webhooks"),
    "workers",
]


GUARDING = {
    "projection/fold.py Fold": "one record that no rule foresaw: people are told, its sequence is kept",
    "projection/following.py Following": "what follows from such a record: people are told",
    "remote/task.py RemoteTask": "one task, which fails with the reason",
    "workers/runs.py Runs": "one run, which has ended with the reason",
}
"""Where the control plane logs any error and goes on, and why."""


def guarding(path: Path) -> Iterator[str]:
    """The classes of a module, "" for none, that log any error and go on."""
    for top in ast.parse(path.read_text()).body:
        for node in ast.walk(top):
            if not isinstance(node, ast.ExceptHandler) or any(
                isinstance(each, ast.Raise) for each in ast.walk(node)
            ):
                continue
            caught = "BaseException" if node.type is None else ast.unparse(node.type)
            logs = any(
                ast.unparse(each.func).startswith("log.")
                for each in ast.walk(node)
                if isinstance(each, ast.Call)
            )
            if logs and caught in {"Exception", "BaseException"}:
                yield top.name if isinstance(top, ast.ClassDef) else ""


def begun(path: Path) -> Iterator[str]:
    """The classes of a module, "" for none, that begin tasks."""
    tree = ast.parse(path.read_text())
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and getattr(
                node.func, "attr", getattr(node.func, "id", "")
            ) in ("create_task", "ensure_future"):
                yield top.name if isinstance(top, ast.ClassDef) else ""


def found_by(look: Callable[[Path], Iterator[str]]) -> set[str]:
    root = Path(postroom.__file__).parent
    return {
        f"{path.relative_to(root).as_posix()} {where}".strip()
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if path.name != "supervision.py"
        for where in look(path)
    }


async def test_no_task_of_the_control_plane_is_begun_without_a_supervisor():
    assert found_by(begun) == set(KNOWN), "begin it by `Supervisor.supervise`, or say here why not"


async def test_no_loop_of_the_control_plane_guards_itself():
    assert found_by(guarding) == set(GUARDING), "take `guarded`, or say here why not"


async def test_what_goes_wrong_with_one_of_many_things_ends_no_other(
    caplog: pytest.LogCaptureFixture,
):
    for error in (DatabaseAway("away"), KeyError("x")):
        with guarded("one of many") as guard:
            raise error
        assert guard.error is error
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
    with pytest.raises(DatabaseAway), guarded("one of many", fatal=(DatabaseAway,)):
        raise DatabaseAway("away")
