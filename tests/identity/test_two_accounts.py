"""What one agent's credential can do against the real server: its own work, and nothing else."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from postroom.errors import InvalidName
from postroom.identity import jwt
from postroom.identity.jwt import Credential
from postroom.identity.minting import AGENT_SUBSCRIPTIONS
from postroom.identity.nkeys import KeyPair, Kind
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS
from tests.identity.stage import (
    ALICE,
    BOB,
    CAROL,
    LOBBY,
    PATIENCE,
    VAULT,
    Peer,
    Stage,
    heard,
    stored,
    until_closed,
)

pytestmark = pytest.mark.anyio

FOREIGN_PUBLISHES = (
    # As somebody else.
    subjects.inbox(BOB, CAROL),
    subjects.inbox(ALICE, BOB),
    subjects.inbox(BOB, CONTROL_PLANE),
    subjects.priority(BOB, CAROL),
    subjects.priority(BOB, ALICE),
    subjects.rpc(BOB, CAROL),
    subjects.receipts(BOB, CAROL),
    subjects.receipts(ALICE, BOB),
    subjects.status(BOB),
    subjects.outbox(BOB),
    subjects.events(BOB),
    subjects.events(ALICE),
    subjects.task(BOB, "t1", "completed"),
    subjects.feed(LOBBY, BOB),
    subjects.alerts(BOB),
    subjects.discovery(BOB),
    subjects.ctl(BOB, "agents", "list"),
    subjects.reply(BOB, CAROL, "token"),
    subjects.reply(BOB, subjects.JETSTREAM, "token"),
    # Where it is no member.
    subjects.feed(VAULT, ALICE),
    subjects.deadletter(subjects.inbox(BOB, ALICE)),
    # Others' consumers.
    f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{BOB}",
    f"$JS.API.CONSUMER.MSG.NEXT.FEED.{BOB}",
    f"$JS.ACK.INBOX.{BOB}.1.1.1.1.1",
    f"$JS.API.CONSUMER.INFO.INBOX.{BOB}",
    f"$JS.API.CONSUMER.DELETE.INBOX.{BOB}",
    f"$JS.API.CONSUMER.RESET.INBOX.{BOB}",
    f"$JS.API.CONSUMER.PAUSE.INBOX.{BOB}",
    "$JS.API.CONSUMER.LIST.INBOX",
    "$JS.API.CONSUMER.NAMES.INBOX",
    # Streams, other than by its own consumers.
    f"$JS.API.CONSUMER.MSG.NEXT.TASKS.{ALICE}",
    f"$JS.API.CONSUMER.INFO.INBOX.{ALICE}",
    f"$JS.API.CONSUMER.DELETE.INBOX.{ALICE}",
    "$JS.API.CONSUMER.CREATE.INBOX",
    f"$JS.API.CONSUMER.CREATE.INBOX.{ALICE}",
    f"$JS.API.CONSUMER.CREATE.INBOX.{ALICE}.worker.{BOB}.inbox.*",
    f"$JS.API.CONSUMER.DURABLE.CREATE.INBOX.{ALICE}",
    "$JS.API.INFO",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.INFO.INBOX",
    "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.UPDATE.INBOX",
    "$JS.API.STREAM.DELETE.INBOX",
    "$JS.API.STREAM.PURGE.INBOX",
    "$JS.API.STREAM.SNAPSHOT.INBOX",
    "$JS.API.STREAM.RESTORE.INBOX",
    "$JS.API.STREAM.MSG.GET.INBOX",
    "$JS.API.STREAM.MSG.DELETE.INBOX",
    "$JS.API.DIRECT.GET.INBOX",
    f"$JS.API.DIRECT.GET.INBOX.worker.{BOB}.inbox.{CAROL}",
    "$JS.FC.INBOX.x",
    # Buckets and the server itself.
    f"$KV.presence.{ALICE}",
    f"$KV.cards.main.agents.{ALICE}",
    "$O.blobs.C.x",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.REQ.USER.INFO",
    "_INBOX.x",
    "anything.else",
)

FOREIGN_SUBSCRIPTIONS = (
    ">",
    "*.>",
    "worker.>",
    f"worker.{BOB}.>",
    f"worker.{BOB}.inbox.*",
    f"worker.*.inbox.{ALICE}",
    f"worker.{BOB}.rpc.>",
    "worker.*.rpc.>",
    f"worker.{BOB}.status",
    "project.*.feed.*",
    f"project.{VAULT}.feed.*",
    "system.>",
    "system.alerts.*",
    "system.deadletter.>",
    "ctl.>",
    f"_I.{BOB}.>",
    "_I.>",
    "_I.*.*.>",
    "_INBOX.>",
    "$JS.>",
    "$JS.EVENT.ADVISORY.>",
    "$KV.>",
    "$O.>",
    "$SYS.>",
    "stored.>",
)

OWN_RECORDS = (
    (subjects.inbox(BOB, ALICE), "INBOX"),
    (subjects.receipts(BOB, ALICE), "RECEIPTS"),
    (subjects.task(ALICE, "t1", "working"), "TASKS"),
    (subjects.outbox(ALICE), "OUTBOX"),
    (subjects.status(ALICE), "PRESENCE"),
    (subjects.feed(LOBBY, ALICE), "FEED"),
    (subjects.alerts(ALICE), "ALERTS"),
)


@pytest.mark.requirement("identity-sender-proved")
async def test_an_agent_cannot_publish_to_a_subject_that_is_not_its_own(core: Peer, alice: Peer):
    taps = {subject: await core.subscribe(subject) for subject in FOREIGN_PUBLISHES}

    for subject in FOREIGN_PUBLISHES:
        # A guessed permission would show as an answer here; the request has a reply subject of alice's own.
        reply = subjects.reply(ALICE, subjects.JETSTREAM, "answer")
        await alice.publish(subject, b"{}", reply=reply)

        said = f'nats: permissions violation for publish to "{subject.lower()}"'
        assert alice.refused == [said]
        alice.refused.clear()

    await core.settle()
    assert [subject for subject, tap in taps.items() if not tap.empty()] == []
    assert await stored(core) == {}


@pytest.mark.requirement("identity-inbox-private")
async def test_an_agent_cannot_subscribe_to_a_subject_that_is_not_its_own(alice: Peer):
    for subject in FOREIGN_SUBSCRIPTIONS:
        await alice.subscribe(subject)

        said = f'nats: permissions violation for subscription to "{subject.lower()}"'
        assert alice.refused == [said]
        alice.refused.clear()


@pytest.mark.requirement("bus-ack-means-disk")
async def test_an_agents_own_record_is_stored_and_acknowledged_through_the_import(
    core: Peer, alice: Peer
):
    for subject, stream in OWN_RECORDS:
        ack = await alice.client.jetstream().publish(subject, b"hello", timeout=PATIENCE)

        assert (ack.stream, ack.seq) == (stream, 1)

    assert await stored(core) == {subject: 1 for subject, _ in OWN_RECORDS}


async def test_an_agent_pulls_and_acks_what_is_for_it(core: Peer, alice: Peer):
    for_alice = {
        "INBOX": subjects.inbox(ALICE, BOB),
        "PRIORITY": subjects.priority(ALICE, BOB),
        "RECEIPTS": subjects.receipts(ALICE, BOB),
        "FEED": subjects.feed(LOBBY, BOB),
    }
    assert set(for_alice) == set(AGENT_CONSUMER_STREAMS)
    for stream, subject in for_alice.items():
        await _pulls_and_acks(core, alice, stream, subject)


async def _pulls_and_acks(core: Peer, alice: Peer, stream: str, subject: str) -> None:
    await core.client.jetstream().publish(subject, b"for alice")

    pull = await alice.client.jetstream().pull_subscribe_bind(ALICE, stream)
    (message,) = await pull.fetch(1, timeout=PATIENCE)
    await message.ack_sync(timeout=int(PATIENCE))

    assert (message.subject, message.data) == (subject, b"for alice")
    info = await core.client.jetstream().consumer_info(stream, ALICE)
    assert info.ack_floor is not None
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (1, 0)
    assert alice.refused == []


@pytest.mark.requirement("identity-inbox-private")
async def test_an_agents_pull_gives_nothing_that_is_for_another(core: Peer, alice: Peer):
    js = core.client.jetstream()
    await js.publish(subjects.inbox(BOB, CAROL), b"for bob")
    await js.publish(subjects.inbox(ALICE, CAROL), b"for alice")

    pull = await alice.client.jetstream().pull_subscribe_bind(ALICE, "INBOX")
    (message,) = await pull.fetch(1, timeout=PATIENCE)

    assert message.data == b"for alice"
    assert message.metadata.num_pending == 0


@pytest.mark.requirement("identity-sender-proved")
async def test_a_control_request_carries_who_the_server_says_it_is_from(core: Peer, alice: Peer):
    asked = await core.subscribe("ctl.*.>")
    answers = await alice.subscribe(f"_I.{ALICE}.ctl.>")

    forged = {"Nats_Request_Info": json.dumps({"name_tag": BOB, "user": "U" * 56})}
    reply = subjects.reply(ALICE, subjects.CONTROL, "token")
    await alice.publish(subjects.ctl(ALICE, "agents", "list"), b"{}", reply, **forged)
    request = await heard(asked)
    await request.respond(b"one")
    await request.respond(b"two")

    assert request.headers is not None
    info = json.loads(request.headers["Nats-Request-Info"])
    assert (info["user"], info["name_tag"]) == (alice.credential.public, ALICE)
    assert info["tags"] == [f"project:{LOBBY}"]
    assert [(await heard(answers)).data for _ in range(2)] == [b"one", b"two"]


@pytest.mark.requirement("identity-sender-proved")
async def test_a_forged_reply_subject_of_a_stored_message_puts_nothing_into_a_strangers_inbox(
    core: Peer, alice: Peer
):
    await alice.publish(subjects.inbox(BOB, ALICE), b"x", reply=subjects.inbox(CAROL, BOB))
    # The acknowledgement of the next one says that the one before has been dealt with.
    await alice.client.jetstream().publish(subjects.outbox(ALICE), b"x", timeout=PATIENCE)

    assert await stored(core) == {subjects.inbox(BOB, ALICE): 1, subjects.outbox(ALICE): 1}


async def counted(core: Peer, *, waiting: int, served: int) -> None:
    """Wait until Alice's consumer knows of so many messages, and has delivered so many.

    A pull is answered by nothing else, and nats-server tells a consumer of a message after it has acknowledged it.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            info = await core.client.jetstream().consumer_info("INBOX", ALICE)
            if (info.num_pending, info.delivered and info.delivered.consumer_seq) == (
                waiting,
                served,
            ):
                return
            await asyncio.sleep(0.01)


