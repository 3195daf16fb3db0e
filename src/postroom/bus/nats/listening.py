"""Live subscriptions and request servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from postroom.bus.acceptance import accepts_published, accepts_request, error_answer
from postroom.bus.handing import BusTasks
from postroom.bus.nats.link import Link, live_message
from postroom.bus.port import Handler, Message, Responder, Subscription
from postroom.errors import PostroomError
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.subscriptions import WireSubscription

FINISH_TIMEOUT = 5.0
"""Seconds that running handlers have to end when a subscription is closed."""

CONCURRENT_REQUESTS = 32
"""Requests that one server handles at a time; more wait in the connection."""


class NatsSubscription(Subscription):
    """A `Subscription`: takes frames, runs `work` for them, ends in order.

    Args:
        work: handles one message; its exceptions are reported.
        concurrent: messages handled at a time; 1 keeps their order.
        on_closed: called at its end.
    """

    def __init__(
        self,
        link: Link,
        background: BusTasks,
        accepts: Callable[[Message], bool],
        work: Handler,
        *,
        concurrent: int,
        on_closed: Callable[[NatsSubscription], None],
    ) -> None:
        self._link, self._background = link, background
        self._accepts, self._work, self._on_closed = accepts, work, on_closed
        self._slots = asyncio.Semaphore(concurrent)
        self._running: set[asyncio.Task[None]] = set()
        self._subscription: WireSubscription | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self, subject: str, queue: str) -> None:
        """Begin."""
        self._subscription = await self._link.listen(subject, self._arrived, queue=queue)

    async def _arrived(self, frame: Frame) -> None:
        message = live_message(frame)
        if self._closing is not None or not self._accepts(message):
            self._link.counters.ignored += 1
            return
        await self._slots.acquire()
        task = self._background.spawn(self._run(message), f"handle {frame.subject}")
        self._running.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()

    async def _run(self, message: Message) -> None:
        self._link.counters.received += 1
        try:
            await self._work(message)
        except Exception:
            self._link.counters.handler_errors += 1
            raise  # BusTasks reports it

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        if (
            asyncio.current_task() not in self._running
        ):  # a handler that closes its own subscription must end first
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        if running := set(self._running):
            await asyncio.wait(running, timeout=FINISH_TIMEOUT)
            await self._background.stop(*running, timeout=1)
        self._on_closed(self)


def serving(
    link: Link, own: str, responder: Responder
) -> tuple[Callable[[Message], bool], Handler]:
    """The acceptance check and the handler of a request server."""

    def accepts(request: Message) -> bool:
        return accepts_request(own, request.subject, request.reply_to)

    async def work(request: Message) -> None:
        try:
            answer = await responder(request)
        except PostroomError as error:
            answer = error_answer(error)
        except Exception:
            # The requester learns that it failed, and nothing about how.
            with suppress(PostroomError):
                await link.send(request.reply_to, error_answer(PostroomError("internal error")))
            raise
        await link.send(request.reply_to, answer)

    return accepts, work


def accepts_live(message: Message) -> bool:
    """Whether a plain subscription accepts the message."""
    return accepts_published(message.subject, message.reply_to)
