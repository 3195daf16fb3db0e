"""The audit log as the control plane shows it, copies it and adds to it, over a real server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.audit import AuditLog, Trouble, copying
from postroom.audit import server as stored_module
from postroom.audit.copying import AuditCopy
from postroom.audit.log import Alarm
from postroom.audit.reading import Cursor, Position, all_lines
from postroom.audit.server import Connections, Outsiders, StoredRecords
from postroom.bus.nats.bus import NatsBus
from postroom.directory.agents import Directory
from postroom.errors import BusDisconnected, Forbidden, NoResponders, StateUnwritable, Unauthorized
from postroom.observe.supervision import supervisor
from postroom.projection import tail
from postroom.projection.submit import append_alert
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert
from postroom.protocol.audit import DENIED, AuditRecord
from postroom.protocol.ids import CONTROL_PLANE
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom_a2a.times import format_time
from tests.control.taskroom import TaskRoom, task_room
from tests.rig import Rig, new_uid, running_bus
from tests.supervised import QUICK, supervised

pytestmark = pytest.mark.anyio
SECONDS = 20.0
ORG = "default"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with running_bus(tmp_path / "bus") as bus:
        yield bus


@pytest.fixture
async def room(tmp_path: Path) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path) as room:
        yield room


@pytest.fixture
async def log(tmp_path: Path) -> AsyncGenerator[AuditLog]:
    log = AuditLog(tmp_path / "logs" / "audit.jsonl", file_bytes=2000)
    yield log
    log.close()


def record(**said: Any) -> bytes:
    said.setdefault("at", format_time(time.time()))
    said.setdefault("org", ORG)
    return AuditRecord(**said).encode()


def written(log: AuditLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in all_lines(log.files, log.end)]


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # files and streams send no event


@asynccontextmanager
async def running(*works: Any) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def log_of(room: TaskRoom) -> AuditLog:
    return room.parts.installation.audit


async def shown(room: TaskRoom, **query: Any) -> list[dict[str, Any]]:
    """The records with a message, which this test wrote; the post room writes others."""
    answer = await room.api.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = map(json.loads, answer.text.splitlines())
    return [line for line in lines if "message" in line]


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("audit-once-in-order")
async def test_records_are_found_by_worker_task_time_and_verdict(room: TaskRoom):
    scout = await room.worker("scout", start=False)
    task = (await room.delegate(scout.uid))["id"]
    old = format_time(time.time() - 7200)
    log_of(room).write(record(worker=scout.uid, message="a", at=old))
    log_of(room).write(record(worker=scout.uid, message="b", task=task))
    log_of(room).write(record(worker="b" * 32, message="c", cause_task=task, verdict=DENIED))
    log_of(room).write(b'not JSON "denied"\n' + record(worker="b" * 32, message="d"))

    async def found(**query: Any) -> str:
        return "".join(line["message"] for line in await shown(room, **query))

    assert await found() == "abcd"
    assert await found(worker="scout") == "ab"
    assert await found(worker=scout.uid) == "ab"
    assert await found(task=task) == "bc"
    assert await found(task=task[:8]) == "bc"
    assert await found(since="1h") == "bcd"
    assert await found(since=format_time(time.time() - 9000)) == "abcd"
    assert await found(denied=True) == "c"
    assert await found(limit=2, worker="b" * 32) == "cd"
    assert await found(worker="scout", since="1h") == "b"


@pytest.mark.requirement("audit-once-in-order")
async def test_records_of_other_organisations_are_not_shown_those_of_the_log_itself_are(
    room: TaskRoom,
):
    log_of(room).write(record(message="mine"))
    log_of(room).write(record(message="theirs", org="other"))
    log_of(room).write(record(message="log", org=""))

    assert [line["message"] for line in await shown(room)] == ["mine", "log"]
    assert [line["message"] for line in await shown(room, limit=5)] == ["mine", "log"]


@pytest.mark.requirement("audit-once-in-order")
@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"worker": "nobody"}, {"limit": -1}])
async def test_what_cannot_be_meant_is_refused(room: TaskRoom, query: dict[str, Any]):
    answer = await room.api.get("/v1/audit", params=query)

    assert answer.status_code in (400, 404, 422)


@pytest.mark.requirement("audit-once-in-order")
async def test_files_that_were_closed_before_the_time_in_question_are_not_searched(
    room: TaskRoom,
):
    files = log_of(room).files
    log_of(room).write(record(message="1", at=format_time(time.time() - 7200)))
    log_of(room)._limit = 1
    log_of(room).write(record(message="2", at=format_time(time.time() - 7100)))
    then = time.time() - 7100
    os.utime(files.closed_path(1), (then, then))
    log_of(room).write(record(message="3"))

    for limit in (0, 5):
        assert [line["message"] for line in await shown(room, since="1h", limit=limit)] == ["3"]
        assert len(await shown(room, since="3h", limit=limit)) == 3


async def test_only_the_operator_may_read_it(room: TaskRoom):
    answer = await room.api.get("/v1/audit", headers={"Authorization": "Bearer wrong"})

    assert answer.status_code == 401


@pytest.mark.requirement("audit-once-in-order")
async def test_a_follower_gets_what_was_there_and_then_each_line_as_it_comes(room: TaskRoom):
    log_of(room).write(record(message="before"))
    got: list[str] = []
    query = {"follow": "true", "worker": "b" * 32}
    log_of(room).write(record(worker="b" * 32, message="0"))
    async with (
        asyncio.timeout(SECONDS),
        room.api.stream("GET", "/v1/audit", params=query) as answer,
    ):
        async for line in answer.aiter_lines():
            if not line.strip():
                continue
            got.append(json.loads(line)["message"])
            if len(got) == 4:
                break
            log_of(room).write(record(message="another"))
            log_of(room).write(record(worker="b" * 32, message=str(len(got))))

    assert got == ["0", "1", "2", "3"]


@pytest.mark.requirement("audit-once-in-order")
async def test_a_follower_hears_that_all_is_well_while_nothing_but_other_lines_come(
    room: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tail, "STREAM_BEAT", 0.3)
    query = {"follow": "true", "worker": "b" * 32}
    path = "/v1/audit"

    async def others() -> None:
        while True:
            log_of(room).write(record(message="another"))
            await asyncio.sleep(0.05)

    busy = asyncio.create_task(others())
    try:
        async with asyncio.timeout(SECONDS), room.api.stream("GET", path, params=query) as answer:
            assert await anext(answer.aiter_lines()) == ""
    finally:
        busy.cancel()


# ── the copy ─────────────────────────────────────────────────────────────────────────────────────


async def copied(rig: Rig, *, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Worker token and record of each line in the stream."""
    found = []
    async for message in rig.admin.replay("AUDIT", after=after):
        token = message.subject.split(".")[1]
        found += [(token, json.loads(line)) for line in message.payload.splitlines()]
    return found