@pytest.mark.requirement("identity-sender-proved")
async def test_a_forged_reply_subject_of_a_pull_puts_nothing_into_a_strangers_inbox(
    core: Peer, alice: Peer
):
    await core.client.jetstream().publish(subjects.outbox(BOB), b"x")
    forged = subjects.inbox(CAROL, BOB)
    pull = f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{ALICE}"
    await alice.publish(pull, b'{"batch":1,"no_wait":true}', reply=forged)
    await core.client.jetstream().publish(subjects.inbox(ALICE, BOB), b"waiting")
    await counted(core, waiting=1, served=0)
    await alice.publish(pull, b'{"batch":1,"no_wait":true}', reply=forged)

    await counted(core, waiting=0, served=1)  # the second pull was, to nobody
    assert await stored(core) == {subjects.outbox(BOB): 1, subjects.inbox(ALICE, BOB): 1}


@pytest.mark.requirement("identity-sender-proved")
async def test_a_forged_reply_subject_of_an_ack_puts_nothing_into_a_strangers_inbox(
    core: Peer, alice: Peer
):
    await core.client.jetstream().publish(subjects.inbox(ALICE, BOB), b"x")
    pull = await alice.client.jetstream().pull_subscribe_bind(ALICE, "INBOX")
    (message,) = await pull.fetch(1, timeout=PATIENCE)

    await alice.publish(message.reply, b"+ACK", reply=subjects.inbox(CAROL, BOB))
    info = await core.client.jetstream().consumer_info("INBOX", ALICE)

    assert info.num_ack_pending == 0
    assert await stored(core) == {subjects.inbox(ALICE, BOB): 1}


