"""What every implementation of the bus promises (`postroom.bus.port`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from postroom.bus.port import Delivery, Message
from postroom.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    LostUpdate,
    MessageTooLarge,
    NoResponders,
    NotFound,
    RequestTimeout,
    StreamFull,
    UnknownRecipient,
    from_problem,
)
from postroom.protocol import streams, subjects
from postroom.protocol.streams import BY_NAME, ConsumerSpec, agent_consumer
from tests.bus.contract import TIMEOUT, Heard, Pair, Taken, impatient

pytestmark = pytest.mark.anyio


async def inboxed(pair: Pair, *payloads: bytes) -> None:
    """Alice writes to bob."""
    for payload in payloads:
        await pair.alice.publish(subjects.inbox(pair.bob.uid, pair.alice.uid), payload)


async def undelivered(pair: Pair, count: int) -> None:
    """Wait until bob's consumer has so many records to deliver; nats-server counts them after their acknowledgement."""
    async with asyncio.timeout(TIMEOUT):
        while (await pair.admin.pending("INBOX", pair.bob.uid))[0] != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def advisory(taken: Taken) -> dict[str, Any]:
    return json.loads((await taken.acked()).payload)


async def watch_advisories(pair: Pair) -> Taken:
    taken = Taken()
    await pair.admin.ensure_consumer(ConsumerSpec("ADVISORIES", "postoffice"))
    await pair.core.consume("ADVISORIES", "postoffice", taken)
    return taken


async def finish(*waiting: Awaitable[object]) -> None:
    await asyncio.wait_for(asyncio.gather(*waiting), TIMEOUT)


# Publishing.


@pytest.mark.requirement("bus-ack-means-disk")
async def test_a_publish_returns_where_the_record_was_stored(pair: Pair):
    stored = await pair.alice.publish(subjects.inbox(pair.bob.uid, pair.alice.uid), b"hello")

    assert stored is not None
    assert stored.stream == "INBOX"
    assert not stored.duplicate
    assert (await pair.admin.get("INBOX", stored.sequence)).payload == b"hello"


@pytest.mark.requirement("bus-ack-means-disk")
async def test_a_second_publish_with_the_same_id_is_not_stored(pair: Pair):
    subject = subjects.inbox(pair.bob.uid, pair.alice.uid)

    first = await pair.alice.publish(subject, b"once", id="m1")
    second = await pair.alice.publish(subject, b"twice", id="m1")

    assert first is not None
    assert second is not None
    assert second.duplicate
    assert second.sequence == first.sequence
    assert await pair.admin.last_sequence("INBOX") == first.sequence


@pytest.mark.requirement("mail-floods-contained")
async def test_a_full_stream_refuses_and_a_retry_after_space_succeeds(pair: Pair):
    await pair.admin.ensure_stream(replace(BY_NAME["INBOX"], max_messages=1))
    subject = subjects.inbox(pair.bob.uid, pair.alice.uid)
    first = await pair.alice.publish(subject, b"1", id="m1")

    with pytest.raises(StreamFull):
        await pair.alice.publish(subject, b"2", id="m2")
    assert first is not None
    await pair.admin.delete("INBOX", first.sequence)
    retried = await pair.alice.publish(subject, b"2", id="m2")

    assert retried is not None
    assert not retried.duplicate


@pytest.mark.requirement("mail-floods-contained")
async def test_a_full_pair_of_sender_and_recipient_does_not_stop_other_senders(pair: Pair):
    await pair.admin.ensure_stream(replace(BY_NAME["INBOX"], max_per_subject=2))
    await inboxed(pair, b"1", b"2")

    with pytest.raises(StreamFull):
        await inboxed(pair, b"3")
    other = await pair.core.publish(subjects.inbox(pair.bob.uid, pair.core.uid), b"from another")

    assert other is not None


@pytest.mark.requirement("mail-floods-contained")
async def test_a_write_after_a_sequence_that_is_not_the_last_one_is_a_lost_update(pair: Pair):
    subject = subjects.task(pair.alice.uid, "t1", "working")
    await pair.alice.publish(subject, b"1", metadata={"Nats-Expected-Last-Subject-Sequence": "0"})

    with pytest.raises(LostUpdate):
        await pair.alice.publish(
            subject, b"2", metadata={"Nats-Expected-Last-Subject-Sequence": "0"}
        )


@pytest.mark.requirement("mail-floods-contained")
async def test_a_message_over_the_limit_is_not_sent(pair: Pair):
    with pytest.raises(MessageTooLarge):
        await inboxed(pair, b"x" * (1024 * 1024 + 1))

    assert await pair.admin.last_sequence("INBOX") == 0


