"""Parts of every kind, subject and thread: to an agent, from it, and what it does not take."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from postroom.protocol.content import Content
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.tasks import task_id
from postroom.tasks.engine import Ask
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.task_state import TaskState
from tests.sidecar.inside import inside
from tests.sidecar.worker_rig import WorkerRig

pytestmark = pytest.mark.anyio

URL = "blob:sha256:" + "a" * 64
FILE = {"url": URL, "mediaType": "image/png", "filename": "plot.png"}
PARTS = (
    {"text": "look", "mediaType": "text/markdown"},
    {"data": {"n": [1, "…"]}, "mediaType": "application/json"},
    FILE,
    {"raw": "AAE=", "filename": "two.bin"},
    {"text": "twice", "metadata": {"x": 1}},
)
WHOLE = Content(PARTS, "the plot", "talk")
TEXT_ONLY = {"defaultInputModes": ["text/plain"], "skills": [{"id": "any"}]}

RETURNS = """
for line in lines():
    said = {name: line.get(name) for name in ("text", "parts", "subject", "thread")}
    if line["type"] == "message":
        said["parts"] = said["parts"][1:]
        said["text"] = "look"
        say(type="send", to="@alice", **said)
        say(type="post", **said)
        say(type="reply", to=line["id"], parts=line["parts"], subject="Re")
    if line["type"] == "post":
        say(type="send", to="@alice", parts=[{"data": line}], subject="heard")
    if line["type"] == "task":
        say(type="update", parts=line["parts"])
        say(type="artifact", name="all", parts=line["parts"])
        say(type="ask", parts=line["parts"])
    if line["type"] == "input":
        say(type="complete", text="heard", parts=line["parts"])
"""


async def write(home: WorkerRig, said: Content, request: TaskRequest | None = None) -> str:
    """A message or a request of alice's; returns its id."""
    new = secrets.token_hex(16)
    message = said.message(new, ROLE_USER)
    if request is not None:
        task = task_id(home.worker, home.alice.uid, new)
        home.ledger.asks[task] = Ask(new, home.alice.uid, message, request.skill)
    envelope = Envelope(new, home.worker, message, 0.0, bool(request), request=request)
    return await home.write("", id=new, payload=envelope.encode())


def contents(sent: list[Envelope]) -> list[Content]:
    return [Content.of(envelope.message) for envelope in sent]


@pytest.mark.requirement("mail-content-whole")
async def test_parts_subject_and_thread_reach_the_agent_and_leave_it_as_they_are(home: WorkerRig):
    async with home.sidecar(RETURNS, agent={"feed": True}):
        await write(home, WHOLE)
        await home.tap.until(lambda: len(home.to_alice()) == 2 and home.posts())

        plain = Content(({"text": "look"}, *PARTS[1:]), "the plot", "talk")
        sent, reply = contents(home.to_alice())
        assert sent == plain
        assert reply == Content(PARTS, "Re", "talk")  # it stays in its thread
        (posted,) = [m for m in home.tap.of("feed") if m.sender_uid == home.worker]
        assert Content.of(Envelope.decode(posted.payload).message) == plain


@pytest.mark.requirement("mail-content-whole")
async def test_what_is_said_of_a_task_and_its_artifacts_have_parts_of_every_kind(home: WorkerRig):
    async with home.sidecar(RETURNS):
        request = await write(home, WHOLE, TaskRequest())
        task = task_id(home.worker, home.alice.uid, request)
        asked = await home.task(task, TaskState.INPUT_REQUIRED)

        assert asked.task["status"]["message"]["parts"] == list(PARTS)
        assert asked.task["artifacts"] == [
            {"artifactId": "all", "name": "all", "parts": list(PARTS)}
        ]
        await home.overtake(answer(task, list(PARTS)))
        done = await home.task(task, TaskState.COMPLETED)
        assert done.task["status"]["message"]["parts"] == [{"text": "heard"}, *PARTS]
        assert done.task["status"]["message"]["contextId"] == "talk"


def answer(task: str, parts: list[dict[str, Any]]) -> Any:
    from postroom.protocol.priority import Input

    return Input(task, {"messageId": "m", "role": ROLE_USER, "parts": parts})


@pytest.mark.requirement("mail-content-whole")
async def test_a_part_that_the_card_does_not_take_is_refused_and_its_sender_learns_why(
    home: WorkerRig,
):
    agent = {"adapter": "text", "command": ["cat"]}
    async with home.sidecar("", agent=agent, card=TEXT_ONLY) as _:
        refused = await write(home, WHOLE)
        taken = await write(home, Content(({"text": "# hi", "mediaType": "text/markdown"},)))
        await home.seen(taken)
        request = await write(home, WHOLE, TaskRequest())
        task = task_id(home.worker, home.alice.uid, request)
        rejected = await home.task(task, TaskState.REJECTED)

        (said,) = rejected.task["status"]["message"]["parts"]
        assert said["text"] == "takes text/plain only"
        assert home.receipts(refused) == []
        reasons = [
            json.loads(message.payload)["reason"]
            async for message in home.bus.admin.replay("ADVISORIES")
        ]
        assert reasons == ["refused: takes text/plain only"]


@pytest.mark.requirement("mail-content-whole")
async def test_a_text_program_reads_a_line_for_each_part_of_a_post_that_is_no_text(
    home: WorkerRig,
):
    agent = {"adapter": "text", "command": ["tee", "got"], "feed": True}
    async with home.sidecar("", agent=agent, card=TEXT_ONLY):
        new = secrets.token_hex(16)
        envelope = Envelope(new, "#main", WHOLE.message(new), 0.0)
        await home.alice.publish(f"project.main.feed.{home.alice.uid}", envelope.encode())
        await home.seen(await home.write("behind it"))

    got = home.log()
    assert f"[image/png plot.png {URL}]" in got
    assert "[application/json]" in got


@pytest.mark.requirement("mail-content-whole")
async def test_a_shell_sends_files_data_subject_and_thread(home: WorkerRig):
    async with inside(home) as shell:
        await shell.run(
            "send", "@alice", "look", "--data", '{"n": 1}', "--subject", "s", "--thread", "t"
        )
        (sent,) = await home.tap.until(home.to_alice)
        assert Content.of(sent.message) == Content(({"text": "look"}, {"data": {"n": 1}}), "s", "t")

        assert await shell.run("thread", "a/b c") == (0, "m1 alice: in a/b c", "")
        code, _, said = await shell.run("send", "@alice", "--data", "no")
        assert (code, "--data is not valid JSON" in said) == (2, True)
        assert (await shell.run("send", "@alice", "x", "--subject", "two\nlines"))[0] == 2
        assert (await shell.run("send", "@alice", "x", "--re", "strange"))[0] == 4
        assert len(home.to_alice()) == 1
