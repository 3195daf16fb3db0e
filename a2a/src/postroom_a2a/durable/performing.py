"""Performs a job: claim, work, stored answer, acknowledged request, in this order (docs/binding.md).

The options, defaults and counts of a durable server are here, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from postroom_a2a.binding.flow import too_large
from postroom_a2a.durable.answer_writer import END, AnswerWriter, StreamAnswer, Undeliverable
from postroom_a2a.durable.jobs import Claim, Claims, Job, RequestDelivery, lost_error
from postroom_a2a.durable.streams import Streams, dead_letter_subject
from postroom_a2a.errors import (
    BusDisconnected,
    MessageTooLarge,
    NoResponders,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom_a2a.nats.acks import ACK, give_back, give_up
from postroom_a2a.nats.jetstream import MSG_ID, JetStream
from postroom_a2a.nats.port import Frame
from postroom_a2a.operations import Call, Operations
from postroom_a2a.retry import Backoff
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.text import one_line

Lost = Callable[[Call], Awaitable[bytes | RpcError]]
"""Gives the answer to a call that a process began and did not end."""

AtWork = Callable[[Call], Callable[[], Awaitable[None]] | None]
"""Gives the wait for work that goes on after a call's answer; None if no work does."""

REASON = "A2A-Reason"
"""Header of a dead letter: the reason why the server gave the request up."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Requests by their end."""

    answered: int = 0
    rejected: int = 0
    lost: int = 0
    dead: int = 0


