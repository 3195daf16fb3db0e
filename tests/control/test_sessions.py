"""Sessions in the terminals of people, over the HTTP API: who registers, resumes, renames and ends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from postroom.protocol.principal import USUAL_SCOPES, Scope
from tests.control.taskroom import TaskRoom, door_of, emptied, task_room
from tests.control.test_keys import Person, bearer, person

pytestmark = pytest.mark.anyio

EVERYTHING = frozenset(Scope)


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@dataclass
class Terminal:
    """A session, and the API as its own key opens it."""

    shown: dict[str, Any]
    api: httpx2.AsyncClient

    @property
    def uid(self) -> str:
        return self.shown["uid"]

    @property
    def nick(self) -> str:
        return self.shown["nick"]


class House:
    """A room with people in it and their sessions; all of them leave at the end of a test."""

    def __init__(self, room: TaskRoom, stack: AsyncExitStack) -> None:
        self.room = room
        self._stack = stack

    async def person(self, nick: str, *scopes: Scope, **more: Any) -> Person:
        return await self._stack.enter_async_context(
            person(self.room, nick, *(scopes or USUAL_SCOPES), **more)
        )

    async def session(
        self,
        owner: Person,
        key: str = "one",
        nick: str = "app",
        client: str = "claude",
        **more: Any,
    ) -> Terminal:
        body = {"client": client, "key": key, "nick": nick, **more}
        answer = await owner.api.post("/v1/sessions", json=body)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        api = await self._stack.enter_async_context(bearer(self.room, made["api_key"]["key"]))
        return Terminal(made, api)


@asynccontextmanager
async def house_of(room: TaskRoom) -> AsyncGenerator[House]:
    async with emptied(room), AsyncExitStack() as stack:
        yield House(room, stack)
    assert room.parts.sessions.seen_by(await principal(room)) == []


async def principal(room: TaskRoom) -> Any:
    me = (await room.api.get("/v1/me")).json()
    from postroom.protocol.principal import ALL_SCOPES, KEY, OPERATOR_KEY, Principal

    return Principal(me["uid"], me["org"], me["nick"], "human", ALL_SCOPES, KEY, OPERATOR_KEY)


@pytest.fixture
async def house(shared: TaskRoom) -> AsyncGenerator[House]:
    async with house_of(shared) as made:
        yield made


async def status(call: Any) -> int:
    return (await call).status_code


# ── registering ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session-is-agent")
async def test_a_session_is_an_agent_of_its_person_and_its_key_reads_sends_and_takes_tasks_alone(
    house: House,
):
    ana = await house.person("ana", *EVERYTHING)
    app = await house.session(
        ana, folder="/home/ana/app", project="/home/ana/app/.git", version="2.1.330"
    )
    assert app.nick == "app"
    assert app.shown["owner"] == {"uid": ana.uid, "nick": "ana", "kind": "human"}
    assert app.shown["resumed"] is False
    me = (await app.api.get("/v1/me")).json()
    assert (me["uid"], me["kind"], me["scopes"]) == (app.uid, "external", ["read", "send", "task"])
    assert app.shown["api_key"]["name"] == "session"

    listed = (await ana.api.get("/v1/agents/app")).json()
    assert listed["kind"] == "external"
    state = listed["session"]
    assert (state["client"], state["state"], state["folder"]) == (
        "claude",
        "idle",
        "/home/ana/app",
    )
    mail = (await ana.api.post("/v1/messages", json={"to": "@app", "text": "hello"})).json()
    (got,) = (await app.api.get("/v1/inbox", params={"unread": "true"})).json()["messages"]
    assert (got["id"], got["from"]["nick"]) == (mail["id"], "ana")


@pytest.mark.requirement("session-is-agent")
async def test_a_session_that_is_registered_again_is_the_same_agent_and_no_former_key_opens_anything(
    house: House,
):
    ana = await house.person("ana")
    first = await house.session(ana)
    made = await house.room.api.post("/v1/keys", json={"agent": "@app", "name": "spare"})
    spare = await house._stack.enter_async_context(bearer(house.room, made.json()["key"]))
    again = await house.session(ana, nick="other", folder="/srv")

    assert (again.uid, again.nick, again.shown["resumed"]) == (first.uid, "app", True)
    assert again.shown["folder"] == "/srv"
    assert await status(first.api.get("/v1/me")) == 401
    assert await status(spare.get("/v1/me")) == 401
    assert await status(again.api.get("/v1/me")) == 200


async def test_two_that_register_one_session_at_once_get_one_agent_with_one_key(house: House):
    ana = await house.person("ana")
    made = await asyncio.gather(*(house.session(ana, "k") for _ in range(6)))
    assert len({one.uid for one in made}) == 1
    valid = [one for one in made if await status(one.api.get("/v1/me")) == 200]
    assert len(valid) == 1


async def test_names_that_are_taken_look_alike_or_are_reserved_get_a_number(house: House):
    ana = await house.person("ana")
    nicks = [(await house.session(ana, str(n), "My App!")).nick for n in range(3)]
    assert nicks == ["my-app", "my-app-2", "my-app-3"]
    assert (await house.session(ana, "a", "rny-app")).nick == "rny-app-4"
    assert (await house.session(ana, "b", "system")).nick == "system-2"
    assert (await house.session(ana, "c", "", client="codex")).nick == "codex"
    assert (await house.session(ana, "d", "日本")).nick == "claude"
    many = [(await house.session(ana, f"m{n}", "x")).nick for n in range(24)]
    assert len(set(many)) == 24
    assert all(nick == "x" or nick.startswith("x-") for nick in many)


# ── who else is there ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session-owner-alone")
async def test_only_people_register_sessions(house: House):
    ana = await house.person("ana")
    app = await house.session(ana)
    body = {"client": "claude", "key": "other", "nick": "evil"}
    assert await status(app.api.post("/v1/sessions", json=body)) == 403
    worker = await house.room.worker("coder")
    async with door_of(house.room, worker) as door:
        assert await status(door.post("/v1/sessions", json=body)) == 403
        assert await status(door.get("/v1/sessions")) == 403
    assert (await house.room.api.get("/v1/sessions")).json()["sessions"][0]["uid"] == app.uid


@pytest.mark.requirement("session-owner-alone")
async def test_nobody_but_its_owner_and_itself_speaks_for_a_session_and_its_folder_is_theirs(
    house: House,
):
    ana, bob = await house.person("ana"), await house.person("bob")
    app = await house.session(ana, folder="/home/ana/secret")
    other = await house.session(bob)  # the same client and key, of another owner
    assert other.uid != app.uid
    assert other.nick == "app-2"

    for stranger in (bob.api, other.api):
        assert await status(stranger.get("/v1/sessions/app")) == 404
        assert await status(stranger.put("/v1/sessions/app", json={"state": "gone"})) == 404
        assert await status(stranger.delete("/v1/sessions/app")) == 404
        assert await status(stranger.post("/v1/agents/app/rename", json={"nick": "mine"})) == 403
        seen = (await stranger.get("/v1/agents/app")).json()["session"]
        assert (seen["client"], seen["folder"]) == ("claude", "")
        assert "/home/ana/secret" not in (await stranger.get("/v1/agents")).text
    assert (await app.api.get("/v1/sessions")).json()["sessions"][0]["uid"] == app.uid
    assert len((await ana.api.get("/v1/sessions")).json()["sessions"]) == 1

    operating = await house.person("olga", Scope.READ, Scope.SEND, Scope.OPERATE)
    assert len((await operating.api.get("/v1/sessions")).json()["sessions"]) == 2
    assert await status(operating.api.put("/v1/sessions/app", json={"state": "gone"})) == 403
    assert await status(operating.api.delete("/v1/sessions/app")) == 403
    assert await status(app.api.put("/v1/sessions/app", json={"state": "busy"})) == 200


@pytest.mark.requirement("session-owner-alone")
async def test_a_session_has_no_more_than_its_owners_key_and_never_operates_whoever_makes_its_key(
    house: House,
):
    ana = await house.person("ana", Scope.READ, Scope.SEND, expires_in=600)
    app = await house.session(ana)
    made = app.shown["api_key"]
    assert made["scopes"] == ["read", "send"]
    assert made["expires_at"] is not None
    for scope in ("operate", "admin"):
        body = {"agent": "@app", "scopes": [scope]}
        assert await status(house.room.api.post("/v1/keys", json=body)) == 403
        assert await status(app.api.post("/v1/keys", json={"scopes": [scope]})) == 403
    # Another key of its own is its owner's to claim.
    assert await status(app.api.post("/v1/keys", json={"scopes": ["read"]})) == 403
    assert await status(app.api.post(f"/v1/keys/{made['id']}/rotate", json={})) == 403


@pytest.mark.requirement("session-owner-alone")
async def test_what_a_person_had_of_sessions_ends_with_that_person(house: House):
    async with person(house.room, "ana", *USUAL_SCOPES) as ana:
        app = await house.session(ana)
        await house.room.api.post("/v1/messages", json={"to": "@app", "text": "hello"})
    assert await status(app.api.get("/v1/me")) == 401
    assert await status(house.room.api.get("/v1/agents/app")) == 404
    assert (await house.room.api.get("/v1/sessions")).json()["sessions"] == []
    bob = await house.person("bob")
    assert (await house.session(bob)).nick == "app"


async def test_malformed_sessions_are_refused(house: House):
    ana = await house.person("ana")
    for body in (
        {"client": "claude", "key": ""},
        {"client": "claude", "key": "k" * 257},
        {"client": "Claude Code", "key": "k"},
        {"client": "claude\n", "key": "k"},
        {"client": "claude", "key": "k", "scopes": ["admin"]},
    ):
        assert await status(ana.api.post("/v1/sessions", json=body)) == 422, body


# ── how they stand ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_address_goes_on_under_another_key_of_its_client(house: House):
    ana = await house.person("ana")
    app, other = await house.session(ana), await house.session(ana, "two")
    assert await status(ana.api.put("/v1/sessions/app", json={"key": "two"})) == 409
    moved = await ana.api.put("/v1/sessions/app", json={"key": "three", "state": "busy"})
    assert (moved.json()["key"], moved.json()["state"]) == ("three", "busy")
    assert (await house.session(ana, "three")).uid == app.uid
    assert (await house.session(ana, "one")).uid not in (app.uid, other.uid)


async def test_a_session_that_is_only_heard_is_written_once_a_minute(house: House):
    ana = await house.person("ana")
    await house.session(ana)
    writes = house.room.parts.database.statistics().writes
    for _ in range(20):
        assert await status(ana.api.put("/v1/sessions/app", json={"state": "idle"})) == 200
    assert house.room.parts.database.statistics().writes - writes <= 2  # the uses of keys


@pytest.mark.requirement("session-is-agent")
async def test_a_renamed_session_keeps_its_uid_and_its_mail_and_the_old_name_is_free(house: House):
    ana = await house.person("ana")
    app = await house.session(ana)
    await ana.api.post("/v1/messages", json={"to": "@app", "text": "before"})
    renamed = await app.api.post(f"/v1/agents/{app.uid}/rename", json={"nick": "@api"})
    assert renamed.json() == {"uid": app.uid, "nick": "api"}
    assert await status(ana.api.get("/v1/agents/app")) == 404
    assert (await ana.api.get("/v1/agents/api/card")).json()["name"] == "api"
    (mail,) = (await app.api.get("/v1/inbox")).json()["messages"]
    assert (mail["text"], mail["to"]["nick"]) == ("before", "api")
    assert await status(ana.api.post("/v1/agents/api/rename", json={"nick": "ana"})) == 409
    assert await status(ana.api.post("/v1/agents/api/rename", json={"nick": "Operator"})) == 422
    assert await status(ana.api.post("/v1/agents/api/rename", json={"nick": "ap1"})) == 200
    assert (await house.session(ana, "two")).nick == "app"
    assert await status(ana.api.post("/v1/agents/ana/rename", json={"nick": "eve"})) == 422


async def test_who_administers_renames_an_agent_that_postroom_does_not_run_and_nobody_else(
    house: House,
):
    ana, api = await house.person("ana"), house.room.api
    made = (await api.post("/v1/agents", json={"nick": "otto", "kind": "service"})).json()
    async with bearer(house.room, made["key"]["key"]) as otto:
        for caller in (ana.api, otto):
            renamed = await caller.post("/v1/agents/otto/rename", json={"nick": "max"})
            assert renamed.status_code == 403
        assert await status(api.post("/v1/agents/otto/rename", json={"nick": "max"})) == 200
        assert (await otto.get("/v1/me")).json()["nick"] == "max"
    assert (await api.get("/v1/agents/max/card")).json()["description"] == "The service agent max."
    worker = await house.room.worker("coder")
    assert await status(api.post("/v1/agents/coder/rename", json={"nick": "x"})) == 422
    assert worker.agent.nick == "coder"
    assert await status(api.delete("/v1/agents/max")) == 200


@pytest.mark.requirement("session-ends-unheard")
async def test_an_ended_session_is_gone_with_its_keys_and_what_waited_for_it_is_dead(house: House):
    ana = await house.person("ana")
    app = await house.session(ana)
    sent = await ana.api.post("/v1/messages", json={"to": "@app", "text": "hello"})
    assert await status(app.api.delete("/v1/sessions/app")) == 200
    assert await status(app.api.get("/v1/me")) == 401
    mail = (await ana.api.get(f"/v1/messages/{sent.json()['id']}")).json()
    assert (mail["state"], mail["reason"]) == ("dead", "recipient retired")
    assert (await house.session(ana)).uid != app.uid


@pytest.mark.requirement("session-ends-unheard")
async def test_who_administers_ends_a_session_like_any_agent_that_postroom_does_not_run(
    house: House,
):
    ana = await house.person("ana")
    app = await house.session(ana)
    assert await status(house.room.api.delete("/v1/agents/app")) == 200
    assert await status(app.api.get("/v1/me")) == 401
    assert (await ana.api.get("/v1/sessions")).json()["sessions"] == []
    assert await status(ana.api.put(f"/v1/sessions/{app.uid}", json={"state": "busy"})) == 404


@pytest.mark.requirement("session-ends-unheard")
async def test_a_session_that_was_not_heard_for_7_days_ends(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    ana = await house.person("ana")
    app, other = await house.session(ana), await house.session(ana, "two")
    sessions, now = house.room.parts.sessions, house.room.parts.sessions._clock()
    house.room.parts.callers.forget(app.uid)
    monkeypatch.setattr(sessions, "_clock", lambda: now + 7 * 86400 - 60)
    assert await sessions.expire() == 0
    assert await status(ana.api.put(f"/v1/sessions/{other.uid}", json={})) == 200
    monkeypatch.setattr(sessions, "_clock", lambda: now + 7 * 86400 + 60)
    assert await sessions.expire() == 1
    assert await status(app.api.get("/v1/me")) == 401
    left = (await ana.api.get("/v1/sessions")).json()["sessions"]
    assert [one["uid"] for one in left] == [other.uid]


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────


HERE = {"folder": "/srv/app", "project": "/srv/app/.git"}


async def closed(session: Terminal) -> None:
    """Its client has ended."""
    assert (
        await status(session.api.put(f"/v1/sessions/{session.uid}", json={"state": "gone"})) == 200
    )


@pytest.mark.requirement("session-is-agent")
async def test_a_new_session_of_a_project_has_the_name_of_one_that_is_gone(house: House):
    ana = await house.person("ana")
    first = await house.session(ana, **HERE)
    second = await house.session(ana, "two", **HERE)
    assert (first.nick, second.nick) == ("app", "app-2")
    await closed(first)

    third = await house.session(ana, "three", client="codex", **HERE)
    assert third.nick == "app"
    kept = (await ana.api.get(f"/v1/agents/{first.uid}")).json()["nick"]
    assert re.fullmatch("app-[0-9a-f]{4}", kept)
    assert (await ana.api.get(f"/v1/agents/{kept}/card")).json()["name"] == kept
    # By the name a message goes to the new one, by the uid to the one that had it; resumed, it keeps what it has.
    for to, text in (("@app", "by name"), (first.uid, "by uid")):
        await ana.api.post("/v1/messages", json={"to": to, "text": text})
    again = await house.session(ana, **HERE)
    assert (again.uid, again.nick) == (first.uid, kept)
    for session, text in ((third, "by name"), (again, "by uid")):
        (mail,) = (await session.api.get("/v1/inbox")).json()["messages"]
        assert mail["text"] == text


@pytest.mark.requirement("session-is-agent")
async def test_a_session_keeps_its_name_while_it_is_open_waited_for_or_of_another_project_or_person(
    house: House,
):
    ana, bob = await house.person("ana"), await house.person("bob")
    app = await house.session(ana, **HERE)
    assert (await house.session(ana, "two", **HERE)).nick == "app-2"
    await closed(app)
    assert (await house.session(bob, **HERE)).nick == "app-3"
    other = HERE | {"project": "/home/app/.git"}
    assert (await house.session(ana, "three", **other)).nick == "app-4"
    sent = await bob.api.post("/v1/messages", json={"to": "@app", "text": "unread"})
    assert (await house.session(ana, "four", **HERE)).nick == "app-5"

    read = {"ids": [sent.json()["id"]], "state": "seen"}
    assert await status(app.api.post("/v1/inbox/ack", json=read)) == 200
    await bob.api.get(f"/v1/messages/{read['ids'][0]}", params={"wait": "seen", "timeout": "5"})
    task = await ana.api.post("/v1/tasks", json={"to": "@app", "text": "work"})
    assert task.status_code == 201, task.text
    assert (await house.session(ana, "five", **HERE)).nick == "app-6"


@pytest.mark.requirement("session-is-agent")
async def test_a_name_that_was_given_by_hand_stays(house: House):
    ana = await house.person("ana")
    app = await house.session(ana, **HERE)
    assert await status(ana.api.post("/v1/agents/app/rename", json={"nick": "reviewer"})) == 200
    await closed(app)
    assert (await house.session(ana, "two", **HERE)).nick == "app"
    assert (await ana.api.get("/v1/agents/reviewer")).json()["uid"] == app.uid


@pytest.mark.requirement("session-is-agent")
async def test_of_two_sessions_that_begin_at_once_one_has_the_name(house: House):
    ana = await house.person("ana")
    await closed(await house.session(ana, **HERE))
    both = await asyncio.gather(*(house.session(ana, key, **HERE) for key in ("two", "three")))
    assert sorted(each.nick for each in both) == ["app", "app-2"]