@pytest.mark.requirement("identity-sender-proved")
async def test_a_forged_reply_subject_of_a_control_request_puts_nothing_into_a_strangers_inbox(
    core: Peer, alice: Peer
):
    asked = await core.subscribe("ctl.*.>")

    await alice.publish(subjects.ctl(ALICE, "x"), b"{}", reply=subjects.inbox(CAROL, BOB))
    await (await heard(asked)).respond(b"an answer")
    await core.settle()

    assert await stored(core) == {}


@pytest.mark.requirement("identity-sender-proved")
async def test_a_forged_trace_destination_puts_nothing_into_a_strangers_inbox(
    core: Peer, alice: Peer
):
    await alice.publish(
        subjects.inbox(BOB, ALICE), b"x", Nats_Trace_Dest=subjects.inbox(CAROL, BOB)
    )
    await alice.client.jetstream().publish(subjects.outbox(ALICE), b"x", timeout=PATIENCE)

    assert subjects.inbox(CAROL, BOB) not in await stored(core)
    assert alice.refused


async def test_an_agent_without_a_project_can_write_mail_but_posts_nowhere(
    stage: Stage, core: Peer
):
    loner = await stage.agent(ALICE)

    await loner.client.jetstream().publish(subjects.inbox(BOB, ALICE), b"x", timeout=PATIENCE)
    await loner.publish(subjects.feed(LOBBY, ALICE))

    assert len(loner.refused) == 1
    assert await stored(core) == {subjects.inbox(BOB, ALICE): 1}


