from __future__ import annotations

import asyncio
import json
import time

import pytest

from postroom.protocol import subjects
from postroom.protocol.handover import as_reason
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.presence import WorkerState
from postroom.protocol.receipts import Receipt, State
from postroom_a2a.messages import text_of
from tests.sidecar.worker_rig import ECHO, WorkerRig

pytestmark = pytest.mark.anyio

TELL_EVERYTHING = """
for line in lines():
    if line["type"] == "message":
        say(type="seen", id=line["id"])
    say(type="post", text=json.dumps(line))
"""


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_message_is_handed_to_the_agent_and_its_reply_reaches_the_sender(home: WorkerRig):
    async with home.sidecar(ECHO):
        asked = await home.write("hello", expects_reply=True)
        (answer,) = await home.tap.until(home.to_alice)

        assert text_of(answer.message) == "echo hello"
        assert answer.reply_to == asked
        assert answer.to == home.alice.uid
        await home.all_acked()
        assert "seen" not in home.receipts(asked)  # the answer says so


async def test_the_agent_is_told_who_wrote_and_who_it_is(home: WorkerRig):
    async with home.sidecar(TELL_EVERYTHING):
        asked = await home.write("hi\u2028there", expects_reply=True)
        posts = await home.tap.until(
            lambda: [p for p in map(json.loads, home.posts()) if p["type"] == "message"]
        )

        hello = json.loads(home.posts()[0])
        assert hello["uid"] == home.worker
        assert hello["nick"] == "reader"
        assert hello["owner"] == {"uid": home.alice.uid}
        assert hello["api"].startswith("http://127.0.0.1:")
        assert posts[0] | {"sent_at": ""} == {
            "type": "message",
            "id": asked,
            "from": {"uid": home.alice.uid, "nick": "alice", "kind": "worker"},
            "to": "@reader",
            "text": "hi\u2028there",
            "parts": [{"text": "hi\u2028there"}],
            "subject": "",
            "thread": "",
            "expects_reply": True,
            "reply_to": None,
            "redelivered": False,
            "sent_at": "",
        }


