"""All background work of an organisation by name, over broken parts: nothing ends but what is fatal."""

from __future__ import annotations

import ast
import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.audit import Trouble
from postroom.audit import log as audit_log
from postroom.audit.server import StoredRecords
from postroom.bus.disk import DiskWatch
from postroom.control.measuring import _of_process
from postroom.control.parts import Parts
from postroom.errors import DatabaseAway, PostroomError, StateUnwritable
from postroom.gateway.listener import TlsListener, bind_listener
from postroom.identity.trust import Trust
from postroom.mail.alerts import AlertService
from postroom.observe import tracing
from postroom.observe.metrics import text as shown
from postroom.observe.supervision import FAILING, TELLING, Loop, Supervisor
from postroom.projection.changes import TASKS, Change
from postroom.projection.submit import append_alert
from postroom.protocol.alerts import Alert, AlertEnd, decode
from postroom.store.messages import MessageRow
from postroom.store.ports import TaskEventRow, TaskRow
from postroom.store.sessions import SessionRow
from postroom.webhooks.lanes import Lane
from postroom.workers.returning import ALERT
from tests.bus.embedding import make_config
from tests.control.taskroom import TaskRoom, task_room
from tests.rig import new_uid
from tests.supervised import QUICK, supervised

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("background-supervised")]

SECONDS = 20.0

DATABASE, BUS, DISK = "database", "bus", "disk"

WORK: dict[str, tuple[str, ...]] = {
    "accounts": (BUS,),
    "acts": (DATABASE,),
    "altered-messages": (),  # begins when one was read
    "approvals": (DATABASE,),
    "audit": (),  # its trouble is that of the audit log, with an alert of its own
    "audit-alarm": (BUS, DISK),
    "audit-copy": (BUS, DISK),
    "audit-streams": (DISK,),  # a read that is under way waits for the bus
    "blobs": (DATABASE,),
    "branches": (),  # a repository that cannot be read is looked at again
    "callers": (DATABASE, DISK),
    "dead-letters": (DATABASE,),
    "deliveries": (),  # forgotten once an hour
    "expiry": (DATABASE,),
    "fold": (DATABASE, DISK),
    "grants": (DATABASE,),
    "outages": (),
    "patience": (DATABASE,),
    "push-lanes": (),  # each receiver's step is tried again by itself
    "pushes": (DATABASE, DISK),
    "registry": (BUS,),
    "relay": (),  # each recipient's lane is tried again by itself
    "remote-tasks": (DATABASE,),
    "retention": (DATABASE, BUS, DISK),
    "sessions": (DATABASE, DISK),
    "silent-tasks": (DATABASE,),
    "spans": (DATABASE,),
    "task-news": (DATABASE,),
    TELLING: (),
    "uses-of-keys": (DATABASE, DISK),
    "workspaces": (DATABASE,),
    "wrong-codes": (DATABASE, DISK),
}
"""All background work of an organisation, with the parts that it cannot do without."""

MACHINE = {
    "certificate": "tests/control/test_certificate.py",
    "compile": "ends by itself; a read-only installation stays as it is: tests/control/test_compiled.py",
    "disk": "below",
    "feed": "of `connect run`: tests/connect/test_run.py",
    "gateway": "below",
    "waking": "of `connect run`: tests/connect/test_waking.py",
}
"""The work of the machine that only some post rooms have: where it is broken."""

PAUSES = {
    "postroom.audit.copying.INTERVAL": 0.1,
    "postroom.audit.server.IDLE": 0.1,
    "postroom.audit.server.INTERVAL": 0.1,
    "postroom.audit.log.PAUSE": 0.1,
    "postroom.control.base.PAUSE": 0.1,
    "postroom.control.base.SELDOM": QUICK,
    "postroom.control.org.EXPIRY_INTERVAL": 0.1,
    "postroom.control.org.INTERVAL": 0.1,
    "postroom.control.org.SELDOM": QUICK,
    "postroom.feed.records.CHECK_INTERVAL": 0.1,
    "postroom.directory.registry.PRESENCE_BEAT": 0.1,
    "postroom.mail.deadletters.POKE_INTERVAL": 0.1,
    "postroom.observe.supervision.PATIENCE": 0.2,
    "postroom.observe.supervision.RETRY": QUICK,
    "postroom.projection.due.LONGEST_SLEEP": 0.1,
    "postroom.projection.retention.INTERVAL": 0.1,
    "postroom.projection.retention.SHARE": 1.0,
    "postroom.tasks.reports.ROUND": 0.1,
}
"""So that each piece of work has something to do all the time."""


