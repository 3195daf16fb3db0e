"""What only the NATS implementation can get wrong: outages, denials, forged frames, hostile bytes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from library.servers import open_server
from postroom.bus.nats import NatsAdmin, NatsBus, ensure_all
from postroom.bus.nats import delivery as delivery_module
from postroom.bus.port import BusAdmin, Delivery, Message, MessageBusProvider
from postroom.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    NoResponders,
    RequestTimeout,
    Unauthorized,
)
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import BY_NAME, agent_consumer
from tests.bus.contract import TIMEOUT, Heard, NatsPair, Taken, impatient
from tests.rig import Rig, new_uid, running_bus, running_server

pytestmark = pytest.mark.anyio


def link_of(bus: MessageBusProvider):
    assert isinstance(bus, NatsBus)
    return bus._link


def pull_inbox(bus: MessageBusProvider) -> str:
    """The secret inbox of the only pull loop of `bus`."""
    assert isinstance(bus, NatsBus)
    (consumption,) = bus._consumptions
    inbox = consumption._loop.inbox
    return f"{inbox}.1" if inbox else ""


async def pulling(bus: MessageBusProvider, taken: Taken) -> str:
    """Consume the own inbox; the inbox subject of the pull, once there is one."""
    await bus.consume("INBOX", bus.uid, taken)
    async with asyncio.timeout(TIMEOUT):
        while not pull_inbox(bus):  # noqa: ASYNC110 (the loop gives no other sign)
            await asyncio.sleep(0)
    await link_of(bus).connection.settle(TIMEOUT)  # the server knows it
    return pull_inbox(bus)


# Outages.


@pytest.mark.requirement("all-kills-counted")
async def test_a_publish_during_an_outage_is_stored_when_the_server_is_back(durable: Rig):
    alice = await durable.agent()
    bob = new_uid()
    await durable.stop(kill=True)

    publishing = asyncio.create_task(
        alice.publish(subjects.inbox(bob, alice.uid), b"x", id="m1", timeout=30)
    )
    await durable.start()
    stored = await asyncio.wait_for(publishing, 30)

    assert stored is not None
    assert (await durable.admin.get("INBOX", stored.sequence)).payload == b"x"
    assert alice.statistics().reconnects == 1


@pytest.mark.requirement("all-kills-counted")
async def test_a_pull_loop_resumes_after_the_server_was_killed(durable: Rig):
    alice, bob = await durable.agent(), await durable.agent()
    taken = Taken()
    await bob.consume("INBOX", bob.uid, taken)
    await alice.publish(subjects.inbox(bob.uid, alice.uid), b"before")
    await taken.acked()

    await durable.restart(kill=True)
    await alice.publish(subjects.inbox(bob.uid, alice.uid), b"after", timeout=30)

    payloads = [(await taken.acked()).payload]
    while payloads[-1] != b"after":  # the server may forget its last acknowledgements
        payloads.append((await taken.acked()).payload)
    assert payloads[-1] == b"after"


@pytest.mark.requirement("all-kills-counted")
async def test_what_was_acknowledged_as_stored_is_there_after_a_kill(durable: Rig):
    alice, bob = await durable.agent(), new_uid()
    for number in range(20):
        await alice.publish(subjects.inbox(bob, alice.uid), str(number).encode())

    await durable.restart(kill=True)

    records = [message.payload async for message in durable.admin.replay("INBOX")]
    assert records == [str(number).encode() for number in range(20)]


async def test_a_publish_whose_answer_was_lost_is_repeated_and_is_no_duplicate(durable: Rig):
    alice, bob = await durable.agent(), new_uid()
    subject = subjects.inbox(bob, alice.uid)
    connection, dropped = link_of(alice).connection, []
    assert connection._session is not None

    def lose(*message: bytes) -> None:
        dropped.append(message)  # the PubAck that goes down with the connection
        connection.reconnect()

    connection._session.frames_to(lose)
    stored = await alice.publish(subject, b"x", id="m1", timeout=TIMEOUT)

    assert dropped
    assert stored is not None
    assert not stored.duplicate
    assert await durable.admin.last_sequence("INBOX") == 1


async def test_subscriptions_and_servers_come_back_with_the_connection(durable: Rig):
    alice, bob = await durable.agent(), await durable.agent()

    async def responder(message: Message) -> bytes:
        return b"here"

    await bob.serve(f"worker.{bob.uid}.rpc.*", responder, queue="rpc")
    await durable.restart(kill=True)

    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                answer = await alice.request(subjects.rpc(bob.uid, alice.uid), b"")
                break
            except NoResponders:  # bob is not back yet
                await link_of(bob).ready(asyncio.get_running_loop().time() + TIMEOUT)
    assert answer.payload == b"here"


async def test_a_publish_without_a_server_says_so_within_its_deadline(durable: Rig):
    alice = await durable.agent()
    await durable.stop(kill=True)

    with pytest.raises((BusDisconnected, RequestTimeout)):
        await asyncio.wait_for(alice.publish(subjects.outbox(alice.uid), b"", timeout=0.3), TIMEOUT)
    await durable.start()


async def test_closing_without_a_server_is_bounded(durable: Rig):
    bob = await durable.agent()
    await bob.consume("INBOX", bob.uid, Taken())
    await durable.stop(kill=True)

    await asyncio.wait_for(bob.close(), 2 * TIMEOUT)
    await durable.start()


async def test_an_open_delivery_may_be_acknowledged_after_a_reconnect(nats: NatsPair):
    taken = Taken()
    await nats.bob.consume("INBOX", nats.bob.uid, taken)
    await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"x")
    delivery = await taken.next()
    assert isinstance(nats.bob, NatsBus)

    await nats.bob.renew()
    await delivery.ack(confirm=True)

    assert await nats.admin.pending("INBOX", nats.bob.uid) == (0, 0)


def notice(monkeypatch: pytest.MonkeyPatch, target: object, name: str) -> asyncio.Event:
    """An event that is set when a method is called."""
    called, real = asyncio.Event(), getattr(target, name)

    def method(*args: Any, **options: Any) -> Any:
        called.set()
        return real(*args, **options)

    monkeypatch.setattr(target, name, method)
    return called


@pytest.mark.requirement("all-kills-counted")
async def test_a_server_that_hangs_is_left_and_found_again(
    nats: NatsPair, monkeypatch: pytest.MonkeyPatch
):
    """The record may go down with the old connection; it comes again then."""
    monkeypatch.setattr(delivery_module, "HEARTBEAT", 0.2)
    await nats.admin.ensure_consumer(impatient(nats.bob.uid))
    taken = Taken()
    await pulling(nats.bob, taken)
    gave_up = notice(monkeypatch, link_of(nats.bob).connection, "reconnect")

    os.kill(nats.rig.server.pid, signal.SIGSTOP)
    try:
        await asyncio.wait_for(gave_up.wait(), TIMEOUT)
    finally:
        os.kill(nats.rig.server.pid, signal.SIGCONT)
    await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"x", timeout=30)

    assert (await taken.acked()).payload == b"x"


async def test_a_pull_that_expired_is_made_again(nats: NatsPair, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delivery_module, "PULL_EXPIRES", 0.2)
    monkeypatch.setattr(delivery_module, "HEARTBEAT", 0.1)
    taken = Taken()
    await pulling(nats.bob, taken)
    assert isinstance(nats.bob, NatsBus)

    again = notice(monkeypatch, nats.bob.jetstream.mailbox, "send")
    await asyncio.wait_for(again.wait(), TIMEOUT)
    await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"x")

    assert (await taken.acked()).payload == b"x"
    assert not nats.rig.errors


# Connecting.


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_nobody_at_the_address_is_a_disconnected_bus():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"nats://secret:password@127.0.0.1:{free.getsockname()[1]}"

        with pytest.raises(BusDisconnected) as raised:
            await NatsBus.connect(url, uid=CONTROL_PLANE, connect_timeout=0.2)

    assert "password" not in str(raised.value)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_credential_that_is_not_accepted_is_unauthorized_at_once(tmp_path: Path):
    async with running_server(tmp_path) as rig:
        good, other = rig.credential(new_uid()), rig.credential(new_uid())

        with pytest.raises(Unauthorized):
            await NatsBus.connect(
                rig.url, uid=new_uid(), jwt=lambda: good.jwt, sign=other.sign, connect_timeout=60
            )


async def test_a_server_that_is_late_is_waited_for(tmp_path: Path):
    async with running_bus(tmp_path, memory=False, streams=False) as rig:
        await rig.stop()
        credential = rig.credential(uid := new_uid())
        connecting = asyncio.create_task(rig.connect(credential, uid))
        await rig.start()

        bus = await asyncio.wait_for(connecting, TIMEOUT)

        assert bus.statistics().connected


async def test_an_expired_credential_ends_the_bus_with_a_reason(nats: NatsPair):
    uid = new_uid()
    credential = nats.rig.trust.mint_agent(uid, (), lifetime=2, now=time.time())
    bus = await nats.rig.connect(credential, uid)

    lost = await asyncio.wait_for(bus.wait_lost(), TIMEOUT)

    assert isinstance(lost, Unauthorized)
    with pytest.raises(Unauthorized):
        await bus.publish(subjects.outbox(uid), b"")


async def test_a_bus_needs_a_uid_to_receive_answers():
    with pytest.raises(InvalidInput):
        await NatsBus.connect("nats://127.0.0.1:1", uid="*")


# Denials.


@pytest.mark.requirement("attack-publish-refused")
async def test_a_denied_publish_fails_at_once_and_not_at_its_deadline(nats: NatsPair):
    with pytest.raises(Forbidden):
        await asyncio.wait_for(
            nats.alice.publish(subjects.events(nats.alice.uid), b"", timeout=600), TIMEOUT
        )


async def test_a_denial_fails_only_the_call_that_was_denied(nats: NatsPair):
    good = subjects.inbox(nats.bob.uid, nats.alice.uid)
    bad = subjects.inbox(nats.bob.uid, nats.bob.uid)

    results = await asyncio.gather(
        *(nats.alice.publish(subject, b"") for subject in (good, bad, good)),
        return_exceptions=True,
    )

    assert [isinstance(result, Forbidden) for result in results] == [False, True, False]


async def test_a_subject_whose_stream_is_missing_has_no_responders(tmp_path: Path):
    async with running_bus(tmp_path, streams=False) as rig:
        with pytest.raises(NoResponders):
            await rig.core.publish(subjects.outbox(CONTROL_PLANE), b"", timeout=60)


# Forged frames.


@pytest.mark.requirement("identity-sender-proved")
async def test_nobody_can_publish_into_anothers_replies(nats: NatsPair):
    with pytest.raises(Forbidden):
        await nats.alice.publish(subjects.reply(nats.bob.uid, "js", "x" * 24), b"forged")


@pytest.mark.requirement("identity-sender-proved")
async def test_a_puback_steered_into_a_pull_inbox_is_ignored(nats: NatsPair):
    taken = Taken()
    inbox = await pulling(nats.bob, taken)

    await link_of(nats.alice).send(
        subjects.inbox(nats.bob.uid, nats.alice.uid), b"steers its PubAck", reply=inbox
    )

    assert (await taken.acked()).payload == b"steers its PubAck"
    await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"next")
    assert (await taken.acked()).payload == b"next"
    assert taken.count == 2
    assert nats.bob.statistics().ignored == 1


@pytest.mark.requirement("identity-sender-proved")
async def test_a_strangers_delivery_steered_into_a_pull_inbox_is_ignored(nats: NatsPair):
    """Mallory pulls from her own consumer and names bob's inbox for the delivery."""
    taken = Taken()
    inbox = await pulling(nats.bob, taken)
    mallory = nats.alice
    await mallory.publish(subjects.inbox(mallory.uid, mallory.uid), b"to myself")

    await link_of(mallory).send(
        f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{mallory.uid}", b'{"batch": 1}', reply=inbox
    )
    await link_of(mallory).settle(asyncio.get_running_loop().time() + TIMEOUT)
    await mallory.publish(subjects.inbox(nats.bob.uid, mallory.uid), b"real")

    assert (await taken.acked()).payload == b"real"
    assert nats.bob.statistics().ignored == 1