@pytest.mark.requirement("mail-states-forward")
async def test_delivered_is_reported_when_the_agent_has_read_and_seen_only_when_it_says_so(
    home: WorkerRig,
):
    go = home.fifo("go")
    agent = f"""
    first = next(messages())
    open("{go}").read()
    say(type="seen", id=first["id"])
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        first = await home.write("one")
        second = await home.write("two")
        await home.tap.until(lambda: home.receipts(first))
        assert home.receipts(first) == ["delivered"]
        assert home.receipts(second) == []

        await asyncio.to_thread(go.write_text, "")
        await home.seen(first)
        await home.tap.until(lambda: home.receipts(second))
        assert home.receipts(second) == ["delivered"]


async def test_an_expired_message_is_acknowledged_and_not_handed_over(home: WorkerRig):
    await home.write("late", expires_at=time.time() - 1)
    async with home.sidecar(ECHO):
        await home.write("in time")
        await home.tap.until(home.to_alice)

        assert [text_of(e.message) for e in home.to_alice()] == ["echo in time"]
        await home.all_acked()


@pytest.mark.parametrize(
    "payload", [b"\xff", b"{}", b'{"v":1,"id":"x","to":"y","sent_at":"2026-01-01T00:00:00Z"}']
)
async def test_a_malformed_message_is_terminated_and_the_next_one_is_handled(
    home: WorkerRig, payload: bytes
):
    await home.write("", payload=payload)
    async with home.sidecar(ECHO):
        await home.write("good")
        await home.tap.until(home.to_alice)

        await home.all_acked()


async def test_a_message_to_somebody_else_does_not_become_one_of_ours(home: WorkerRig):
    forged = home.alice_envelope("not yours", to=home.alice.uid)
    await home.write("", payload=forged)
    async with home.sidecar(ECHO):
        await home.write("mine")
        await home.tap.until(home.to_alice)

        assert [text_of(e.message) for e in home.to_alice()] == ["echo mine"]


async def test_errors_of_the_agent_come_back_with_its_reference_and_change_nothing_else(
    home: WorkerRig,
):
    agent = """
    say(type="send", to="@nobody", text="x", ref=1)
    say(type="send", to="@alice", ref=2)
    say(type="reply", to="unknown", text="x", ref=3)
    say(type="send", to="@alice", text="x" * 600_000, ref=4)
    say(type="send", to="@alice", text="fine", ref=5)
    for line in lines():
        say(type="post", text=json.dumps(line))
    """
    async with home.sidecar(agent):
        answers = await home.tap.until(
            lambda: len(home.posts()) == 6 and [json.loads(p) for p in home.posts()]
        )
        codes = {a.get("ref"): a.get("code", a.get("state")) for a in answers}

        assert codes == {
            None: None,
            1: "unknown-recipient",
            2: "invalid-input",
            3: "not-found",
            4: "message-too-large",
            5: "accepted",
        }


async def test_the_agent_is_told_when_its_message_is_dead_or_unconfirmed_by_those_who_may_say_so(
    home: WorkerRig,
):
    agent = """
    say(type="send", to="@alice", text="x", ref="mine")
    for line in lines():
        if line["type"] == "receipt" and (line["state"] != "accepted" or line["ref"]):
            say(type="post", text=json.dumps(line))
    """
    async with home.sidecar(agent):
        (sent,) = await home.tap.until(home.to_alice)
        await home.tap.until(lambda: len(home.posts()) == 1)
        mallory = await home.bus.agent()
        lie = Receipt(sent.id, mallory.uid, State.ANSWERED, 1.0)
        await mallory.publish(subjects.receipts(home.worker, mallory.uid), lie.encode())
        stays = "not confirmed for 60 s"
        for reason in ("", as_reason("hook PostToolBatch"), stays):
            delivered = Receipt(sent.id, home.alice.uid, State.DELIVERED, 1.5, reason)
            subject = subjects.receipts(home.worker, home.alice.uid)
            await home.alice.publish(subject, delivered.encode())
        dead = Receipt(sent.id, home.alice.uid, State.DEAD, 2.0, "refused")
        subject = subjects.receipts(home.worker, CONTROL_PLANE)
        await home.bus.core.publish(subject, dead.encode())

        posts = await home.tap.until(lambda: len(home.posts()) == 3 and home.posts())
        assert [json.loads(post) for post in posts[1:]] == [
            {"type": "receipt", "id": sent.id, "state": "delivered", "reason": stays},
            {"type": "receipt", "id": sent.id, "state": "dead", "reason": "refused"},
        ]


async def test_posts_of_others_are_handed_over_only_to_an_agent_that_wants_the_feed(
    home: WorkerRig,
):
    agent = """
    for line in lines():
        if line["type"] == "post":
            say(type="send", to="@alice", text=line["project"] + " " + line["text"])
    """
    async with home.sidecar(agent, agent={"feed": True}):
        await home.state(WorkerState.IDLE)
        await home.alice_posts("news")
        (sent,) = await home.tap.until(home.to_alice)

        assert text_of(sent.message) == "main news"


async def test_a_presence_record_says_idle_then_working_then_idle(home: WorkerRig):
    go = home.fifo("go")
    agent = f"""
    message = next(messages())
    open("{go}").read()
    say(type="status", state="working", detail="thinking")
    say(type="seen", id=message["id"])
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        await home.state(WorkerState.IDLE)
        await home.write("one")
        await home.tap.until(lambda: home.presence().waiting == 1)
        assert home.presence().state is WorkerState.WORKING
        await asyncio.to_thread(go.write_text, "")
        await home.tap.until(lambda: "thinking" in [p.detail for p in home.presences()])


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_message_whose_reply_was_refused_comes_again_instead_of_being_held_for_ever(
    home: WorkerRig,
):
    agent = """
    for message in messages():
        text = "short" if message["redelivered"] else "x" * 600_000
        say(type="reply", to=message["id"], text=text)
    """
    async with home.sidecar(agent):
        await home.write("hello", expects_reply=True)
        await home.tap.until(home.to_alice)

        assert [text_of(e.message) for e in home.to_alice()] == ["short"]