class House:
    """An organisation whose parts can be broken under its work."""

    def __init__(self, room: TaskRoom, streams: list[StoredRecords]) -> None:
        self.room = room
        self.parts: Parts = room.parts
        (self.streams,) = streams
        self.streams._outsiders.uids.add(new_uid())
        self.broken: dict[str, Any] = {}

    @property
    def supervisors(self) -> list[Supervisor]:
        return self.parts.supervisors

    @property
    def loops(self) -> dict[str, Loop]:
        return {name: loop for some in self.supervisors for name, loop in some.loops.items()}

    @property
    def ended(self) -> list[str]:
        return [t.get_name() for some in self.supervisors for t in some._tasks if t.done()]

    @contextmanager
    def without(self, part: str) -> Generator[None]:
        """Break a part, until the end of the block."""
        with pytest.MonkeyPatch.context() as patch:
            database = self.parts.database
            if part != BUS:
                away = part == DATABASE
                error = DatabaseAway("the database is away") if away else None

                async def refuse(*_: Any, **__: Any) -> Any:
                    raise error or StateUnwritable("the disk is full")

                patch.setattr(database, "_here", None) if away else None
                patch.setattr(database, "_folding", None)
                for name in ("_run",) if away else ("write", "fold"):
                    patch.setattr(database, name, refuse, raising=False)
            if part == DISK:

                def full(*_: Any, **__: Any) -> Any:
                    raise StateUnwritable("the disk is full")

                patch.setattr("postroom.control.base.check_space", full)
                patch.setattr("postroom.audit.reading.write_private", full)
                patch.setattr("postroom.projection.retention.copying.take", full)
            yield

    async def stir(self) -> None:
        """Give all work something to do that needs every part."""
        parts = self.parts
        parts.callers.called(new_uid())
        parts.callers._noted.clear()
        parts.callers.called(parts.owner.uid)
        parts.rotation._accounts._behind.set()
        parts.registry._emptied = False
        parts.registry.wake()
        parts.iam._fresh["x"] = 1.0
        parts.iam._used.set()
        parts.joining._wrong["x"] = 1
        parts.joining._tried.set()
        for uid, heard_at in (("d" * 32, 0.0), ("e" * 32, time.time())):
            session = SessionRow(
                uid, parts.owner.uid, "claude", "", "", "", "", "idle", 0.0, heard_at
            )
            parts.sessions._known[uid] = session
        parts.sessions._opened_at = 0.0
        mail = MessageRow(1, "m", "w", "e" * 32, "", "{}", 1.0, 1.0, 1.0)
        parts.changes.publish([Change("mail", 1, "m", "w", "e" * 32, row=mail)])
        parts.pushes._pusher.touch("x" * 32)
        parts.pushes._pusher._lanes.wake(Lane("x", "y", "z"))
        log = parts.installation.audit
        with suppress(StateUnwritable):
            log.write(b'{"worker": ""}\n')
        log.trouble = Trouble("it is broken", 0.0)
        log._turned = audit_log._done(log._turned)
        await asyncio.sleep(0.02)
        log.trouble = None
        log._turned = audit_log._done(log._turned)
        row = TaskRow(
            id="t", worker="w", requester="r", request="q", requested_seq=1, context_id="c", text="",
            created_at=1.0, updated_at=1.0, snapshot="{}", state="working",
        )  # fmt: skip
        event = TaskEventRow.__new__(TaskEventRow)
        object.__setattr__(event, "attempt", 1)
        object.__setattr__(event, "at", 1.0)
        object.__setattr__(event, "event", {})
        parts.changes.publish([Change("task", 1, id="t", row=row, event=event)])
        await asyncio.sleep(0)  # who listens takes it before what it missed takes its place
        for listener in parts.changes._listeners.get(TASKS, ()):
            listener._gap = True
            listener._rouse()
        if parts.bus.statistics().connected:
            with suppress(PostroomError):
                await append_alert(parts.bus, Alert("x", "something to fold"))

    async def until(self, condition: Callable[[], Any]) -> None:
        """Until the condition is empty; stirs meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while condition():
                    await self.stir()
                    await asyncio.sleep(0.05)
        assert not condition()

    def healthy(self, part: str) -> list[str]:
        """The work that should fail without that part and has not yet."""
        return [n for n, needs in WORK.items() if part in needs and not self.loops[n].total]

    async def told(self) -> tuple[list[str], list[str]]:
        """The work of which people were told that it fails, and that it is over."""
        raised, over = [], []
        async for record in self.parts.admin.replay("ALERTS"):
            said = decode(record.payload)
            if said.kind == FAILING and isinstance(said, AlertEnd):
                over.append(said.about)
            elif said.kind == FAILING:
                raised.append(said.about)
        return raised, over


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[House]:
    streams: list[StoredRecords] = []

    class Seen(StoredRecords):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            streams.append(self)

    monkeypatch.setattr("postroom.control.org.StoredRecords", Seen)
    monkeypatch.setattr(tracing, "enabled", lambda: True)
    for name, value in PAUSES.items():
        monkeypatch.setattr(name, value)
    async with task_room(tmp_path, memory=False) as room:
        monkeypatch.setattr(type(room.parts.remotes), "uids", {new_uid()})
        yield House(room, streams)


async def test_the_list_of_background_work_is_whole(house: House):
    assert set(house.loops) == set(WORK)


def named() -> Iterator[str]:
    """The names of all background work in the code."""
    for path in Path(postroom.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", getattr(node.func, "id", "")) == "supervise"
                and path.name != "supervision.py"
            ):
                (name, *_) = node.args
                assert isinstance(name, ast.Constant), f"{path}: a name that no test can know"
                yield str(name.value)


async def until(condition: Callable[[], object]) -> None:
    """Returns once it holds, which no event says."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def nobody(*_: object) -> None:
    """Admits no connection."""