@dataclass(slots=True)
class Performer:
    """Performs the jobs of one server.

    Attributes:
        answerable: whether a stream stores the subject.
        slots: limits jobs that begin work.
        quick: limits jobs that neither begin work nor stream.
        watching: limits streams that begin no work.
        max_deliver: deliveries after which the performer gives a request up.
        retry: seconds until a request that another process holds comes again.
        released: called with each job that frees its slot.
        repair: makes missing streams for answers and claims, if it may.
        drained: whether to wait for confirmed acknowledgements, because the server ends.
    """

    js: JetStream
    operations: Operations
    claims: Claims
    answers: AnswerWriter
    lost: Lost
    at_work: AtWork
    answerable: Callable[[str], Awaitable[bool]]
    slots: asyncio.Semaphore
    quick: asyncio.Semaphore
    watching: asyncio.Semaphore
    max_deliver: int
    retry: float
    released: Callable[[Job], None]
    repair: Callable[[], Awaitable[None]]
    drained: bool = False
    counts: Counts = field(default_factory=Counts)

    async def perform(self, job: Job) -> None:
        """Perform a job to its end, whichever that is."""
        try:
            if not await self.answerable(job.response_subject):
                raise Undeliverable(f"no stream stores {job.response_subject}")
            await self._perform(job)
        except Undeliverable as error:
            await self._give_up(job, str(error))
        except BusDisconnected as error:
            _log.warning("request %s is left to other servers: %s", job.place.key, error)
        finally:
            self._finish(job)

    async def _perform(self, job: Job) -> None:
        if job.error is not None:
            await self._answer(job, job.refusal(job.error))
            await self._acknowledge(job)
        elif job.late:
            await self._expire(job)
        elif job.begins:
            async with self.slots:
                claim = await self._claim(job)
                if claim is Claim.OURS:
                    await self._begin(job)
                    return
            await self._not_ours(job, claim)
        elif job.delivery.attempt > self.max_deliver:
            raise Undeliverable(f"{job.delivery.attempt - 1} deliveries led to no answer")
        elif not job.streams:
            async with self.quick:
                await self._begin(job)
        elif self.watching.locked():
            busy = RpcError(Code.SERVER_BUSY, "the agent has as many streams as it takes")
            await self._answer(job, job.refusal(busy))
            await self._acknowledge(job)
        else:
            async with self.watching:
                self._finish(job)  # it counts among the watching streams, not the work
                await self._begin(job)

    # ── claims ───────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, job: Job) -> Claim:
        """Claim the job, however long JetStream cannot be reached."""
        backoff = Backoff(0.2, 10.0)
        job.begun = True  # from now on another process may find the claim
        while True:
            try:
                claim = await self.claims.take(job.place)
            except (RequestTimeout, BusDisconnected) as error:
                if self.js.mailbox.connection.is_closed:
                    raise BusDisconnected("the connection was closed") from error
            except (NoResponders, Refused, ProtocolViolation) as error:
                _log.error("a request waits, because it cannot be claimed: %s", error)
                await self.repair()
            else:
                job.begun = claim is Claim.OURS
                return claim
            await asyncio.sleep(backoff.next())

    async def _expire(self, job: Job) -> None:
        """Reject a job past its deadline, unless a process has begun it: then its caller gets the answer of that."""
        async with self.quick:
            try:
                claim = await self.claims.look(job.place)
            except PostroomError as error:
                _log.warning("request %s: its claim cannot be read: %s", job.place.key, error)
                await self.give_back(job.delivery, self.retry)
                return
        if claim is None:
            await self.reject(job.delivery, job.late)
        else:
            await self._not_ours(job, claim)

    async def _not_ours(self, job: Job, claim: Claim) -> None:
        if claim is Claim.DONE:
            self.claims.done(job.place)
            await self.acknowledge(job.delivery)
        elif claim is Claim.HELD or (
            claim is Claim.SILENT and job.delivery.attempt <= self.max_deliver
        ):
            await self.give_back(job.delivery, self.retry)
        else:
            await self.lose(job)

    async def lose(self, job: Job) -> None:
        """Answer a job that was begun and will not end; an answer that is stored already stays."""
        self.counts.lost += 1
        try:
            outcome = await self.lost(job.call)
        except Exception as error:  # noqa: BLE001 (every call gets an answer)
            _log.error("%s: the hook for lost calls failed", job.call.method, exc_info=error)
            outcome = lost_error(job.call)
        if not job.answered:
            refused = isinstance(outcome, RpcError)
            await self._answer(job, job.refusal(outcome) if refused else job.result(outcome))
        await self._acknowledge(job)

    # ── doing ────────────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, job: Job) -> None:
        job.begun = True
        if job.streams:
            await self._stream(job)
            if job.begins and (working := self.at_work(job.call)):
                await self._await_work(job, working)
        else:
            try:
                payload = job.result(await self.operations.answer(job.call))
            except Exception as failure:  # noqa: BLE001 (every call gets an answer)
                payload = job.refusal(_error(failure, job.call))
            working = job.begins and self.at_work(job.call)
            if not working:
                self._finish(job)
            await self._answer(job, payload)
            if working:
                await self._await_work(job, working)
        await self._acknowledge(job)

    async def _await_work(self, job: Job, working: Callable[[], Awaitable[None]]) -> None:
        """Wait until the work of an answered job is over."""
        try:
            await working()
        except Exception as error:  # noqa: BLE001 (it was answered; the rest is the agent's)
            _log.error("%s failed after its answer", job.call.method, exc_info=error)

    async def _stream(self, job: Job) -> None:
        answer = StreamAnswer(self.answers, job.response_subject, job.place.key)
        error: RpcError | None = None
        try:
            try:
                async with aclosing(self.operations.stream(job.call)) as results:
                    async for result in results:
                        await answer.add(job.result(result))
            except Undeliverable:
                raise
            except MessageTooLarge as failure:
                error = too_large(failure)
            except Exception as failure:  # noqa: BLE001 (every call gets an answer)
                error = _error(failure, job.call)
            if error is None:
                await answer.end(job.complete())
            else:
                await answer.end(job.refusal(error), after=job.complete())
        finally:
            answer.close()
        job.answered = True

    def _finish(self, job: Job) -> None:
        if not job.finished:
            job.finished = True
            self.released(job)

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, job: Job, payload: bytes) -> None:
        """Store the only answer, or the last of a stream."""
        answers, name = self.answers, job.place.key
        headers = answers.headers(f"{name}:{END}")
        try:
            ending = await answers.store(job.response_subject, payload, headers)
        except MessageTooLarge as error:
            refusal = job.refusal(too_large(error))
            ending = await answers.store(job.response_subject, refusal, headers)
        if job.streams:
            await answers.store_after(ending, job.response_subject, job.complete(), name)
        job.answered = True

    async def _acknowledge(self, job: Job) -> None:
        self.counts.answered += 1
        self.claims.done(job.place)
        await self.acknowledge(job.delivery)

    async def acknowledge(self, delivery: RequestDelivery) -> None:
        """Acknowledge a request without waiting: if that gets lost, the claim says that the request is done."""
        await self._send_ack(delivery, ACK, confirmed=self.drained)

    async def give_back(self, delivery: RequestDelivery, delay: float = 0.0) -> None:
        """Ask for another delivery, to this server or another."""
        await self._send_ack(delivery, give_back(delay), confirmed=self.drained)

    async def reject(self, delivery: RequestDelivery, reason: str) -> None:
        """Drop a request without an answer."""
        self.counts.rejected += 1
        if self.counts.rejected.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood must not fill the log
            _log.warning(
                "%s: rejected request %s: %s (%d so far)",
                delivery.frame.subject,
                delivery.place.key,
                reason,
                self.counts.rejected,
            )
        await self._terminate(delivery, reason)

    async def _terminate(self, delivery: RequestDelivery, reason: str) -> None:
        self.claims.done(delivery.place)
        await self._send_ack(delivery, give_up(reason))

    async def _give_up(self, job: Job, reason: str) -> None:
        """Drop a request, and publish it as a dead letter."""
        self.counts.dead += 1
        frame, name = job.delivery.frame, job.place.key
        headers = {**(frame.headers or {}), MSG_ID: f"{name}:dead", REASON: one_line(reason, 300)}
        subject = dead_letter_subject(frame.subject)
        try:
            await self.js.publish(subject, frame.data, headers=headers)
        except PostroomError as error:
            _log.error(
                "gave up request %s: %s; no stream keeps it as a dead letter (%s)",
                name,
                reason,
                error,
            )
        else:
            _log.error("gave up request %s: %s; it is kept on %s", name, reason, subject)
        await self._terminate(job.delivery, reason)

    async def _send_ack(
        self, delivery: RequestDelivery, word: bytes, *, confirmed: bool = False
    ) -> None:
        mailbox = self.js.mailbox
        try:
            if confirmed:
                await mailbox.ask(delivery.reply, word, timeout=2.0)
            else:
                await mailbox.send_later(delivery.reply, word)
        except PostroomError as error:
            # The request comes again; its claim says what to do with it.
            _log.warning("request %s cannot be acknowledged: %s", delivery.place.key, error)