@pytest.mark.requirement("identity-sender-proved")
async def test_a_stored_message_with_a_status_header_is_a_message(nats: NatsPair):
    taken = Taken()
    await nats.bob.consume("INBOX", nats.bob.uid, taken)

    await nats.alice.publish(
        subjects.inbox(nats.bob.uid, nats.alice.uid), b"", metadata={"Status": "404"}
    )

    assert (await taken.acked()).metadata["Status"] == "404"


@pytest.mark.requirement("identity-sender-proved")
async def test_a_request_that_wants_its_answer_elsewhere_is_not_answered(nats: NatsPair):
    """The full spoof that was found: bob's answer would be stored in a stranger's inbox under his name."""
    heard = Heard()

    async def responder(message: Message) -> bytes:
        await heard(message)
        return b"deputy"

    await nats.bob.serve(f"worker.{nats.bob.uid}.rpc.*", responder, queue="rpc")
    victim = subjects.inbox(new_uid(), nats.bob.uid)
    rpc = subjects.rpc(nats.bob.uid, nats.alice.uid)

    await link_of(nats.alice).send(rpc, b"steered", reply=victim)
    await nats.alice.request(rpc, b"honest")

    assert (await heard.next()).payload == b"honest"
    assert heard.count == 1
    assert await nats.admin.last_sequence("INBOX") == 0


