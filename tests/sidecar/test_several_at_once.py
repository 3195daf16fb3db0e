"""An agent that holds several messages: their order, what is repeated after a kill, and lines that wait for nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from postroom.errors import InvalidTemplate
from postroom.protocol.limits import MAX_WINDOW
from postroom.protocol.template import parse_template
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from tests.sidecar.test_kill import stored
from tests.sidecar.worker_rig import PATIENCE, Silence, WorkerRig, end, handed, until, worker_rig

pytestmark = pytest.mark.anyio

NAMES = [f"m{number}" for number in range(MAX_WINDOW)]

# Holds all of the first start's messages, and says something for each before it confirms any.
HOLDS = f"""
open("pids", "a").write(f"{{os.getpid()}}\\n")
held = []
for message in messages():
    open("handed", "a").write(f"{{message['text']}} {{message['redelivered']}}\\n")
    say(type="post", text="did " + message["text"], re=message["id"])
    say(type="send", to="@alice", text="about", re=message["id"])
    if message["redelivered"]:
        say(type="reply", to=message["id"], text="echo " + message["text"])
    else:
        held.append(message)
    if len(held) == {MAX_WINDOW}:
        open("all", "w").write("held")
"""


@pytest.mark.requirement("sidecar-message-handed")
@pytest.mark.parametrize("victim", ["agent", pytest.param("sidecar", marks=pytest.mark.slow)])
async def test_eight_that_are_held_when_all_is_killed_come_again_and_nothing_is_done_twice(
    tmp_path: Path, victim: str
) -> None:
    async with worker_rig(tmp_path) as home:
        config = home.config(HOLDS, agent={"window": MAX_WINDOW, "restart_limit": 5})
        sidecar = await home.start(config)
        try:
            sent = [await home.write(name, expects_reply=True) for name in NAMES]
            await until((home.folder / "all").exists)
            await home.tap.until(lambda: len(set(home.posts())) == MAX_WINDOW)
            assert handed(home) == [f"{name} False" for name in NAMES]

            if victim == "agent":
                os.kill(int((home.folder / "pids").read_text().split()[-1]), signal.SIGKILL)
            else:
                sidecar.kill()
                await sidecar.wait()
                sidecar = await home.start(config)
            await home.seen(*sent)
            await home.all_acked()
        finally:
            await end(sidecar)

        assert sorted(handed(home)[MAX_WINDOW:]) == [f"{name} True" for name in NAMES]
        assert sorted(await stored(home, "FEED")) == [f"did {name}" for name in NAMES]
        letters = sorted(await stored(home, "INBOX"))
        assert letters == ["about"] * MAX_WINDOW + [f"echo {name}" for name in NAMES]


@pytest.mark.requirement("sidecar-message-handed")
async def test_what_is_beyond_the_window_waits_until_one_is_confirmed(home: WorkerRig) -> None:
    go = home.fifo("go")
    agent = f"""
    held = []
    for message in messages():
        open("handed", "a").write(message["text"] + "\\n")
        held.append(message)
        if len(held) == 2:
            open("{go}").read()
            say(type="seen", id=held[1]["id"])
    """
    async with home.sidecar(agent, agent={"window": 2}):
        sent = [await home.write(name) for name in NAMES[:3]]
        await until(lambda: len(handed(home)) == 2)
        await home.pending("INBOX", (1, 2))
        assert handed(home) == NAMES[:2]
        await asyncio.to_thread(go.write_text, "")
        await home.seen(sent[1])
        await until(lambda: handed(home) == NAMES[:3])


BLOCKED = """
for line in lines():
    if line["type"] == "message" and line["text"] == "slow":
        say(type="send", to="@nobody-answers", text="never", re=line["id"])
        say(type="send", to="@alice", text="behind", re=line["id"])
    elif line["type"] == "message":
        say(type="reply", to=line["id"], text="quick")
    elif line["type"] == "task":
        say(type="update", text="half")
        say(type="complete", text="done")
"""


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_line_that_waits_holds_back_only_what_belongs_to_the_same_message(
    home: WorkerRig,
) -> None:
    silence = home.silent["@nobody-answers"] = Silence()
    async with home.sidecar(BLOCKED, agent={"window": 2}):
        await home.write("slow")
        await asyncio.wait_for(silence.asked.wait(), PATIENCE)

        asked = await home.write("other", expects_reply=True)
        await home.seen(asked)
        await home.task(await home.request("work"), TaskState.COMPLETED)
        assert [text_of(sent.message) for sent in home.to_alice()] == ["quick"]

        silence.over.set()
        await home.tap.until(lambda: len(home.to_alice()) == 2)
        assert text_of(home.to_alice()[1].message) == "behind"


@pytest.mark.parametrize(
    "window, adapter, fault",
    [
        (0, "jsonl", "workstation.window is 0"),
        (MAX_WINDOW + 1, "jsonl", f"workstation.window is {MAX_WINDOW + 1}"),
        (2, "text", "is for the adapter jsonl"),
    ],
)
def test_a_template_may_name_a_window_of_one_to_eight(
    window: int, adapter: str, fault: str
) -> None:
    text = '[worker]\nname = "x"\n[workstation]\ncommand = ["x"]\nadapter = "{}"\nwindow = {}\n'
    with pytest.raises(InvalidTemplate, match=fault):
        parse_template(text.format(adapter, window))

    assert parse_template(text.format("jsonl", MAX_WINDOW)).window == MAX_WINDOW
