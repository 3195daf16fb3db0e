"""What becomes of deliveries whose message the agent has confirmed, when the bus fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.port import Message
from postroom.errors import RequestTimeout, StreamFull
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import State
from postroom.sidecar import inbox as inboxes
from postroom.sidecar import outgoing as module
from postroom.sidecar.adapters import Incoming, Sender
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.journal import Journal

pytestmark = pytest.mark.anyio

OWN, SENDER, ID = "a" * 32, "b" * 32, "c" * 32


class Delivered:
    """A delivery whose acknowledgement is confirmed, or not, when the test says so."""

    attempt = 1

    def __init__(self) -> None:
        envelope = Envelope(ID, OWN, {"parts": [{"text": "hello"}]}, 0.0)
        subject = subjects.inbox(OWN, SENDER)
        self.message = Message(ID, SENDER, subject, envelope.encode(), sequence=7)
        self.asked = asyncio.Event()
        self.word: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ack(self) -> None:
        self.asked.set()
        await self.word


def delivered() -> Any:
    """See `Delivered`."""
    return Delivered()


class Receipts:
    """Stores receipts; the first ones are refused."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.stored: list[State] = []
        self.one = asyncio.Event()

    async def report(self, _message: str, _sender: str, state: State, _reason: str = "") -> None:
        if self.refusals:
            self.refusals -= 1
            raise StreamFull("the stream of receipts is full")
        self.stored.append(state)
        self.one.set()


class Names:
    """A directory."""

    async def describe(self, uid: str) -> Sender:
        return Sender(uid)


class Agent:
    """A program that has read each message at once."""

    stopped = False
    queues = False

    async def running(self) -> Agent:
        return self

    async def hand_over(self, _incoming: Incoming) -> bool:
        return True

    def confirmed(self) -> None:
        pass


@asynccontextmanager
async def living(agent: Any, names: Any, receipts: Any, journal: Journal) -> AsyncGenerator[Inbox]:
    never: Any = None
    inbox = Inbox(
        agent,
        names,
        receipts,
        journal,
        own=OWN,
        nick="echo",
        accept=never,
        confirm_on_read=False,
    )
    life = asyncio.create_task(inbox.run())
    await asyncio.sleep(0)
    try:
        yield inbox
    finally:
        life.cancel()
        await asyncio.wait({life})


def handing(folder: Path, receipts: Receipts) -> AbstractAsyncContextManager[Inbox]:
    """An inbox that hands messages to `Agent`."""
    return living(Agent(), Names(), receipts, Journal(folder / "journal"))


def running(folder: Path, receipts: Receipts) -> AbstractAsyncContextManager[Inbox]:
    """An inbox whose agent has confirmed the message before."""
    journal = Journal(folder / "journal")
    journal.add(ID, SENDER)
    return living(None, None, receipts, journal)


@pytest.mark.requirement("sidecar-message-handed")
async def test_what_comes_again_while_its_acknowledgement_is_under_way_is_acknowledged_too(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, Receipts()) as inbox, asyncio.timeout(10):
        first, second = delivered(), delivered()
        await inbox.take(first)
        await first.asked.wait()

        await inbox.take(second)
        first.word.set_exception(RequestTimeout("the server was started again"))
        second.word.set_result(None)

        await second.asked.wait()
        await inbox.confirmations.done(5.0)


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_receipt_that_is_refused_is_tried_again_and_the_message_acknowledged_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "redelivery_delay", lambda _attempt: 0.0)
    receipts = Receipts(refusals=3)
    async with running(tmp_path, receipts) as inbox, asyncio.timeout(10):
        delivery = delivered()
        delivery.word.set_result(None)

        await inbox.take(delivery)

        await delivery.asked.wait()
        assert receipts.stored == [State.SEEN]


@pytest.mark.requirement("sidecar-message-handed")
@pytest.mark.parametrize("answered", [False, True])
async def test_a_message_that_is_confirmed_at_once_has_one_receipt_or_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    monkeypatch.setattr(inboxes, "SOON", 60.0)
    receipts = Receipts()
    async with handing(tmp_path, receipts) as inbox, asyncio.timeout(10):
        delivery = delivered()
        delivery.word.set_result(None)
        await inbox.take(delivery)

        inbox.confirm(ID, answered=answered)

        await delivery.asked.wait()
        assert receipts.stored == ([] if answered else [State.SEEN])


@pytest.mark.requirement("sidecar-message-handed")
async def test_a_message_that_is_not_confirmed_soon_is_reported_as_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inboxes, "SOON", 0.0)
    receipts = Receipts()
    async with handing(tmp_path, receipts) as inbox, asyncio.timeout(10):
        delivery = delivered()
        delivery.word.set_result(None)
        await inbox.take(delivery)
        await receipts.one.wait()
        assert receipts.stored == [State.DELIVERED]

        inbox.confirm(ID)

        await delivery.asked.wait()
        assert receipts.stored == [State.DELIVERED, State.SEEN]