@pytest.mark.requirement("identity-sender-proved")
async def test_an_announcement_without_its_senders_reply_subject_is_ignored(nats: NatsPair):
    heard = Heard()
    await nats.bob.subscribe("system.discovery.>", heard)

    await link_of(nats.alice).send(subjects.discovery(nats.alice.uid), b"forged")
    await nats.alice.publish(subjects.discovery(nats.alice.uid), b"real")

    assert (await heard.next()).payload == b"real"


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize(
    "frame",
    [
        b"PUB worker.%(bob)s.rpc.%(own)s \xff\xfe 0\r\n\r\n",
        b"PUB _I.%(bob)s.%(own)s.\xff\xfe 0\r\n\r\n",
        b"PUB _I.%(bob)s.%(own)s.a\x0bb 0\r\n\r\n",
        b"HPUB worker.%(bob)s.rpc.%(own)s 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"HPUB worker.%(bob)s.rpc.%(own)s 16 16\r\nNATS/1.0 \xff\xfe\xfd\r\n\r\n\r\n",
        b"HPUB worker.%(bob)s.rpc.%(own)s 18 18\r\nNATS/1.0\r\n\xff: \xff\r\n\r\n\r\n",
    ],
    ids=["reply", "subject", "separator", "no headers", "status", "header"],
)
async def test_frames_with_hostile_bytes_do_not_end_the_receiver(nats: NatsPair, frame: bytes):
    async def responder(message: Message) -> bytes:
        return b"alive"

    await nats.bob.serve(f"worker.{nats.bob.uid}.rpc.*", responder, queue="rpc")
    session = link_of(nats.alice).connection._session
    assert session is not None
    session.transport.write(
        frame % {b"bob": nats.bob.uid.encode(), b"own": nats.alice.uid.encode()}
    )

    answer = await nats.alice.request(subjects.rpc(nats.bob.uid, nats.alice.uid), b"")

    assert answer.payload == b"alive"
    assert nats.bob.statistics().reconnects == 0


