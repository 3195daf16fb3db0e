"""Beats, pulls and answers of the bus through a door: counted behind a line that was written before them."""

from __future__ import annotations

import pytest

from postroom.protocol.audit import PLUMBING
from tests.gateway.nats.rig import House

pytestmark = pytest.mark.anyio


def beat(uid: str, size: int = 2) -> bytes:
    return f"PUB worker.{uid}.status {size}\r\n".encode() + b"x" * size + b"\r\n"


@pytest.mark.requirement("audit-acts-explained")
async def test_a_minute_of_beats_pulls_and_answers_is_one_line_and_the_next_one_counts_them(
    house: House,
):
    worker = await house.worker()
    raw = await house.enter(worker)
    own = worker.uid
    inbox = f"_I.{own}.js.p.x"
    pull = (
        f'PUB $JS.API.CONSUMER.MSG.NEXT.INBOX.{own} {inbox} 29\r\n{{"batch":1,"expires":1000000}}'
    )
    await raw.send(f"SUB {inbox} 1\r\n".encode())
    await raw.pinged()
    before = len(house.audit.records)

    for _ in range(3):
        await raw.send(beat(own))
    await raw.send(pull.encode() + b"\r\n")
    await raw.send(f"PUB worker.{own}.status {inbox} 2\r\nxx\r\n".encode())
    await raw.send(f"PUB $JS.ACK.INBOX.{own}.1.1.1.1.1 4\r\n+WPI\r\n".encode())
    answers = await raw.pinged()
    while (
        len([line for line in answers if b" _I." in line]) < 2
    ):  # of the pull and of the last beat
        answers += await raw.pinged()
    [first] = house.audit.records[before:]
    assert (first.verb, first.count, first.size) == (PLUMBING, 0, 0)
    assert "follow" in first.reason

    raw.close()
    await house.until(lambda: house.audit.of("close"))
    *_, counted, close = house.audit.records
    assert (counted.verb, counted.connection) == (PLUMBING, close.connection)
    assert counted.reason.startswith("5 beats 12 B; 1 pulls 29 B; 2 answers ")
    assert counted.count == 8
    assert 41 < counted.size < close.size


@pytest.mark.requirement("audit-acts-explained")
async def test_no_plumbing_passes_before_its_line_is_written(house: House):
    worker = await house.worker()
    raw = await house.enter(worker)
    heard: list[bytes] = []

    async def hear(message: object) -> None:
        heard.append(getattr(message, "payload", b""))

    await house.bus.core.subscribe(f"worker.{worker.uid}.status", hear)
    house.audit.full = True
    await raw.send(beat(worker.uid))
    assert b"PONG" not in await raw.rest()
    house.audit.full = False

    again = await house.enter(worker)
    await again.send(beat(worker.uid, 3))
    await again.pinged()
    await house.until(lambda: heard)
    assert heard == [b"xxx"]


@pytest.mark.requirement("audit-acts-explained")
async def test_what_has_content_or_is_large_or_denied_has_a_line_of_its_own(house: House):
    worker, peer = await house.worker(), await house.worker()
    raw = await house.enter(worker)
    own = worker.uid
    await raw.send(beat(own))
    await raw.pinged()
    before = len(house.audit.records)

    await raw.send(beat(own, 9000))
    await raw.send(beat(peer.uid))
    await raw.send(f"PUB $JS.ACK.INBOX.{own}.1.1.1.1.1 4\r\n+ACK\r\n".encode())
    await raw.send(f"PUB worker.{peer.uid}.inbox.{own} 1\r\nx\r\n".encode())
    await raw.pinged()

    assert [(r.subject.split(".")[-1], r.verdict) for r in house.audit.records[before:]] == [
        ("status", "allowed"),
        ("status", "denied"),
        ("1", "allowed"),
        (own, "allowed"),
    ]