@pytest.mark.requirement("attack-publish-refused")
async def test_publishing_as_someone_else_is_forbidden(pair: Pair):
    with pytest.raises(Forbidden):
        await pair.alice.publish(subjects.inbox(pair.bob.uid, pair.bob.uid), b"as bob")
    with pytest.raises(Forbidden):
        await pair.alice.publish(subjects.rpc(pair.bob.uid, pair.bob.uid), b"as bob")

    assert await pair.admin.last_sequence("INBOX") == 0


@pytest.mark.requirement("attack-publish-refused")
async def test_posting_to_a_project_that_one_is_not_in_is_forbidden(pair: Pair):
    await pair.alice.publish(subjects.feed("main", pair.alice.uid), b"in it")

    with pytest.raises(Forbidden):
        await pair.alice.publish(subjects.feed("other", pair.alice.uid), b"not in it")


@pytest.mark.parametrize("subject", ["", "nonsense", "worker.*.inbox.x", "worker.a b.outbox"])
async def test_a_subject_that_is_not_in_the_table_is_refused(pair: Pair, subject: str):
    with pytest.raises(InvalidInput):
        await pair.alice.publish(subject, b"")


@pytest.mark.parametrize("name, value", [("A", "b\r\nC: d"), ("A:B", "c"), ("", "v")])
async def test_a_header_that_breaks_out_of_its_line_is_refused(pair: Pair, name: str, value: str):
    with pytest.raises(InvalidInput):
        await pair.alice.publish(subjects.outbox(pair.alice.uid), b"", metadata={name: value})


@pytest.mark.requirement("identity-sender-proved")
async def test_the_sender_is_read_from_the_subject_and_not_from_the_payload(pair: Pair):
    taken = Taken()
    await pair.bob.consume("INBOX", pair.bob.uid, taken)

    await inboxed(pair, b'{"sender_uid": "someone else"}')

    assert (await taken.acked()).sender_uid == pair.alice.uid


# Live messages.


async def test_a_subscription_receives_what_is_published_from_then_on(pair: Pair):
    heard = Heard()
    await pair.alice.publish(subjects.alerts(pair.alice.uid), b"before")
    await pair.core.subscribe("system.alerts.*", heard)

    await pair.alice.publish(subjects.alerts(pair.alice.uid), b"after", metadata={"Kind": "test"})

    message = await heard.next()
    assert (message.payload, message.sender_uid) == (b"after", pair.alice.uid)
    assert message.metadata["Kind"] == "test"


async def test_a_closed_subscription_receives_nothing(pair: Pair):
    closed, open_ = Heard(), Heard()
    subscription = await pair.core.subscribe("system.alerts.*", closed)
    await pair.core.subscribe("system.alerts.*", open_)
    await subscription.close()
    await subscription.close()

    await pair.alice.publish(subjects.alerts(pair.alice.uid), b"x")

    await open_.next()
    assert closed.count == 0


@pytest.mark.requirement("identity-sender-proved")
async def test_an_announcement_reaches_the_other_agents(pair: Pair):
    heard = Heard()
    await pair.bob.subscribe("system.discovery.>", heard)

    await pair.alice.publish(subjects.discovery(pair.alice.uid), b"my card")

    assert (await heard.next()).sender_uid == pair.alice.uid


async def test_a_subscription_goes_on_after_its_handler_raised(pair: Pair):
    heard = Heard()

    async def handler(message: Message) -> None:
        if message.payload == b"bad":
            raise ValueError("a bug")
        await heard(message)

    await pair.core.subscribe("system.alerts.*", handler)
    await pair.alice.publish(subjects.alerts(pair.alice.uid), b"bad")
    await pair.alice.publish(subjects.alerts(pair.alice.uid), b"good")

    assert (await heard.next()).payload == b"good"
    assert pair.core.statistics().handler_errors == 1


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize("pattern", [">", "worker.*.inbox.*", "_I.>", "project.main.feed.*"])
async def test_listening_to_others_is_forbidden(pair: Pair, pattern: str):
    with pytest.raises(Forbidden):
        await pair.alice.subscribe(pattern, Heard())


# Requests.


async def answer_twice(message: Message) -> bytes:
    return message.payload * 2