# Streams as they are.


@pytest.mark.requirement("attack-publish-refused")
async def test_no_header_of_a_worker_can_delete_or_delay_what_others_stored(nats: NatsPair):
    assert isinstance(nats.admin, NatsAdmin)
    for spec in BY_NAME.values():
        info = await nats.admin.jetstream.api(f"STREAM.INFO.{spec.name}")
        assert not [
            flag
            for flag in (
                "allow_rollup_hdrs",
                "allow_msg_ttl",
                "allow_msg_schedules",
                "allow_msg_counter",
                "allow_atomic",
            )
            if info["config"].get(flag)
        ]
        assert info["config"]["max_bytes"] == spec.max_bytes
        assert info["config"]["max_consumers"] == spec.max_consumers


async def test_presence_is_in_its_bucket(nats: NatsPair):
    await nats.alice.publish(subjects.status(nats.alice.uid), b"idle")

    assert (await in_bucket(nats.admin, nats.alice.uid)).payload == b"idle"


async def in_bucket(admin: BusAdmin, uid: str) -> Message:
    """The presence of that worker, once the bucket has it."""
    async with asyncio.timeout(TIMEOUT):
        while (kept := await admin.last("KV_presence", f"$KV.presence.{uid}")) is None:
            continue
    return kept


async def test_presence_lies_in_the_memory_of_our_own_server(durable: Rig):
    """Also where an earlier version has put it on the disk; the inbox stays there."""

    async def storage(stream: str) -> str:
        return (await durable.admin.jetstream.api(f"STREAM.INFO.{stream}"))["config"]["storage"]

    streams = ("PRESENCE", "KV_presence", "INBOX")
    assert [await storage(each) for each in streams] == ["file", "file", "file"]

    durable.admin = NatsAdmin(durable.core, own_server=True)
    await ensure_all(durable.admin)
    await ensure_all(durable.admin)

    assert [await storage(each) for each in streams] == ["memory", "memory", "file"]
    agent = await durable.agent()
    await agent.publish(subjects.status(agent.uid), b"here")
    assert (await in_bucket(durable.admin, agent.uid)).payload == b"here"


