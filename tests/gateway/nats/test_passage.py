"""NATS through a door, against a real server: who gets in, what passes, what is refused, what is recorded."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.port import Delivery
from postroom.errors import Forbidden, PostroomError
from postroom.gateway.limits import CUT_OFF, VIOLATION
from postroom.gateway.port import Rates
from postroom.identity.nkeys import KeyPair, Kind
from postroom.protocol import subjects
from postroom.protocol.audit import AuditRecord
from tests.gateway.nats.rig import House, open_house
from tests.gateway.rig import soon
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

REFUSED = b"-ERR 'Authorization Violation'"


# Who gets in.


@pytest.mark.requirement("gateway-nats-proof")
async def test_a_workers_credential_is_worth_nothing_at_the_server_itself(house: House):
    worker = await house.worker()
    raw = await house.direct(worker.credential)

    await raw.send(raw.connect_line() + b"PING\r\n")

    assert (await raw.rest()).startswith(REFUSED)


@pytest.mark.requirement("gateway-nats-proof")
async def test_the_signature_of_another_proxy_is_worth_nothing(house: House):
    worker = await house.worker()
    raw = await house.direct(worker.credential)
    forged = KeyPair.generate(Kind.USER).sign(raw.info["nonce"].encode())
    signature = base64.urlsafe_b64encode(forged).rstrip(b"=").decode()

    await raw.send(raw.connect_line(proxy_sig=signature) + b"PING\r\n")

    assert (await raw.rest()).startswith(REFUSED)


@pytest.mark.requirement("gateway-nats-proof")
async def test_the_gateways_signature_does_let_it_in(house: House):
    worker = await house.worker()
    raw = await house.direct(worker.credential)
    proof = house.bus.trust.proxy_key.sign(raw.info["nonce"].encode())
    signature = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()

    await raw.connect(proxy_sig=signature)


@pytest.mark.requirement("gateway-nats-proof")
async def test_a_worker_gets_in_through_its_own_door(house: House):
    raw = await house.enter(await house.worker())

    assert await raw.pinged() == []
    [record] = house.audit.of("CONNECT")
    assert (record.direction, record.verdict) == ("out", "allowed")


@pytest.mark.requirement("gateway-nats-proof")
async def test_a_credential_is_worth_nothing_at_the_door_of_another_worker(house: House):
    mine, other = await house.worker(), await house.worker()
    raw = await house.knock(other, mine.credential)

    await raw.send(raw.connect_line() + b"PING\r\n")

    assert await raw.rest() == REFUSED + b"\r\n"
    [record] = house.audit.denied
    assert (record.worker, record.reason) == (other.uid, "the credential is not this worker's")


@pytest.mark.parametrize(
    "line",
    [
        b"CONNECT {}\r\n",
        b"CONNECT []\r\n",
        b"CONNECT {\r\n",
        b'CONNECT {"jwt":"a","jwt":"b"}\r\n',
        b'CONNECT {"jwt":1}\r\n',
        b'CONNECT {"jwt":"a.b.c"}\r\n',
        b"CONNECT " + b"[" * 30_000 + b"\r\n",
        b"PING\r\n",
        b"PUB a 0\r\n\r\n",
    ],
)
@pytest.mark.requirement("gateway-nats-proof")
async def test_what_does_not_begin_with_a_worker_s_credential_is_closed(house: House, line: bytes):
    raw = await house.knock(await house.worker())

    await raw.send(line)

    assert (await raw.rest()).startswith(b"-ERR ")
    assert len(house.audit.denied) == 1


@pytest.mark.requirement("gateway-nats-no-smuggling")
async def test_the_greeting_tells_no_address(house: House):
    raw = await house.enter(await house.worker())

    assert set(raw.info) <= {
        *("auth_required", "client_id", "headers", "jetstream", "ldm", "max_payload", "nonce"),
        *("proto", "server_id", "server_name", "version"),
    }
    assert raw.info["server_id"] == raw.info["server_name"] == "postroom"


@pytest.mark.requirement("gateway-nats-no-smuggling")
async def test_a_later_greeting_tells_no_address_either(house: House):
    raw = await house.enter(await house.worker())

    house.bus.server._process.send_signal(signal.SIGUSR2)  # lame duck
    info: dict[str, Any] = {}
    while "ldm" not in info:
        info = json.loads((await raw.any_line())[5:])

    assert info["ldm"] is True
    assert not {"host", "port", "ip", "client_ip", "connect_urls", "cluster"} & set(info)


async def test_a_second_connect_ends_the_connection(house: House):
    raw = await house.enter(await house.worker())

    await raw.send(raw.connect_line())

    assert await raw.rest() == b"-ERR 'Unknown Protocol Operation'\r\n"


async def test_what_follows_connect_at_once_keeps_its_order(house: House):
    worker = await house.worker()
    raw = await house.knock(worker)
    inbox = f"_I.{worker.uid}.{worker.uid}.x".encode()

    lines = b"".join(b"PUB %b 1\r\n%d\r\n" % (inbox, number) for number in range(9))
    await raw.send(raw.connect_line() + b"SUB %b 1\r\n" % inbox + lines + b"PING\r\n")
    said = [await raw.line() for _ in range(19)]

    assert said[1::2][:9] == [b"%d" % number for number in range(9)]


# What passes.


async def test_a_sidecars_client_publishes_consumes_and_acknowledges(house: House):
    worker = await house.worker()
    bus = await house.client(worker)
    taken: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()

    async def take(delivery: Delivery) -> None:
        await delivery.ack()
        taken.set_result(delivery)

    await bus.consume("INBOX", worker.uid, take)
    await bus.publish(subjects.inbox(worker.uid, worker.uid), b"hello", id="m1")
    delivery = await soon(taken)

    assert delivery.message.payload == b"hello"
    assert [record.message for record in house.audit.of("HPUB")] == ["m1"]
    assert [r.message for r in house.audit.of("HMSG") if r.message] == ["m1"]
    await house.until(lambda: not house.gateway._doors[worker.uid].cause.messages)


@pytest.mark.parametrize("size", [0, 5, 4096, 600_000, 1_000_000])
async def test_payloads_of_any_size_and_content_pass(house: House, size: int):
    me, peer = await house.worker(), await house.worker()
    asker = await house.enter(me)
    raw = await house.enter(peer)
    await raw.send(f"SUB worker.{peer.uid}.rpc.> 1\r\n".encode())
    await raw.pinged()
    body = (b"PUB a 5\r\nhello\r\nPING\r\n" * (size // 22 + 1))[:size]

    subject = subjects.rpc(peer.uid, me.uid).encode()
    await asker.send(b"PUB %b %d\r\n%b\r\n" % (subject, size, body))
    line = await raw.line()

    assert line.endswith(b" %d" % size)
    assert await soon(raw.reader.readexactly(size + 2)) == body + b"\r\n"


async def test_a_connection_works_byte_by_byte(house: House):
    worker = await house.worker()
    raw = await house.knock(worker)
    inbox = f"_I.{worker.uid}.{worker.uid}.x".encode()
    lines = raw.connect_line() + b"SUB %b 1\r\nPUB %b 5\r\nhello\r\nPING\r\n" % (inbox, inbox)

    for byte in lines:
        await raw.send(bytes([byte]))

    assert await raw.line() == b"MSG %b 1 5" % inbox
    assert await raw.line() == b"hello"


async def test_after_a_killed_server_the_sidecars_client_comes_back(tmp_path: Path):
    async with open_house(tmp_path, memory=False) as house:
        worker = await house.worker()
        bus = await house.client(worker)
        await bus.publish(subjects.inbox(worker.uid, worker.uid), b"one", id="m1")

        await house.bus.restart(kill=True)

        stored = await bus.publish(
            subjects.inbox(worker.uid, worker.uid), b"two", id="m2", timeout=20
        )
        assert stored is not None
        assert len(house.audit.of("CONNECT")) >= 2


async def test_who_ends_its_side_has_all_it_said_taken_to_the_server(house: House):
    worker, peer = await house.worker(), await house.worker()
    raw, other = await house.enter(worker), await house.enter(peer)
    await other.send(f"SUB worker.{peer.uid}.rpc.> 1\r\n".encode())
    await other.pinged()

    await raw.send(f"PUB worker.{peer.uid}.rpc.{worker.uid} 4\r\nlast\r\n".encode())
    raw.writer.write_eof()

    assert (await other.line()).startswith(b"MSG ")
    assert await raw.rest() == b""


# What is refused.


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_foreign_publish_is_refused_as_the_server_would_and_the_connection_goes_on(
    house: House,
):
    worker = await house.worker()
    raw = await house.enter(worker)
    subject = f"worker.{worker.uid}.inbox.{'f' * 32}"

    await raw.send(f"PUB {subject} 16\r\nPING\r\nPUB a 1\r\n.\r\n".encode())
    said = await raw.pinged()

    assert said == [f"-ERR 'Permissions Violation for Publish to \"{subject}\"'".encode()]
    [record] = house.audit.denied
    assert (record.verb, record.subject, record.size) == ("PUB", subject, 16)
    assert [kind for kind, _ in house.alerts] == [VIOLATION]
    assert "it tried to " in house.alerts[0][1]
    assert "Permissions Violation" not in house.alerts[0][1]
    assert house.gateway.statistics().violations == 1


@pytest.mark.requirement("attack-flood-slowed")
async def test_the_sidecars_client_hears_of_it_as_forbidden(house: House):
    bus = await house.client(await house.worker())

    with pytest.raises(Forbidden):
        await bus.publish(f"worker.{'e' * 32}.inbox.{'f' * 32}", b"x", timeout=5)


@pytest.mark.requirement("attack-flood-slowed")
@pytest.mark.parametrize(
    "line, words",
    [
        ("PUB worker.{own}.status _I.{other}.x.y 0\r\n\r\n", "Publish with Reply of"),
        ("SUB > 1\r\n", "Subscription to"),
        ("SUB _I.{other}.> 1\r\n", "Subscription to"),
        ("HPUB worker.{other}.inbox.{other} 12 12\r\nNATS/1.0\r\n\r\n\r\n", "Publish to"),
    ],
)
async def test_each_kind_of_violation_is_answered_and_recorded(house: House, line: str, words: str):
    worker = await house.worker()
    raw = await house.enter(worker)

    await raw.send(line.format(own=worker.uid, other=new_uid()).encode())
    [said] = await raw.pinged()

    assert f"Permissions Violation for {words}".encode() in said
    assert len(house.audit.denied) == 1


@pytest.mark.requirement("attack-flood-slowed")
async def test_after_too_many_violations_a_worker_is_cut_off_until_its_next_start(tmp_path: Path):
    async with open_house(tmp_path, violations=3) as house:
        worker = await house.worker()
        other = await house.enter(await house.worker())
        quiet, raw = await house.enter(worker), await house.enter(worker)

        await raw.send(b"PUB a 0\r\n\r\n" * 3)
        await raw.rest()

        assert await quiet.rest() == b""
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await house.knock(worker)
        await house.until(lambda: len(house.alerts) == 2)
        assert [kind for kind, _ in house.alerts] == [VIOLATION, CUT_OFF]
        assert await other.pinged() == []
        await house.gateway.open_door(house.gateway._doors[worker.uid].spec)
        await house.enter(worker)


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_length_that_a_stranger_has_spelled_oddly_does_not_end_the_connection(house: House):
    worker, stranger = await house.worker(), new_uid()
    raw = await house.enter(worker)
    await raw.send(f"SUB worker.{worker.uid}.rpc.> 1\r\n".encode())
    assert await raw.pinged() == []
    # An agent without a gateway, whose spelling the server passes on as it is.
    other = await (await house.direct(house.bus.credential(stranger))).connect()
    subject = f"worker.{worker.uid}.rpc.{stranger}"
    await other.send(f"PUB {subject} 002\r\nhi\r\n".encode())
    await other.send(f"HPUB {subject} 012 0014\r\nNATS/1.0\r\n\r\nho\r\n".encode())
    assert await other.pinged() == []

    found = [await raw.line() for _ in range(6)]

    assert [found[1], found[5]] == [b"hi", b"ho"]
    assert [record.size for record in house.audit.records if record.verb.endswith("MSG")] == [2, 14]


async def test_more_than_the_servers_largest_message_ends_the_connection(house: House):
    raw = await house.enter(await house.worker())

    await raw.send(b"PUB worker.x 1048577\r\n")

    assert await raw.rest() == b"-ERR 'Maximum Payload Violation'\r\n"


@pytest.mark.requirement("gateway-nats-proof")
async def test_an_empty_record_that_would_end_another_agents_pull_is_refused(house: House):
    worker, victim = await house.worker(), await house.worker()
    bus, raw = await house.client(victim), await house.enter(worker)
    taken: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(delivery: Delivery) -> None:
        await delivery.ack()
        taken.put_nowait(delivery.message.payload)

    await bus.consume("INBOX", victim.uid, take, batch=8)
    inbox = subjects.inbox(victim.uid, worker.uid).encode()
    await raw.send(b"PUB %b 0\r\n\r\n" % inbox)

    assert await raw.pinged() == [
        b"-ERR 'Permissions Violation for Publish to \"%b\": an empty record'" % inbox
    ]
    for payload in (b"1", b"2"):
        await raw.send(b"PUB %b 1\r\n%b\r\n" % (inbox, payload))
        assert await soon(taken.get()) == payload


async def test_too_many_subscriptions_are_refused(house: House):
    worker = await house.worker()
    raw = await house.enter(worker)
    inbox = f"_I.{worker.uid}".encode()

    await raw.send(b"".join(b"SUB %b.%d 1%d\r\n" % (inbox, n, n) for n in range(1001)))

    assert any(b"maximum subscriptions exceeded" in line for line in await raw.pinged())
    await house.until(lambda: bool(house.alerts))
    assert "maximum subscriptions exceeded" in house.alerts[0][1]


@pytest.mark.requirement("attack-flood-slowed")
async def test_who_stores_too_much_in_an_hour_is_told_in_its_own_inbox(house: House):
    worker = await house.worker(Rates(stored_bytes=1000))
    bus = await house.client(worker)
    subject = subjects.inbox(worker.uid, worker.uid)
    await bus.publish(subject, b"x" * 900, id="m1")

    with pytest.raises(PostroomError, match="more stored bytes"):
        await bus.publish(subject, b"x" * 900, id="m2", timeout=5)

    assert len(house.audit.denied) == 1
    assert house.gateway.statistics().violations == 0


@pytest.mark.requirement("attack-flood-slowed")
async def test_who_sends_too_fast_is_slowed_down_and_loses_nothing(house: House):
    worker = await house.worker(Rates(messages=1000))
    raw = await house.enter(worker)
    inbox = f"_I.{worker.uid}.{worker.uid}.x".encode()
    await raw.send(b"SUB %b 1\r\n" % inbox)
    await raw.pinged()
    await raw.send((b"PUB %b 0\r\n\r\n" % inbox) * 10_400)
    for _ in range(10_400):
        while (line := await raw.line()) == b"PING":  # of a server that waits
            pass
        assert line.startswith(b"MSG ")
        await raw.line()
    await raw.pinged()

    assert house.audit.denied == []


@pytest.mark.requirement("attack-flood-slowed")
async def test_what_one_connection_has_used_up_the_others_of_the_worker_wait_for(house: House):
    worker = await house.worker(Rates(messages=1000))
    raw, other = await house.enter(worker), await house.enter(worker)
    began = time.monotonic()
    await raw.send(b"PING\r\n" * 10_300)
    for _ in range(10_300):
        assert await raw.line() == b"PONG"

    assert await other.pinged() == []
    assert time.monotonic() - began >= 0.2  # 300 are over the burst


@pytest.mark.requirement("audit-recorded-first")
async def test_what_cannot_be_recorded_does_not_pass(house: House):
    worker, peer = await house.worker(), await house.worker()
    raw, other = await house.enter(worker), await house.enter(peer)
    await other.send(f"SUB worker.{peer.uid}.rpc.> 1\r\n".encode())
    await other.pinged()

    house.audit.full = True
    await raw.send(f"PUB worker.{peer.uid}.rpc.{worker.uid} 0\r\n\r\n".encode())
    await raw.rest()
    house.audit.full = False

    assert await other.pinged() == []


@pytest.mark.requirement("audit-recorded-first")
async def test_each_frame_leaves_a_record_of_the_common_form(house: House):
    worker = await house.worker()
    raw = await house.enter(worker)
    own = worker.uid.encode()
    task = b"worker.%b.tasks.t1.working" % own

    await raw.send(b'SUB _I.%b."\\.x 1\r\nUNSUB 1 2\r\n' % own)
    await raw.send(b"PUB %b 5\r\nhello\r\nPUB no 1\r\n.\r\n" % task)
    await raw.pinged()

    said = [(r.verb, r.subject, r.size, r.verdict, r.task) for r in house.audit.records[-4:]]
    assert said == [
        ("SUB", f'_I.{worker.uid}."\\.x', 0, "allowed", ""),
        ("UNSUB", f'_I.{worker.uid}."\\.x', 0, "allowed", ""),
        ("PUB", task.decode(), 5, "allowed", "t1"),
        ("PUB", "no", 1, "denied", ""),
    ]
    for record in house.audit.records:
        assert (record.by, record.org, record.worker) == ("gateway", "default", worker.uid)
        assert AuditRecord.decode(record.encode()) == record
    assert b"hello" not in house.audit.written
    assert house.gateway._doors[worker.uid].cause.now() == ("", "t1", True)


async def test_what_a_worker_sends_in_the_middle_of_a_task_names_that_as_its_cause(house: House):
    worker = await house.worker()
    raw = await house.enter(worker)
    task = b"worker.%b.tasks.%%b" % worker.uid.encode()
    sends = b"PUB worker.%b.inbox.%b 1\r\n.\r\n" % ((b"c" * 32), worker.uid.encode())

    await raw.send(sends + b"PUB %b 1\r\n.\r\n" % (task % b"t1.working") + sends)
    await raw.send(b"PUB %b 1\r\n.\r\n" % (task % b"t2.working") + sends)
    for name in (b"t1", b"t2"):
        await raw.send(b"PUB %b 1\r\n.\r\n" % (task % (name + b".completed")))
    await raw.send(sends)
    await raw.pinged()

    sent = [record for record in house.audit.records if ".inbox." in record.subject]
    assert [(r.cause_task, r.cause_message, r.cause_exact) for r in sent] == [
        ("", "", False),
        ("t1", "", True),
        ("t2", "", False),
        ("", "", False),
    ]
    for record in sent:
        assert AuditRecord.decode(record.encode()) == record


async def test_two_hundred_workers_are_served_at_once(house: House):
    workers = [await house.worker(consumers=False) for _ in range(200)]

    # In groups: the server gives each two seconds to say who it is, and this one process plays all of them.
    raws = []
    for first in range(0, 200, 25):
        raws += await asyncio.gather(*map(house.enter, workers[first : first + 25]))

    said = await asyncio.gather(*(raw.pinged() for raw in raws))
    assert all(line == b"PING" for lines in said for line in lines)
    assert house.gateway.statistics().open_connections == 200