async def test_a_request_is_answered(pair: Pair):
    await pair.bob.serve(f"worker.{pair.bob.uid}.rpc.*", answer_twice, queue="rpc")

    answer = await pair.alice.request(subjects.rpc(pair.bob.uid, pair.alice.uid), b"ab")

    assert answer.payload == b"abab"
    assert answer.sender_uid == pair.bob.uid


async def test_many_requests_at_once_get_their_own_answers(pair: Pair):
    await pair.bob.serve(f"worker.{pair.bob.uid}.rpc.*", answer_twice)
    subject = subjects.rpc(pair.bob.uid, pair.alice.uid)

    answers = await asyncio.gather(
        *(pair.alice.request(subject, str(number).encode()) for number in range(100))
    )

    assert [each.payload for each in answers] == [str(n).encode() * 2 for n in range(100)]


async def test_each_request_reaches_one_of_a_queue_group(pair: Pair):
    heard: list[bytes] = []

    async def responder(message: Message) -> bytes:
        heard.append(message.payload)
        return b""

    second = await pair.agent(pair.bob.uid)
    for bus in (pair.bob, second):
        await bus.serve(f"worker.{pair.bob.uid}.rpc.*", responder, queue="rpc")
    subject = subjects.rpc(pair.bob.uid, pair.alice.uid)

    await asyncio.gather(*(pair.alice.request(subject, bytes([n])) for n in range(20)))

    assert sorted(heard) == [bytes([n]) for n in range(20)]


async def test_a_request_that_nobody_listens_to_fails_at_once(pair: Pair):
    with pytest.raises(NoResponders):
        await asyncio.wait_for(
            pair.alice.request(subjects.rpc(pair.bob.uid, pair.alice.uid), b"", timeout=60),
            TIMEOUT,
        )


async def test_a_request_without_an_answer_times_out(pair: Pair):
    hold = asyncio.Event()

    async def silent(message: Message) -> bytes:
        await hold.wait()
        return b""

    await pair.bob.serve(f"worker.{pair.bob.uid}.rpc.*", silent)

    with pytest.raises(RequestTimeout):
        await pair.alice.request(subjects.rpc(pair.bob.uid, pair.alice.uid), b"", timeout=0.2)
    hold.set()


async def test_an_error_of_the_control_plane_reaches_the_asker_as_a_problem(pair: Pair):
    async def unknown(message: Message) -> bytes:
        raise UnknownRecipient("nobody is called that")

    await pair.core.serve("ctl.*.>", unknown, queue="ctl")

    answer = await pair.alice.request(subjects.ctl(pair.alice.uid, "agents", "resolve"), b"{}")

    problem = json.loads(answer.payload)["error"]
    assert isinstance(from_problem(problem, 404), UnknownRecipient)


async def test_the_asker_learns_nothing_about_an_internal_error(pair: Pair):
    async def buggy(message: Message) -> bytes:
        raise ValueError("a secret detail")

    await pair.bob.serve(f"worker.{pair.bob.uid}.rpc.*", buggy)

    answer = await pair.alice.request(subjects.rpc(pair.bob.uid, pair.alice.uid), b"")

    assert b"secret" not in answer.payload
    assert json.loads(answer.payload)["error"]["status"] == 500


async def test_a_request_on_a_stored_subject_is_refused(pair: Pair):
    with pytest.raises(InvalidInput):
        await pair.alice.request(subjects.inbox(pair.bob.uid, pair.alice.uid), b"")


# Consuming.


@pytest.mark.requirement("inbox-confirmed-only")
async def test_records_are_delivered_in_order(pair: Pair):
    await inboxed(pair, *(bytes([n]) for n in range(50)))
    taken = Taken()

    await pair.bob.consume("INBOX", pair.bob.uid, taken, batch=8)

    assert [(await taken.acked()).payload for _ in range(50)] == [bytes([n]) for n in range(50)]


async def test_no_more_than_a_batch_is_open_at_a_time(pair: Pair):
    await inboxed(pair, *(bytes([n]) for n in range(5)))
    taken = Taken()

    await pair.bob.consume("INBOX", pair.bob.uid, taken, batch=2)
    first, second = await taken.next(), await taken.next()

    await undelivered(pair, 3)
    assert await pair.admin.pending("INBOX", pair.bob.uid) == (3, 2)
    assert pair.bob.statistics().open_deliveries == 2
    await first.ack()
    await second.ack()
    assert (await taken.next()).message.payload == bytes([2])