async def test_an_acknowledgement_costs_one_frame_unless_it_is_confirmed(nats: NatsPair):
    taken = Taken()
    await nats.bob.consume("INBOX", nats.bob.uid, taken, batch=8)
    assert isinstance(nats.bob, NatsBus)
    for confirm, frames in ((False, 0), (True, 1)):
        await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"x")
        delivery = await taken.next()
        before = nats.bob.connection.received
        await delivery.ack(confirm=confirm)
        await nats.bob.connection.settle()
        assert nats.bob.connection.received - before == frames
    assert await nats.admin.pending("INBOX", nats.bob.uid) == (0, 0)


async def test_a_record_that_is_published_without_confirmation_is_stored(nats: NatsPair):
    assert isinstance(nats.bob, NatsBus)
    before = nats.bob.connection.received

    assert await nats.bob.publish(subjects.status(nats.bob.uid), b"idle", confirm=False) is None
    await nats.bob.connection.settle()

    assert nats.bob.connection.received == before
    kept = await nats.admin.last("PRESENCE", subjects.status(nats.bob.uid))
    assert kept is not None
    assert kept.payload == b"idle"


async def test_streams_may_be_ensured_again_with_other_bounds(nats: NatsPair):
    assert isinstance(nats.admin, NatsAdmin)
    for spec in BY_NAME.values():
        await nats.admin.ensure_stream(spec)
    await nats.admin.ensure_presence_bucket()
    await nats.admin.ensure_bucket()
    await nats.admin.ensure_consumer(agent_consumer("FEED", nats.bob.uid, ("main", "more")))

    info = await nats.admin.jetstream.api(f"CONSUMER.INFO.FEED.{nats.bob.uid}")
    assert info["config"]["filter_subjects"] == ["project.main.feed.*", "project.more.feed.*"]


async def test_a_deleted_consumer_is_waited_for(nats: NatsPair, monkeypatch: pytest.MonkeyPatch):
    # A pull that arrives while its consumer is being deleted is never answered: the heartbeats tell.
    monkeypatch.setattr(delivery_module, "HEARTBEAT", 0.2)
    taken = Taken()
    await pulling(nats.bob, taken)

    await nats.admin.delete_consumer("INBOX", nats.bob.uid)
    await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"x")
    await nats.admin.ensure_consumer(agent_consumer("INBOX", nats.bob.uid))

    assert (await taken.acked()).payload == b"x"


async def test_without_credentials_an_open_server_is_enough(tmp_path: Path):
    async with open_server(tmp_path) as url:
        bus = await NatsBus.connect(url, uid=CONTROL_PLANE)
        admin = NatsAdmin(bus, memory=True)
        await admin.ensure_stream(BY_NAME["OUTBOX"])

        stored = await bus.publish(subjects.outbox(new_uid()), b"x")

        assert stored is not None
        await bus.close()


async def test_deliveries_say_how_many_wait_behind_them(nats: NatsPair):
    taken = Taken()
    for _ in range(3):
        await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"")
    await nats.bob.consume("INBOX", nats.bob.uid, taken, batch=1)

    pending = []
    for _ in range(3):
        delivery: Delivery = await taken.next()
        pending.append(delivery.pending)
        await delivery.ack(confirm=False)

    assert pending == [2, 1, 0]


async def test_an_advisory_names_who_gave_up(nats: NatsPair):
    """The shape that the post office reads."""
    taken = Taken()
    await nats.bob.consume("INBOX", nats.bob.uid, taken)
    await nats.alice.publish(subjects.inbox(nats.bob.uid, nats.alice.uid), b"")
    await (await taken.next()).term("why\nnot")

    async with asyncio.timeout(TIMEOUT):
        while (record := await nats.admin.last("ADVISORIES", ">")) is None:
            continue
    said = json.loads(record.payload)
    assert record.subject.endswith(f".MSG_TERMINATED.INBOX.{nats.bob.uid}")
    assert said["reason"] == "why not"
