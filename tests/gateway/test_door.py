"""The door: who gets through, what passes, and what is cut."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path
from typing import cast

import pytest

from postroom.audit import AuditLog
from postroom.errors import EnvironmentFault
from postroom.gateway.limits import RateLimit
from postroom.gateway.port import DoorDeadlines, DoorSpec, Rates
from postroom.gateway.server import Gateway
from postroom.gateway.stream_proxy import FirstLine, StreamProxy, flush
from postroom.identity.tokens import digest
from postroom.protocol.preface import MAX_BYTES
from tests.gateway.pump import Pump
from tests.gateway.rig import OTHER, SCOUT, Rig, soon

pytestmark = pytest.mark.anyio

KIB = 1024
MIB = 1024 * KIB


async def test_bytes_pass_both_ways_as_they_are(rig: Rig):
    near, far = await rig.enter()
    every_byte = bytes(range(256)) * 1000

    await near.send(every_byte)
    assert await far.read(len(every_byte)) == every_byte
    await far.send(every_byte[::-1])
    assert await near.read(len(every_byte)) == every_byte[::-1]


async def test_the_upstream_sees_nothing_of_the_preface(rig: Rig):
    near = await rig.knock(rig.preface() + b"GET / HTTP/1.1\r\n")
    far = await rig.http.accept()
    near.end()

    assert await far.rest() == b"GET / HTTP/1.1\r\n"


async def test_a_preface_that_comes_in_pieces_opens_the_door(rig: Rig):
    near = await rig.knock()
    for byte in rig.preface():
        await near.send(bytes([byte]))
    far = await rig.http.accept()
    await far.send(b"INFO")

    assert await near.read(4) == b"INFO"


@pytest.mark.requirement("gateway-nats-proof")
async def test_the_upstream_is_opened_for_the_worker_of_the_door(rig: Rig):
    await rig.enter("http")

    assert rig.http.dialled == [SCOUT]


async def test_an_answer_passes_after_the_sandbox_has_ended_its_side(rig: Rig):
    near, far = await rig.enter()
    await near.send(b"question")
    near.end()
    assert await far.rest() == b"question"

    await far.send(b"answer")
    far.end()

    assert await near.rest() == b"answer"


async def test_the_sandbox_may_go_on_after_the_upstream_has_ended_its_side(rig: Rig):
    near, far = await rig.enter()
    await far.send(b"last words")
    far.end()
    assert await near.rest() == b"last words"

    await near.send(b"heard")
    near.end()

    assert await far.rest() == b"heard"


async def test_the_end_of_an_upstream_that_is_closed_at_once_still_delivers_all(rig: Rig):
    near, far = await rig.enter()
    data = b"x" * (200 * KIB)
    await far.send(data)
    near.end()
    await far.close()

    assert len(await near.rest()) == len(data)


@pytest.mark.requirement("gateway-nats-proof")
@pytest.mark.parametrize(
    "first",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT {}\r\n",
        b"POSTROOM/1 ssh abc\n",
        b"POSTROOM/2 nats abc\n",
        b"POSTROOM/1 nats\n",
    ],
)
async def test_a_connection_with_another_first_line_is_closed_without_an_answer(
    rig: Rig, first: bytes
):
    near = await rig.knock(first)

    assert await near.rest() == b""
    assert (await rig.ending())["verdict"] == "denied"
    assert rig.http.dialled == []


@pytest.mark.requirement("gateway-nats-proof")
async def test_a_first_line_without_end_is_refused_at_its_limit_and_not_waited_for(rig: Rig):
    near = await rig.knock(b"P" * MAX_BYTES)

    assert await near.rest() == b""
    assert (await rig.ending())["reason"] == "no preface line"


@pytest.mark.requirement("gateway-nats-proof")
async def test_a_connection_that_ends_before_its_first_line_is_refused(rig: Rig):
    near = await rig.knock(rig.preface()[:-1])
    near.end()

    assert await near.rest() == b""
    assert (await rig.ending())["reason"] == "no preface line"


async def test_a_connection_that_ends_without_a_word_is_no_refusal(rig: Rig):
    near = await rig.knock(b"")
    near.end()

    assert await near.rest() == b""
    ending = await rig.ending()
    assert (ending["verdict"], ending["reason"]) == ("allowed", "it said nothing")
    assert rig.gateway.statistics().refused == 0


@pytest.mark.requirement("gateway-nats-proof")
@pytest.mark.parametrize("deadlines", [DoorDeadlines(preface=0.05)], indirect=True)
@pytest.mark.parametrize("sent", [0, 20])
async def test_a_connection_that_is_late_with_its_first_line_is_closed(rig: Rig, sent: int):
    near = await rig.knock(rig.preface()[:sent])

    assert await near.rest() == b""
    assert (await rig.ending())["reason"] == "no preface in time"


@pytest.mark.requirement("gateway-nats-proof")
@pytest.mark.parametrize("token", ["0" * 64, "f", digest("x")])
async def test_a_wrong_token_is_refused(rig: Rig, token: str):
    near = await rig.knock(f"POSTROOM/1 http {token}\n".encode())

    assert await near.rest() == b""
    assert (await rig.ending())["reason"] == "the token is not this worker's"
    assert rig.http.dialled == []


@pytest.mark.requirement("gateway-nats-proof")
async def test_the_stored_digest_of_a_token_is_not_a_token(rig: Rig):
    near = await rig.knock(f"POSTROOM/1 http {digest(rig.tokens[SCOUT])}\n".encode())

    assert await near.rest() == b""


@pytest.mark.requirement("gateway-nats-proof")
async def test_the_token_of_another_worker_is_worth_nothing_at_this_door(rig: Rig):
    near = await rig.knock(rig.preface(uid=OTHER), uid=SCOUT)

    assert await near.rest() == b""
    line = await rig.ending()
    assert (line["worker"], line["reason"]) == (SCOUT, "the token is not this worker's")


async def test_a_connection_is_closed_when_the_upstream_refuses(rig: Rig):
    await rig.http.refuse()
    near = await rig.knock(rig.preface())

    assert await near.rest() == b""
    line = await rig.ending()
    assert (line["protocol"], line["verb"]) == ("http", "close")
    assert "refused" in line["reason"] or "failed" in line["reason"]


@pytest.mark.parametrize("deadlines", [DoorDeadlines(dial=0.05)], indirect=True)
async def test_an_upstream_that_cannot_be_reached_in_time_is_given_up(rig: Rig):
    never = asyncio.Event()

    async def dial(uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await never.wait()
        raise AssertionError

    rig.proxies["http"] = StreamProxy(Pump(dial, DoorDeadlines(dial=0.05)))
    near = await rig.knock(rig.preface())

    assert await near.rest() == b""
    assert (await rig.ending())["reason"] == "TimeoutError"


async def test_a_protocol_without_upstream_is_refused(rig: Rig):
    near = await rig.knock(rig.preface("nats"))

    assert await near.rest() == b""
    assert (await rig.ending())["reason"] == "nats is not served here"


async def test_refused_connections_that_come_too_fast_are_counted_and_not_each_listed(rig: Rig):
    spec = DoorSpec(SCOUT, "default", digest(rig.tokens[SCOUT]), rates=Rates(connections=1))
    rig.doors[SCOUT] = await rig.gateway.open_door(spec)
    door = rig.gateway._doors[SCOUT]
    await rig.enter()
    door.rate_limit.take(1_000_000, 0)
    for _ in range(3):
        await (await rig.knock()).rest()
    assert rig.endings() == []

    door.rate_limit = RateLimit(spec.rates)
    await (await rig.knock()).rest()

    reason = "over 1 connections; 3 more before it, too fast to be listed"
    assert [line["reason"] for line in rig.endings()] == [reason]
    assert rig.gateway.statistics().refused == 4


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_worker_has_a_bounded_number_of_connections_and_others_still_get_in(rig: Rig):
    held = [await rig.knock(rig.preface()) for _ in range(Rates().connections)]
    for _ in held:
        await rig.http.accept()

    one_more = await rig.knock(rig.preface())
    assert await one_more.rest() == b""
    other = await rig.knock(rig.preface(uid=OTHER), uid=OTHER)
    await (await rig.http.accept()).send(b"in")

    assert await other.read(2) == b"in"
    assert (await rig.ending())["reason"] == f"over {Rates().connections} connections"


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_connection_that_ended_makes_room(rig: Rig):
    near, far = await rig.enter()
    near.end()
    far.end()
    await rig.ending()

    assert rig.gateway.statistics().open_connections == 0


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_sandbox_that_does_not_read_stops_the_upstream_and_loses_nothing(rig: Rig):
    near, far = await rig.enter()
    chunk, limit = b"x" * (256 * KIB), 64 * MIB
    sent = 0
    far.writer.transport.set_write_buffer_limits(high=0)
    while sent < limit:
        far.writer.write(chunk)
        sent += len(chunk)
        try:
            async with asyncio.timeout(1):  # no progress at all: everything between is full
                await far.writer.drain()
        except TimeoutError:
            break
    assert sent < limit // 2

    far.writer.write_eof()
    near.end()

    assert len(await near.rest()) == sent
    assert (await rig.ending())["size"] == sent


@pytest.mark.requirement("attack-flood-slowed")
async def test_who_does_not_take_the_rest_of_an_ended_connection_is_cut():
    near, idle = socket.socketpair()
    with idle:
        _, writer = await asyncio.open_connection(sock=near)
        writer.write(b"x" * MIB)

        await soon(flush(writer, 0.05))

        assert len(await soon(asyncio.to_thread(_read_all, idle))) < MIB


def _read_all(end: socket.socket) -> bytes:
    end.settimeout(5)
    return b"".join(iter(lambda: end.recv(MIB), b""))


@pytest.mark.requirement("gateway-nats-proof")
async def test_closing_a_door_cuts_its_connections_on_both_sides(rig: Rig):
    near, far = await rig.enter()

    await soon(rig.gateway.close_door(SCOUT))

    assert await near.rest() == b""
    assert await far.rest() == b""
    assert not rig.doors[SCOUT].exists()


@pytest.mark.requirement("gateway-nats-proof")
async def test_closing_a_door_cuts_a_connection_whose_sandbox_does_not_read(rig: Rig):
    near, far = await rig.enter()
    near.reader._transport.pause_reading()  # ty: ignore[missing-attribute]
    far.writer.write(b"x" * (8 * MIB))
    await rig.until(lambda: rig.gateway.statistics().open_connections == 1)

    await soon(rig.gateway.close_door(SCOUT))

    assert await far.rest() == b""


@pytest.mark.requirement("gateway-nats-proof")
async def test_closing_a_door_leaves_those_of_others_alone(rig: Rig):
    other = await rig.knock(rig.preface(uid=OTHER), uid=OTHER)
    far = await rig.http.accept()

    await soon(rig.gateway.close_door(SCOUT))

    await far.send(b"still here")
    assert await other.read(10) == b"still here"


@pytest.mark.requirement("gateway-nats-proof")
@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_that_comes_while_the_door_closes_does_not_get_through(
    rig: Rig, turns: int
):
    near = await rig.knock()
    near.writer.write(rig.preface() + b"too late")
    for _ in range(turns):
        await asyncio.sleep(0)

    await soon(rig.gateway.close_door(SCOUT))

    assert await near.rest() == b""
    assert rig.gateway.statistics().open_connections == 0
    assert [await end.rest() for end in rig.http.ends] in ([], [b""], [b"too late"])


@pytest.mark.requirement("gateway-nats-proof")
async def test_an_accepted_connection_whose_turn_comes_after_the_door_closed_is_refused(rig: Rig):
    door = rig.gateway._doors[SCOUT]
    await soon(rig.gateway.close_door(SCOUT))
    near = await rig.knock(uid=OTHER)
    first_line = FirstLine(lambda transport, first_line: None)
    first_line.connection_made(near.writer.transport)
    first_line.data_received(rig.preface())

    await rig.gateway._enter(door, cast("asyncio.Transport", near.writer.transport), first_line)

    assert rig.http.dialled == []
    assert (await rig.ending())["reason"] == "the door is closed"


@pytest.mark.requirement("gateway-nats-proof")
async def test_closing_a_door_twice_is_closing_it_once(rig: Rig):
    await soon(rig.gateway.close_door(SCOUT))
    await soon(rig.gateway.close_door(SCOUT))

    assert rig.gateway.statistics().doors == 1


@pytest.mark.requirement("gateway-nats-proof")
async def test_a_door_that_is_opened_again_takes_the_new_token_only(rig: Rig):
    old = rig.preface()
    rig.tokens[SCOUT] = "n3w"
    await rig.gateway.open_door(DoorSpec(SCOUT, "default", digest("n3w")))

    refused = await rig.knock(old)
    assert await refused.rest() == b""
    await rig.enter()


@pytest.mark.requirement("identity-keys-private")
async def test_only_the_owner_may_use_the_socket_of_a_door(rig: Rig):
    assert stat.S_IMODE(rig.doors[SCOUT].stat().st_mode) == 0o600


@pytest.mark.requirement("identity-keys-private")
async def test_a_door_is_opened_over_the_socket_that_a_killed_process_left(rig: Rig):
    await soon(rig.gateway.close_door(SCOUT))
    rig.doors[SCOUT].touch()

    await rig.gateway.open_door(DoorSpec(SCOUT, "default", digest(rig.tokens[SCOUT])))

    await rig.enter()


async def test_a_door_in_a_folder_that_is_not_there_is_a_fault_of_the_environment(
    rig: Rig, tmp_path: Path
):
    gateway = Gateway(tmp_path / "gone", {}, AuditLog(tmp_path / "audit.jsonl"), alert=rig._alert)

    with pytest.raises(EnvironmentFault):
        await gateway.open_door(DoorSpec(SCOUT, "default", digest("x")))

    assert gateway.statistics().doors == 0


async def test_the_statistics_count_doors_and_connections(rig: Rig):
    near, far = await rig.enter()
    refused = await rig.knock(b"\n")
    await refused.rest()
    await rig.until(lambda: rig.gateway.statistics().refused == 1)
    open_now = rig.gateway.statistics()
    near.end()
    far.end()
    await rig.until(lambda: rig.gateway.statistics().open_connections == 0)

    assert (open_now.doors, open_now.open_connections, open_now.accepted) == (2, 1, 1)
    assert (rig.gateway.statistics().accepted, rig.gateway.statistics().refused) == (1, 1)