async def test_work_that_only_some_post_rooms_have_is_broken_somewhere_too():
    assert {*named(), TELLING} == {*WORK, *MACHINE}


async def test_the_disk_is_watched_on_while_the_log_of_the_server_cannot_be_read(tmp_path: Path):
    config = make_config(Trust.load_or_create(tmp_path / "keys"), tmp_path)
    config.log.parent.mkdir(parents=True, exist_ok=True)
    restarted = asyncio.Event()

    class Server:
        async def stop(self) -> None:
            if not restarted.is_set():
                restarted.set()
                raise OSError(5, "Input/output error")

    server: Any = Server()
    config.log.write_text("")
    watch = DiskWatch(config, lambda: server, lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("postroom.bus.disk.INTERVAL", 0.01)
        patch.setattr("postroom.bus.disk.LEAST_UPTIME", 0.01)
        async with supervised(watch.run) as (loop,), asyncio.timeout(SECONDS):
            config.log.unlink()
            config.log.mkdir()  # no file to be read
            (config.log / "x").write_text("x")
            await until(lambda: loop.total > 2)
            (config.log / "x").unlink()
            config.log.rmdir()
            await until(lambda: not loop.failures)
            config.log.write_text("[ERR] critical write error: no space left on device\n")
            await until(restarted.is_set)
            await until(lambda: not loop.failures)


async def test_the_gateway_accepts_again_once_there_are_descriptors(
    monkeypatch: pytest.MonkeyPatch,
):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    came = asyncio.Event()
    listener = TlsListener(bind_listener("127.0.0.1", 0), tls, nobody)
    monkeypatch.setattr(listener, "_refuse", lambda _: came.set())
    running = asyncio.get_running_loop()
    accept, full = running.sock_accept, [True]

    async def accepts(socket: Any) -> Any:
        if full:
            raise OSError(24, "Too many open files")
        return await accept(socket)

    monkeypatch.setattr(running, "sock_accept", accepts)
    async with supervised(listener.run) as (loop,), asyncio.timeout(SECONDS):
        await until(lambda: loop.total > 2)
        full.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: not loop.failures)
        writer.close()
        await came.wait()
    await listener.close()


