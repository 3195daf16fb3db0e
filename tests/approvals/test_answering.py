"""An approval is asked for, shown, and answered once, whoever answers over whatever channel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.protocol.limits import MAX_EDITED_BYTES, MAX_PENDING_APPROVALS, SHORT_ID
from postroom_a2a.task_state import TaskState
from postroom_a2a.times import format_time
from tests.approvals.asking import answer, new_id, request, response, shown, sidecar_of
from tests.control.taskroom import TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def listed(room: TaskRoom, **query: Any) -> list[dict[str, Any]]:
    return (await room.api.get("/v1/approvals", params=query)).json()["approvals"]


@pytest.mark.requirement("approval-one-object")
async def test_what_an_agent_asks_is_shown_with_all_that_it_says(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        expires = format_time(time.time() + 600)
        task = (await room.delegate("@alice"))["id"]
        asked = await alice.ask(task=task, expires_at=expires, default="allow")

        found = await shown(room, asked[:8])

        assert {key: found[key] for key in ("id", "state", "task", "tool", "title", "reason")} == {
            "id": asked,
            "state": "pending",
            "task": task,
            "tool": "Bash",
            "title": "make deploy",
            "reason": "the tests are green",
        }
        assert (found["input"], found["default"]) == ({"command": "make deploy"}, "allow")
        assert (found["expires_at"], found["answer"]) == (expires, None)
        assert found["worker"]["nick"] == "alice"
        assert [each["id"] for each in await listed(room)] == [asked]


@pytest.mark.requirement("approval-first-answer-wins")
async def test_an_answer_names_the_principal_and_reaches_the_sidecar_at_once(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        waiting = asyncio.create_task(alice.heard(wait=30))
        await asyncio.sleep(0)

        done = await answer(room, "alice", asked[:6], reason="go on", channel="cli")
        async with asyncio.timeout(10):
            heard = await waiting

        me = room.owner
        said = done.json()["approval"]["answer"]
        assert (done.status_code, done.json()["approval"]["state"]) == (200, "allowed")
        assert (said["by"]["uid"], said["channel"], said["reason"]) == (me.uid, "cli", "go on")
        assert [each["type"] for each in heard["records"]] == ["control_response"]
        told = heard["records"][0]
        assert (told["id"], told["request"], told["decision"]) == (said["id"], asked, "allowed")
        assert told["by"] == {"uid": me.uid, "nick": me.nick}
        assert heard["next"] == told["id"]
        assert await alice.heard(heard["next"]) == {"records": [], "next": heard["next"]}
        assert await listed(room) == []


@pytest.mark.requirement("approval-first-answer-wins")
async def test_of_many_answers_at_once_one_wins_and_the_others_learn_which(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        wishes = [("allowed", f"r{n}") if n % 2 else ("denied", f"r{n}") for n in range(12)]

        done = await asyncio.gather(
            *(answer(room, "alice", asked, wish, reason=why) for wish, why in wishes)
        )

        won = [each for each in done if each.status_code == 200]
        lost = [each.json() for each in done if each.status_code == 409]
        now = await shown(room, asked)
        assert (len(won), len(lost)) == (1, 11)
        assert won[0].json()["approval"]["answer"] == now["answer"]
        state, by, why = now["state"], room.owner.nick, now["answer"]["reason"]
        for each in lost:
            assert f"settled: {state} by @{by} over api at " in each["detail"]
            assert each["detail"].endswith(f"({why})")
        heard = (await alice.heard())["records"]
        assert [each["id"] for each in heard] == [now["answer"]["id"]]


async def test_an_answer_that_came_too_late_is_in_the_history(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        # As another control plane would, that has not folded the first one yet.
        person = {"uid": room.owner.uid, "nick": room.owner.nick}
        first = response(asked, "denied", "attach", by=person)
        second = response(asked, "allowed", "cli", by=person)
        await room.parts.events.append(alice.worker.uid, [first, second])
        await room.folded("EVENTS")

        now = await shown(room, asked)

        assert (now["state"], now["answer"]["channel"]) == ("denied", "attach")
        assert [(late["decision"], late["channel"]) for late in now["late"]] == [("allowed", "cli")]
        assert len((await alice.heard())["records"]) == 1


@pytest.mark.requirement("approval-person-unforgeable")
async def test_a_worker_cannot_say_that_a_person_decided(shared: TaskRoom):
    channels: list[Any] = ["cli", "attach", "chat", "api", "clock", "room", "x", 7, None]
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        person = {"uid": room.owner.uid, "nick": room.owner.nick}
        said = [response(asked, "allowed", channel, by=person) for channel in channels]
        await alice.report(*said)
        # The old form, without a run.
        bare = await alice.door.post(f"{alice.path}/sdk-events", json={"events": said})
        await alice.report(response(asked, "expired", "agent"), response(asked, "allowed", "agent"))
        await room.folded("EVENTS")

        assert bare.status_code == 202
        now = await shown(room, asked)
        assert (now["state"], now["late"]) == ("pending", [])
        assert (await alice.heard())["records"] == []


@pytest.mark.requirement("approval-person-unforgeable")
async def test_what_the_policy_decides_and_the_agent_withdraws_names_nobody(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        one, two = new_id(), new_id()
        person = {"uid": room.owner.uid, "rule": "Bash(make *)"}
        await alice.report(request(one), response(one, "allowed", "policy", by=person))
        await alice.report(request(two), response(two, "withdrawn", "agent", by=person))

        first, second = await shown(room, one), await shown(room, two)

        assert (first["state"], second["state"]) == ("allowed", "withdrawn")
        assert (first["answer"]["by"], second["answer"]["by"]) == (None, None)
        assert (first["answer"]["channel"], first["answer"]["reason"]) == ("policy", "Bash(make *)")
        refused = await answer(room, "alice", two)
        assert refused.status_code == 409
        assert "withdrawn over agent" in refused.json()["detail"]


async def test_no_worker_answers_or_reads_what_is_anothers(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice, sidecar_of(room, "bob") as bob:
        asked = await alice.ask()
        await bob.report(response(asked, "allowed", "policy"))
        body = {"type": "control_response", "id": asked, "decision": "allowed"}

        own = await alice.door.post(f"{alice.path}/control", json=body)
        others = await bob.door.get(f"{alice.path}/control/pending", params={"wait": 0})
        operators = await room.api.get(f"{alice.path}/control/pending", params={"wait": 0})
        listing = await bob.door.get("/v1/approvals")

        assert [each.status_code for each in (own, others, operators, listing)] == [403] * 4
        assert (await shown(room, asked))["state"] == "pending"
        assert (await answer(room, "bob", asked)).status_code == 404


async def test_the_same_id_of_two_workers_is_two_approvals(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice, sidecar_of(room, "bob") as bob:
        asked = await alice.ask()
        await bob.ask(asked)

        both = await room.api.get(f"/v1/approvals/{asked}")
        assert both.status_code == 409
        assert (await answer(room, "bob", asked, "denied")).status_code == 200
        states = [
            (await room.api.get(f"/v1/approvals/{asked}", params={"worker": nick})).json()["state"]
            for nick in ("alice", "bob")
        ]
        assert states == ["pending", "denied"]


@pytest.mark.requirement("approval-shown-decided")
async def test_no_approval_takes_the_short_id_of_another(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice, sidecar_of(room, "bob") as bob:
        asked = await alice.ask()
        for other in (alice, bob):
            await other.ask(asked[:SHORT_ID], title="rm -rf /", input={"command": "rm -rf /"})

        short = asked[:SHORT_ID]
        assert (await room.api.get(f"/v1/approvals/{short}")).status_code == 409
        assert (await answer(room, "alice", short)).status_code == 409
        assert (await answer(room, "alice", asked)).json()["approval"]["title"] == "make deploy"


async def test_who_asks_again_under_the_same_id_asks_the_same_approval(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        await answer(room, "alice", asked)
        await alice.ask(asked, title="something else")

        now = await shown(room, asked)

        assert (now["state"], now["title"]) == ("allowed", "make deploy")
        assert len(await listed(room, state="all", worker="@alice")) == 1


IMPOSSIBLE: list[tuple[dict[str, Any], int]] = [
    ({"decision": "edited"}, 422),
    ({"decision": "allowed", "input": {}}, 422),
    ({"decision": "edited", "input": {"x": "y" * MAX_EDITED_BYTES}}, 413),
    ({"decision": "edited", "input": []}, 422),
    ({"decision": "expired"}, 422),
    ({"decision": "allowed", "channel": "policy"}, 422),
    ({"decision": "allowed", "by": {"uid": "x"}}, 422),
    ({"decision": "allowed", "reason": "x" * 1000}, 422),
    ({"decision": ""}, 422),
]


async def test_an_answer_that_cannot_be_is_refused_and_changes_nothing(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        said = {"type": "control_response", "id": asked}
        done = [
            (await room.api.post("/v1/workers/alice/control", json=said | body)).status_code
            for body, _ in IMPOSSIBLE
        ]

        assert done == [status for _, status in IMPOSSIBLE]
        assert (await shown(room, asked))["state"] == "pending"


async def test_an_edited_input_reaches_the_sidecar_as_it_was_given(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        wish = {"command": "make deploy --dry-run", "n": [1, None, {"ü": "\u202e"}]}

        done = await answer(room, "alice", asked, "edited", input=wish)

        assert (done.json()["approval"]["state"], done.json()["approval"]["answer"]["input"]) == (
            "edited",
            wish,
        )
        assert (await alice.heard())["records"][0]["input"] == wish


@pytest.mark.requirement("approval-edit-plain")
async def test_an_edited_input_is_refused_where_the_agent_takes_none_and_words_are_an_answer(
    shared: TaskRoom,
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask(fixed=True)
        assert (await shown(room, asked))["editable"] is False
        refused = await answer(room, "alice", asked, "edited", input={"command": "ls"})
        assert (refused.status_code, "takes no edited input" in refused.text) == (422, True)
        found = await shown(room, asked)
        assert (found["state"], found["late"]) == ("pending", [])
        question = await alice.ask(kind="question", fixed=True)
        said = await answer(room, "alice", question, "edited", input={"text": "blue"})
        assert said.status_code == 200


async def test_an_interrupt_reaches_the_sidecar(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        body = {"type": "interrupt", "reason": "wrong branch", "channel": "attach"}
        done = (await room.api.post("/v1/workers/alice/control", json=body)).json()["interrupt"]

        (told,) = (await alice.heard(wait=10))["records"]
        assert (told["type"], told["id"], told["reason"]) == (
            "interrupt",
            done["id"],
            "wrong branch",
        )


async def test_a_sidecar_that_waits_is_not_woken_by_what_its_agent_does(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        reads = 0
        read = room.parts.database.read

        async def counted(work: Any) -> Any:
            nonlocal reads
            if "said_to" in getattr(work, "__qualname__", ""):
                reads += 1
            return await read(work)

        monkeypatch.setattr(room.parts.approvals._database, "read", counted, raising=False)
        waiting = asyncio.create_task(alice.heard(wait=20))
        for n in range(20):
            await alice.report({"type": "text", "text": str(n)})
        assert (reads, waiting.done()) == (1, False)
        asked = await alice.ask()
        await answer(room, "alice", asked)
        async with asyncio.timeout(10):
            assert len((await waiting)["records"]) == 1


async def test_the_pages_of_all_approvals_have_each_once(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = [new_id() for _ in range(7)]
        await alice.report(*(request(each) for each in asked))
        for each in asked[::2]:
            await answer(room, "alice", each, "denied")

        found, before = [], 0
        while True:
            query = {"state": "all", "worker": "alice", "limit": 3, "before": before}
            page = (await room.api.get("/v1/approvals", params=query)).json()
            found += [each["id"] for each in page["approvals"]]
            if page["next"] is None:
                break
            before = page["next"]

        assert found == asked[::-1]
        assert [each["id"] for each in await listed(room, worker="alice")] == asked[1::2][::-1]
        assert (await room.api.get("/v1/approvals", params={"worker": "nobody"})).status_code == 404
        assert (await room.api.get("/v1/approvals/ffff")).status_code == 404
        assert (await room.api.get("/v1/approvals/nonsense")).status_code == 404


async def test_a_worker_has_no_more_pending_approvals_than_a_person_can_answer(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = [new_id() for _ in range(MAX_PENDING_APPROVALS + 5)]
        await alice.report(*(request(each) for each in asked))
        assert len(await listed(room, worker="alice", limit=500)) == MAX_PENDING_APPROVALS
        await answer(room, "alice", asked[0])
        last = await alice.ask()
        assert (await shown(room, last))["state"] == "pending"


# ── alerts and status ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("approval-never-hangs")
async def test_a_pending_approval_is_an_alert_until_it_is_settled(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask(title="rm\x1b[2J -rf \u202ebuild")
        await room.parts.fold.settled(10)

        nick, text = (await room.alerts())[0]
        assert nick == "alice"
        assert text.startswith(f"asks to use Bash: rm -rf build; postroom approve {asked[:8]}")
        status = (await room.api.get("/v1/status")).json()
        assert [each["id"] for each in status["approvals"]] == [asked]

        await answer(room, "alice", asked)
        assert await room.alerts() == []
        assert (await room.api.get("/v1/status")).json()["approvals"] == []


async def test_an_agent_that_stalls_is_an_alert_until_it_goes_on_or_its_turn_ends(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        for ends in (
            {"type": "stalled", "seconds": 0},
            {"type": "started", "session": "s"},
            {"type": "result", "status": "interrupted"},
        ):
            await alice.report({"type": "stalled", "seconds": 120})
            await room.parts.fold.settled(10)
            stalled = [("alice", "has said nothing for 120 s in its turn")]
            assert await room.alerts() == stalled
            await alice.report({"type": "text", "text": "x"}, ends)
            await room.parts.fold.settled(10)
            assert await room.alerts() == []


@pytest.mark.requirement("approval-never-hangs")
async def test_an_approval_is_withdrawn_when_its_task_has_ended(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice, sidecar_of(room, "bob") as bob:
        task = (await room.delegate("@alice"))["id"]
        await alice.worker.take(task)
        asked, others = await alice.ask(task=task), await bob.ask(task=task)
        await alice.worker.say(task, TaskState.FAILED, "no")
        await room.parts.fold.settled(10)
        await room.folded("EVENTS")
        late = await alice.ask(task=task)
        await room.parts.fold.settled(10)
        await room.folded("EVENTS")

        for each in (asked, late):
            now = await shown(room, each)
            assert (now["state"], now["answer"]["channel"]) == ("withdrawn", "room")
            assert now["answer"]["reason"] == "its task is failed"
        assert [each["request"] for each in (await alice.heard())["records"]] == [asked, late]
        assert (await shown(room, others))["state"] == "pending"


@pytest.mark.requirement("approval-never-hangs")
async def test_an_approval_is_withdrawn_when_its_worker_is_removed(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask()
        removed = await room.api.delete("/v1/workers/alice")
        await room.folded("EVENTS")

        assert removed.status_code == 200
        now = await shown(room, asked)
        assert (now["state"], now["answer"]["reason"]) == ("withdrawn", "the worker was removed")


@pytest.mark.requirement("approval-never-hangs")
async def test_an_approval_expires_by_itself_and_tells_its_default(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        kept = await alice.ask(expires_at=format_time(time.time() + 3600))
        asked = await alice.ask(expires_at=format_time(time.time() + 0.3))
        async with asyncio.timeout(10):
            (told,) = (await alice.heard(wait=10))["records"]

        assert (told["decision"], told["channel"], told["request"]) == ("expired", "clock", asked)
        refused = await answer(room, "alice", asked)
        assert (refused.status_code, (await shown(room, kept))["state"]) == (409, "pending")
        assert "expired" in refused.json()["detail"]


async def test_nobody_answers_what_its_sidecar_counts_as_expired(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked = await alice.ask(expires_at=format_time(time.time() + 3600))
        monkeypatch.setattr(room.parts.approvals, "_clock", lambda: time.time() + 3601)
        refused = await answer(room, "alice", asked)
        assert (refused.status_code, "expired at" in refused.json()["detail"]) == (409, True)