async def test_a_credential_with_the_most_and_longest_projects_connects_and_posts(
    stage: Stage, core: Peer
):
    projects = [f"{number:03d}" + "p" * 61 for number in range(256)]
    busy = await stage.agent(ALICE, *projects)

    await busy.client.jetstream().publish(subjects.feed(projects[-1], ALICE), timeout=PATIENCE)

    assert await stored(core) == {subjects.feed(projects[-1], ALICE): 1}


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize(
    "uid", ["*", ">", "", "a" * 31, "A" * 32, "a.b", CONTROL_PLANE, "a" * 32 + "\n"]
)
def test_the_minter_refuses_a_uid_that_could_open_foreign_subjects(trust: Trust, uid: str):
    with pytest.raises(InvalidName):
        trust.mint_agent(uid, [LOBBY], lifetime=60.0, now=time.time())


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize("project", ["*", ">", "", "a.b", "-", "Lobby", "lobby\n", "project:lobby"])
def test_the_minter_refuses_a_project_that_could_open_foreign_feeds(trust: Trust, project: str):
    with pytest.raises(InvalidName):
        trust.mint_agent(ALICE, [LOBBY, project], lifetime=60.0, now=time.time())


@pytest.mark.requirement("identity-inbox-private")
async def test_the_agents_signing_key_cannot_mint_wider_rights(stage: Stage):
    user = KeyPair.generate(Kind.USER)
    wide = jwt.user_body() | {
        "issuer_account": stage.trust.edge_account,
        "pub": {"allow": [">"]},
    }
    token = jwt.encode(stage.trust._org.agents, user.public, ALICE, wide, now=time.time())

    with pytest.raises(Exception, match=r"(?i)authorization"):
        await stage.connect(Credential(token, user.seed), ALICE)


async def test_an_agents_subscriptions_are_bounded(alice: Peer):
    for number in range(AGENT_SUBSCRIPTIONS + 1):
        await alice.client.subscribe(f"_I.{ALICE}.x.{number}")

    await until_closed(alice)

    assert "maximum subscriptions" in str(alice.client.last_error)