@pytest.mark.requirement("sidecar-message-handed")
async def test_an_acknowledged_record_does_not_come_again(pair: Pair):
    taken, again = Taken(), Taken()
    await inboxed(pair, b"first")
    subscription = await pair.bob.consume("INBOX", pair.bob.uid, taken)
    await taken.acked()
    await subscription.close()
    assert await pair.admin.pending("INBOX", pair.bob.uid) == (0, 0)

    await inboxed(pair, b"second")
    await pair.bob.consume("INBOX", pair.bob.uid, again)

    assert (await again.acked()).payload == b"second"


@pytest.mark.requirement("inbox-confirmed-only")
async def test_a_record_given_back_comes_again_with_the_next_attempt(pair: Pair):
    taken = Taken()
    await inboxed(pair, b"x")
    await pair.bob.consume("INBOX", pair.bob.uid, taken)

    first = await taken.next()
    await first.nak()
    second = await taken.next()

    assert (first.attempt, second.attempt) == (1, 2)
    assert second.message.sequence == first.message.sequence


async def test_a_record_given_back_with_a_delay_comes_after_others(pair: Pair):
    taken = Taken()
    await inboxed(pair, b"slow", b"quick")
    await pair.bob.consume("INBOX", pair.bob.uid, taken, batch=1)

    await (await taken.next()).nak(0.2)

    assert (await taken.acked()).payload == b"quick"
    assert (await taken.acked()).payload == b"slow"