async def until_copied(rig: Rig, *messages: str) -> list[tuple[str, dict[str, Any]]]:
    async with asyncio.timeout(SECONDS):
        while True:
            found = await copied(rig)
            if set(messages) <= {line.get("message", "") for _, line in found}:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.requirement("audit-once-in-order")
async def test_lines_are_copied_to_the_stream_by_worker_and_only_those_of_the_organisation(
    rig: Rig, log: AuditLog, tmp_path: Path
):
    log.write(record(worker="b" * 32, message="1") + record(message="2"))
    log.write(record(worker="c" * 32, message="no", org="other"))
    copy = AuditCopy(log, rig.core, ORG, Cursor(tmp_path / "cursor"))
    async with supervised(copy.run):
        log.write(record(worker='x"y', message="3"))
        found = await until_copied(rig, "1", "2", "3")

    assert [(token, line["message"]) for token, line in sorted(found, key=str)] == [
        ("-", "2"),
        ("-", "3"),
        ("b" * 32, "1"),
    ]


@pytest.mark.requirement("audit-once-in-order")
async def test_the_copy_misses_nothing_over_rotation_restart_and_an_outage_of_the_bus(
    tmp_path: Path, log: AuditLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(copying, "INTERVAL", 0.01)
    cursor = Cursor(tmp_path / "cursor")
    async with running_bus(tmp_path / "bus", memory=False) as rig:
        async with supervised(AuditCopy(log, rig.core, ORG, cursor).run):
            for number in range(30):
                log.write(record(message=str(number)))
            await until_copied(rig, "29")
            await rig.stop(kill=True)
            for number in range(30, 60):
                log.write(record(message=str(number)))
            await rig.start()
            await until_copied(rig, "59")
        for number in range(60, 90):
            log.write(record(message=str(number)))
        async with supervised(AuditCopy(log, rig.core, ORG, cursor).run):
            found = await until_copied(rig, *map(str, range(90)))

    assert len(log.files.closed()) > 2
    ids = [int(line["message"]) for _, line in found]
    assert list(dict.fromkeys(ids)) == list(range(90))


@pytest.mark.requirement("audit-once-in-order")
async def test_no_agent_can_write_or_read_the_copy(rig: Rig):
    agent = await rig.agent()

    with pytest.raises(Forbidden):
        await agent.publish(subjects.audit(agent.uid), b"forged", id="x")
    assert await rig.admin.last_sequence("AUDIT") == 0


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("audit-recorded-first")
async def test_a_log_that_cannot_be_written_raises_one_alert_until_it_can(rig: Rig, tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def tell(alert: Alert) -> None:
        if alert.text:
            await append_alert(rig.core, alert)
        else:
            ends.put_nowait(alert.kind)

    async with supervised(Alarm(log, tell, lambda: None).run):
        async with asyncio.timeout(SECONDS):
            await ends.get()  # of an earlier process
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard[1]))
        try:
            for _ in range(5):
                with pytest.raises(StateUnwritable):
                    log.write(record())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, hard)
        alerts: list[dict[str, Any]] = []
        async with asyncio.timeout(SECONDS):
            while not alerts:
                alerts = [json.loads(a.payload) async for a in rig.admin.replay("ALERTS")]
                await asyncio.sleep(0.02)
        log.write(record())
        async with asyncio.timeout(SECONDS):
            assert await ends.get() == "audit-unwritable"
    log.close()

    [alert] = [json.loads(a.payload) async for a in rig.admin.replay("ALERTS")]
    assert alert["kind"] == "audit-unwritable"
    assert "nothing passes the gateway" in alert["text"]


