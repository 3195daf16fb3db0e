"""Mail of sessions in the terminals of people: one stream for all, how it was delivered, what senders are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.bus.port import Message
from postroom.projection.changes import ALERTS
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import Receipt
from postroom_a2a.messages import text_message
from tests.control.taskroom import TaskRoom, task_room
from tests.control.test_outside import following
from tests.control.test_sessions import House, house_of, status

pytestmark = pytest.mark.anyio

SECONDS = 20.0


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture
async def house(shared: TaskRoom) -> AsyncGenerator[House]:
    async with house_of(shared) as made:
        yield made


async def send(api: httpx2.AsyncClient, to: str, text: str) -> dict[str, Any]:
    answer = await api.post("/v1/messages", json={"to": to, "text": text})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def ack(api: httpx2.AsyncClient, mail: dict[str, Any], state: str, **more: Any) -> Any:
    body = {"ids": [mail["id"]], "state": state, **more}
    answer = await api.post("/v1/inbox/ack", json=body)
    assert answer.status_code == 200, answer.text
    (done,) = answer.json()["messages"]
    return done


async def until(events: AsyncIterator[Any], kind: str) -> tuple[str, dict[str, Any]]:
    """The id and the record of the next event of a kind."""
    async for name, id_, record in events:
        if name == kind:
            return id_, record
    raise AssertionError(f"the stream has ended without {kind}")


# ── the stream ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session-mail-told")
async def test_one_stream_has_the_mail_of_all_sessions_of_a_person_and_what_becomes_of_it(
    house: House,
):
    ana, bob = await house.person("ana"), await house.person("bob")
    app, web = await house.session(ana, "1"), await house.session(ana, "2", "web")
    foreign = await house.session(bob, "1", "theirs")
    first = await send(bob.api, "@app", "one")
    async with following(ana.api, "/v1/sessions/stream") as events:
        assert (await until(events, "mail"))[1]["id"] == first["id"]
        await send(ana.api, "@theirs", "not yours")
        second = await send(bob.api, "@web", "two")
        at, mail = await until(events, "mail")
        assert (mail["id"], mail["to"]["uid"]) == (second["id"], web.uid)

        await ack(app.api, first, "seen")
        _, state = await until(events, "state")
        assert state == {"id": first["id"], "to": app.uid, "state": "seen", "reason": ""}

        late = await house.session(ana, "3", "late")
        third = await send(bob.api, "@late", "three")
        assert (await until(events, "session"))[1]["what"] == "added"
        assert (await until(events, "mail"))[1]["id"] == third["id"]
        await ana.api.post("/v1/agents/late/rename", json={"nick": "soon"})
        _, change = await until(events, "session")
        assert (change["what"], change["nick"], change["uid"]) == ("renamed", "soon", late.uid)
        await ana.api.delete("/v1/sessions/soon")
        _, change = await until(events, "session")
        assert (change["what"], change["uid"]) == ("ended", late.uid)
    async with following(ana.api, f"/v1/sessions/stream?after={at}") as events:
        fourth = await send(bob.api, "@app", "four")
        assert (await until(events, "mail"))[1]["id"] == fourth["id"]
    assert foreign.uid not in (app.uid, web.uid)


async def test_a_burst_to_many_sessions_is_told_whole_and_in_order(house: House):
    ana, bob = await house.person("ana"), await house.person("bob")
    apps = [await house.session(ana, str(number), "app") for number in range(10)]
    async with following(ana.api, "/v1/sessions/stream") as events:
        sent = await asyncio.gather(
            *(send(bob.api, app.uid, f"{n}") for n in range(15) for app in apps)
        )
        got = [(await until(events, "mail")) for _ in sent]
    assert {mail["id"] for _, mail in got} == {mail["id"] for mail in sent}
    assert [int(id_) for id_, _ in got] == sorted(int(id_) for id_, _ in got)


@pytest.mark.requirement("session-owner-alone")
async def test_a_session_follows_no_other_sessions_and_a_revoked_key_is_cut_off(house: House):
    ana = await house.person("ana")
    app = await house.session(ana)
    await send(ana.api, "@app", "hello")
    assert await status(app.api.get("/v1/sessions/stream")) == 403
    async with following(ana.api, "/v1/sessions/stream") as events:
        await until(events, "mail")
        assert await status(house.room.api.delete(f"/v1/keys/{ana.key_id}")) == 200
        with pytest.raises((AssertionError, httpx2.HTTPError)):
            await until(events, "mail")


# ── how it was delivered ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session-mail-told")
async def test_a_receipt_says_how_a_message_was_delivered_also_when_it_was_seen(house: House):
    ana, bob = await house.person("ana"), await house.person("bob")
    app = await house.session(ana)
    sent = await send(bob.api, "@app", "hello")
    assert "how" not in sent
    done = await ack(app.api, sent, "delivered", how="hook PostToolBatch")
    assert (done["state"], done["how"], done["reason"]) == ("delivered", "hook PostToolBatch", "")
    await ack(app.api, sent, "delivered", how="tool")
    await ack(app.api, sent, "seen")
    mail = (await bob.api.get(f"/v1/messages/{sent['id']}")).json()
    assert (mail["state"], mail["how"], mail["reason"]) == ("seen", "hook PostToolBatch", "")
    replied = {"to": "@bob", "text": "hi", "reply_to": sent["id"]}
    assert await status(app.api.post("/v1/messages", json=replied)) == 201
    waited = await bob.api.get(f"/v1/messages/{sent['id']}", params={"wait": "answered"})
    assert (waited.json()["state"], waited.json()["how"]) == ("answered", "hook PostToolBatch")

    plain = await send(bob.api, "@app", "again")
    assert "how" not in await ack(app.api, plain, "delivered")
    for body in ({"state": "seen", "how": "tool"}, {"state": "delivered", "how": "x" * 61}):
        assert await status(app.api.post("/v1/inbox/ack", json={"ids": ["1"], **body})) == 422


async def test_how_it_was_delivered_forges_no_line(house: House):
    ana = await house.person("ana")
    app = await house.session(ana)
    sent = await send(ana.api, "@app", "hello")
    done = await ack(app.api, sent, "delivered", how="hook\x1b[31m\nroot: done\u202e")
    assert done["how"].isprintable()
    assert "\n" not in done["how"]


# ── what senders are told ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session-mail-told")
async def test_a_sender_is_told_that_a_session_does_not_get_it_by_itself(house: House):
    ana, bob = await house.person("ana"), await house.person("bob")
    await house.session(ana)
    await house.session(ana, "2", "gem", client="gemini")
    away = "@app is not connected now: it gets this at its next activity"
    assert (await send(bob.api, "@app", "1"))["note"] == away
    async with following(ana.api, "/v1/sessions/stream") as events:
        await until(events, "mail")
        assert "note" not in await send(bob.api, "@app", "2")
        assert (await send(bob.api, "@gem", "3"))["note"] == (
            "@gem is idle, and gemini is not woken: it gets this at its next activity"
        )
        await ana.api.put("/v1/sessions/gem", json={"state": "busy"})
        assert "note" not in await send(bob.api, "@gem", "4")
        await ana.api.put("/v1/sessions/app", json={"state": "gone"})
        assert (await send(bob.api, "@app", "5"))["note"] == (
            "@app is gone: it gets this when it is resumed"
        )
        online = {
            one["nick"]: one["online"] for one in (await bob.api.get("/v1/agents")).json()["agents"]
        }
        assert online["gem"]
    assert "note" not in await send(bob.api, "@ana", "6")


async def test_a_task_for_a_session_waits_and_says_why(house: House):
    ana, bob = await house.person("ana"), await house.person("bob")
    app = await house.session(ana)
    body = {"to": "@app", "text": "summarise"}
    task = (await bob.api.post("/v1/tasks", json=body)).json()
    assert task["detail"] == "@app is not connected now: it waits"
    await ana.api.put("/v1/sessions/app", json={"state": "gone"})
    shown = (await bob.api.get(f"/v1/tasks/{task['id']}")).json()
    assert shown["detail"] == "@app is gone: it waits"
    done = {"state": "completed", "text": "done"}
    assert await status(app.api.post(f"/v1/tasks/{task['id']}/status", json=done)) == 200
    ended = (await bob.api.get(f"/v1/tasks/{task['id']}")).json()
    assert (ended["state"], ended["detail"]) == ("completed", "done")


@pytest.mark.requirement("session-ends-unheard")
async def test_what_waited_for_a_session_that_was_not_heard_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.control.org.EXPIRY_INTERVAL", 0.05)
    monkeypatch.setattr("postroom.directory.sessions.GRACE", 0.0)
    async with task_room(tmp_path) as room, house_of(room) as house:
        ana = await house.person("ana")
        await house.session(ana)
        sent = await send(ana.api, "@app", "hello")
        task = (await ana.api.post("/v1/tasks", json={"to": "@app", "text": "work"})).json()
        monkeypatch.setattr("postroom.directory.sessions.KEPT_FOR", 0.0)
        waited = await ana.api.get(f"/v1/messages/{sent['id']}", params={"wait": "answered"})
        assert (waited.json()["state"], waited.json()["reason"]) == ("dead", "recipient retired")
        path, query = f"/v1/tasks/{task['id']}", {"wait": "final", "timeout": SECONDS}
        assert (await ana.api.get(path, params=query)).json()["state"] == "failed"


@pytest.mark.requirement("session-mail-told")
async def test_a_worker_is_told_once_a_minute_that_its_message_to_a_session_waits(house: House):
    ana, worker = await house.person("ana"), await house.room.worker("coder")
    app = await house.session(ana)
    heard: asyncio.Queue[Receipt] = asyncio.Queue()

    async def hear(message: Message) -> None:
        heard.put_nowait(Receipt.decode(message.payload))

    room = house.room
    listening = await room.rig.core.subscribe(f"worker.{worker.uid}.receipts.*", hear)
    for number in range(3):
        text = text_message(f"m{number}", "hello")
        mail = Envelope(f"m{number}", app.uid, text, time.time())
        await worker.bus.publish(subjects.inbox(app.uid, worker.uid), mail.encode())
    async with asyncio.timeout(SECONDS):
        told = await heard.get()
    note = "@app is not connected now: it gets this at its next activity"
    assert (told.message_id, told.state, told.reason) == ("m0", "accepted", note)
    assert await status(app.api.delete("/v1/sessions/app")) == 200
    async with asyncio.timeout(SECONDS):
        ended = [await heard.get() for _ in range(3)]
    assert sorted((one.message_id, one.state) for one in ended) == [
        (f"m{number}", "dead") for number in range(3)
    ]
    await listening.close()


# ── alerts ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session-mail-told")
async def test_mail_for_a_session_that_is_gone_raises_no_alert_though_that_for_others_does(
    tmp_path: Path,
):
    async with task_room(tmp_path, stale_after=0.3) as room, house_of(room) as house:
        ana = await house.person("ana")
        app = await house.session(ana)
        await room.api.post("/v1/agents", json={"nick": "otto", "kind": "external"})
        assert await status(ana.api.put("/v1/sessions/app", json={"state": "gone"})) == 200
        waits = await send(ana.api, "@app", "when you are back")
        await send(ana.api, "@otto", "now")
        found = room.parts.changes.until(ALERTS, room.parts.alerts.standing, bool, SECONDS)
        assert [each.row.kind for each in await found] == ["stale"]
        alerts = (await room.api.get("/v1/alerts")).json()["alerts"]
        assert [each["nick"] for each in alerts] == ["otto"]
        assert waits["to"]["uid"] == app.uid
        assert await status(room.api.delete("/v1/agents/otto")) == 200
