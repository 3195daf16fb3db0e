"""Agents that Postroom does not run, by plain HTTP: mail, presence, cards and tasks, against workers driven by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from postroom.directory.card_signatures import verify_card
from postroom.projection.changes import ALERTS
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.priority import Input, Update
from postroom.protocol.tasks import task_id
from postroom.tasks.reports import SilentTasks
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom, task_room

pytestmark = pytest.mark.anyio
SKILL = {"id": "translate", "name": "translate", "description": "Translates.", "tags": ["text"]}


@dataclass
class Outsider:
    """An agent that has an address and a key, and nothing else."""

    uid: str
    nick: str
    api: httpx2.AsyncClient

    async def get(self, path: str, status: int = 200, **query: Any) -> dict[str, Any]:
        answer = await self.api.get(f"/v1{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, status: int = 200, /, **body: Any) -> dict[str, Any]:
        answer = await self.api.post(f"/v1{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def inbox(self, after: int = 0, wait: float = SECONDS) -> list[dict[str, Any]]:
        found = await self.get("/inbox", after=after, wait=wait, unread="true", limit=50)
        return found["messages"]

    async def given(self, task: str) -> dict[str, Any]:
        """The mail that requests a task."""
        (mail,) = [mail for mail in await self.inbox() if mail["task"] == task]
        return mail

    async def say(self, task: str, state: str, status: int = 200, **more: Any) -> dict[str, Any]:
        return await self.post(f"/tasks/{task}/status", status, state=state, **more)


class House:
    """A room with outsiders in it; at the end of a test they are removed."""

    def __init__(self, room: TaskRoom, stack: AsyncExitStack) -> None:
        self.room = room
        self._stack = stack
        self.added: list[str] = []
        self.workers: list[str] = []

    async def outsider(self, nick: str, **more: Any) -> Outsider:
        answer = await self.room.api.post("/v1/agents", json={"nick": nick, **more})
        assert answer.status_code == 201, answer.text
        made = answer.json()
        self.added.append(made["uid"])
        headers = {"Authorization": f"Bearer {made['key']['key']}"}
        api = httpx2.AsyncClient(
            base_url=self.room.api.base_url, headers=headers, timeout=2 * SECONDS, verify=False
        )
        return Outsider(made["uid"], nick, await self._stack.enter_async_context(api))

    async def worker(self, nick: str, *skills: str) -> Hand:
        hand = await self.room.worker(nick, *skills)
        self.workers.append(hand.uid)
        return hand

    async def remove(self, uid: str) -> None:
        if uid in self.added:
            self.added.remove(uid)
            answer = await self.room.api.delete(f"/v1/agents/{uid}")
            assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as running:
        yield running


@pytest.fixture
async def house(room: TaskRoom) -> AsyncGenerator[House]:
    async with AsyncExitStack() as stack:
        house = House(room, stack)
        yield house
        for uid in list(house.added):
            await house.remove(uid)
        for uid in house.workers:
            await room.parts.workers.remove(uid)
        await room.parts.sweep()


@asynccontextmanager
async def following(api: httpx2.AsyncClient, path: str) -> AsyncGenerator[Any]:
    """Events of a stream: (name, id, record)."""
    async with asyncio.timeout(SECONDS), api.stream("GET", path) as answer:
        assert answer.status_code == 200

        async def events() -> AsyncGenerator[tuple[str, str, dict[str, Any]]]:
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name in ("id", "event", "data"):
                    fields[name] = value
                elif not line and fields:
                    yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
                    fields = {}

        yield events()


# ── the directory ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-skill-chosen")
@pytest.mark.requirement("mend-times-texts")
async def test_the_directory_knows_agents_of_every_kind(house: House):
    room = house.room
    otto = await house.outsider("otto", card={"skills": [SKILL], "description": "Knows words."})
    await house.outsider("pump", kind="service")
    alice = await house.worker("alice", "write")
    await alice.online()

    found = (await otto.get("/agents"))["agents"]
    kinds = {entry["nick"]: (entry["kind"], entry["online"]) for entry in found}
    assert kinds["otto"] == ("external", True)  # it has called just now
    assert kinds["pump"] == ("service", False)
    assert kinds["alice"] == ("worker", True)
    assert kinds["maria"] == ("human", True)
    assert [e["nick"] for e in (await otto.get("/agents", kind="service"))["agents"]] == ["pump"]
    (entry,) = (await otto.get("/agents", skill="translate"))["agents"]
    assert (entry["nick"], entry["card"]["description"]) == ("otto", "Knows words.")
    assert entry["seen_at"].endswith("Z")

    shown = await otto.get("/agents/otto")
    card = await otto.get(f"/agents/{otto.uid}/card")
    assert (shown["uid"], shown["card"]) == (otto.uid, card)
    assert verify_card(card, [room.rig.trust.card_key.jwk])["name"] == "otto"
    await otto.get("/agents/nobody", 404)
    await otto.get("/agents/maria/card", 404)
    # Workers find it as they find each other.
    seen = await alice.bus.request(f"ctl.{alice.uid}.cards.find", b'{"skill":"translate"}')
    assert [each["nick"] for each in json.loads(seen.payload)["agents"]] == ["otto"]
    await room.until(lambda: otto.uid in [uid for uid, found in room.written if found])


async def test_an_agent_changes_its_own_card_and_nobody_elses(house: House):
    otto, paul = await house.outsider("otto"), await house.outsider("paul")
    card = await otto.get("/agents/otto/card")
    changed = await otto.api.put("/v1/agents/otto/card", json=card | {"skills": [SKILL]})
    assert changed.status_code == 200, changed.text
    assert (await paul.get("/agents", skill="translate"))["agents"][0]["nick"] == "otto"
    assert (await paul.api.put("/v1/agents/otto/card", json={})).status_code == 403
    assert (await paul.api.put("/v1/agents/maria/card", json={})).status_code == 422
    refused = await otto.api.put("/v1/agents/otto/card", json={"name": "paul"})
    assert (refused.status_code, "claims the name" in refused.json()["detail"]) == (422, True)


async def test_its_card_says_what_it_takes_and_senders_learn_that(house: House):
    await house.outsider("otto", card={"defaultInputModes": ["text/plain"]})
    body = {"to": "@otto", "parts": [{"data": {"a": 1}}]}
    for path in ("/v1/messages", "/v1/tasks"):
        refused = await house.room.api.post(path, json=body)
        assert (refused.status_code, "text/plain" in refused.json()["remedy"]) == (415, True)


async def test_a_report_names_no_blob_that_its_agent_may_not_read(house: House):
    otto, paul = await house.outsider("otto"), await house.outsider("paul")
    task = (await house.room.delegate("@otto"))["id"]
    stored = await paul.api.post("/v1/blobs", content=b"of paul")
    other = {"parts": [{"url": stored.json()["url"], "mediaType": "text/plain"}]}
    await otto.post(f"/tasks/{task}/artifacts", 422, **other)
    await otto.say(task, "completed", 422, **other)
    mine = await otto.api.post("/v1/blobs", content=b"of otto")
    part = {"url": mine.json()["url"], "mediaType": "text/csv", "filename": "x.csv"}
    made = await otto.post(f"/tasks/{task}/artifacts", name="table", parts=[part])
    assert made["artifacts"][0]["files"][0]["filename"] == "x.csv"
    got = await house.room.api.get(f"/v1/blobs/{mine.json()['sha256']}")
    assert got.content == b"of otto"


async def test_only_who_administers_adds_and_removes(house: House):
    otto = await house.outsider("otto")
    await otto.post("/agents", 403, nick="mole")
    assert (await otto.api.delete("/v1/agents/otto")).status_code == 403
    for nick, status in (("otto", 409), ("operator", 422), ("x y", 422)):
        answer = await house.room.api.post("/v1/agents", json={"nick": nick})
        assert (nick, answer.status_code) == (nick, status)
    assert (await house.room.api.delete("/v1/agents/maria")).status_code == 422


async def test_a_removed_agent_is_gone_with_its_key(house: House):
    otto = await house.outsider("otto")
    await house.remove(otto.uid)
    await otto.get("/inbox", 401)
    assert (await house.room.api.get("/v1/agents/otto")).status_code == 404
    again = await house.outsider("otto")
    assert again.uid != otto.uid


# ── mail ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("inbox-confirmed-only")
async def test_it_sends_reads_acknowledges_and_answers(house: House):
    otto = await house.outsider("otto")
    alice = await house.worker("alice")
    waiting = asyncio.create_task(otto.inbox())
    maria = house.room.api
    sent = (await maria.post("/v1/messages", json={"to": "@otto", "text": "well?"})).json()
    (mail,) = await waiting
    assert (mail["id"], mail["from"]["nick"], mail["state"]) == (sent["id"], "maria", "accepted")
    assert mail["redelivered"] is False

    (again,) = await otto.inbox()
    assert (again["id"], again["redelivered"]) == (sent["id"], True)
    done = await otto.post("/inbox/ack", ids=[mail["id"], "none"], state="delivered")
    assert ([m["state"] for m in done["messages"]], done["unknown"]) == (["delivered"], ["none"])
    reply = await otto.post("/messages", 201, to="@maria", text="yes", reply_to=mail["id"])
    seen = await maria.get(
        f"/v1/messages/{sent['id']}", params={"wait": "answered", "timeout": SECONDS}
    )
    assert (seen.json()["state"], seen.json()["answer"]["id"]) == ("answered", reply["id"])
    assert await otto.inbox(wait=0) == []
    told = await otto.post("/messages", 201, to="@alice", text="hello", expects_reply=False)
    stored = await house.room.rig.admin.get(
        "INBOX", (await otto.get(f"/messages/{told['id']}"))["seq"]
    )
    assert stored.subject == f"worker.{alice.uid}.inbox.{otto.uid}"


async def test_its_stream_goes_on_where_it_was(house: House):
    otto = await house.outsider("otto")
    sent = []
    for text in ("one", "two"):
        body = {"to": "@otto", "text": text, "expects_reply": False}
        sent.append((await house.room.api.post("/v1/messages", json=body)).json()["id"])
    async with following(otto.api, "/v1/inbox/stream") as events:
        first = await anext(events)
        second = await anext(events)
        assert [(n, mail["text"]) for n, _, mail in (first, second)] == [
            ("mail", "one"),
            ("mail", "two"),
        ]
        assert house.room.parts.callers.there(otto.uid)
    async with following(otto.api, f"/v1/inbox/stream?after={first[1]}") as events:
        _, _, mail = await anext(events)
        assert (mail["text"], mail["redelivered"]) == ("two", True)
        await house.room.api.post("/v1/messages", json={"to": "@otto", "text": "three"})
        assert (await anext(events))[2]["text"] == "three"
    await otto.post("/inbox/ack", ids=sent, state="seen")
    async with following(otto.api, "/v1/inbox/stream") as events:
        assert (await anext(events))[2]["text"] == "three"


async def test_it_sees_nobody_elses_mail_and_tasks(house: House):
    otto, paul = await house.outsider("otto"), await house.outsider("paul")
    await house.worker("alice")
    body = {"to": "@paul", "text": "secret"}
    sent = (await house.room.api.post("/v1/messages", json=body)).json()
    task = await house.room.delegate("@paul", "secret work")
    await otto.get(f"/messages/{sent['id']}", 404)
    done = await otto.post("/inbox/ack", ids=[sent["id"]], state="seen")
    assert (done["messages"], done["unknown"]) == ([], [sent["id"]])
    await otto.say(task["id"], "working", 404)
    await otto.post(f"/tasks/{task['id']}/artifacts", 404, text="mine")
    assert await otto.inbox(wait=0) == []
    assert len(await paul.inbox()) == 2


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("inbox-confirmed-only")
async def test_after_a_crash_behind_its_first_report_it_is_given_the_task_again(house: House):
    otto = await house.outsider("otto")
    task = (await house.room.delegate("@otto", "do it"))["id"]
    mail = await otto.given(task)
    assert not mail["redelivered"]
    begun = await otto.say(task, "working")
    await otto.get(f"/messages/{mail['id']}", wait="delivered", timeout=SECONDS)

    # It has lost all that it knew.
    again = await otto.given(task)
    assert (again["id"], again["redelivered"]) == (mail["id"], True)
    assert (await otto.get(f"/tasks/{task}"))["seq"] == begun["seq"]
    await otto.post("/inbox/ack", ids=[mail["id"]], state="seen")
    assert await otto.inbox(wait=0) == []
    assert (await otto.say(task, "completed"))["final"]
    done = await otto.get(f"/messages/{mail['id']}", wait="answered", timeout=SECONDS)
    assert done["state"] == "answered"


@pytest.mark.requirement("outside-takes-tasks")
async def test_a_worker_gives_it_a_task_and_hears_how_it_ends(house: House):
    otto = await house.outsider("otto", card={"skills": [SKILL]})
    alice = await house.worker("alice")
    await alice.listen()
    chosen = await alice.ask("choose", skill="translate")
    assert chosen["nick"] == "otto"
    mine = await house.room.delegate("@otto", "translate it", key="k")
    task = mine["id"]
    assert (mine["state"], mine["seq"]) == ("submitted", 0)

    mail = await otto.given(task)
    assert mail["text"] == "translate it"
    begun = await otto.say(task, "working")
    assert (begun["state"], begun["attempt"], begun["seq"] > 0) == ("working", 1, True)
    # Who has begun a task has its request.
    seen = await otto.get(f"/messages/{mail['id']}", wait="delivered", timeout=SECONDS)
    assert seen["state"] == "delivered"
    said = await otto.say(task, "working", text="half of it")
    assert (said["status_text"], said["seq"] > begun["seq"]) == ("half of it", True)
    part = {"url": "https://example.org/x.pdf", "mediaType": "application/pdf"}
    made = await otto.post(f"/tasks/{task}/artifacts", name="words", text="ein", last=False)
    made = await otto.post(
        f"/tasks/{task}/artifacts", id="words", text="s", parts=[part], append=True
    )
    (artifact,) = made["artifacts"]
    assert (artifact["id"], artifact["text"]) == ("words", "eins")
    assert artifact["files"][0]["mediaType"] == "application/pdf"
    done = await otto.say(task, "completed", text="done")
    assert (done["state"], done["final"], done["status_text"]) == ("completed", True, "done")
    shown = await house.room.get(f"/{task}", wait="final", timeout=SECONDS)
    assert (shown["state"], shown["worker"]["kind"]) == ("completed", "external")
    request = await house.room.api.get(
        f"/v1/messages/{mail['id']}", params={"wait": "answered", "timeout": SECONDS}
    )
    assert request.json()["state"] == "answered"
    kinds = [e["kind"] for e in (await otto.get(f"/tasks/{task}/events"))["events"]]
    assert kinds == ["task", "status", "artifact", "artifact", "status"]


@pytest.mark.requirement("outside-takes-tasks")
async def test_a_second_end_is_refused_and_a_repeated_one_has_no_effect(house: House):
    otto = await house.outsider("otto")
    task = (await house.room.delegate("@otto"))["id"]
    done = await otto.say(task, "failed", text="no idea", seq=0)
    assert (done["state"], done["status_text"]) == ("failed", "no idea")
    assert (await otto.say(task, "failed", text="no idea", seq=0))["seq"] == done["seq"]
    await otto.say(task, "completed", 409, text="after all")
    await otto.say(task, "failed", 409, text="another reason", seq=0)
    await otto.post(f"/tasks/{task}/artifacts", 409, text="late")
    assert (await house.room.get(f"/{task}"))["seq"] == done["seq"]


async def test_a_report_may_be_repeated_under_the_sequence_that_it_knows(house: House):
    otto = await house.outsider("otto")
    task = (await house.room.delegate("@otto"))["id"]
    # The task is begun in the name of the first artifact, which is a record of its own.
    first = await otto.post(f"/tasks/{task}/artifacts", text="a", seq=0)
    again = await otto.post(f"/tasks/{task}/artifacts", text="a", seq=0)
    assert (first["seq"], first["artifacts"]) == (again["seq"], again["artifacts"])
    piece: dict[str, Any] = {"id": "result", "text": "b", "append": True, "seq": first["seq"]}
    more = [await otto.post(f"/tasks/{task}/artifacts", **piece) for _ in range(2)]
    assert [view["artifacts"][0]["text"] for view in more] == ["ab", "ab"]
    await otto.post(f"/tasks/{task}/artifacts", 409, **piece | {"text": "c"})
    assert (await otto.say(task, "working", seq=0))["seq"] == more[0]["seq"]
    await otto.say(task, "working", 409, text="other words", seq=0)


async def test_nobody_reports_beside_a_sidecar(house: House):
    alice = await house.worker("alice")
    task = (await house.room.delegate("@alice"))["id"]
    made = await house.room.api.post("/v1/keys", json={"agent": alice.uid})
    keys = [house.room.api.headers["Authorization"]]
    keys += [f"Bearer {made.json()['key']}"] if made.is_success else []
    for key in keys:
        path, body = f"/v1/tasks/{task}/status", {"state": "completed"}
        answer = await house.room.api.post(path, json=body, headers={"Authorization": key})
        assert answer.status_code == 403
    assert (await house.room.get(f"/{task}"))["seq"] == 0


async def test_of_two_reports_at_once_under_one_sequence_one_wins(house: House):
    otto = await house.outsider("otto")
    task = (await house.room.delegate("@otto"))["id"]
    seq = (await otto.say(task, "working"))["seq"]
    answers = await asyncio.gather(
        *(
            otto.api.post(
                f"/v1/tasks/{task}/status", json={"state": state, "text": state, "seq": seq}
            )
            for state in ("completed", "failed", "rejected")
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    (won,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert (await otto.get(f"/tasks/{task}"))["state"] == won["state"]
    # Without a sequence each is put behind the other.
    other = (await house.room.delegate("@otto"))["id"]
    await asyncio.gather(*(otto.say(other, "working", text=f"{n}") for n in range(4)))
    said = [e["text"] for e in (await otto.get(f"/tasks/{other}/events"))["events"]]
    assert sorted(said) == ["", "0", "1", "2", "3"]


@pytest.mark.requirement("outside-takes-tasks")
async def test_it_asks_and_goes_on_with_the_answer(house: House):
    otto = await house.outsider("otto")
    task = (await house.room.delegate("@otto"))["id"]
    asked = await otto.say(task, "input-required", text="into which language?")
    assert asked["state"] == "input-required"
    until, alerts = house.room.parts.changes.until, house.room.alerts
    ((nick, text),) = await until(ALERTS, alerts, bool, SECONDS)
    assert (nick, "into which language?" in text) == ("otto", True)
    await otto.post(f"/tasks/{task}/artifacts", 409, text="too early")
    waiting = asyncio.create_task(
        otto.get(f"/tasks/{task}", wait="changed", after=asked["seq"], timeout=SECONDS)
    )
    part = {"data": {"language": "de"}}
    answered = await house.room.post(f"/{task}/answer", text="German", parts=[part])
    assert answered["state"] == "working"
    assert (await waiting)["state"] == "working"
    (event,) = (await otto.get(f"/tasks/{task}/events", after=asked["seq"]))["events"]
    assert event["answer"] == "German"
    row = await house.room.row(task)
    assert json.loads(row.snapshot)["history"][-1]["parts"] == [{"text": "German"}, part]
    assert await until(ALERTS, alerts, lambda standing: not standing, SECONDS) == []
    second = await house.room.api.post(f"/v1/tasks/{task}/answer", json={"text": "French"})
    assert second.status_code == 409
    await otto.say(task, "completed", text="fertig")


@pytest.mark.requirement("outside-takes-tasks")
async def test_a_cancel_ends_its_task_at_once_and_it_learns_that(house: House):
    otto = await house.outsider("otto")
    waits, runs = [(await house.room.delegate("@otto"))["id"] for _ in range(2)]
    seq = (await otto.say(runs, "working"))["seq"]
    async with following(otto.api, f"/v1/tasks/{runs}/stream?after={seq}") as events:
        for task in (waits, runs):
            assert (await house.room.post(f"/{task}/cancel", reason="late"))["state"] == "canceled"
        updates = [record async for name, _, record in events if name == "update"]
        assert [(each["state"], each["final"]) for each in updates] == [("canceled", True)]
    refused = await otto.say(runs, "completed", 409, text="done")
    assert "canceled" in refused["detail"]
    for task in (waits, runs):
        request = (await otto.get(f"/tasks/{task}"))["request"]
        await otto.get(f"/messages/{request}", wait="answered", timeout=SECONDS)
    assert [m["task"] for m in await otto.inbox(wait=0)] == []


@pytest.mark.requirement("outside-takes-tasks")
async def test_a_worker_that_asked_is_told_of_a_question_and_of_the_end(house: House):
    otto = await house.outsider("otto")
    alice = await house.worker("alice")
    await alice.listen()
    task = await _delegated_by(alice, otto)
    await otto.given(task)
    await otto.say(task, "input-required", text="which one?")
    _, told = await alice.next()
    assert isinstance(told, Update)
    assert (told.task, told.state) == (task, TaskState.INPUT_REQUIRED)
    answered = await alice.ask("answer", task=task, message={"parts": [{"text": "the first"}]})
    assert answered.get("view", {}).get("state") == "working", answered
    await otto.say(task, "completed", text="done")
    _, told = await alice.next()
    assert isinstance(told, Update)
    assert (told.state, told.worker) == (TaskState.COMPLETED, otto.uid)


@pytest.mark.requirement("outside-takes-tasks")
async def test_it_gives_a_worker_a_task_answers_and_reads_the_result(house: House):
    otto = await house.outsider("otto")
    alice = await house.worker("alice", "write")
    await alice.listen()
    given = await otto.post("/tasks", 201, skill="write", text="write it")
    task = given["id"]
    assert (given["worker"]["nick"], given["requester"]["nick"]) == ("alice", "otto")
    await alice.take(task)
    await alice.say(task, TaskState.WORKING, attempt=1)
    await alice.say(task, TaskState.INPUT_REQUIRED, "for whom?")
    seen = await otto.get(f"/tasks/{task}", wait="settled", timeout=SECONDS)
    assert seen["status_text"] == "for whom?"
    answering = asyncio.create_task(otto.post(f"/tasks/{task}/answer", text="for you"))
    _, told = await alice.next()
    assert isinstance(told, Input)
    await alice.answered(task, told.message)
    await answering
    await alice.make(task, "here it is")
    await alice.say(task, TaskState.COMPLETED)
    done = await otto.get(f"/tasks/{task}", wait="final", timeout=SECONDS)
    assert (done["state"], done["artifacts"][0]["text"]) == ("completed", "here it is")
    await otto.say(task, "working", 404)  # it is alice's to do
    # Nothing lies in a priority lane that nobody reads.
    found = [m async for m in house.room.rig.admin.replay("PRIORITY")]
    assert not [m for m in found if m.subject.split(".")[1] == otto.uid]


@pytest.mark.requirement("outside-takes-tasks")
async def test_an_agent_that_is_removed_leaves_no_task_open(house: House):
    otto = await house.outsider("otto")
    untaken, taken = [(await house.room.delegate("@otto"))["id"] for _ in range(2)]
    await otto.say(taken, "working")
    await house.remove(otto.uid)
    async with asyncio.timeout(SECONDS):
        for task, why in ((taken, "the agent was removed"), (untaken, "recipient retired")):
            ended = await house.room.get(f"/{task}", wait="final", timeout=SECONDS)
            assert (ended["state"], why in ended["detail"]) == ("failed", True), ended


async def test_it_is_chosen_by_skill_while_it_is_there(house: House):
    otto = await house.outsider("otto", card={"skills": [SKILL]})
    paul = await house.outsider("paul", card={"skills": [SKILL]})
    await paul.get("/me")
    assert (await house.room.post("", skill="translate", text="x"))["worker"]["nick"] == "paul"
    await otto.get("/me")
    assert (await house.room.post("", skill="translate", text="y"))["worker"]["nick"] == "otto"


@pytest.mark.parametrize(
    "calls, later, raised", [(False, 301, True), (True, 301, False), (True, 3601, True)]
)
async def test_a_task_of_which_its_agent_says_nothing_raises_an_alert(
    house: House, calls: bool, later: float, raised: bool
):
    room = house.room
    otto = await house.outsider("otto")
    taken, seen, fresh = [(await room.delegate("@otto"))["id"] for _ in range(3)]
    await otto.say(taken, "working")
    requests = {mail["task"]: mail["id"] for mail in await otto.inbox()}
    await otto.post("/inbox/ack", ids=[requests[seen]], state="seen")
    silent = SilentTasks(
        room.parts.database,
        room.parts.alerts.raise_alert,
        lambda _: calls,
        300.0,
        clock=lambda: time.time() + later,
    )
    for _ in range(2):  # each is told once
        await silent.look()
    said = [text for nick, text in await room.alerts() if nick == "otto"]
    named = {task[:8] for task in (taken, seen, fresh) for text in said if task[:8] in text}
    assert (len(said), named) == ((2, {taken[:8], seen[:8]}) if raised else (0, set()))
    await otto.say(taken, "working", text="still at it")
    await room.post(f"/{seen}/cancel")
    assert [text for nick, text in await room.alerts() if nick == "otto"] == []


async def test_a_large_course_of_reports_is_stored_by_its_changes(house: House):
    otto = await house.outsider("otto")
    task = (await house.room.delegate("@otto"))["id"]
    for n in range(6):
        body: dict[str, Any] = {"id": "log", "text": "x" * 20_000, "append": n > 0, "last": n == 5}
        view = await otto.post(f"/tasks/{task}/artifacts", **body)
    assert len(view["artifacts"][0]["text"]) == 120_000
    stored = [m async for m in house.room.rig.admin.replay("TASKS") if task in m.subject]
    assert sum(len(m.payload) for m in stored) < 3 * 120_000
    await otto.post(f"/tasks/{task}/artifacts", 413, id="log", text="x" * 400_000)


async def _delegated_by(alice: Hand, otto: Outsider) -> str:
    made = "ab" * 16
    envelope = Envelope(
        id=made,
        to=otto.uid,
        message=text_message(made, "do it"),
        sent_at=1.0,
        expects_reply=True,
        request=TaskRequest(),
    )
    await alice.bus.publish(subjects.inbox(otto.uid, alice.uid), envelope.encode(), id=made)
    return task_id(otto.uid, alice.uid, made)
