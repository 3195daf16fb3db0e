"""What an agent may not do alone is asked of its owner, and done once they have allowed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.control.acts import WAITS, Acts, AwaitsOwner, by_owner
from postroom.errors import Refused
from postroom.projection.changes import of_worker_events
from postroom.protocol.limits import MAX_PENDING_APPROVALS
from postroom.protocol.principal import KEY, USUAL_SCOPES, Principal, Scope
from postroom.store.approvals import ApprovalRow
from tests.approvals.asking import SECONDS, answer, request, response, sidecar_of
from tests.control.taskroom import TaskRoom, room_on, task_room
from tests.control.test_sessions import House, Terminal, house_of
from tests.rig import running_server

pytestmark = pytest.mark.anyio

WORDS = "call @app differently"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture
async def house(shared: TaskRoom) -> AsyncGenerator[House]:
    async with house_of(shared) as made:
        yield made


def agent_of(terminal: Terminal, *scopes: Scope) -> Principal:
    scopes = scopes or tuple(USUAL_SCOPES)
    return Principal(
        terminal.uid, "default", terminal.nick, "external", frozenset(scopes), KEY, "k"
    )


async def ask(room: TaskRoom, terminal: Terminal, nick: str) -> dict[str, Any]:
    """Ask for another name, which any operation stands for; the answer 202."""
    given = {"ref": terminal.uid, "nick": nick}
    with pytest.raises(AwaitsOwner) as asked:
        await by_owner(room.parts, agent_of(terminal), "agents.rename", given, WORDS)
    return dict(asked.value.shown)


async def became(room: TaskRoom, approval: str) -> dict[str, Any]:
    """An act once what became of it is noted."""

    async def read() -> dict[str, Any]:
        return (await room.api.get(f"/v1/approvals/{approval}")).json()

    topic = of_worker_events((await read())["worker"]["uid"])
    shown = await room.parts.changes.until(topic, read, lambda now: "became" in now, SECONDS)
    assert "became" in shown, shown
    return shown


@pytest.mark.requirement("acts-by-owner")
async def test_it_is_done_once_its_owner_has_allowed_it_and_the_agent_is_told(house: House):
    anna = await house.person("anna")
    app = await house.session(anna)
    asked = await ask(house.room, app, "harbour")
    assert (asked["of"]["nick"], asked["text"]) == (
        "anna",
        "asked @anna: it counts when they allow it",
    )

    (seen,) = (await anna.api.get("/v1/approvals")).json()["approvals"]
    assert (seen["id"], seen["kind"], seen["tool"]) == (asked["approval"], "act", "agents.rename")
    assert (seen["title"], seen["input"]) == (WORDS, {"ref": app.uid, "nick": "harbour"})
    assert (seen["default"], seen["editable"], seen["state"]) == ("deny", False, "pending")
    assert (await anna.api.get("/v1/status")).json()["approvals"] == [seen]
    body = {"type": "control_response", "id": seen["id"][:8], "decision": "allowed"}
    said = await anna.api.post(f"/v1/workers/{app.uid}/control", json=body)
    assert said.status_code == 200, said.text

    assert (await became(house.room, seen["id"]))["became"] == {"done": True, "text": "done"}
    assert (await app.api.get("/v1/me")).json()["nick"] == "harbour"
    (mail,) = (await app.api.get("/v1/inbox")).json()["messages"]
    assert (mail["from"]["nick"], mail["subject"]) == ("anna", "allowed: agents.rename")
    assert mail["text"] == f"You asked: {WORDS}. It was allowed; done."


@pytest.mark.requirement("acts-by-owner")
async def test_what_is_denied_or_expires_is_not_done(house: House):
    anna = await house.person("anna")
    app = await house.session(anna)
    asked = await ask(house.room, app, "harbour")
    denied = await answer(house.room, app.uid, asked["approval"], "denied", reason="keep your name")
    assert denied.status_code == 200  # who operates may deny
    shown = await became(house.room, asked["approval"])
    assert shown["became"] == {"done": False, "text": "not done: denied"}

    made = house.room.parts.approvals.ask_act(app.uid, "agents.rename", {}, WORDS, 0.05)
    view = await made
    shown = await became(house.room, view.row.id)
    assert (shown["state"], shown["became"]["done"]) == ("expired", False)
    assert (await app.api.get("/v1/me")).json()["nick"] == "app"
    mails = (await app.api.get("/v1/inbox")).json()["messages"]
    assert [mail["text"].partition("It was ")[2] for mail in mails] == [
        "denied (keep your name); not done: denied.",
        "expired; not done: expired.",
    ]


@pytest.mark.requirement("acts-by-owner")
async def test_asked_often_it_waits_once(house: House):
    app = await house.session(await house.person("anna"))
    both = await asyncio.gather(*(ask(house.room, app, "harbour") for _ in range(2)))
    again = await ask(house.room, app, "harbour")
    other = await ask(house.room, app, "quay")

    assert {one["approval"] for one in (*both, again)} == {again["approval"]}
    assert other["approval"] != again["approval"]
    await answer(house.room, app.uid, again["approval"], "denied")
    assert (await ask(house.room, app, "harbour"))["approval"] != again["approval"]
    for number in range(MAX_PENDING_APPROVALS - 2):
        await ask(house.room, app, f"n{number}")
    with pytest.raises(Refused, match="too many"):
        await by_owner(house.room.parts, agent_of(app), "agents.rename", {}, WORDS)


@pytest.mark.requirement("acts-owner-alone")
async def test_only_its_owner_allows_it(house: House):
    anna, paul = await house.person("anna"), await house.person("paul")
    app, other = await house.session(anna), await house.session(anna, "two", "two")
    asked = await ask(house.room, app, "harbour")
    body = {"type": "control_response", "id": asked["approval"], "decision": "allowed"}

    for api in (paul.api, other.api, app.api):
        assert (await api.post(f"/v1/workers/{app.uid}/control", json=body)).status_code == 403
    for api in (paul.api, other.api):
        assert (await api.get("/v1/approvals")).json()["approvals"] == []
        assert (await api.get(f"/v1/approvals/{asked['approval']}")).status_code == 404
    by_operator = await answer(house.room, app.uid, asked["approval"])
    assert (by_operator.status_code, by_operator.json()["detail"]) == (
        403,
        "only @anna, who owns @app, may allow this",
    )
    assert (await app.api.get("/v1/approvals")).json()["approvals"][0]["state"] == "pending"


@pytest.mark.requirement("acts-owner-alone")
async def test_no_sidecar_settles_or_forges_an_act(shared: TaskRoom):
    async with sidecar_of(shared) as sidecar:
        uid = sidecar.worker.uid
        view = await shared.parts.approvals.ask_act(uid, "people.add", {}, WORDS, WAITS)
        for channel, decision in (("policy", "allowed"), ("agent", "withdrawn")):
            await sidecar.report(response(view.row.id, decision, channel))
        shown = (await shared.api.get(f"/v1/approvals/{view.row.id}")).json()
        assert shown["state"] == "pending"

        forged = "ef" * 16
        await sidecar.report(request(forged, kind="act", tool="people.add"))
        assert (await shared.api.get(f"/v1/approvals/{forged}")).json()["kind"] == "tool"
        policy = {"autonomy": "all"}
        await shared.api.post(f"/v1/workers/{uid}/policy", json=policy)
        assert (await shared.api.get(f"/v1/approvals/{view.row.id}")).json()["state"] == "pending"
        await answer(shared, uid, view.row.id, "denied")
        await became(shared, view.row.id)
        heard = await sidecar.heard()
        assert view.row.id not in [record.get("request") for record in heard["records"]]


async def test_what_is_allowed_and_cannot_be_done_is_an_alert(house: House):
    anna = await house.person("anna")
    app = await house.session(anna)
    asked = await ask(house.room, app, "no such nick!")
    body = {"type": "control_response", "id": asked["approval"], "decision": "allowed"}
    await anna.api.post(f"/v1/workers/{app.uid}/control", json=body)

    shown = await became(house.room, asked["approval"])
    assert shown["became"]["text"].startswith("it cannot be done: ")
    alerts = await house.room.alerts()
    assert any(WORDS in text for _, text in alerts)


def test_people_and_programs_with_the_scope_grant_do_it_themselves():
    def is_free(kind: str, *more: Scope) -> bool:
        return Principal("u", "default", "n", kind, USUAL_SCOPES | set(more), KEY).is_free

    assert is_free("human")
    assert not is_free("external")
    assert not is_free("worker")
    assert is_free("external", Scope.GRANT)


@pytest.mark.requirement("acts-by-owner")
async def test_what_was_allowed_before_a_crash_is_done_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gone = asyncio.Event()

    async def crashes(self: Acts, row: ApprovalRow) -> None:
        await self._do(row)
        gone.set()
        await asyncio.Event().wait()  # done, and not noted

    async with running_server(tmp_path, memory=False) as rig:
        async with room_on(tmp_path, rig, memory=False) as room:
            body = {"client": "claude", "key": "one", "nick": "app"}  # its owner is the operator
            app = Terminal((await room.api.post("/v1/sessions", json=body)).json(), room.api)
            asked = await ask(room, app, "harbour")
            monkeypatch.setattr(Acts, "act", crashes)
            assert (await answer(room, app.uid, asked["approval"])).status_code == 200
            async with asyncio.timeout(SECONDS):
                await gone.wait()
        monkeypatch.undo()
        async with room_on(tmp_path, rig, memory=False) as room:
            assert (await became(room, asked["approval"]))["became"]["done"] is True
            assert (await room.api.get(f"/v1/agents/{app.uid}")).json()["nick"] == "harbour"
            mails = (await room.api.get("/v1/messages", params={"to": app.uid})).json()["messages"]
            assert [mail["subject"] for mail in mails] == ["allowed: agents.rename"]
