"""What workers ask the control plane about tasks, and what each may see and do."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.control.ops import agent_task_requests
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.priority import Cancel, Input
from postroom.protocol.tasks import chain_headers, task_id
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import ROLE_USER, text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import new_task
from tests.control.taskroom import SECONDS, Hand, TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def asked_of(room: TaskRoom, asker: Hand, worker: Hand, text: str = "do it") -> str:
    """A task that a worker asks of another, as its sidecar would; its id."""
    made = secrets.token_hex(16)
    message = text_message(made, text, role=ROLE_USER)
    envelope = Envelope(
        made, worker.uid, message, time.time(), expects_reply=True, request=TaskRequest()
    )
    subject = subjects.inbox(worker.uid, asker.uid)
    stored = await asker.bus.publish(subject, envelope.encode(), id=made)
    assert stored is not None
    await room.parts.fold.reached("INBOX", stored.sequence, SECONDS)
    return task_id(worker.uid, asker.uid, made)


@pytest.mark.requirement("task-request-runs-once")
async def test_a_worker_is_told_which_of_its_tasks_it_may_take_over(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        tasks = [(await room.delegate("@alice", str(n)))["id"] for n in range(5)]
        others = (await room.delegate("@bob"))["id"]
        await bob.take(others)
        before = alice.run
        await alice.take(tasks[0])
        await alice.say(tasks[0], TaskState.WORKING, attempt=1)
        await alice.take(tasks[1])
        await alice.say(tasks[1], TaskState.FAILED)
        await alice.take(tasks[2], run=bob.run)  # lives, but is no start of this worker

        while_it_lives = await alice.ask("open", run="another")
        alice.end()
        when_it_is_gone = await alice.ask("open", run="another")
        await alice.start()
        await alice.take(tasks[3])
        after_a_start = await alice.ask("open", run=alice.run)
        not_taken = await alice.ask("open", run=alice.run, untaken=True)

        def free(answer: dict[str, Any]) -> list[tuple[str, bool]]:
            return [(each["id"], each["free"]) for each in answer["tasks"]]

        assert free(while_it_lives) == [(tasks[0], False), (tasks[2], True)]
        assert free(when_it_is_gone) == [(tasks[0], True), (tasks[2], True)]
        assert free(after_a_start) == [(tasks[n], True) for n in (0, 2, 3)]
        assert [each["id"] for each in not_taken["tasks"]] == [tasks[4]]
        assert after_a_start["more"] is False
        row = await room.row(tasks[0])
        assert after_a_start["tasks"][0] == {
            "id": tasks[0],
            "request": row.request,
            "requester": room.owner.uid,
            "skill": "",
            "requested": row.requested_seq,
            "sequence": row.seq,
            "state": "working",
            "attempt": 1,
            "lost": 0,
            "released": False,
            "runner": before,
            "free": True,
        }


async def test_open_tasks_come_in_pages(shared: TaskRoom, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agent_task_requests, "OPEN_PAGE", 2)
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        tasks = [(await room.delegate("@alice", str(n)))["id"] for n in range(3)]
        for task in tasks:
            await alice.take(task)

        first = await alice.ask("open", run=alice.run)
        rest = await alice.ask("open", run=alice.run, after=first["tasks"][-1]["requested"])

        assert [task["id"] for task in first["tasks"] + rest["tasks"]] == tasks
        assert (first["more"], rest["more"]) == (True, False)


async def test_open_tasks_and_a_fresh_one_are_those_of_the_log(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        row = await room.row((await room.delegate("@alice"))["id"])
        first = TaskRecord(json.loads(row.snapshot), row.request, row.requester)
        noise = subjects.task(alice.uid, "0" * 32, "x")
        await asyncio.gather(*(alice.bus.publish(noise, b"") for _ in range(300)))
        headers = chain_headers(alice.uid, row.id, 0)

        stored = await alice.bus.publish(first.subject(alice.uid), first.encode(), metadata=headers)
        opened = await alice.ask("open", run=alice.run)
        fresh = await alice.ask("get", task=row.id, fresh=True)

        assert stored is not None
        assert [task["sequence"] for task in opened["tasks"]] == [stored.sequence]
        assert fresh["sequence"] == stored.sequence


@pytest.mark.requirement("task-seen-by-parties")
async def test_a_task_is_known_to_its_worker_and_its_requester_and_to_nobody_else(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        eve = await room.worker("eve")
        task = await asked_of(room, alice, bob)
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, attempt=1)
        await bob.make(task, "the result")

        seen = [await asker.ask("get", task=task) for asker in (alice, bob)]
        refused = [
            (await eve.ask(verb, task=task, text="x"))["error"]["code"]
            for verb in ("get", "cancel", "answer")
        ]
        unknown = await eve.ask("get", task="f" * 32)

        assert seen[0] == seen[1] | {"free": seen[0]["free"]}
        assert seen[0]["task"]["artifacts"][0]["parts"] == [{"text": "the result"}]
        used = {"usage": {"input_tokens": 0, "output_tokens": 0, "cost": 0.0}}  # only people see it
        assert seen[0]["view"] | used == await room.get(f"/{task}")
        assert {seen[0][name] for name in ("worker", "requester")} == {bob.uid, alice.uid}
        assert refused == ["not-found"] * 3
        assert unknown["error"]["detail"] == (await eve.ask("get", task=task))["error"]["detail"]


async def test_a_worker_lists_what_it_runs_and_what_it_asked_for(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        own = await asked_of(room, bob, alice, "one")
        asked = await asked_of(room, alice, bob, "two")
        itself = await asked_of(room, alice, alice, "three")
        await alice.refuse(own, "no")

        async def listed(**question: Any) -> list[str]:
            return [view["id"] for view in (await alice.ask("list", **question))["tasks"]]

        assert await listed() == [itself, asked, own]
        assert await listed(role="worker") == [itself, own]
        assert await listed(role="requester") == [itself, asked]
        assert await listed(open=True) == [itself, asked]
        assert await listed(limit=1) == [itself]
        assert await listed(role="requester", other=bob.uid) == [asked]
        assert await listed(role="worker", other=alice.uid) == [itself]
        assert await listed(role="worker", other="f" * 32) == []


@pytest.mark.requirement("task-kill-requester-told")
async def test_the_parties_of_a_task_are_told_what_is_stored_of_it_change_by_change(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_task_requests, "CHANGES_PAGE", 2)
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        eve = await room.worker("eve")
        task = await asked_of(room, alice, bob)
        untaken = await alice.ask("changes", task=task, after=0)
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, attempt=1)
        await bob.make(task, "the result")

        found, after, more = [], 0, True
        while more:
            page = await alice.ask("changes", task=task, after=after)
            found += page["changes"]
            after, more = found[-1]["sequence"], page["more"]
        beyond = await bob.ask("changes", task=task, after=2**53)

        assert (untaken["changes"], untaken["sequence"]) == ([], 0)
        assert untaken["state"] == "submitted"
        assert [each["state"] for each in found] == ["submitted", "working", "working"]
        assert found[0]["event"] is None
        assert "artifactUpdate" in found[2]["event"]
        assert found == sorted(found, key=lambda each: each["sequence"])
        assert (beyond["changes"], beyond["sequence"]) == ([], after)
        assert beyond["task"]["artifacts"][0]["parts"] == [{"text": "the result"}]
        refused = await eve.ask("changes", task=task, after=0)
        assert refused["error"]["code"] == "not-found"


async def test_a_first_record_that_ends_its_task_is_a_change_of_its_status(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        task = await asked_of(room, alice, bob)
        await bob.refuse(task, "no")
        (change,) = (await alice.ask("changes", task=task, after=0))["changes"]
        status = change["event"]["statusUpdate"]["status"]
        assert status["state"] == "TASK_STATE_REJECTED"
        assert status["message"]["parts"] == [{"text": "no"}]


async def test_a_list_of_long_tasks_fits_a_message(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        for _ in range(4):
            await asked_of(room, alice, alice, "x" * 380_000)

        tasks = (await alice.ask("list"))["tasks"]

        assert [len(task["text"]) for task in tasks] == [2000] * 4


async def test_an_agent_that_asks_without_end_leaves_room_for_others(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, eve = await room.worker("alice"), await room.worker("eve")
        task = await asked_of(room, eve, eve)
        await eve.take(task)
        asked = [asyncio.create_task(eve.ask("cancel", task=task)) for _ in range(40)]
        _, waiting = await asyncio.wait(asked, timeout=0.5, return_when="FIRST_COMPLETED")
        assert waiting
        async with asyncio.timeout(agent_task_requests.CANCEL_WAIT / 2):
            assert await alice.ask("list") == {"tasks": []}

        answers = await asyncio.gather(*asked)
        refused = [answer for answer in answers if "error" in answer]
        assert {answer["error"]["code"] for answer in refused} == {"request-timeout"}
        assert len(answers) - len(refused) == 8


async def test_a_request_under_an_id_that_was_used_before_is_a_task_that_is_seen(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, eve = await room.worker("alice"), await room.worker("eve")
        made = secrets.token_hex(16)
        for to in (eve, alice):
            envelope = Envelope(
                made,
                to.uid,
                text_message(made, "unseen", role=ROLE_USER),
                time.time(),
                expects_reply=True,
                request=TaskRequest(),
            )
            stored = await eve.bus.publish(subjects.inbox(to.uid, eve.uid), envelope.encode())
            assert stored is not None
        await room.parts.fold.reached("INBOX", stored.sequence, SECONDS)
        task = task_id(alice.uid, eve.uid, made)
        first = TaskRecord(new_task(task, task, envelope.message, 0.0), made, eve.uid)
        headers = chain_headers(alice.uid, task, 0)
        await alice.bus.publish(first.subject(alice.uid), first.encode(), metadata=headers)

        answer = await alice.ask("get", task=task, fresh=True)
        listed = (await room.api.get("/v1/tasks", params={"worker": alice.uid})).json()
        assert (answer["state"], answer["requester"]) == ("submitted", eve.uid)
        assert [view["id"] for view in listed["tasks"]] == [task]


async def test_a_question_that_python_cannot_read_is_answered(shared: TaskRoom):
    async with emptied(shared) as room:
        eve = await room.worker("eve")
        deep = b'{"task":' + b"[" * 5000 + b"]" * 5000 + b"}"
        subject = subjects.ctl(eve.uid, "tasks", "get")
        answer = await eve.bus.request(subject, deep, timeout=SECONDS)

        assert json.loads(answer.payload)["error"]["code"] == "invalid-input"


async def test_a_task_whose_request_is_as_long_as_can_be_is_still_told(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = await asked_of(room, alice, alice, "x" * 520_000)

        answer = await alice.ask("get", task=task)

        assert len(answer["task"]["history"][0]["parts"][0]["text"]) == 520_000
        assert answer["view"]["truncated"] is True


@pytest.mark.requirement("task-seen-by-parties")
async def test_the_requester_cancels_and_answers_and_the_worker_does_not(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        await bob.listen()
        task = await asked_of(room, alice, bob)
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, attempt=1)
        await bob.say(task, TaskState.AUTH_REQUIRED, "may I?")

        answered = await alice.ask("answer", task=task, message=text_message("", "yes"))
        heard_answer = await bob.next()
        bob_refused = await bob.ask("cancel", task=task)
        bob.end()
        canceled = await alice.ask("cancel", task=task, reason="no need")

        assert answered["view"]["detail"] == "the answer is on its way to @bob"
        assert heard_answer[0] == alice.uid
        assert isinstance(heard_answer[1], Input)
        assert bob_refused["error"]["code"] == "not-found"
        assert canceled["view"]["state"] == "canceled"
        assert canceled["view"]["status_text"] == "canceled by @alice: no need"


async def test_a_cancel_of_a_worker_is_told_in_its_name(shared: TaskRoom, monkeypatch: Any):
    monkeypatch.setattr(agent_task_requests, "CANCEL_WAIT", 0.05)
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        await bob.listen()
        task = await asked_of(room, alice, bob)
        await bob.take(task)

        answer = await alice.ask("cancel", task=task)

        assert await bob.next() == (alice.uid, Cancel(task))
        assert answer["view"]["timed_out"] is True


@pytest.mark.parametrize(
    "verb, question, code",
    [
        ("open", {"run": 5}, "invalid-input"),
        ("open", {"run": "", "after": "x"}, "invalid-input"),
        ("open", {"run": "", "after": -1}, "invalid-input"),
        ("list", {"role": "boss"}, "invalid-input"),
        ("list", {"limit": True}, "invalid-input"),
        ("get", {}, "not-found"),
        ("get", {"task": []}, "invalid-input"),
        ("fly", {}, "not-found"),
    ],
)
async def test_a_question_that_cannot_be_met_is_answered_with_a_problem(
    shared: TaskRoom, verb: str, question: dict[str, Any], code: str
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")

        assert (await alice.ask(verb, **question))["error"]["code"] == code


async def test_a_fold_that_lags_is_no_answer(shared: TaskRoom, monkeypatch: pytest.MonkeyPatch):
    async with emptied(shared) as room:
        alice = await room.worker("alice")

        async def late(*_: object) -> None:
            raise TimeoutError

        monkeypatch.setattr(room.parts.fold, "reached", late)

        assert (await alice.ask("open", run=""))["error"]["code"] == "request-timeout"
        assert json.dumps(await alice.ask("list")) == '{"tasks": []}'
