from __future__ import annotations

from collections.abc import Mapping

import pytest

from postroom.bus.port import Message, Stored
from postroom.errors import (
    BusDisconnected,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
    StreamFull,
)
from postroom.protocol.envelope import Envelope
from postroom.sidecar.bus import alert_raiser
from postroom.sidecar.keys import Derivation, own_key, random_key
from postroom.sidecar.outgoing import Outgoing, OutgoingMessage

pytestmark = pytest.mark.anyio

OWN = "a" * 32
BOB = "b" * 32


class Log:
    """A bus of which only the log is left: it stores an id once and fails on demand."""

    def __init__(self, *failures: PostroomError | None) -> None:
        self.failures = list(failures)
        self.records: dict[str, tuple[str, bytes]] = {}
        self.sent: list[str] = []

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        confirm: bool = True,
    ) -> Stored | None:
        self.sent.append(id)
        failure = self.failures.pop(0) if self.failures else None
        duplicate = id in self.records
        if not isinstance(failure, BusDisconnected):
            self.records.setdefault(id, (subject, payload))
        if failure is not None:
            raise failure
        return Stored("INBOX", len(self.records), duplicate)

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        raise AssertionError("nothing is asked")

    def alerts(self) -> int:
        return sum(subject.startswith("system.alerts.") for subject, _ in self.records.values())


def outgoing(log: Log, **changes: object) -> Outgoing:
    settings = {"own": OWN, "secret": b"s" * 16, "projects": ("main",)} | changes
    return Outgoing(log, alert_raiser(log, OWN), **settings)  # ty: ignore[invalid-argument-type]


async def test_the_same_key_toward_the_same_recipient_is_the_same_message():
    log = Log()
    sender = outgoing(log)
    first, again_first = await sender.message(OutgoingMessage(BOB, "x"), own_key("send", "k"))
    second, again_second = await sender.message(OutgoingMessage(BOB, "x"), own_key("send", "k"))

    assert (first, again_first, again_second) == (second, False, True)
    assert len(log.records) == 1


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("failure", [RequestTimeout("?"), BusDisconnected("?")])
async def test_a_send_whose_answer_is_lost_is_sent_again_under_the_same_id(failure: PostroomError):
    log = Log(failure)
    sent, _ = await outgoing(log).message(OutgoingMessage(BOB, "x"), random_key())

    assert log.sent == [sent, sent]
    assert log.alerts() == 0


async def test_it_is_given_up_at_the_deadline_with_the_reason():
    log = Log(*[BusDisconnected("?")] * 100)
    with pytest.raises(BusDisconnected):
        await outgoing(log, deadline=0.3).message(OutgoingMessage(BOB, "x"), random_key())


async def test_a_refusal_is_final():
    log = Log(StreamFull("full"))
    with pytest.raises(StreamFull):
        await outgoing(log).message(OutgoingMessage(BOB, "x"), random_key())
    assert len(log.sent) == 1


@pytest.mark.requirement("bus-ack-means-disk")
async def test_an_id_that_is_taken_at_its_first_use_is_no_acceptance_but_an_alert_and_a_new_id():
    log = Log()
    key = random_key()
    taken, _ = await outgoing(log).message(OutgoingMessage(BOB, "theirs"), key)
    sent, _ = await outgoing(log).message(OutgoingMessage(BOB, "ours"), key)

    assert sent != taken
    assert log.alerts() == 1
    texts = [
        Envelope.decode(p).message["parts"][0]["text"]
        for s, p in log.records.values()
        if "inbox" in s
    ]
    assert texts == ["theirs", "ours"]


async def test_a_redelivered_message_that_is_handled_again_sends_the_same_message():
    log = Log()
    first = Derivation("alice/m1", redelivered=False)
    again = Derivation("alice/m1", redelivered=True)
    ids = [
        await outgoing(log).message(OutgoingMessage(BOB, "x"), handling.key("send", BOB, "x"))
        for handling in (first, again)
    ]

    assert ids[0][0] == ids[1][0]
    assert log.alerts() == 0


async def test_what_was_sent_before_under_a_derived_key_is_accepted_whatever_is_known_of_it():
    log = Log()
    for _ in range(2):
        handling = Derivation("alice/m1", redelivered=False)
        await outgoing(log).message(OutgoingMessage(BOB, "x"), handling.key("send", BOB, "x"))

    assert len(log.records) == 1
    assert log.alerts() == 0


def test_two_equal_sends_while_one_message_is_handled_are_two():
    handling = Derivation("alice/m1", redelivered=False)

    assert handling.key("send", BOB, "x") != handling.key("send", BOB, "x")


def test_what_a_second_handling_says_differently_is_another_message_but_a_reply_is_one():
    first, again = Derivation("a/m1", False), Derivation("a/m1", True)

    assert first.key("post", "#main", "x").text != again.key("post", "#main", "y").text
    assert first.key("reply", BOB, "x").text == again.key("reply", BOB, "y").text


async def test_too_large_is_said_before_anything_is_sent():
    log = Log()
    with pytest.raises(MessageTooLarge):
        await outgoing(log).message(OutgoingMessage(BOB, "x" * 600_000), random_key())
    assert not log.sent


async def test_a_post_goes_to_the_own_project_unless_another_is_named():
    log = Log()
    await outgoing(log).post("", "x", random_key())
    await outgoing(log).post("other", "x", random_key())

    subjects = [subject for subject, _ in log.records.values()]
    assert subjects == [f"project.main.feed.{OWN}", f"project.other.feed.{OWN}"]
    with pytest.raises(InvalidInput):
        await outgoing(log, projects=()).post("", "x", random_key())
    with pytest.raises(InvalidInput):
        await outgoing(log).post("*", "x", random_key())


async def test_expiry_is_counted_from_the_sending():
    log = Log()
    await outgoing(log, now=lambda: 1000.0).message(
        OutgoingMessage(BOB, "x", expires_in=5), random_key()
    )

    ((_, payload),) = log.records.values()
    assert Envelope.decode(payload).expires_at == 1005.0
