"""What agents ask the control plane, and how posts go both ways, over the two accounts of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postroom.bus.nats.bus import NatsBus
from postroom.bus.port import Delivery
from postroom.control.mailroom import Mailroom
from postroom.control.services import AgentServices
from postroom.control.taskverbs import TaskVerbs
from postroom.directory.card_signatures import verify_card
from postroom.directory.cards import skills_of
from postroom.directory.search import MAX_ANSWER, bounded
from postroom.identity import jwt
from postroom.identity.account_publisher import Accounts
from postroom.identity.credential import Credential
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.presence import WorkerState
from postroom.protocol.receipts import State
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.workers import STOPPED, WorkerRecord
from postroom.workers.issuer import Issuer
from postroom_a2a.messages import text_message, text_of
from tests.control.cardroom import CardRoom, card, card_room
from tests.gateway.nats.rig import House, house_before
from tests.mail.desk import NOW, Desk, Worker, running
from tests.rig import Rig, running_bus

pytestmark = pytest.mark.anyio


class Stage:
    """A post office with the agents' services on it."""

    def __init__(self, rig: Rig, desk: Desk, cards: CardRoom, issuer: Issuer, house: House) -> None:
        self.house = house
        self.issuer = issuer
        self.rig = rig
        self.desk = desk
        self.cards = cards

    async def ask(self, worker: Worker, verb: str, **question: Any) -> dict[str, Any]:
        payload = json.dumps(question).encode()
        subject = subjects.ctl(worker.uid, *verb.split("."))
        return json.loads((await worker.bus.request(subject, payload)).payload)


@asynccontextmanager
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    async with (
        running_bus(tmp_path) as rig,
        Database(None) as database,
        card_room(tmp_path, rig) as cards,
        house_before(rig) as house,
    ):
        await migrate(database)

        async def connect(uid: str, projects: tuple[str, ...]) -> NatsBus:
            return await rig.agent(uid, projects)

        desk = Desk(rig.core, rig.admin, database, connect)
        room = SimpleNamespace(bus=rig.core, directory=desk.directory, office=desk.office)
        pages = cards.search(desk.directory)
        no_tasks = cast("TaskVerbs", SimpleNamespace(verbs={}))
        issuer = Issuer(database, rig.trust, cast("Accounts", None), 600.0)
        services = AgentServices(cast("Mailroom", room), issuer, pages, no_tasks)
        await services.open()
        async with running(desk.fold.run()):
            await desk.fold.ready(10)
            try:
                yield Stage(rig, desk, cards, issuer, house)
            finally:
                desk.changes.close()
        await services.close()


async def post(worker: Worker, project: str, text: str, number: str) -> None:
    envelope = Envelope(number, f"#{project}", text_message(number, text), NOW)
    await worker.bus.publish(subjects.feed(project, worker.uid), envelope.encode(), id=number)


@pytest.mark.requirement("cards-found-by-skill")
async def test_an_agent_resolves_a_nick(tmp_path: Path):
    async with stage(tmp_path) as s:
        alice, bob = await s.desk.worker("alice"), await s.desk.worker("bob")

        answer = await s.ask(alice, "agents.resolve", ref="@bob")
        listed = await s.ask(alice, "agents.list")

        assert answer == {"uid": bob.uid, "nick": "bob", "kind": "worker", "org": "default"}
        assert [agent["nick"] for agent in listed["agents"]] == ["alice", "bob"]


@pytest.mark.parametrize(
    "verb, payload, code",
    [
        ("agents.resolve", b'{"ref":"@nobody"}', "unknown-recipient"),
        ("agents.fly", b"{}", "not-found"),
        ("cards.get", b'{"ref":"@nobody"}', "unknown-recipient"),
        ("cards.get", b'{"ref":"@alice"}', "not-found"),
        ("agents.list", b"[1]", "invalid-input"),
        ("agents.list", b"\xff", "invalid-input"),
        ("feed.history", b'{"project":"secret"}', "forbidden"),
        ("feed.history", b'{"project":"own","limit":"many"}', "invalid-input"),
        ("feed.history", b'{"project":"own","limit":[]}', "invalid-input"),
    ],
)
async def test_a_request_that_cannot_be_met_is_answered_with_a_problem(
    tmp_path: Path, verb: str, payload: bytes, code: str
):
    async with stage(tmp_path) as s:
        alice = await s.desk.worker("alice", ("own",))

        answer = await alice.bus.request(subjects.ctl(alice.uid, *verb.split(".")), payload)

        assert json.loads(answer.payload)["error"]["code"] == code


@pytest.mark.requirement("identity-inbox-private")
async def test_posts_go_both_ways_and_a_newcomer_reads_what_was_said(tmp_path: Path):
    async with stage(tmp_path) as s:
        maria = await s.desk.person()
        alice = await s.desk.worker("alice", ("demo",))
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def hear(delivery: Delivery) -> None:
            heard.put_nowait(text_of(Envelope.decode(delivery.message.payload).message))
            await delivery.ack()

        await alice.bus.consume("FEED", alice.uid, hear)
        await s.desk.office.post(maria.uid, "demo", "from a person")
        await post(alice, "demo", "from an agent", "p1")
        async with asyncio.timeout(10):
            live = [await heard.get(), await heard.get()]
        await s.desk.folded()
        bob = await s.desk.worker("bob", ("demo",))

        history = await s.ask(bob, "feed.history", project="demo")

        said = [(p["from"]["nick"], p["text"]) for p in history["posts"]]
        assert said == [("maria", "from a person"), ("alice", "from an agent")]
        assert live == ["from a person", "from an agent"]


