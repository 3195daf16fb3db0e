"""One call in a server, answered whatever happens to it, and which calls run, wait, or find the server busy.

Rules of the second: docs/binding.md, Limits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from postroom_a2a.binding.flow import FrameWriter, too_large
from postroom_a2a.binding.frames import (
    Flow,
    encode_complete,
    encode_error,
    encode_result,
    encode_stream_frame,
)
from postroom_a2a.errors import MessageTooLarge, PostroomError
from postroom_a2a.nats.deadlines import EXCEEDED
from postroom_a2a.nats.mailbox import Mailbox, NewInbox
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerContext:
    """What the calls of one server share.

    Attributes:
        mailbox: publishes answers and receives acknowledgements.
        stall: seconds that a client may leave the full window of a stream unacknowledged.
        inbox: prefix of the subjects on which a caller acknowledges, None for the mailbox's own.
        on_stall: called when a stream stalls (True) or goes on (False).
        answered: calls that were answered, also with an error.
        lost: answers that the connection did not take.
    """

    subject: str
    operations: Operations
    mailbox: Mailbox
    stall: float
    inbox: NewInbox | None
    on_stall: Callable[[ServedCall, bool], None]
    answered: int = 0
    lost: int = 0

    def answer_at_once(self, reply: str, payload: bytes) -> bool:
        """Publish the answer of a call that answers once, unless that has to wait or fails."""
        try:
            posted = self.mailbox.post(reply, payload)
        except PostroomError:
            return False
        self.answered += posted
        return posted

    async def answer(self, call: Call, reply: str, payload: bytes) -> None:
        """As `answer_at_once`, whatever it takes."""
        try:
            try:
                await self.mailbox.send(reply, payload)
            except MessageTooLarge as error:
                payload = encode_error(call.id, too_large(error), binary=call.binary)
                await self.mailbox.send(reply, payload)
        except PostroomError as error:
            self._lose(error)
        else:
            self.answered += 1

    async def end_stream(
        self, call: Call, reply: str, error: RpcError | None, writer: FrameWriter | None = None
    ) -> None:
        """Publish the last frames of a stream: an error, if any, and the end."""
        frames = [encode_complete(call.id, binary=call.binary)]
        if error is not None:
            response = encode_error(call.id, error, binary=call.binary)
            frames.insert(0, encode_stream_frame(response, binary=call.binary))
        try:
            for frame in frames:
                if writer is None:
                    await self.mailbox.send(reply, frame)
                else:
                    await writer.send_last(frame)
        except PostroomError as failure:
            self._lose(failure)
        else:
            self.answered += 1

    def _lose(self, error: PostroomError) -> None:
        self.lost += 1
        _log.warning("%s: an answer was lost: %s", self.subject, error)


class ServedCall:
    """A call that runs.

    Args:
        reply: the caller's subject.
        flow: the caller's flow control if the method streams; None if it answers once.

    Attributes:
        caller: the proven caller, else the prefix of `reply`.
        why: the error that `stop` set.
    """

    def __init__(self, server: ServerContext, call: Call, reply: str, flow: Flow | None) -> None:
        self.call = call
        self.reply = reply
        self.flow = flow
        self.caller = call.caller or reply.rpartition(".")[0]
        self.why: RpcError | None = None
        self.task: asyncio.Task[None] | None = None
        self._server = server
        self._writer: FrameWriter | None = None
        self._begun = False
        self._abandoned = False
        self._over = False

    def stop(self, why: RpcError) -> None:
        """Cancel the call, and answer it with `why`."""
        if self.why is None and not self._abandoned and not self._over:
            self.why = why
            # A task that is cancelled before its first step would never reach its answer.
            if self._begun and self.task is not None:
                self.task.cancel()

    def stop_stalled(self) -> None:
        """As `stop`, for one of too many stalled streams."""
        text = "the client acknowledged nothing, and too many streams are stalled"
        self.stop(RpcError(Code.INTERNAL_ERROR, text))

    def _abandon(self) -> None:
        """Cancel the call: nobody listens any more."""
        if self.why is None and not self._over and self.task is not None:
            self._abandoned = True
            self.task.cancel()

    async def perform(self) -> None:
        """Perform the call and answer it."""
        self._begun = True
        result, error, alarm = b"", None, None
        try:
            if self.call.deadline:
                alarm = self._set_alarm(self.call.deadline - time.time())
            if self.why is not None:
                raise self.why
            if self.flow is None:
                result = await self._server.operations.answer(self.call)
                if self._answer_at_once(result):
                    return
            else:
                await self._stream(self.flow)
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 (every call gets an answer)
            error = self._error(failure)
        finally:
            if alarm is not None:
                alarm.cancel()
        await self.conclude(result, error)
        if error is not None and self.task is not None and self.task.cancelling():
            if self.why is None and not self._abandoned:
                raise asyncio.CancelledError  # it came from outside: pass it on
            self.task.uncancel()

    def _answer_at_once(self, result: bytes) -> bool:
        """Answer the call without a wait, as nearly every call can be; False if `conclude` has to do it."""
        call, task = self.call, self.task
        if self._over or self._abandoned or (task is not None and task.cancelling()):
            return False
        payload = encode_result(call.id, result, binary=call.binary)
        self._over = self._server.answer_at_once(self.reply, payload)
        return self._over

    async def conclude(self, result: bytes, error: RpcError | None) -> None:
        """Answer the call, unless that has happened."""
        if self._over:
            return
        self._over = True
        if self._writer is not None:
            self._writer.close()
        if self._abandoned:
            return
        call = self.call
        if self.flow is not None:
            await self._server.end_stream(call, self.reply, error, self._writer)
        elif error is not None:
            payload = encode_error(call.id, error, binary=call.binary)
            await self._server.answer(call, self.reply, payload)
        else:
            payload = encode_result(call.id, result, binary=call.binary)
            await self._server.answer(call, self.reply, payload)

    async def _stream(self, flow: Flow) -> None:
        server, call = self._server, self.call
        self._writer = writer = FrameWriter(
            server.mailbox,
            self.reply,
            flow,
            stall=server.stall,
            on_gone=self._abandon,
            on_stall=self._stall,
            prefix=server.inbox(call.caller) if server.inbox else "",
        )
        await writer.open()
        async with aclosing(server.operations.stream(call)) as results:
            async for result in results:
                response = encode_result(call.id, result, binary=call.binary)
                await writer.send(encode_stream_frame(response, binary=call.binary))
                if self.task is not None and self.task.cancelling():
                    raise asyncio.CancelledError  # nats-py swallowed it while it waited for its buffer

    def _stall(self, stalled: bool) -> None:
        self._server.on_stall(self, stalled)

    def _set_alarm(self, left: float) -> asyncio.TimerHandle | None:
        if left > 0:
            loop = asyncio.get_running_loop()
            return loop.call_later(left, self.stop, _late("while the call ran"))
        self.why = self.why or _late(f"{-left:.1f} s before the call came in")
        return None

    def _error(self, failure: BaseException) -> RpcError:
        """The error that answers the call; the text of an internal error stays in the log."""
        if isinstance(failure, asyncio.CancelledError) and self.why is not None:
            return self.why
        if isinstance(failure, asyncio.CancelledError) and self.task and self.task.cancelling():
            return ending()
        if isinstance(failure, RpcError):
            return failure
        if isinstance(failure, PostroomError):
            return RpcError.of(failure)
        _log.error("%s: %s failed", self._server.subject, self.call.method, exc_info=failure)
        return RpcError(Code.INTERNAL_ERROR, "Internal error")


def ending() -> RpcError:
    """The answer to a call that the end of the server cut off."""
    return RpcError(Code.INTERNAL_ERROR, "the server ended before the call did")


def _late(when: str) -> RpcError:
    return RpcError(Code.INTERNAL_ERROR, f"{EXCEEDED}: it passed {when}")


# ── admission ─────────────────────────────────────────────────────────────────────────────────────


MAX_STALLED = 256
"""Most stalled streams at a time; they cost no more than memory."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a server.

    Attributes:
        share: one caller's part of the running calls; 0 for three quarters.
        waiting: calls that wait for a slot at a time; one caller may have three quarters of them.
        max_wait: seconds that a call waits for its slot; with 0 no call waits.
    """

    concurrency: int
    spare: int
    share: int
    waiting: int
    max_wait: float


class Admission:
    """The slots of a server. Callers with waiting calls take turns, however many calls each has.

    Args:
        light: whether a call overtakes, because it neither begins work nor streams.
        refuse: answers that the server is busy.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        light: Callable[[ServedCall], bool],
        begin: Callable[[ServedCall], None],
        refuse: Callable[[ServedCall], None],
    ) -> None:
        self._bounds = bounds
        self._share = bounds.share or bounds.concurrency - bounds.concurrency // 4
        self._light, self._begin, self._refuse = light, begin, refuse
        self._running = 0
        self._held: dict[str, int] = {}  # slots by caller
        # By caller; the next caller and its next call are first.
        self._queues: dict[str, dict[ServedCall, asyncio.TimerHandle]] = {}
        self._stalled: dict[ServedCall, None] = {}
        self.waiting = 0

    @property
    def stalled(self) -> int:
        """Number of stalled streams."""
        return len(self._stalled)

    def offer(self, run: ServedCall) -> None:
        """Begin, queue or refuse a call."""
        bounds = self._bounds
        if self._running < bounds.concurrency:
            room = self._held.get(run.caller, 0) < self._share or self._light(run)
        else:
            room = self._running < bounds.concurrency + bounds.spare and self._light(run)
        if room:
            self._take(run.caller)
            self._begin(run)
        else:
            self._queue(run)

    def free(self, run: ServedCall) -> None:
        """Free the slot of a call that is over or stalled."""
        caller = run.caller
        self._running -= 1
        if self._held[caller] > 1:
            self._held[caller] -= 1
        else:
            del self._held[caller]
        if self.waiting:
            self._begin_waiting()

    def stall(self, run: ServedCall) -> None:
        """Free the slot of a stalled stream; of too many, end the oldest of the caller with most of them."""
        self._stalled[run] = None
        self.free(run)
        if len(self._stalled) > MAX_STALLED:
            callers = Counter(each.caller for each in self._stalled)
            greedy = callers.most_common(1)[0][0]
            longest = next(each for each in self._stalled if each.caller == greedy)
            del self._stalled[longest]
            longest.stop_stalled()

    def resume(self, run: ServedCall) -> None:
        """Count a stalled stream that goes on or ends, even beyond the limit."""
        self._stalled.pop(run, None)
        self._take(run.caller)

    def clear(self) -> list[ServedCall]:
        """Remove and return the waiting calls."""
        runs = [run for mine in self._queues.values() for run in mine]
        for run in runs:
            self._leave(run)
        return runs

    def _take(self, caller: str) -> None:
        self._running += 1
        self._held[caller] = self._held.get(caller, 0) + 1

    def _queue(self, run: ServedCall) -> None:
        bounds = self._bounds
        mine = self._queues.get(run.caller, {})
        most = bounds.waiting - bounds.waiting // 4
        if bounds.max_wait <= 0 or self.waiting >= bounds.waiting or len(mine) >= most:
            self._refuse(run)
            return
        loop = asyncio.get_running_loop()
        mine[run] = loop.call_later(bounds.max_wait, self._give_up, run)
        self._queues[run.caller] = mine
        self.waiting += 1

    def _give_up(self, run: ServedCall) -> None:
        self._leave(run)
        self._refuse(run)

    def _leave(self, run: ServedCall) -> None:
        mine = self._queues.pop(run.caller)
        mine.pop(run).cancel()
        self.waiting -= 1
        if mine:
            self._queues[run.caller] = mine  # its next turn is behind everybody else's

    def _begin_waiting(self) -> None:
        """Begin waiting calls while slots are free."""
        while self.waiting and self._running < self._bounds.concurrency:
            callers = (c for c in self._queues if self._held.get(c, 0) < self._share)
            caller = next(callers, None)
            if caller is None:
                return
            run = next(iter(self._queues[caller]))
            self._leave(run)
            self._take(caller)
            self._begin(run)