@pytest.mark.parametrize("part", [DATABASE, DISK, BUS])
async def test_no_background_work_ends_without_a_part_and_all_goes_on_with_it(
    house: House, part: str
):
    await house.until(lambda: [n for n, loop in house.loops.items() if loop.failures])
    for loop in house.loops.values():
        loop.total = 0
    with house.without(part):
        if part == BUS:
            await house.room.rig.stop(kill=True)
        await house.until(lambda: house.healthy(part))
        assert house.ended == []
        metrics = shown(_of_process("default", house.parts))
        names = [n for n, needs in WORK.items() if part in needs]
        for name in names:
            line = f'postroom_background_failing{{org="default",name="{name}"}} 1'
            assert line in metrics or not house.loops[name].failures, name
        if part != DATABASE:
            status = (await house.room.api.get("/v1/status")).json()
            assert {each["name"] for each in status["background"]} & set(names)
    if part == BUS:
        await house.room.rig.start()
    await house.until(lambda: [n for n, loop in house.loops.items() if loop.failures])
    assert house.ended == []
    assert (await house.room.api.get("/v1/status")).json()["background"] == []


async def test_people_are_told_once_while_it_fails(house: House):
    names = {n for n, needs in WORK.items() if DATABASE in needs}
    with house.without(DATABASE):
        await house.until(lambda: names - {n for n, loop in house.loops.items() if loop.told})
    await house.until(lambda: [n for n, each in house.loops.items() if each.failures or each.told])
    raised, over = await house.told()
    assert {name: raised.count(name) for name in names} == dict.fromkeys(names, 1)
    assert names <= set(over)
    await house.room.folded("ALERTS")
    assert [a.row.about for a in await house.parts.alerts.standing() if a.row.kind == FAILING] == []


async def test_work_that_a_fault_of_the_database_kept_back_is_brought_back_after_it(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    workers, faults, brought = house.parts.workers, [DatabaseAway("away")] * 2, asyncio.Event()
    agent = (await house.room.worker("alice")).agent

    async def records() -> list[Any]:
        return [(agent, None)]

    async def bring(*_: Any) -> None:
        if faults:
            raise faults.pop()
        brought.set()

    monkeypatch.setattr(workers, "records", records)
    monkeypatch.setattr(workers.work, "held", lambda _: True)
    monkeypatch.setattr(workers.work, "bring", bring)
    row = type("Row", (), {"worker": agent.uid})()
    ended = Change("task", 1, id="t", recipient=agent.uid, state="completed", row=row)
    house.parts.changes.publish([ended])
    async with asyncio.timeout(SECONDS):
        await brought.wait()
    assert [a.row.kind for a in await house.parts.alerts.standing() if a.row.kind == ALERT] == []


async def test_an_alert_never_raises_whatever_is_broken(house: House):
    """Who raises one has no other way, and most are background work themselves."""
    alerts: AlertService = house.parts.alerts
    for part in (DATABASE, DISK):
        with house.without(part):
            for said in ("it is broken", ""):
                await alerts.raise_alert(Alert("x", said))
            await alerts.end("why", "x")
    await house.room.rig.stop(kill=True)
    calls = [alerts.raise_alert(Alert("x", said)) for said in ("it is broken", "")]
    calls += [alerts.end("why", "x"), alerts.tell(Alert("x", "broken"))]
    *done, told = await asyncio.gather(*calls, return_exceptions=True)
    assert (done, isinstance(told, PostroomError)) == ([None] * 3, True)
