"""Tasks through a real sidecar process: to the agent's stdin and back into the log."""

from __future__ import annotations

import asyncio
import os

import pytest

from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.presence import WorkerState
from postroom.protocol.priority import Cancel, Input, Update
from postroom.protocol.tasks import task_id
from postroom.sidecar.actions import MANY
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, status_text
from tests.sidecar.worker_rig import WorkerRig, end

pytestmark = pytest.mark.anyio

DOES_IT = """
for line in lines():
    if line["type"] == "task":
        say(type="update", text="half of it")
        say(type="artifact", name="result", text="one, ", last=False)
        say(type="artifact", name="result", text="two", append=True)
        say(type="complete", text="did " + line["text"])
"""


@pytest.mark.requirement("task-kill-requester-told")
async def test_a_task_reaches_the_agent_and_its_result_the_log(home: WorkerRig) -> None:
    async with home.sidecar(DOES_IT):
        task = await home.request("the dishes")
        done = await home.task(task, TaskState.COMPLETED)

        assert status_text(done.task) == "did the dishes"
        assert artifacts_of(done.task) == [{"id": "result", "name": "result", "text": "one, two"}]
        await home.all_acked()


async def test_tasks_and_messages_do_not_wait_for_each_other(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "message":
            say(type="seen", id=line["id"])
    """
    async with home.sidecar(program):
        task = await home.request("for ever")
        await home.task(task, TaskState.WORKING)

        message = await home.write("hello")

        await home.seen(message)


async def test_what_the_card_does_not_offer_is_rejected(home: WorkerRig) -> None:
    card = {
        "name": "reader",
        "description": "Reads.",
        "skills": [{"id": "read", "name": "read", "description": "Can read.", "tags": ["skill"]}],
    }
    async with home.sidecar(DOES_IT, card=card):
        cook = await home.request("soup", skill="cook")
        read = await home.request("a book", skill="read")

        refused = await home.task(cook, TaskState.REJECTED)
        await home.task(read, TaskState.COMPLETED)
        assert status_text(refused.task) == "the card does not offer 'cook'; it offers: read"


@pytest.mark.requirement("task-kill-ends-once")
async def test_an_agent_that_dies_at_work_is_given_the_task_again(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task" and line["attempt"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if line["type"] == "task":
            say(type="complete", text=json.dumps([line["attempt"], line["resumed"]]))
    """
    async with home.sidecar(program):
        task = await home.request("do it")
        done = await home.task(task, TaskState.COMPLETED)

        assert status_text(done.task) == "[2, true]"
        again = (await home.ledger.records(task))[1][1]
        assert status_text(again.task) == "begun again: the agent ended: killed by signal 9"


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_killed_sidecar_leaves_its_task_to_the_next_one(home: WorkerRig) -> None:
    fifo = home.fifo("go")
    program = f"""
    for line in lines():
        if line["type"] == "task":
            if line["attempt"] == 1:
                open({str(fifo)!r}).read()
            say(type="complete", text="attempt %d" % line["attempt"])
    """
    async with home.sidecar(program) as first:
        task = await home.request("do it")
        await home.task(task, TaskState.WORKING)
        waiting = await home.request("then this")
        await home.task(waiting, TaskState.SUBMITTED)
        first.kill()
        await first.wait()
    async with home.sidecar(program):
        done = await home.task(task, TaskState.COMPLETED)
        assert status_text(done.task) == "attempt 2"
        # The first agent, which nobody can see any more, ends; it may never have got so far as to read.
        os.close(os.open(fifo, os.O_RDWR))
        assert (await home.ledger.states(task)).count("completed") == 1


@pytest.mark.requirement("task-queue-keeps-order")
async def test_an_agent_is_told_to_stop(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="post", text="at it")
        if line["type"] == "cancel":
            say(type="canceled", text="stopped because " + line["reason"])
    """
    async with home.sidecar(program):
        task = await home.request("for ever")
        await home.tap.until(
            home.posts
        )  # a cancel that comes before would end it without the program

        await home.overtake(Cancel(task, "it is late"))

        ended = await home.task(task, TaskState.CANCELED)
        assert status_text(ended.task) == "stopped because it is late"


@pytest.mark.requirement("task-queue-keeps-order")
async def test_an_agent_that_does_not_stop_is_killed_and_works_on_the_next_task(
    home: WorkerRig,
) -> None:
    program = """
    for line in lines():
        if line["type"] == "task" and line["text"] == "for ever":
            say(type="artifact", text="begun")
            while True:
                time.sleep(60)
        if line["type"] == "task":
            say(type="complete", text="done")
    """
    async with home.sidecar(program, cancel_grace=0.2):
        stuck = await home.request("for ever")
        await home.task(stuck, TaskState.WORKING)
        # The task is working from its first record on, before the agent has it.
        async with asyncio.timeout(10):
            while not (await home.ledger.get(stuck)).record.task.get("artifacts"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        following = await home.request("quick")

        await home.overtake(Cancel(stuck))

        ended = await home.task(stuck, TaskState.CANCELED)
        assert "was ended" in status_text(ended.task)
        await home.task(following, TaskState.COMPLETED)


@pytest.mark.requirement("task-answer-resumes")
async def test_a_question_is_answered_to_the_same_program(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="ask", text="which one?")
        if line["type"] == "input":
            say(type="complete", task=line["task"], text=line["text"] + " from " + line["from"]["nick"])
    """
    async with home.sidecar(program):
        task = await home.request("paint it")
        asking = await home.task(task, TaskState.INPUT_REQUIRED)
        assert status_text(asking.task) == "which one?"
        await home.all_acked()

        await home.overtake(Input(task, text_message("m1", "the red one", role=ROLE_USER)))

        done = await home.task(task, TaskState.COMPLETED)
        assert status_text(done.task) == "the red one from alice"


async def test_a_question_is_answered_to_a_later_program_with_what_was_said(
    home: WorkerRig,
) -> None:
    ask = """
    for line in lines():
        if line["type"] == "task":
            say(type="ask", text="which one?")
    """
    async with home.sidecar(ask):
        task = await home.request("paint it")
        await home.task(task, TaskState.INPUT_REQUIRED)

    program = """
    for line in lines():
        if line["type"] == "task":
            said = [[each["role"], each["text"]] for each in line["history"]]
            say(type="complete", text=json.dumps([line["resumed"], said]))
    """
    await home.overtake(Input(task, text_message("m1", "the red one", role=ROLE_USER)))
    async with home.sidecar(program):
        done = await home.task(task, TaskState.COMPLETED)
        assert status_text(done.task) == (
            '[true, [["user", "paint it"], ["agent", "which one?"], ["user", "the red one"]]]'
        )


async def test_a_worker_that_is_stopped_puts_its_task_down(home: WorkerRig) -> None:
    async with home.sidecar("for line in lines():\n    pass"):
        task = await home.request("for ever")
        await home.task(task, TaskState.WORKING)

    last = (await home.ledger.get(task)).record
    assert last.released
    async with home.sidecar(DOES_IT):
        done = await home.task(task, TaskState.COMPLETED)
        assert (done.attempt, done.lost) == (2, 0)


@pytest.mark.requirement("task-kill-requester-told")
async def test_an_agent_asks_another_for_a_task_and_hears_what_became_of_it(
    home: WorkerRig,
) -> None:
    program = """
    for line in lines():
        if line["type"] == "hello":
            say(type="delegate", to="@alice", text="cook", key="dinner", ref="r1", stream=True)
        elif line["type"] in ("delegated", "task_update"):
            say(type="post", text=json.dumps(line, sort_keys=True))
    """
    async with home.sidecar(program):
        await home.tap.until(lambda: len(home.posts()) == 1)
        asked = home.to_alice()[0]
        assert (text_of(asked.message), asked.message["role"]) == ("cook", "ROLE_USER")
        assert asked.request is not None
        assert asked.request.stream
        assert asked.expects_reply
        task = task_id(home.alice.uid, home.worker, asked.id)
        assert task in home.posts()[0]

        alice = home.alice.uid
        progress = {"statusUpdate": {"status": {"message": text_message("m", "boiling")}}}
        final = {"task": {"status": {"message": text_message("m", "soup")}, "artifacts": []}}
        await home.news(Update(task, alice, asked.id, 7, 1, TaskState.WORKING, progress))
        await home.news(Update(task, alice, asked.id, 7, 1, TaskState.WORKING, progress))
        await home.news(Update(task, alice, asked.id, 9, 1, TaskState.COMPLETED, final))
        await home.tap.until(lambda: len(home.posts()) == 3)

        assert '"ref": "r1"' in home.posts()[1]
        assert '"text": "boiling"' in home.posts()[1]
        assert '"final": true' in home.posts()[2]
        assert '"text": "soup"' in home.posts()[2]


@pytest.mark.requirement("task-kill-requester-told")
async def test_news_of_a_task_from_another_agent_are_not_believed(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task_update":
            say(type="post", text=line["text"])
    """
    async with home.sidecar(program):
        await home.state(WorkerState.IDLE)
        task = "ab" * 16
        forged = {"task": {"status": {"message": text_message("m", "forged")}}}
        real = {"task": {"status": {"message": text_message("m", "real")}}}
        await home.overtake(Update(task, home.alice.uid, "m1", 5, 1, TaskState.COMPLETED, forged))
        await home.news(Update(task, home.alice.uid, "m1", 3, 1, TaskState.COMPLETED, real))
        await home.tap.until(home.posts)

        assert home.posts() == ["real"]


async def test_what_an_agent_sends_for_a_task_is_sent_once_though_it_is_begun_twice(
    home: WorkerRig,
) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="send", to="@alice", text="I begin")
            if line["attempt"] == 1:
                for answer in lines():
                    if answer["type"] == "receipt":
                        os._exit(9)
            say(type="complete", text="done")
    """
    async with home.sidecar(program):
        task = await home.request("do it")
        await home.task(task, TaskState.COMPLETED)

        sent: list[Envelope] = home.to_alice()
        assert [text_of(each.message) for each in sent] == ["I begin"]


async def test_a_line_for_a_task_that_is_not_worked_on_is_an_error(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "hello":
            say(type="complete", text="done", ref=1)
        if line["type"] == "error":
            say(type="post", text=line["code"])
    """
    async with home.sidecar(program):
        await home.tap.until(home.posts)

        assert home.posts() == ["not-found"]


async def test_an_agent_that_asks_again_with_its_key_is_told_how_it_ended(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "hello":
            say(type="delegate", to="@reader", text="do it", key="once")
        elif line["type"] == "task":
            say(type="complete", text="done")
            os._exit(9)
        elif line["type"] == "task_update":
            say(type="post", text=line["state"] + " " + line["text"])
    """
    async with home.sidecar(program):
        await home.tap.until(lambda: home.own_requests() or None)
        task = home.own_requests()[0]
        await home.task(task, TaskState.COMPLETED)

        # Nobody tells the news here: the second run of the agent hears them because it asks again.
        await home.tap.until(home.posts)
        assert home.posts() == ["completed done"]
        assert set(home.own_requests()) == {task}


async def test_a_last_word_that_is_too_large_ends_the_task_all_the_same(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="complete", text="x" * 500_000)
    """
    async with home.sidecar(program):
        task = await home.request("do it")
        ended = await home.task(task, TaskState.FAILED)

        assert "too large" in status_text(ended.task)
        await home.task(await home.request("again"), TaskState.FAILED)


@pytest.mark.requirement("task-kill-requester-told")
async def test_news_that_no_agent_has_read_are_told_by_the_next_start(home: WorkerRig) -> None:
    deaf = """
    time.sleep(60)
    """
    listening = """
    for line in lines():
        if line["type"] == "task_update":
            say(type="post", text=line["text"])
    """
    said = {"task": {"status": {"message": text_message("m", "soup")}}}
    async with home.sidecar(deaf):
        await home.state(WorkerState.IDLE)
        await home.news(Update("ab" * 16, home.alice.uid, "m1", 3, 1, TaskState.COMPLETED, said))
        await home.pending("PRIORITY", (0, 1))
    async with home.sidecar(listening):
        await home.tap.until(home.posts)
        await home.pending("PRIORITY", (0, 0))

        assert home.posts() == ["soup"]


@pytest.mark.requirement("task-kill-requester-told")
async def test_news_that_come_again_are_not_done_with_before_the_agent_has_read_them(
    home: WorkerRig,
) -> None:
    fifo = home.fifo("go")
    program = f"""
    open({str(fifo)!r}).read()
    for line in lines():
        if line["type"] == "task_update":
            say(type="post", text=line["text"])
    """
    said = {"task": {"status": {"message": text_message("m", "soup")}}}
    update = Update("ab" * 16, home.alice.uid, "m1", 3, 1, TaskState.COMPLETED, said)
    async with home.sidecar(program):
        await home.state(WorkerState.IDLE)
        await home.news(update)
        await home.news(update)
        await home.pending("PRIORITY", (0, 2))
        fifo.open("w").close()
        await home.pending("PRIORITY", (0, 0))
        assert home.posts() == ["soup"]


@pytest.mark.requirement("task-request-runs-once")
async def test_who_delegates_by_skill_again_after_a_crash_asks_under_the_same_key(
    home: WorkerRig,
) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="delegate", skill="cook", text="soup")
        if line["type"] == "delegated" and not os.path.exists("once"):
            open("once", "w").close()
            os._exit(9)
        if line["type"] == "delegated":
            say(type="complete", text="done")
    """
    async with home.sidecar(program):
        await home.task(await home.request("dinner"), TaskState.COMPLETED)

        first, second = home.chosen
        assert first == second
        assert first[0] == "cook"
        assert len({envelope.id for envelope in home.to_alice()}) == 1


async def test_a_request_names_the_task_at_which_its_agent_is_at_work(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="delegate", to="@alice", text="soup")
        if line["type"] == "delegated":
            say(type="complete", text="done")
        if line["type"] == "message":
            say(type="delegate", to="@alice", text="by the way")
            say(type="seen", id=line["id"])
    """
    async with home.sidecar(program):
        dinner = await home.request("dinner")
        await home.task(dinner, TaskState.COMPLETED)
        await home.seen(await home.write("hello"))

        during, after = (envelope.message for envelope in home.to_alice())
        assert during["referenceTaskIds"] == [dinner]
        assert "referenceTaskIds" not in after


async def test_an_agent_whose_every_line_is_refused_is_read_slowly(home: WorkerRig) -> None:
    program = """
    say(type="complete", text="x")
    for line in lines():
        if line["type"] == "error":
            say(type="complete", text="x")
        if line["type"] == "message":
            say(type="reply", to=line["id"], text="here")
    """
    async with home.sidecar(program):
        asked = await home.write("are you there?", expects_reply=True)
        await home.seen(asked)

        assert home.log().count("action refused") <= MANY


async def test_a_result_that_was_left_out_is_told_at_the_end(home: WorkerRig) -> None:
    program = """
    for line in lines():
        if line["type"] == "task":
            say(type="artifact", text="x" * 500_000)
            say(type="complete", text="done")
    """
    async with home.sidecar(program):
        ended = await home.task(await home.request("do it"), TaskState.COMPLETED)

        said = status_text(ended.task)
        assert said == "done (artifacts left out, since they are too large: 1)"


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_worker_stopped_while_an_answered_task_waits_goes_on_with_it_at_its_next_start(
    home: WorkerRig,
) -> None:
    program = """
    for line in lines():
        if line["type"] != "task":
            continue
        if line["text"] == "asks" and not line["resumed"]:
            say(type="ask", text="which one?")
        elif line["resumed"]:
            said = [entry["text"] for entry in line["history"]] if "history" in line else []
            say(type="complete", text=json.dumps([line["attempt"], *said[-1:]]))
    """
    async with home.sidecar(program) as first:
        asking = await home.request("asks")
        await home.task(asking, TaskState.INPUT_REQUIRED)
        busy = await home.request("is worked on")
        await home.task(busy, TaskState.WORKING)
        await home.overtake(Input(asking, text_message("m1", "this one", role=ROLE_USER)))
        goes_on = subjects.task(home.worker, asking, "working")
        await home.tap.until(lambda: [m.subject for m in home.tap.of("tasks")].count(goes_on) == 2)
        assert await end(first) == 0

    async with home.sidecar(program):
        done = [await home.task(task, TaskState.COMPLETED) for task in (asking, busy)]
        assert [status_text(record.task) for record in done] == ['[2, "this one"]', "[2]"]
        assert [record.lost for record in done] == [0, 0]
