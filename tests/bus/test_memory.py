"""The memory bus under a clock of the test's own: what passes with time, exactly when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from postroom.bus.memory import ManualClock, MemoryAdmin, MemoryBroker, MemoryBus
from postroom.bus.nats import ensure_all
from postroom.bus.port import Delivery
from postroom.errors import BusDisconnected, NoResponders, NotFound, Refused, RequestTimeout
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.intervals import ACK_WAIT
from postroom.protocol.streams import (
    BY_NAME,
    DUPLICATE_WINDOW,
    MAX_DELIVER,
    REDELIVERY_DELAYS,
    agent_consumer,
)
from tests.bus.contract import Taken

pytestmark = pytest.mark.anyio

ALICE, BOB = "a" * 32, "b" * 32
INBOX = subjects.inbox(BOB, ALICE)


@dataclass
class Timed:
    clock: ManualClock
    broker: MemoryBroker
    admin: MemoryAdmin
    alice: MemoryBus
    bob: MemoryBus


@pytest.fixture
async def timed() -> AsyncIterator[Timed]:
    clock = ManualClock()
    broker = MemoryBroker(clock)
    admin = MemoryAdmin(broker)
    await ensure_all(admin)
    await admin.ensure_consumer(agent_consumer("INBOX", BOB))
    made = Timed(clock, broker, admin, MemoryBus(broker, ALICE), MemoryBus(broker, BOB))
    yield made
    await made.alice.close()
    await made.bob.close()


async def test_an_id_may_be_used_again_after_the_window(timed: Timed):
    await timed.alice.publish(INBOX, b"", id="m1")

    await timed.clock.advance(DUPLICATE_WINDOW - 1)
    within = await timed.alice.publish(INBOX, b"", id="m1")
    await timed.clock.advance(1)
    after = await timed.alice.publish(INBOX, b"", id="m1")

    assert within is not None
    assert after is not None
    assert (within.duplicate, after.duplicate) == (True, False)


async def test_a_silent_consumer_loses_its_delivery_after_its_patience(timed: Timed):
    taken = Taken()
    await timed.alice.publish(INBOX, b"")
    await timed.bob.consume("INBOX", BOB, taken)
    await timed.clock.advance(0)
    await timed.bob.cut()
    await MemoryBus(timed.broker, BOB).consume("INBOX", BOB, taken)

    await timed.clock.advance(ACK_WAIT - 0.1)
    assert taken.count == 1
    await timed.clock.advance(0.1)
    assert taken.count == 2


async def test_an_open_delivery_is_kept_by_its_beats_for_ever(timed: Timed):
    taken = Taken()
    await timed.alice.publish(INBOX, b"")
    await timed.bob.consume("INBOX", BOB, taken)

    await timed.clock.advance(100 * ACK_WAIT)

    assert taken.count == 1
    assert await timed.admin.pending("INBOX", BOB) == (0, 1)


async def test_a_failing_handler_is_tried_again_with_growing_delays_and_then_given_up(
    timed: Timed,
):
    at: list[float] = []

    async def fails(delivery: Delivery) -> None:
        at.append(timed.clock.now())
        raise ValueError("a bug")

    few = replace(agent_consumer("INBOX", BOB), max_deliver=MAX_DELIVER)
    await timed.admin.ensure_consumer(few)
    began = timed.clock.now()
    await timed.alice.publish(INBOX, b"")
    await timed.bob.consume("INBOX", BOB, fails)

    await timed.clock.advance(1000)

    first, second = REDELIVERY_DELAYS
    assert [moment - began for moment in at] == [0, first, first + second]
    assert len(at) == MAX_DELIVER
    assert await timed.admin.last_sequence("ADVISORIES") == 1


async def test_presence_is_forgotten_when_it_is_not_renewed(timed: Timed):
    await timed.alice.publish(subjects.status(ALICE), b"idle")

    await timed.clock.advance(BY_NAME["PRESENCE"].max_age)

    assert await timed.admin.last("PRESENCE", "worker.*.status") is None


async def test_a_request_times_out_by_the_brokers_clock(timed: Timed):
    over = asyncio.Event()

    async def silent(message: object) -> bytes:
        await over.wait()
        return b""

    await timed.bob.serve(f"worker.{BOB}.rpc.*", silent)
    asking = asyncio.create_task(timed.alice.request(subjects.rpc(BOB, ALICE), b"", timeout=30))

    await timed.clock.advance(29)
    assert not asking.done()
    await timed.clock.advance(1)
    with pytest.raises(RequestTimeout):
        await asking
    over.set()  # or the end of the bus would wait for it


async def test_a_stream_of_the_newest_records_lets_the_oldest_go(timed: Timed):
    await timed.admin.ensure_stream(replace(BY_NAME["OUTBOX"], max_messages=2))
    for payload in (b"1", b"2", b"3"):
        await timed.alice.publish(subjects.outbox(ALICE), payload)

    kept = [message.payload async for message in timed.admin.replay("OUTBOX")]

    assert kept == [b"2", b"3"]


@pytest.mark.parametrize("header", ["Nats-Rollup", "Nats-TTL", "Nats-Schedule", "Nats-Incr"])
async def test_a_header_that_could_harm_what_others_stored_is_refused(timed: Timed, header: str):
    with pytest.raises(Refused):
        await timed.alice.publish(INBOX, b"", metadata={header: "all"})


async def test_a_subject_whose_stream_is_missing_has_no_responders():
    bus = MemoryBus(MemoryBroker(), CONTROL_PLANE)

    with pytest.raises(NoResponders):
        await bus.publish(INBOX, b"")


async def test_a_stream_that_does_not_exist_is_not_found():
    with pytest.raises(NotFound):
        await MemoryAdmin(MemoryBroker()).last_sequence("INBOX")


async def test_a_closed_bus_publishes_nothing(timed: Timed):
    await timed.alice.close()

    with pytest.raises(BusDisconnected):
        await timed.alice.publish(INBOX, b"")


async def test_canceled_timers_do_not_fire():
    clock, fired = ManualClock(), []
    cancel = clock.call_later(1, lambda: fired.append("canceled"))
    clock.call_later(2, lambda: fired.append("kept"))
    cancel()

    await clock.advance(2)

    assert fired == ["kept"]
