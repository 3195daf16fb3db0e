"""Calling A2A over JetStream: a request counts as sent when it is stored (docs/binding.md, Durable requests)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator

from postroom_a2a.binding.frames import (
    COMPLETE,
    DEADLINE,
    RESPONSE,
    TRANSPORT_ERROR,
    Request,
    Response,
    encode_request,
)
from postroom_a2a.durable.answer_reader import Answered, AnswerReader
from postroom_a2a.durable.streams import Streams, lane_of, namespace_of
from postroom_a2a.errors import NoResponders, RequestTimeout, StreamBroken
from postroom_a2a.nats.jetstream import MSG_ID
from postroom_a2a.nats.port import Connection

IDLE = 300.0
"""Seconds of silence that end a stream."""

MAX_UNREAD = 4096
"""Unread frames of one stream at a time."""

QUICK_METHODS = frozenset(
    {
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "GetExtendedAgentCard",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete",
        "agent/getAuthenticatedExtendedCard",
    }
)
"""Methods that begin no work, in both versions of A2A; they may overtake."""


class StreamQueue:
    """The frames of one stream, in order, for one reader; bounded.

    A server that sent frames again may have stored them in another order; the queue sorts numbered frames.
    """

    def __init__(self) -> None:
        self._ready: deque[Answered] = deque()
        self._early: dict[int, Answered] = {}
        self._next = 1
        self._overrun = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, answered: Answered) -> None:
        """Take a frame; one too many breaks the stream."""
        if len(self._ready) + len(self._early) >= MAX_UNREAD:
            self._overrun = True
        elif not answered.sequence:
            self._ready.append(answered)
        elif answered.sequence >= self._next:
            self._early[answered.sequence] = answered
            while (due := self._early.pop(self._next, None)) is not None:
                self._ready.append(due)
                self._next += 1
        if (self._ready or self._overrun) and self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, timeout: float) -> Answered:
        """The next frame.

        Raises:
            StreamBroken: too many frames are unread, or a frame is missing.
            RequestTimeout: none within `timeout` seconds.
        """
        if not self._ready:
            if self._overrun:
                raise StreamBroken(
                    f"more than {MAX_UNREAD} frames of a stream were unread: read them faster"
                )
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout):
                    await self._waiter
            except TimeoutError:
                if self._early:
                    raise StreamBroken(f"frame {self._next} of a stream is missing") from None
                raise RequestTimeout(
                    f"nothing came within {round(timeout, 1):g} s",
                    remedy="the request is stored: is its server running, on this subject?",
                ) from None
            finally:
                self._waiter = None
            if not self._ready:
                return await self.get(timeout)
        return self._ready.popleft()


class DurableCaller:
    """A `Caller` over JetStream.

    A call without a server waits in the stream until its deadline. The server does not notice a caller that gives up:
    the work goes on, and the answer stays in the stream.

    Args:
        connection: an open one, ours or of nats-py.
        subject: of the agent's requests, as `a2a.agent.echo.requests`.
        client: id of this client; "" for a new one.
        namespace: of the response subject; "" for the namespace of `subject`.
        responses: of the client, shared with its other callers; None for a new reader.
        idle: seconds of silence that end a stream.
        prefix: of JetStream's API.
    """

    def __init__(
        self,
        connection: Connection,
        subject: str,
        *,
        client: str = "",
        namespace: str = "",
        streams: Streams | None = None,
        responses: AnswerReader | None = None,
        idle: float = IDLE,
        prefix: str = "$JS.API",
    ) -> None:
        self.subject = subject
        self.responses = responses or AnswerReader(
            connection,
            client=client,
            namespace=namespace or namespace_of(subject),
            streams=streams,
            prefix=prefix,
        )
        self._holding = False
        self._idle = idle
        self._lane = ""

    @property
    def client(self) -> str:
        """The client's id."""
        return self.responses.client

    async def call(self, request: Request, *, timeout: float) -> Response:
        """As `Caller.call`; the server does not begin the request after `timeout` seconds.

        Raises:
            EnvironmentFault: a stream lacks something, or JetStream is off; nothing was sent.
            NoResponders: no stream stores the subject; nothing was sent.
            StreamFull, MessageTooLarge, Refused: the request was not stored.
            RequestTimeout: no answer in time; the agent may have acted on the request.
            BusDisconnected: the connection takes nothing.
            ProtocolViolation: JetStream's answer is malformed.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        await self._open(timeout)
        answer: asyncio.Future[Answered] = loop.create_future()

        def arrived(answered: Answered) -> None:
            if answered.response.kind in {RESPONSE, TRANSPORT_ERROR} and not answer.done():
                answer.set_result(answered)

        deadlines = self.responses.js.mailbox.deadlines
        deadlines.watch(answer, timeout, _late)
        self.responses.expect(request.id, arrived)
        try:
            await self._send(request, until)
            return self._seen(await answer)
        finally:
            deadlines.forget(answer)
            self.responses.forget(request.id)
            if answer.done() and not answer.cancelled():
                answer.exception()  # after a failed send nobody reads it

    async def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        """As `Caller.stream`; `timeout` is for the first event, and the server does not begin the request later.

        Raises:
            StreamBroken: frames are missing, the server fell silent, or it reports a failure of the stream.
            As `call`.
        """
        until = asyncio.get_running_loop().time() + timeout
        await self._open(timeout)
        queue = StreamQueue()
        self.responses.expect(request.id, queue.put)
        try:
            await self._send(request, until)
            left = until - asyncio.get_running_loop().time()
            answered = await queue.get(max(0.0, left))
            while True:
                response = self._seen(answered)
                if response.kind == COMPLETE:
                    return
                if response.kind == TRANSPORT_ERROR:
                    raise StreamBroken(f"the server's stream failed: {response.error}")
                yield response
                if response.error is not None:
                    return
                try:
                    answered = await queue.get(self._idle)
                except RequestTimeout as error:
                    raise StreamBroken(f"nothing came for {self._idle:g} s") from error
        finally:
            self.responses.forget(request.id)

    async def close(self) -> None:
        """As `Caller.close`."""
        if self._holding:
            self._holding = False
            await self.responses.let_go()

    async def _open(self, timeout: float) -> None:
        if not self._holding:
            self._holding = True
            self.responses.hold()
        if self.subject in self.responses.ready:
            return
        try:
            async with asyncio.timeout(timeout):
                await self.responses.open(self.subject)
        except TimeoutError as error:
            raise RequestTimeout(
                "JetStream did not answer in time; nothing was sent",
                remedy="this connection may lack the right to publish to $JS.API",
            ) from error

    async def _send(self, request: Request, until: float) -> None:
        """Store the request."""
        left = until - asyncio.get_running_loop().time()
        deadline = request.deadline or time.time() + left
        subject = self.responses.subject
        payload = encode_request(
            Request(
                request.id,
                request.method,
                request.params,
                request.binary,
                request.parameters,
                subject,
                deadline,
            )
        )
        headers = {
            MSG_ID: f"{self.client}:{request.id}",
            DEADLINE: str(int(deadline * 1000)),
        }
        publish = self.responses.js.publish
        if self._lane and request.method in QUICK_METHODS:
            try:
                await publish(self._lane, payload, headers=headers, timeout=left)
                return
            except NoResponders:
                self._lane = ""  # no stream stores it any more
        try:
            await publish(self.subject, payload, headers=headers, timeout=left)
        except NoResponders as error:
            self.responses.missing(self.subject)
            raise NoResponders(
                f"no stream stores requests to {self.subject}: {error.message}",
                remedy=f"see that the stream {self.responses.streams.requests} has the subject",
            ) from error

    def _seen(self, answered: Answered) -> Response:
        # Believe only the one name: an answer must not redirect requests.
        if answered.lane and answered.lane == lane_of(self.subject):
            self._lane = answered.lane
        return answered.response


def _late(timeout: float) -> RequestTimeout:
    return RequestTimeout(
        f"no answer came within {round(timeout, 1):g} s",
        remedy="the request is stored: is its server running, on this subject?",
    )