@pytest.mark.requirement("audit-recorded-first")
async def test_status_says_that_the_log_cannot_be_written(room: TaskRoom):
    assert (await room.api.get("/v1/status")).json()["audit"] == ""
    log_of(room).trouble = Trouble("No space left on device", 0.0)

    said = (await room.api.get("/v1/status")).json()["audit"]

    assert said == (
        "the audit log cannot be written, nothing passes the gateway: No space left on device"
    )


# ── the server's own side ────────────────────────────────────────────────────────────────────────


@dataclass
class Watch:
    rig: Rig
    log: AuditLog
    directory: Directory

    def lines(self, *verbs: str) -> list[dict[str, Any]]:
        return [line for line in written(self.log) if line["verb"] in verbs]

    async def agent(self, kind: str, nick: str) -> NatsBus:
        found = await self.directory.register(nick, kind)
        return await self.rig.agent(found.uid)


@pytest.fixture
async def watch(
    rig: Rig, log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Watch]:
    """The log of a room that listens to its server, and reads its streams."""
    monkeypatch.setattr(stored_module, "INTERVAL", 0.02)
    monkeypatch.setattr(stored_module, "IDLE", 0.02)
    database = Database(None)
    await migrate(database)
    directory = Directory(database)
    outsiders = Outsiders(directory)
    system = await rig.connect(rig.trust.system_credential(), CONTROL_PLANE)
    connections = Connections(system, log, rig.trust, outsiders)
    await connections.open()
    await system._link.settle(asyncio.get_running_loop().time() + SECONDS)
    stored = StoredRecords(rig.admin, log, ORG, outsiders, Cursor(tmp_path / "streams"))
    async with supervised(stored.run):
        await until((tmp_path / "streams").exists)
        yield Watch(rig, log, directory)
    await connections.close()
    await database.close()


@pytest.mark.requirement("audit-once-in-order")
async def test_what_an_agent_without_the_gateway_stores_is_in_the_log_once(watch: Watch):
    bridge = await watch.agent("external", "bridge")
    other = new_uid()

    await bridge.publish(subjects.inbox(other, bridge.uid), b"private words", id="m-1")
    await bridge.publish(subjects.task(bridge.uid, "t1", "working"), b"{}", id="m-2")
    await bridge.publish(subjects.inbox(other, bridge.uid), b"more", id="m-3")

    await until(lambda: len(watch.lines("PUB", "HPUB")) >= 3)
    await watch.rig.core.publish(subjects.inbox(bridge.uid, CONTROL_PLANE), b"not its own")
    await bridge.publish(subjects.inbox(other, bridge.uid), b"last", id="m-4")
    await until(lambda: len(watch.lines("PUB", "HPUB")) >= 4)
    lines = watch.lines("PUB", "HPUB")
    assert sorted(line["message"] for line in lines) == ["m-1", "m-2", "m-3", "m-4"]
    assert {(line["by"], line["org"], line["worker"]) for line in lines} == {
        ("server", ORG, bridge.uid)
    }
    [task] = [line for line in lines if line["message"] == "m-2"]
    assert task["task"] == "t1"
    assert "private" not in watch.log.files.path.read_text()


@pytest.mark.requirement("audit-once-in-order")
async def test_a_workers_messages_and_connections_are_the_gateways_to_tell(watch: Watch):
    worker = await watch.agent("worker", "scout")
    bridge = await watch.agent("external", "bridge")
    await worker.publish(subjects.inbox(bridge.uid, worker.uid), b"x", id="w-1")
    await bridge.publish(subjects.inbox(worker.uid, bridge.uid), b"x", id="b-1")

    await until(lambda: bool(watch.lines("HPUB")))

    assert [line["message"] for line in watch.lines("HPUB")] == ["b-1"]
    assert worker.uid not in {line.get("worker") for line in written(watch.log)}


