"""Serving A2A over core NATS: frames of one subject in, answers and streams out (docs/binding.md, Streams and Limits).

Every call is one supervised task, and its caller gets an answer whatever happens (an error, a deadline, the end of the
server). Only a message without a usable reply subject is ignored, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypedDict

from postroom_a2a.binding.frames import (
    STREAM,
    BadRequest,
    Flow,
    Request,
    deadline_of,
    decode_request,
    encode_error,
)
from postroom_a2a.binding.subjects import may_publish_to, queue_group
from postroom_a2a.errors import BusDisconnected, InvalidInput
from postroom_a2a.live.served import Admission, Bounds, ServedCall, ServerContext, ending
from postroom_a2a.nats.mailbox import Mailbox, NewInbox
from postroom_a2a.nats.natspy import to_serve_on
from postroom_a2a.nats.port import (
    FAULTS,
    Connection,
    Frame,
    Subscription,
    settle,
)
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError

CONCURRENCY = 64
"""Running calls at a time by default."""

SPARE = 16
"""Further calls that overtake, because they neither begin work nor stream (get, cancel, ...)."""

WAITING = 256
"""Calls that wait for a slot at a time."""

MAX_WAIT = 1.0
"""Seconds that a call waits for its slot."""

REFUSALS = 4096
"""Refusals on their way at a time; the server ignores a flood beyond that."""

DRAIN = 10.0
"""Seconds that running calls get when the server ends."""

STALL = 60.0
"""Seconds that a client may leave the full window of a stream unacknowledged."""

_GRACE = 2.0
"""Seconds that a cancelled call gets to clean up."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """Counts of one server since its start.

    Attributes:
        answered: calls that were answered, also with an error.
        refused: calls that were answered with SERVER_BUSY.
        ignored: messages without a usable reply subject.
        lost: answers that the connection did not take.
        waiting: calls that wait for a slot now.
        stalled: of `running`, streams whose reader acknowledges nothing.
    """

    running: int
    answered: int
    refused: int
    ignored: int
    lost: int
    waiting: int
    stalled: int


class CoreOptions(TypedDict, total=False):
    """The options of `CoreServer`, for classes that build on it."""

    queue: str | None
    concurrency: int
    spare: int
    share: int
    waiting: int
    max_wait: float
    admit: Callable[[Frame], str | None]
    drain: float
    stall: float
    inbox: NewInbox | None


class CoreServer:
    """The server of one agent's subject: `async with CoreServer(...)` takes calls until the block ends.

    Args:
        connection: an open one of ours; in place of one of nats-py the server opens one of ours (`to_serve_on`).
        subject: to serve; it may have wildcards.
        queue: queue group, in which one of several replicas gets each call; None for the subject's own, "" for none.
        concurrency: running calls at a time, stalled streams left out.
        spare: further calls that neither begin work nor stream.
        share: one caller's part of `concurrency`; 0 for three quarters.
        waiting: calls that wait for a slot; one more gets SERVER_BUSY.
        max_wait: seconds that a call waits before it gets SERVER_BUSY.
        admit: gives the caller of a frame ("" if unknown), or None to ignore it; default: every caller is unknown.
        drain: seconds that running calls get when the server ends, before it cancels them.
        stall: seconds that a client may leave the full window of a stream unacknowledged.
        inbox: prefix of the subjects on which a caller acknowledges streams, called with the caller, and with "*" for
            the server's subscription; None for an inbox of the connection.
        within: a mailbox whose subscription covers that (`Mailbox`).
    """

    def __init__(
        self,
        connection: Connection,
        subject: str,
        operations: Operations,
        *,
        queue: str | None = None,
        concurrency: int = CONCURRENCY,
        spare: int = SPARE,
        share: int = 0,
        waiting: int = WAITING,
        max_wait: float = MAX_WAIT,
        admit: Callable[[Frame], str | None] = lambda _: "",
        drain: float = DRAIN,
        stall: float = STALL,
        inbox: NewInbox | None = None,
        within: Mailbox | None = None,
    ) -> None:
        self.subject = subject
        self.queue = queue_group(subject) if queue is None else queue
        self._connection, self._is_own = to_serve_on(connection)
        self._operations = operations
        self._admission = Admission(
            Bounds(concurrency, spare, share, waiting, max_wait),
            light=self._light,
            begin=self._begin_run,
            refuse=self._refuse,
        )
        self._admit = admit
        self._drain = drain
        self._mailbox = Mailbox(
            self._connection,
            prefix=inbox("*") if inbox else "",
            within=None if self._is_own else within,
        )
        self._context = ServerContext(
            subject, operations, self._mailbox, stall, inbox, self._on_stall
        )
        self._loop = asyncio.get_running_loop()
        self._subscription: Subscription | None = None
        self._running: dict[asyncio.Task[None], ServedCall] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._refused = 0
        self._ignored = 0

    async def __aenter__(self) -> Self:
        """Take calls; returns when the NATS server has the subscription.

        Raises:
            BusDisconnected: the NATS server cannot be reached.
            Forbidden: this identity may not subscribe there.
            InvalidInput: this server takes calls already, or its own connection was closed.
        """
        if self._subscription is not None:
            raise InvalidInput(f"the server of {self.subject} takes calls already")
        if self._is_own:
            await self._connection.open()
        try:
            await self._begin()
        except BaseException:
            await self.drain()
            raise
        return self

    async def _begin(self) -> None:
        try:
            await self._mailbox.open()
            self._subscription = await self._connection.subscribe_now(
                self.subject, self._arrived, self.queue
            )
            await settle(self._connection, self._subscription)
        except FAULTS as error:
            raise BusDisconnected(f"{self.subject} cannot be subscribed: {error}") from error

    async def __aexit__(self, *_: object) -> None:
        """As `drain`."""
        await self.drain()

    def statistics(self) -> ServerStatistics:
        """The counts."""
        context, admission = self._context, self._admission
        return ServerStatistics(
            len(self._running),
            context.answered,
            self._refused,
            self._ignored,
            context.lost,
            admission.waiting,
            admission.stalled,
        )

    def _arrived(self, frame: Frame) -> None:
        caller = self._admitted(frame)
        if caller is None:
            self._ignore(frame.subject)
            return
        try:
            request = decode_request(frame.data)
        except BadRequest as bad:
            call = Call(bad.id, "", binary=bad.binary)
            error = encode_error(bad.id, bad.error, binary=bad.binary)
            self._send(self._context.answer(call, frame.reply, error))
            return
        call = request.call(caller, _deadline(request, frame))
        flow = _flow(frame) if self._operations.streams(call.method) else None
        self._admission.offer(ServedCall(self._context, call, frame.reply, flow))

    def _light(self, run: ServedCall) -> bool:
        return run.flow is None and not self._operations.begins(run.call.method)

    def _begin_run(self, run: ServedCall) -> None:
        run.task = task = self._loop.create_task(run.perform())
        self._running[task] = run
        task.add_done_callback(self._done)

    def _on_stall(self, run: ServedCall, stalled: bool) -> None:
        (self._admission.stall if stalled else self._admission.resume)(run)

    def _refuse(self, run: ServedCall) -> None:
        self._refused += 1
        self._send(run.conclude(b"", _busy()))

    def _send(self, answer: Coroutine[Any, Any, None]) -> None:
        """Send an answer that needs no call."""
        if len(self._sending) >= REFUSALS:
            answer.close()
            self._ignore(self.subject)
            return
        task = asyncio.create_task(answer)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _admitted(self, frame: Frame) -> str | None:
        """The sender of a frame, "" if unknown; None to ignore the frame."""
        if not frame.reply or frame.reply == frame.subject or not may_publish_to(frame.reply):
            return None
        try:
            return self._admit(frame)
        except Exception:  # noqa: BLE001 (a message must not end the server)
            _log.exception("%s: the admission of a message failed", self.subject)
            return None

    def _done(self, task: asyncio.Task[None]) -> None:
        run = self._running.pop(task)
        self._admission.free(run)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %s broke", self.subject, run.call.method, exc_info=error)

    def _ignore(self, subject: str) -> None:
        self._ignored += 1
        if self._ignored.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood must not fill the log
            _log.warning(
                "%s: ignored a message on %s without a usable reply subject or sender (%d so far)",
                self.subject,
                subject,
                self._ignored,
            )

    async def drain(self) -> None:
        """Take no more calls, let running ones finish, cancel the rest with an error as answer, and flush.

        The connection stays open, unless the server has opened it.
        """
        try:
            await self._end()
        finally:
            if self._is_own:
                await self._connection.close()

    async def _end(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._leave(subscription)
        await self._finish(self._drain)
        for run in self._admission.clear():
            self._send(run.conclude(b"", ending()))
        for run in self._running.values():
            run.stop(ending())
        await self._finish(_GRACE)
        for run in tuple(self._running.values()):
            _log.error("%s: %s goes on though cancelled", self.subject, run.call.method)
            await run.conclude(b"", ending())
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=_GRACE)
        await self._mailbox.close()
        if self._connection.is_connected:
            with suppress(*FAULTS):
                await settle(self._connection)

    async def _leave(self, subscription: Subscription) -> None:
        """Unsubscribe, but take the calls that the NATS server has sent already."""
        try:
            if self._connection.is_connected:
                async with asyncio.timeout(self._drain):
                    await subscription.drain()
            elif not self._connection.is_closed:
                await subscription.unsubscribe()
        except (*FAULTS, TimeoutError) as error:
            _log.warning("%s: the subscription did not end well: %s", self.subject, error)

    async def _finish(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:  # waiting calls begin meanwhile
                    await asyncio.wait(tuple(self._running))


def _deadline(request: Request, frame: Frame) -> float:
    return request.deadline or (deadline_of(frame.headers) if frame.headers else 0.0)


def _flow(frame: Frame) -> Flow:
    return Flow.read(frame.headers[STREAM]) if frame.headers and STREAM in frame.headers else Flow()


def _busy() -> RpcError:
    return RpcError(Code.SERVER_BUSY, "the agent has as many calls as it takes: try again later")