@pytest.mark.requirement("identity-renewal-gapless")
async def test_a_renewed_credential_is_for_the_same_key_and_lets_its_agent_in(tmp_path: Path):
    async with stage(tmp_path) as s:
        alice = await s.desk.worker("alice", ("demo",))
        credential = await s.issuer.issue(alice.uid, ("demo",))
        worker = replace(await s.house.worker(uid=alice.uid), credential=credential)
        bus = await s.house.client(worker)

        answer = await bus.request(subjects.ctl(alice.uid, "credential", "renew"), b"{}")
        renewed = json.loads(answer.payload)

        worker.credential = Credential(renewed["jwt"], credential.seed)
        again = await s.house.client(worker)
        assert jwt.decode(renewed["jwt"])["sub"] == credential.public
        assert await again.publish(subjects.outbox(alice.uid), b"here") is not None


async def test_a_key_that_was_not_issued_here_or_is_revoked_is_not_renewed(tmp_path: Path):
    async with stage(tmp_path) as s:
        alice = await s.desk.worker("alice")

        answer = await s.ask(alice, "credential.renew")

        assert answer["error"]["code"] == "forbidden"


async def test_a_worker_writes_to_a_worker_and_a_person_to_a_worker(tmp_path: Path):
    async with stage(tmp_path) as s:
        maria = await s.desk.person()
        alice, bob = await s.desk.worker("alice"), await s.desk.worker("bob")
        taken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def take(delivery: Delivery) -> None:
            envelope = Envelope.decode(delivery.message.payload)
            taken.put_nowait((delivery.message.sender_uid, text_of(envelope.message)))
            await delivery.ack()

        await bob.bus.consume("INBOX", bob.uid, take)
        await alice.send(bob.uid, "worker to worker")
        mail = await s.desk.office.send(maria.uid, "@bob", "person to worker")
        async with asyncio.timeout(10):
            got = {await taken.get(), await taken.get()}
        await bob.receipt(mail, State.SEEN)

        assert got == {(alice.uid, "worker to worker"), (maria.uid, "person to worker")}
        assert (await s.desk.mail(mail.id, State.SEEN)).state is State.SEEN


@pytest.mark.requirement("cards-found-by-skill")
async def test_an_agent_finds_others_by_what_they_can_do(tmp_path: Path):
    async with stage(tmp_path) as s:
        await s.desk.person()
        alice, bob = await s.desk.worker("alice"), await s.desk.worker("bob")
        s.cards.workers.start(alice.uid, "alice", "write")
        s.cards.workers.start(bob.uid, "bob", "read-source")
        await s.cards.say(cast("NatsBus", bob.bus), WorkerState.IDLE)
        await s.cards.until(lambda: s.cards.written)

        everybody = await s.ask(alice, "cards.find")
        readers = await s.ask(alice, "cards.find", skill="read-source")
        worded = await s.ask(alice, "cards.find", text="i am AL")
        one = await s.ask(alice, "cards.get", ref="@bob")

        assert [(a["nick"], a["online"]) for a in everybody["agents"]] == [
            ("alice", False),
            ("bob", True),
        ]
        assert everybody["truncated"] is False
        assert [a["nick"] for a in worded["agents"]] == ["alice"]
        assert readers["agents"] == [one]
        found = verify_card(one["card"], [s.rig.trust.card_key.jwk])
        assert found == card(bob.uid, "bob", "read-source")


async def test_a_worker_that_was_not_started_has_the_card_of_its_template(tmp_path: Path):
    async with stage(tmp_path) as s:
        alice, bob = await s.desk.worker("alice"), await s.desk.worker("bob")
        template = '[worker]\nname="x"\n[workstation]\ncommand=["true"]\nskills=["{what}"]\n'
        template += '[overrides]\nwhat="read"\n'
        s.cards.workers.stopped = [
            (alice.agent, stopped(alice.agent, template, what="write")),
            (bob.agent, stopped(bob.agent, "of another version")),
        ]

        (found,) = (await s.ask(bob, "cards.find"))["agents"]

        assert (found["nick"], found["online"]) == ("alice", False)
        assert skills_of(found["card"]) == ["write"]


def stopped(agent: Agent, template: str, **values: str) -> WorkerRecord:
    return WorkerRecord(
        uid=agent.uid,
        project="main",
        template=template,
        sandbox="none",
        level="",
        desired=STOPPED,
        token_sha256="",
        created_at=NOW,
        overrides=values,
    )


def test_an_answer_fits_a_message_and_says_that_it_is_cut():
    entries: list[dict[str, Any]] = [{"card": "x" * 30_000} for _ in range(100)]

    answer = bounded(entries)

    assert answer["truncated"] is True
    assert 0 < len(answer["agents"]) < 100
    assert len(json.dumps(answer["agents"])) < MAX_ANSWER + 10_000
