"""Serving A2A over JetStream: stored requests in, stored answers out (docs/binding.md, Durable requests)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Self

from postroom_a2a.durable.answer_writer import AnswerWriter
from postroom_a2a.durable.jobs import (
    Claims,
    Job,
    Rejected,
    RequestDelivery,
    check_response_subject,
    lost_error,
    read_job,
)
from postroom_a2a.durable.performing import (
    ABANDON_AFTER,
    ACK_WAIT,
    CANCEL_GRACE,
    CONCURRENCY,
    DRAIN,
    GRACE,
    KNOWN_CLIENTS,
    MAX_DELIVER,
    QUICK,
    SURPLUS,
    UNSENT,
    WATCHING,
    AtWork,
    DurableStatistics,
    Lost,
    Performer,
)
from postroom_a2a.durable.streams import (
    Durable,
    Streams,
    durable_name,
    keep_trimmed,
    lane_durable_name,
    lane_of,
    namespace_of,
    response_pattern,
    subjects_of,
)
from postroom_a2a.errors import BusDisconnected, PostroomError
from postroom_a2a.nats.acks import WORKING, AckSubject
from postroom_a2a.nats.jetstream import JetStream, covers
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.natspy import to_serve_on
from postroom_a2a.nats.port import FAULTS, Connection, Frame
from postroom_a2a.nats.pull import PullLoop
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError

_log = logging.getLogger(__name__)


class DurableServer:
    """The server of one agent's stored requests: `async with DurableServer(...)` works until the block ends.

    Args:
        connection: an open one of ours; in place of one of nats-py the server opens one of ours (`to_serve_on`).
        subject: of the requests, as `a2a.agent.echo.requests`.
        durable: name of the consumer that the replicas share; "" for the subject's own.
        response_subjects: patterns of the permitted subjects for answers; default: the clients of the namespace.
        concurrency: requests in work at a time.
        lane: also serve get, cancel and the like on a subject of their own, and announce it in answers.
        ack_wait: seconds, for a durable that this server makes.
        abandon_after: seconds after which the server does not begin a request without a deadline; also how far back a
            durable starts that this server makes.
        deliver: start of a durable that this server makes: "recent" requests, or "all" for a server of another
            maker that joins later (this server then reads old requests, but does not perform them).
        max_deliver: deliveries of a request, or refusals of its answer, before the server gives it up.
        lost: gives the answer to a call that a process began and did not end; None for an error.
        at_work: gives the wait for work that goes on after the call's answer; the server holds the request until then,
            so that a crash makes it lost, not forgotten.
        admit: gives the caller of a request ("" if unknown), or None to reject it.
        drain: seconds that running requests get when the server ends, before it cancels them.
        grace: seconds that the owner of a claim gets to return to a restarted NATS server.
    """

    def __init__(
        self,
        connection: Connection,
        subject: str,
        operations: Operations,
        *,
        durable: str = "",
        streams: Streams | None = None,
        response_subjects: Sequence[str] = (),
        concurrency: int = CONCURRENCY,
        lane: bool = True,
        ack_wait: float = ACK_WAIT,
        abandon_after: float = ABANDON_AFTER,
        deliver: Literal["recent", "all"] = "recent",
        max_deliver: int = MAX_DELIVER,
        lost: Lost | None = None,
        at_work: AtWork = lambda _: None,
        admit: Callable[[Frame], str | None] = lambda _: "",
        drain: float = DRAIN,
        grace: float = GRACE,
        prefix: str = "$JS.API",
    ) -> None:
        self.subject = subject
        self.namespace = namespace_of(subject)
        self.durable = durable or durable_name(subject)
        self.streams = streams or Streams()
        self._patterns = tuple(response_subjects) or (response_pattern(self.namespace),)
        self._connection, self._is_own = to_serve_on(connection)
        self._operations = operations
        self._lane = lane
        self._ack_wait = ack_wait
        self._abandon_after = abandon_after
        self._deliver = deliver
        self._admit = admit
        self._drain = drain
        self._js = JetStream(Mailbox(self._connection), prefix=prefix)
        self._held: dict[str, Job] = {}
        self._durables: list[Durable] = []
        self._floors: dict[str, int] = {}
        self._stored: list[str] = []
        self._storable: set[str] = set()
        self._loops: list[PullLoop] = []
        self._running: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._ending = False
        self._counted = dict.fromkeys((self.durable, lane_durable_name(self.durable)), 0)
        self._concurrency = concurrency
        self._performer = Performer(
            js=self._js,
            operations=operations,
            claims=Claims(self._js, self.streams.claims, self._held.__contains__, grace=grace),
            answers=AnswerWriter(self._js, "", max_deliver, self._repair),
            lost=lost or _lost,
            at_work=at_work,
            answerable=self._answerable,
            slots=asyncio.Semaphore(concurrency),
            quick=asyncio.Semaphore(QUICK),
            watching=asyncio.Semaphore(WATCHING),
            max_deliver=max_deliver,
            retry=ack_wait,
            released=self._released,
            repair=self._repair,
        )

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        """Provide streams and durables, and begin to work.

        Raises:
            EnvironmentFault: a stream lacks something, or JetStream is off.
            BusDisconnected: the NATS server cannot be reached.
            InvalidInput: the server's own connection was closed.
        """
        if self._is_own:
            await self._connection.open()
        try:
            await self._js.mailbox.open()
            await self._performer.claims.open()
            await self._provide()
        except BaseException as error:
            await self._hang_up()
            if isinstance(error, FAULTS):
                raise BusDisconnected(f"{self.subject} cannot be served: {error}") from error
            raise
        self._background = [self._spawn(loop.run(), f"pull {loop.durable}") for loop in self._loops]
        self._background.append(self._spawn(self._beat(), "beat"))
        if self.streams.create:
            subjects = [self.subject, lane_of(self.subject)]
            self._background.append(
                self._spawn(keep_trimmed(self._js, self.streams.requests, subjects), "trim")
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `drain`."""
        await self.drain()

    def statistics(self) -> DurableStatistics:
        """The counts."""
        counts = self._performer.counts
        return DurableStatistics(
            len(self._held),
            counts.answered,
            counts.rejected,
            counts.lost,
            counts.dead,
            self._performer.answers.failures,
            sum(loop.counters.pulls for loop in self._loops),
        )

    async def drain(self) -> None:
        """Take no more requests, give back those not begun, let the others finish, and flush.

        The server cancels a request that does not finish in time, and answers it as lost. The connection stays open,
        unless the server has opened it.
        """
        try:
            await self._end()
        finally:
            await self._hang_up()

    async def _hang_up(self) -> None:
        await self._js.mailbox.close()
        if self._connection.is_connected:
            with suppress(*FAULTS):
                await self._connection.flush()
        if self._is_own:
            await self._connection.close()

    async def _end(self) -> None:
        self._ending = self._performer.drained = True
        for loop in self._loops:
            loop.stop()
        for job in tuple(self._held.values()):
            if not job.begun and job.task is not None:
                job.task.cancel()
        await self._finish(self._drain)
        for job in tuple(self._held.values()):
            if job.task is not None:
                job.task.cancel()
        await self._finish(CANCEL_GRACE)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for loop in self._loops:
            await loop.close()
        self._performer.claims.close()

    async def _finish(self, seconds: float) -> None:
        if tasks := self._running.difference(self._background):
            await asyncio.wait(tasks, timeout=seconds)

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{self.subject}: {name}")
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s broke", task.get_name(), exc_info=error)

    # ── streams and durables ─────────────────────────────────────────────────────────────────────────

    async def _provide(self) -> None:
        streams, js = self.streams, self._js
        await streams.ensure_requests(js, self.subject)
        await streams.ensure_responses(js, self.namespace)
        await streams.ensure_claims(js)
        self._stored = await subjects_of(js, streams.responses)
        self._add_loop(self.durable, self.subject)
        lane = lane_of(self.subject)
        there = await subjects_of(js, streams.requests)
        if self._lane and any(covers(have, lane) for have in there):
            self._performer.answers.lane = lane
            self._add_loop(lane_durable_name(self.durable), lane)
        for consumer in self._durables:
            await self._ensure(consumer)

    def _add_loop(self, durable: str, subject: str) -> None:
        consumer = Durable(self._js, self.streams, durable, subject)
        self._durables.append(consumer)

        def take(frame: Frame, ack: AckSubject | None) -> bool:
            if ack is None:
                return False
            self._take(RequestDelivery(frame, ack), durable)
            return True

        room, ensure = partial(self._room, durable), partial(self._ensure, consumer)
        stream = self.streams.requests
        self._loops.append(PullLoop(self._js, stream, durable, take, room, ensure))

    async def _ensure(self, consumer: Durable) -> None:
        floor = self._floors.get(consumer.name)
        start = await consumer.start(floor, self._deliver, self._abandon_after)
        there = await consumer.ensure(start, self._ack_wait)
        self._ack_wait = min(self._ack_wait, there)
        self._floors[consumer.name] = await consumer.floor()

    async def _repair(self) -> None:
        """Make the streams of answers and claims again, if they are gone."""
        if not self.streams.create:
            return
        try:
            await self.streams.ensure_responses(self._js, self.namespace)
            await self.streams.ensure_claims(self._js)
        except PostroomError as error:
            _log.warning("%s: %s", self.subject, error)

    def _check(self, subject: str) -> None:
        if subject not in self._storable:
            check_response_subject(subject, self._patterns)

    async def _answerable(self, subject: str) -> bool:
        """Whether a stream stores the subject; asked before the request is performed."""
        if subject in self._storable:
            return True
        if not any(covers(have, subject) for have in self._stored):
            try:
                found = await self._js.api("STREAM.NAMES", {"subject": subject})
            except PostroomError:
                return True  # storing the answer will show it
            if not found.get("streams"):
                return False
        if len(self._storable) >= KNOWN_CLIENTS:
            self._storable.clear()
        self._storable.add(subject)
        return True

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────

    def _room(self, durable: str) -> int:
        if self._ending or len(self._held) > self._concurrency + UNSENT:
            return 0
        bound = self._concurrency + SURPLUS if durable == self.durable else QUICK
        return bound - self._counted[durable]

    def _released(self, job: Job) -> None:
        durable = job.delivery.ack.consumer
        self._counted[durable] -= 1
        for loop in self._loops:
            if loop.durable == durable:
                loop.changed()

    def _take(self, delivery: RequestDelivery, durable: str) -> None:
        place = delivery.place
        known = self._held.get(place.key)
        if known is not None:
            known.delivery = delivery  # our heartbeat was late; the next one is for this delivery
        elif self._performer.claims.is_done(place):
            self._spawn(self._performer.acknowledge(delivery), "acknowledge again")
        elif self._ending:
            self._spawn(self._performer.give_back(delivery), "give back")
        else:
            self._accept(delivery, durable)

    def _accept(self, delivery: RequestDelivery, durable: str) -> None:
        caller = self._admit(delivery.frame)
        try:
            if caller is None:
                raise Rejected("the sender is not admitted")
            job = read_job(
                delivery,
                self._operations,
                check=self._check,
                abandon_after=self._abandon_after,
                caller=caller,
                now=time.time(),
            )
        except Rejected as reason:
            self._spawn(self._performer.reject(delivery, str(reason)), "reject")
            return
        if job.begins and durable != self.durable:
            # Work on the lane would delay the calls that are to overtake.
            job.begins, job.late = False, ""
            job.error = RpcError(
                Code.UNSUPPORTED_OPERATION, "this subject takes no calls that begin work"
            )
        self._held[job.place.key] = job
        self._counted[durable] += 1
        job.task = self._spawn(self._perform(job), job.call.method)

    async def _perform(self, job: Job) -> None:
        try:
            await self._performer.perform(job)
        except asyncio.CancelledError:
            if not self._ending:
                raise
            await self._leave(job)
        finally:
            self._held.pop(job.place.key, None)

    async def _leave(self, job: Job) -> None:
        """Lose or give back a job that the end of the server cut off."""
        if job.begun and job.begins:
            await self._performer.lose(job)
        else:
            # A pull of ours that is still open may get it again: it must not look like a held job.
            del self._held[job.place.key]
            await self._performer.give_back(job.delivery)

    async def _beat(self) -> None:
        """Send a heartbeat for every held request, and note the progress of all replicas."""
        while True:
            await asyncio.sleep(self._ack_wait / 3)
            if not self._connection.is_connected:
                continue
            for job in tuple(self._held.values()):
                with suppress(PostroomError):  # the next beat is as good
                    await self._js.mailbox.send(job.delivery.reply, WORKING)
            for consumer in self._durables:
                with suppress(PostroomError):
                    self._floors[consumer.name] = await consumer.floor()


async def _lost(call: Call) -> bytes | RpcError:
    return lost_error(call)