@pytest.mark.requirement("inbox-confirmed-only")
async def test_a_record_whose_handler_raised_comes_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "REDELIVERY_DELAYS", (0.05, 0.05))
    taken = Taken()

    async def fails_first(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("a bug")
        await taken(delivery)

    await inboxed(pair, b"x")
    await pair.bob.consume("INBOX", pair.bob.uid, fails_first)

    assert (await taken.next()).attempt == 2
    assert pair.bob.statistics().handler_errors == 1


@pytest.mark.requirement("inbox-confirmed-only")
async def test_an_unacknowledged_record_comes_again_after_its_consumer_was_killed(pair: Pair):
    await pair.admin.ensure_consumer(impatient(pair.bob.uid))
    taken, again = Taken(), Taken()
    await inboxed(pair, b"x")
    await pair.bob.consume("INBOX", pair.bob.uid, taken)
    await taken.next()

    await pair.cut(pair.bob)
    successor = await pair.agent(pair.bob.uid)
    await successor.consume("INBOX", pair.bob.uid, again)

    assert (await again.next()).attempt == 2


async def test_a_record_handed_on_does_not_come_again_while_it_is_open(pair: Pair):
    """The witness is another consumer, as impatient, whose connection sends no beats in that time."""
    held, witness = Taken(), Taken()
    bob = await pair.agent(pair.bob.uid, beat=0.1)
    await pair.admin.ensure_consumer(impatient(pair.bob.uid, ack_wait=0.4))
    await pair.admin.ensure_consumer(ConsumerSpec("INBOX", "witness", ack_wait=0.4))
    await inboxed(pair, b"x")
    await bob.consume("INBOX", pair.bob.uid, held)
    await pair.core.consume("INBOX", "witness", witness)

    attempts = [(await witness.next()).attempt for _ in range(3)]

    assert attempts == [1, 2, 3]
    assert held.count == 1
    await (await held.next()).ack(confirm=True)
    assert await pair.admin.pending("INBOX", pair.bob.uid) == (0, 0)


async def test_a_record_that_is_set_aside_stays_open_and_lets_the_next_one_come(pair: Pair):
    taken, witness = Taken(), Taken()
    bob = await pair.agent(pair.bob.uid, beat=0.1)
    await pair.admin.ensure_consumer(impatient(pair.bob.uid, ack_wait=0.4))
    await pair.admin.ensure_consumer(ConsumerSpec("INBOX", "witness", ack_wait=0.4))
    for payload in (b"one", b"two", b"three"):
        await inboxed(pair, payload)
    await bob.consume("INBOX", pair.bob.uid, taken, batch=1)

    aside = await taken.next()
    aside.set_aside()
    held = await taken.next()
    await pair.core.consume("INBOX", "witness", witness)
    while (await witness.next()).attempt == 1:
        pass

    assert (aside.message.payload, held.message.payload) == (b"one", b"two")
    assert taken.count == 2
    await held.ack()
    assert (await taken.next()).message.payload == b"three"
    await aside.ack()


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_record_that_was_given_back_too_often_leaves_an_advisory(pair: Pair):
    advisories, taken = await watch_advisories(pair), Taken()
    await pair.admin.ensure_consumer(impatient(pair.bob.uid, ack_wait=10, max_deliver=2))
    await inboxed(pair, b"x")
    await pair.bob.consume("INBOX", pair.bob.uid, taken)

    for _ in range(2):
        await (await taken.next()).nak()

    said = await advisory(advisories)
    assert said["type"] == "io.nats.jetstream.advisory.v1.max_deliver"
    assert (said["stream"], said["consumer"]) == ("INBOX", pair.bob.uid)
    assert (said["stream_seq"], said["deliveries"]) == (1, 2)


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_poke_makes_an_abandoned_record_leave_its_advisory(pair: Pair):
    advisories, taken = await watch_advisories(pair), Taken()
    await pair.admin.ensure_consumer(impatient(pair.bob.uid, ack_wait=0.2, max_deliver=1))
    await inboxed(pair, b"x")
    await pair.bob.consume("INBOX", pair.bob.uid, taken)
    await taken.next()
    await pair.cut(pair.bob)

    async def poked() -> Delivery:
        while True:
            await pair.admin.poke("INBOX", pair.bob.uid)
            try:
                return await advisories.next(timeout=0.1)
            except TimeoutError:
                continue

    said = json.loads((await asyncio.wait_for(poked(), TIMEOUT)).message.payload)

    assert said["stream_seq"] == 1
    await inboxed(pair, b"y")
    await pair.admin.poke("INBOX", pair.bob.uid)
    await undelivered(pair, 1)


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_terminated_record_leaves_an_advisory_with_the_reason(pair: Pair):
    advisories, taken = await watch_advisories(pair), Taken()
    await inboxed(pair, b"x")
    await pair.bob.consume("INBOX", pair.bob.uid, taken)

    await (await taken.next()).term("malformed")

    said = await advisory(advisories)
    assert said["type"] == "io.nats.jetstream.advisory.v1.terminated"
    assert (said["consumer"], said["stream_seq"]) == (pair.bob.uid, 1)
    assert said["reason"] == "malformed"


async def test_what_was_fetched_and_not_handed_over_is_given_back_on_close(pair: Pair):
    """The consumer's patience is 10 s: only what is given back comes again in the time of this test."""
    started, go = asyncio.Event(), asyncio.Event()

    async def slow(delivery: Delivery) -> None:
        started.set()
        await go.wait()
        await delivery.ack(confirm=True)  # a round trip: the closing has begun before it returns

    await inboxed(pair, b"1", b"2", b"3")
    subscription = await pair.bob.consume("INBOX", pair.bob.uid, slow)
    await asyncio.wait_for(started.wait(), TIMEOUT)
    closing = asyncio.create_task(subscription.close())
    go.set()
    await finish(closing)
    taken = Taken()
    await pair.bob.consume("INBOX", pair.bob.uid, taken)

    assert {(await taken.acked()).payload for _ in range(2)} >= {b"2", b"3"}


async def test_a_consumer_that_does_not_exist_yet_is_waited_for(pair: Pair):
    taken = Taken()
    newcomer = await pair.agent()
    await newcomer.consume("INBOX", newcomer.uid, taken)
    await pair.alice.publish(subjects.inbox(newcomer.uid, pair.alice.uid), b"early")

    await pair.admin.ensure_consumer(agent_consumer("INBOX", newcomer.uid))

    assert (await taken.acked()).payload == b"early"


@pytest.mark.requirement("identity-inbox-private")
async def test_an_agent_may_not_consume_for_another(pair: Pair):
    with pytest.raises(Forbidden):
        await pair.alice.consume("INBOX", pair.bob.uid, Taken())


async def test_an_agent_receives_only_the_feeds_of_its_projects(pair: Pair):
    taken = Taken()
    await pair.bob.consume("FEED", pair.bob.uid, taken)
    await pair.core.publish(subjects.feed("other", pair.core.uid), b"not for bob")

    await pair.core.publish(subjects.feed("main", pair.core.uid), b"for bob")

    assert (await taken.acked()).payload == b"for bob"


# Administration.


async def test_a_replay_begins_after_a_position_and_ends_at_the_end(pair: Pair):
    await inboxed(pair, *(str(n).encode() for n in range(1, 301)))

    replayed = [message async for message in pair.admin.replay("INBOX", after=2)]

    assert [message.sequence for message in replayed] == list(range(3, 301))
    assert replayed[0].payload == b"3"
    assert replayed[0].sender_uid == pair.alice.uid


async def test_a_replay_may_name_subjects(pair: Pair):
    await inboxed(pair, b"1")
    await pair.core.publish(subjects.inbox(pair.alice.uid, pair.core.uid), b"2")
    await inboxed(pair, b"3")

    found = pair.admin.replay("INBOX", subjects=(subjects.inbox(pair.bob.uid, "*"),))

    assert [message.payload async for message in found] == [b"1", b"3"]


async def test_a_follower_gets_what_is_stored_and_what_comes_and_hears_of_the_end_of_it(pair: Pair):
    subject = subjects.inbox(pair.bob.uid, pair.alice.uid)
    for n in range(1, 301):
        await pair.alice.publish(subject, b"%d" % n)
    seen: list[int] = []
    async with asyncio.timeout(TIMEOUT), aclosing(pair.admin.follow("INBOX", after=2)) as found:
        async for message in found:
            if message is not None:
                seen.append(message.sequence)
                assert message.sender_uid == pair.alice.uid
            elif len(seen) == 298:
                await pair.alice.publish(subject, b"301")
            elif len(seen) > 298:
                break
    assert seen == list(range(3, 302))


async def test_a_follower_of_an_empty_stream_hears_that_at_once(pair: Pair):
    async with asyncio.timeout(TIMEOUT), aclosing(pair.admin.follow("TASKS")) as found:
        assert await anext(found) is None


async def test_a_replay_of_an_empty_stream_ends(pair: Pair):
    assert [message async for message in pair.admin.replay("TASKS")] == []


async def test_only_the_last_status_of_an_agent_is_kept(pair: Pair):
    for payload in (b"1", b"2"):
        await pair.alice.publish(subjects.status(pair.alice.uid), payload)

    kept = await pair.admin.last("PRESENCE", "worker.*.status")

    assert kept is not None
    assert kept.payload == b"2"
    assert len([message async for message in pair.admin.replay("PRESENCE")]) == 1


async def test_a_deleted_record_is_not_found_and_may_be_deleted_again(pair: Pair):
    await inboxed(pair, b"x")

    await pair.admin.delete("INBOX", 1)
    await pair.admin.delete("INBOX", 1)

    with pytest.raises(NotFound):
        await pair.admin.get("INBOX", 1)
    assert await pair.admin.last("INBOX", "worker.*.inbox.*") is None
    assert await pair.admin.last_sequence("INBOX") == 1


async def test_a_purge_deletes_what_matches(pair: Pair):
    await inboxed(pair, b"1", b"2")
    await pair.core.publish(subjects.inbox(pair.alice.uid, pair.core.uid), b"3")

    assert await pair.admin.purge("INBOX", subjects.inbox(pair.bob.uid, "*")) == 2

    assert [message.payload async for message in pair.admin.replay("INBOX")] == [b"3"]


async def test_what_is_pending_of_an_unknown_consumer_is_not_found(pair: Pair):
    with pytest.raises(NotFound):
        await pair.admin.pending("INBOX", "nobody")
    await pair.admin.delete_consumer("INBOX", "nobody")


async def test_a_consumers_filters_can_be_changed(pair: Pair):
    taken = Taken()
    await pair.admin.ensure_consumer(agent_consumer("FEED", pair.bob.uid, ("main", "second")))
    bob = await pair.agent(pair.bob.uid, projects=("main", "second"))
    await bob.consume("FEED", pair.bob.uid, taken)

    await pair.core.publish(subjects.feed("second", pair.core.uid), b"x")

    assert (await taken.acked()).payload == b"x"


# Ending.


async def test_closing_twice_is_harmless_and_ends_everything(pair: Pair):
    heard, taken = Heard(), Taken()
    await pair.bob.subscribe("system.discovery.>", heard)
    await pair.bob.consume("INBOX", pair.bob.uid, taken)

    await finish(pair.bob.close(), pair.bob.close())
    await finish(pair.bob.close())

    assert not pair.bob.statistics().connected


@pytest.mark.requirement("identity-rotation-seamless")
async def test_a_renewed_bus_goes_on_with_what_it_had(pair: Pair):
    taken = Taken()
    await pair.bob.consume("INBOX", pair.bob.uid, taken)
    await inboxed(pair, b"before")
    delivery = await taken.next()

    await pair.bob.renew()
    await inboxed(pair, b"after")

    assert (await taken.acked()).payload == b"after"
    await delivery.ack(confirm=True)
    assert await pair.admin.pending("INBOX", pair.bob.uid) == (0, 0)


async def test_a_closed_bus_cannot_be_renewed(pair: Pair):
    await pair.bob.close()
    with pytest.raises(BusDisconnected):
        await pair.bob.renew()
