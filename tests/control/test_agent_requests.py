"""What agents ask the control plane, and how posts go both ways, over the two accounts of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.port import Delivery
from postroom.directory.card_signatures import verify_card
from postroom.directory.cards import skills_of
from postroom.directory.search import bounded
from postroom.identity import jwt
from postroom.identity.jwt import Credential
from postroom.protocol import subjects
from postroom.protocol.content import Content
from postroom.protocol.envelope import Envelope
from postroom.protocol.limits import MAX_CARDS_BYTES
from postroom.protocol.receipts import State
from postroom_a2a.messages import text_message, text_of
from tests.control.taskroom import Hand, TaskRoom, card, task_room
from tests.gateway.nats.rig import house_before
from tests.mail.desk import NOW, Worker

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def ask(worker: Hand, verb: str, **question: Any) -> dict[str, Any]:
    payload = json.dumps(question).encode()
    subject = subjects.ctl(worker.uid, *verb.split("."))
    return json.loads((await worker.bus.request(subject, payload)).payload)


async def post(worker: Hand, project: str, text: str, number: str) -> None:
    envelope = Envelope(number, f"#{project}", text_message(number, text), NOW)
    await worker.bus.publish(subjects.feed(project, worker.uid), envelope.encode(), id=number)


@pytest.mark.requirement("task-skill-chosen")
async def test_an_agent_resolves_a_nick(room: TaskRoom):
    alice, bob = await room.worker("alice"), await room.worker("bob")

    answer = await ask(alice, "agents.resolve", ref="@bob")
    listed = await ask(alice, "agents.list")

    assert answer == {"uid": bob.uid, "nick": "bob", "kind": "worker", "org": "default"}
    assert [agent["nick"] for agent in listed["agents"]] == ["alice", "bob", "maria"]


async def test_a_request_that_cannot_be_met_is_answered_with_a_problem(room: TaskRoom):
    asker = await room.worker("asker", projects=("own",))
    answers = {
        ("agents.resolve", b'{"ref":"@nobody"}'): "unknown-recipient",
        ("agents.fly", b"{}"): "not-found",
        ("cards.get", b'{"ref":"@nobody"}'): "unknown-recipient",
        ("cards.get", b'{"ref":"@maria"}'): "not-found",
        ("agents.list", b"[1]"): "invalid-input",
        ("agents.list", b"\xff"): "invalid-input",
        ("feed.history", b'{"project":"secret"}'): "forbidden",
        ("feed.history", b'{"project":"own","limit":"many"}'): "invalid-input",
        ("feed.history", b'{"project":"own","limit":[]}'): "invalid-input",
        ("messages.thread", b"{}"): "invalid-input",
        ("messages.thread", b'{"thread":""}'): "invalid-input",
        ("credential.renew", b"{}"): "forbidden",  # this key was not issued by the post room
    }
    found = {}
    for verb, payload in answers:
        answer = await asker.bus.request(subjects.ctl(asker.uid, *verb.split(".")), payload)
        found[verb, payload] = json.loads(answer.payload)["error"]["code"]

    assert found == answers


@pytest.mark.requirement("identity-inbox-private")
async def test_posts_go_both_ways_and_a_newcomer_reads_what_was_said(room: TaskRoom):
    ann = await room.worker("ann", projects=("demo",))
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(delivery: Delivery) -> None:
        heard.put_nowait(text_of(Envelope.decode(delivery.message.payload).message))
        await delivery.ack()

    await ann.bus.consume("FEED", ann.uid, hear)
    await room.parts.office.post(room.owner.uid, "demo", "from a person")
    await post(ann, "demo", "from an agent", "p1")
    async with asyncio.timeout(10):
        live = [await heard.get(), await heard.get()]
    await room.folded("FEED")
    newcomer = await room.worker("newcomer", projects=("demo",))

    history = await ask(newcomer, "feed.history", project="demo")

    said = [(p["from"]["nick"], p["text"]) for p in history["posts"]]
    assert said == [("maria", "from a person"), ("ann", "from an agent")]
    assert live == ["from a person", "from an agent"]


@pytest.mark.requirement("identity-inbox-private")
async def test_an_agent_lists_what_it_said_and_was_told_in_a_thread_and_nothing_of_others(
    room: TaskRoom,
):
    talker, listener = await room.worker("talker"), await room.worker("listener")
    office = room.parts.office
    first = Content.of_text("first", subject="plans", thread="talk")
    await office.send(room.owner.uid, "@talker", first)
    await office.send(room.owner.uid, "@talker", Content.of_text("elsewhere", thread="other"))
    await office.send(room.owner.uid, "@listener", Content.of_text("for eve", thread="talk"))
    data = Content(({"data": {"n": 1}},), thread="talk")
    await office.send(room.owner.uid, "@talker", data)

    found = (await ask(talker, "messages.thread", thread="talk"))["messages"]
    assert [(mail["text"], mail["subject"], mail["parts"]) for mail in found] == [
        ("first", "plans", [{"text": "first"}]),
        ("", "", [{"data": {"n": 1}}]),
    ]
    (theirs,) = (await ask(listener, "messages.thread", thread="talk"))["messages"]
    assert theirs["text"] == "for eve"


@pytest.mark.requirement("identity-rotation-seamless")
async def test_a_renewed_credential_is_for_the_same_key_and_lets_its_agent_in(room: TaskRoom):
    carol = await room.worker("carol", projects=("demo",))
    credential = await room.parts.issuer.issue(carol.uid, ("demo",))
    async with house_before(room.rig) as house:
        worker = replace(await house.worker(uid=carol.uid), credential=credential)
        bus = await house.client(worker)

        answer = await bus.request(subjects.ctl(carol.uid, "credential", "renew"), b"{}")
        renewed = json.loads(answer.payload)

        worker.credential = Credential(renewed["jwt"], credential.seed)
        again = await house.client(worker)
        assert jwt.decode(renewed["jwt"])["sub"] == credential.public
        assert await again.publish(subjects.outbox(carol.uid), b"here") is not None


async def test_a_worker_writes_to_a_worker_and_a_person_to_a_worker(room: TaskRoom):
    hands = await room.worker("writer"), await room.worker("taker")
    alice, bob = [Worker(hand.agent, hand.bus) for hand in hands]
    taken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def take(delivery: Delivery) -> None:
        envelope = Envelope.decode(delivery.message.payload)
        taken.put_nowait((delivery.message.sender_uid, text_of(envelope.message)))
        await delivery.ack()

    await bob.bus.consume("INBOX", bob.uid, take)
    await alice.send(bob.uid, "worker to worker")
    office, maria = room.parts.office, room.owner
    mail = await office.send(maria.uid, "@taker", "person to worker")
    async with asyncio.timeout(10):
        got = {await taken.get(), await taken.get()}
    await bob.receipt(mail, State.SEEN)

    assert got == {(alice.uid, "worker to worker"), (maria.uid, "person to worker")}
    assert (await office.wait(mail.id, State.SEEN, 10)).state is State.SEEN


@pytest.mark.requirement("task-skill-chosen")
async def test_an_agent_finds_others_by_what_they_can_do(tmp_path: Path):
    async with task_room(tmp_path) as room:
        alice, bob = await room.worker("alice", "write"), await room.worker("bob", "read-source")
        await bob.online()

        everybody = await ask(alice, "cards.find")
        readers = await ask(alice, "cards.find", skill="read-source")
        worded = await ask(alice, "cards.find", text="i am AL")
        one = await ask(alice, "cards.get", ref="@bob")

        assert [(a["nick"], a["online"]) for a in everybody["agents"]] == [
            ("alice", False),
            ("bob", True),
        ]
        assert everybody["truncated"] is False
        assert [a["nick"] for a in worded["agents"]] == ["alice"]
        assert readers["agents"] == [one]
        found = verify_card(one["card"], [room.rig.trust.card_key.jwk])
        assert found == card(bob.uid, "bob", "read-source")


async def test_a_worker_that_was_not_started_has_the_card_of_its_template(room: TaskRoom):
    template = '[worker]\nname="x"\n[workstation]\ncommand=["true"]\nskills=["{what}"]\n'
    template += '[overrides]\nwhat="read"\n'
    await room.worker("idle", start=False, template=template, what="rest")
    other = await room.worker("other", start=False, template="of another version")

    found = {each["nick"]: each for each in (await ask(other, "cards.find"))["agents"]}

    assert "other" not in found
    assert not found["idle"]["online"]
    assert skills_of(found["idle"]["card"]) == ["rest"]


def test_an_answer_fits_a_message_and_says_that_it_is_cut():
    entries: list[dict[str, Any]] = [{"card": "x" * 30_000} for _ in range(100)]

    answer = bounded(entries)

    assert answer["truncated"] is True
    assert 0 < len(answer["agents"]) < 100
    assert len(json.dumps(answer["agents"])) < MAX_CARDS_BYTES + 10_000