def _error(failure: Exception, call: Call) -> RpcError:
    """The error that answers a call; the text of an internal error stays in the log."""
    if isinstance(failure, RpcError):
        return failure
    if isinstance(failure, PostroomError):
        return RpcError.of(failure)
    _log.error("%s failed", call.method, exc_info=failure)
    return RpcError(Code.INTERNAL_ERROR, "Internal error")


# ── options ───────────────────────────────────────────────────────────────────────────────────────


CONCURRENCY = 16
"""Requests in work at a time by default."""

SURPLUS = 4
"""Further requests that a busy server holds, so that a get or a cancel still comes through."""

QUICK = 16
"""Calls at a time that neither begin work nor stream (get, cancel, ...)."""

WATCHING = 64
"""Streams at a time that begin no work (subscribe)."""

KNOWN_CLIENTS = 4096
"""Response subjects that a server remembers as stored."""

UNSENT = 256
"""Further requests that a server holds while it cannot store their answers."""

ACK_WAIT = 30.0
"""Seconds without a heartbeat after which another server gets a request."""

ABANDON_AFTER = 300.0
"""Seconds after which a server does not begin a request without a deadline."""

MAX_DELIVER = 5
"""Deliveries of a request, or refusals of its answer, before the server gives it up."""

DRAIN = 10.0
"""Seconds that running requests get when the server ends."""

CANCEL_GRACE = 5.0
"""Seconds that a cancelled request then gets for its answer."""

GRACE = 5.0
"""Seconds that the owner of a claim gets to return to a restarted NATS server."""


@dataclass(frozen=True, slots=True)
class DurableStatistics:
    """Counts of one server since its start.

    Attributes:
        answered: requests whose answer is stored.
        rejected: requests without performance and answer: expired, or without a subject for the answer.
        lost: requests that a process began and did not end.
        dead: requests that were given up.
        refused_answers: times that a stream did not take an answer.
    """

    held: int
    answered: int
    rejected: int
    lost: int
    dead: int
    refused_answers: int
    pulls: int


class DurableOptions(TypedDict, total=False):
    """The options of `DurableServer`, for classes that build on it."""

    durable: str
    streams: Streams | None
    response_subjects: Sequence[str]
    concurrency: int
    lane: bool
    ack_wait: float
    abandon_after: float
    deliver: Literal["recent", "all"]
    max_deliver: int
    lost: Lost | None
    at_work: AtWork
    admit: Callable[[Frame], str | None]
    drain: float
    grace: float
    prefix: str