@pytest.mark.requirement("audit-once-in-order")
async def test_who_connects_and_goes_is_in_the_log(watch: Watch):
    bridge = await watch.agent("external", "bridge")
    await until(lambda: bool(watch.lines("open")))
    await bridge.close()
    await until(lambda: bool(watch.lines("close")))

    [opened], [closed] = watch.lines("open"), watch.lines("close")
    assert opened["worker"] == closed["worker"] == bridge.uid
    assert opened["connection"] == closed["connection"]
    assert closed["reason"] == "Client Closed"


@pytest.mark.requirement("audit-once-in-order")
async def test_a_workers_credential_that_is_used_without_the_gateway_is_refused_and_in_the_log(
    watch: Watch,
):
    worker = await watch.directory.register("scout", "worker")
    stolen = watch.rig.trust.mint_agent(worker.uid, (), lifetime=60, now=time.time(), proxied=True)
    with pytest.raises(Unauthorized):
        await watch.rig.connect(stolen, worker.uid)

    await until(lambda: bool(watch.lines("CONNECT")))

    [line] = watch.lines("CONNECT")
    assert (line["worker"], line["verdict"]) == (worker.uid, "denied")
    assert line["reason"] == "Proxy Required"


@pytest.mark.requirement("audit-once-in-order")
async def test_a_message_for_an_agent_that_vanished_is_not_delivered_to_the_audit(watch: Watch):
    bridge = await watch.agent("external", "bridge")
    pull = json.dumps({"batch": 5, "expires": 60_000_000_000}).encode()
    api = f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{bridge.uid}"
    await bridge._link.send(api, pull, reply=f"_I.{bridge.uid}.js.{'0' * 16}")
    await bridge._link.settle(asyncio.get_running_loop().time() + SECONDS)
    bridge._link.connection.reconnect()
    await bridge.close()
    await until(lambda: bool(watch.lines("close")))

    await watch.rig.core.publish(subjects.inbox(bridge.uid, CONTROL_PLANE), b"x")
    after = await watch.agent("external", "after")
    await after.publish(subjects.inbox(bridge.uid, after.uid), b"x", id="last")
    await until(lambda: bool(watch.lines("HPUB")))

    assert await watch.rig.admin.pending("INBOX", bridge.uid) == (2, 0)


@pytest.mark.requirement("audit-once-in-order")
async def test_a_publisher_is_still_told_at_once_that_no_stream_stores_its_message(watch: Watch):
    bridge = await watch.agent("external", "bridge")
    await watch.rig.admin.jetstream.api("STREAM.DELETE.OUTBOX")

    with pytest.raises(NoResponders):
        await bridge.publish(subjects.outbox(bridge.uid), b"x", timeout=SECONDS)


@pytest.mark.requirement("audit-once-in-order")
async def test_what_was_stored_while_the_control_plane_was_away_is_listed_afterwards(
    rig: Rig, log: AuditLog, tmp_path: Path
):
    database = Database(None)
    await migrate(database)
    directory = Directory(database)
    agent = await directory.register("bridge", "external")
    bridge = await rig.agent(agent.uid)
    outsiders = Outsiders(directory)
    await outsiders.load()
    cursor = Cursor(tmp_path / "streams")
    first = StoredRecords(rig.admin, log, ORG, outsiders, cursor)
    await first._begin()
    await bridge.publish(subjects.outbox(bridge.uid), b"1", id="1")
    await first.look()
    await bridge.publish(subjects.outbox(bridge.uid), b"2", id="2")

    second = StoredRecords(rig.admin, log, ORG, outsiders, cursor)
    await second._begin()
    await second.look()
    await second.look()

    assert [line["message"] for line in written(log)] == ["1", "2"]
    await database.close()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"file": "x", "offset": -1}'])
def test_a_damaged_cursor_is_none(tmp_path: Path, content: bytes):
    path = tmp_path / "cursor"
    path.write_bytes(content)

    assert Cursor(path).load() == {}
    Cursor(path).save({"file": 3})
    assert Cursor(path).load() == {"file": 3}
    assert Position(file=3) == Position(3)


async def test_an_outage_is_logged_once_with_its_organisation_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO, logger="postroom")
    tries = 0

    async def step() -> None:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise BusDisconnected("there is no connection to the bus")

    async with supervisor("research") as background:
        background.supervise("audit-copy", step, retry=QUICK)
        async with asyncio.timeout(SECONDS):
            while tries < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert [record.getMessage() for record in caplog.records] == [
        "audit-copy of org research waits: there is no connection to the bus",
        "audit-copy of org research goes on",
    ]
