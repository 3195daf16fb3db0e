"""An agent that does not confirm a message: others are told once, and nothing behind it waits for ever."""

from __future__ import annotations

import pytest

from postroom.protocol.presence import WorkerState
from postroom.protocol.streams import MAX_DELIVER
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from tests.sidecar.worker_rig import WorkerRig, handed, until

pytestmark = pytest.mark.anyio

DEAF = """
for message in messages():
    open("handed", "a").write(f"{message['text']} {message['redelivered']}\\n")
    if os.path.exists("listens"):
        say(type="seen", id=message["id"])
"""

SOON = {"patience": 1}


@pytest.mark.requirement("sidecar-message-handed")
async def test_who_wrote_a_message_that_is_not_confirmed_is_told_once_and_the_next_is_handed_over(
    home: WorkerRig,
) -> None:
    async with home.sidecar(DEAF, agent=SOON):
        first = await home.write("first", expects_reply=True)
        second = await home.write("second")
        await home.tap.until(lambda: home.stays(first) and home.stays(second))

        assert home.stays(first) == ["not confirmed for 1 s"]
        assert home.receipts(first) == ["delivered", "delivered"]
        text = f"has not confirmed message {first[:8]} from @alice for 1 s, nor 1 more"
        await home.tap.until(lambda: home.presence().detail == text)
        assert (home.presence().state, home.presence().waiting) == (WorkerState.IDLE, 2)
        assert handed(home) == ["first False", "second False"]


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_message_that_was_given_up_waiting_for_can_still_be_confirmed(
    home: WorkerRig,
) -> None:
    agent = """
    held = [line["id"] for _, line in zip(range(2), messages())]
    say(type="seen", id=held[1])
    say(type="reply", to=held[0], text="at last")
    sys.stdin.read()
    """
    async with home.sidecar(agent, agent=SOON):
        sent = [await home.write(text) for text in ("first", "second")]
        await home.seen(*sent)

        assert [(e.reply_to, text_of(e.message)) for e in home.to_alice()] == [(sent[0], "at last")]
        await home.tap.until(lambda: home.presence().waiting == 0)
        assert home.presence().detail == ""
        await home.all_acked()


@pytest.mark.requirement("sidecar-message-handed")
async def test_what_is_not_confirmed_comes_again_however_often_the_worker_is_stopped(
    home: WorkerRig,
) -> None:
    starts = MAX_DELIVER + 1
    for number in range(starts):
        async with home.sidecar(DEAF, agent=SOON):
            if not number:
                sent = [await home.write(text) for text in ("a", "b")]
                await home.tap.until(lambda sent=sent: all(map(home.stays, sent)))
            await until(lambda number=number: len(handed(home)) >= 2 * (number + 1))

    assert handed(home)[:2] == ["a False", "b False"]
    for start in range(1, starts):
        assert sorted(handed(home)[2 * start : 2 * start + 2]) == ["a True", "b True"]
    assert [home.stays(message) for message in sent] == [["not confirmed for 1 s"]] * 2
    (home.folder / "listens").touch()
    async with home.sidecar(DEAF, agent=SOON):
        await home.seen(*sent)
        await home.all_acked()


@pytest.mark.requirement("sidecar-message-handed")
@pytest.mark.slow
async def test_what_is_not_confirmed_comes_again_when_the_sidecar_is_killed(
    home: WorkerRig,
) -> None:
    config = home.config(DEAF, agent=SOON)
    sidecar = await home.start(config)
    sent = [await home.write(text) for text in ("a", "b", "c")]
    await home.tap.until(lambda: all(map(home.stays, sent)))
    sidecar.kill()
    await sidecar.wait()
    (home.folder / "listens").touch()

    async with home.sidecar(DEAF, agent=SOON):
        await home.seen(*sent)
        await home.all_acked()
        assert sorted(handed(home)[3:]) == ["a True", "b True", "c True"]


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_message_that_is_lost_with_its_agent_too_often_is_refused(home: WorkerRig) -> None:
    agent = """
    for message in messages():
        open("handed", "a").write(message["text"] + "\\n")
        if message["text"] == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
    """
    async with home.sidecar(agent, agent={"patience": 1, "restart_limit": 5}):
        kept = await home.write("kept")
        await home.tap.until(lambda: home.stays(kept))
        await home.write("poison")
        await home.pending("INBOX", (0, 1))
        await until(lambda: sum("kept" in line for line in handed(home)) > MAX_DELIVER)

    assert handed(home).count("poison") == MAX_DELIVER
    await home.pending("INBOX", (0, 1))


@pytest.mark.requirement("task-queue-keeps-order")
async def test_tasks_behind_a_message_that_is_not_confirmed_are_done_in_their_order(
    home: WorkerRig,
) -> None:
    agent = """
    for line in lines():
        if line["type"] == "task":
            say(type="complete", text=line["text"])
    """
    async with home.sidecar(agent, agent={"patience": 0}):
        held = await home.write("held")
        await home.tap.until(lambda: home.receipts(held))
        await home.write("waits")
        asked = [await home.request(f"task {number}") for number in range(3)]
        await home.pending("INBOX", (4, 1))

        for task in (asked[2], asked[0]):
            await home.requested(task)

        done = [await home.task(task, TaskState.COMPLETED) for task in asked]
        assert [record.attempt for record in done] == [1, 1, 1]
        begun = dict.fromkeys(m.subject.split(".")[3] for m in home.tap.of("tasks"))
        assert list(begun) == asked
        await home.pending("INBOX", (4, 1))


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_patience_of_nought_waits_for_ever(home: WorkerRig) -> None:
    async with home.sidecar(DEAF, agent={"patience": 0}):
        first = await home.write("first")
        await home.tap.until(lambda: home.receipts(first))
        await home.write("second")
        await home.pending("INBOX", (1, 1))
