"""Stores answers: in order, each once, and with retries until JetStream has them.

Every frame carries a `Nats-Msg-Id` that names the request and the frame. The frame that ends a request has the same id
from every server, so JetStream drops a second ending.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom_a2a.binding.frames import LANE, SEQUENCE
from postroom_a2a.errors import (
    BusDisconnected,
    NoResponders,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom_a2a.nats.jetstream import API_TIMEOUT, MSG_ID, JetStream, Stored
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Frame, status_of
from postroom_a2a.retry import Backoff

WINDOW = 32
"""Frames of one stream on their way to JetStream at a time."""

PAUSE_CAP = 10.0
"""Longest pause in seconds before an answer is sent again."""

END = "end"
"""Part of the id of the frame that ends a request."""

AFTER = "complete"
"""Part of the id of the `complete` that follows an error."""

_log = logging.getLogger(__name__)


class Undeliverable(PostroomError):
    """An answer that JetStream refused again and again."""

    code = "undeliverable"


@dataclass(slots=True)
class AnswerWriter:
    """Stores the answers of a server, frame by frame.

    Attributes:
        lane: subject that answers announce, "" for none.
        attempts: refusals after which the writer gives an answer up.
        repair: makes missing streams for answers and claims, if it may.
    """

    js: JetStream
    lane: str
    attempts: int
    repair: Callable[[], Awaitable[None]]
    failures: int = 0

    def headers(self, name: str, sequence: int = 0) -> dict[str, str]:
        """The headers of a frame: its id, our lane, and its number in a stream."""
        headers = {MSG_ID: name}
        if self.lane:
            headers[LANE] = self.lane
        if sequence:
            headers[SEQUENCE] = str(sequence)
        return headers

    async def store(self, subject: str, payload: bytes, headers: dict[str, str]) -> Stored:
        """Store a frame, however long JetStream cannot be reached; returns its place, or that of the first with its id.

        Raises:
            MessageTooLarge: nothing was stored, and never will be.
            Undeliverable: JetStream refused it `attempts` times.
            BusDisconnected: the connection is closed for good.
        """
        refusals, backoff = 0, Backoff(0.2, PAUSE_CAP)
        while True:
            try:
                return await self.js.publish(subject, payload, headers=headers)
            except (RequestTimeout, BusDisconnected) as error:
                if self.js.mailbox.connection.is_closed:
                    raise BusDisconnected("the connection was closed") from error
            except (NoResponders, Refused, ProtocolViolation) as error:
                refusals += 1
                self.failures += 1
                if refusals >= self.attempts:
                    raise Undeliverable(f"no answer can be stored on {subject}: {error}") from error
                _log.warning("an answer for %s was refused: %s", subject, error)
                if isinstance(error, NoResponders):
                    await self.repair()
            await asyncio.sleep(backoff.next())

    async def store_after(self, ending: Stored, subject: str, complete: bytes, name: str) -> None:
        """Store the `complete` that follows an error, unless another server ended the stream with a `complete`.

        Args:
            ending: place of the frame that ended the stream.
            name: of the request, for the id.

        Raises:
            As `store`.
        """
        if ending.duplicate and await self._is_there(ending, complete):
            return
        await self.store(subject, complete, self.headers(f"{name}:{AFTER}"))

    async def _is_there(self, stored: Stored, payload: bytes) -> bool:
        try:
            found = await self.js.api(f"STREAM.MSG.GET.{stored.stream}", {"seq": stored.sequence})
        except PostroomError as error:
            _log.warning("the end of a stream cannot be read: %s", error)
            return False  # two ends are better than none
        return base64.b64decode(found["message"].get("data", "")) == payload


@dataclass(slots=True)
class _Sent:
    payload: bytes
    headers: dict[str, str]
    reply: str
    answer: asyncio.Future[Frame]


class StreamAnswer:
    """The frames of one stream, sent without waiting for each confirmation; their ids hold the request's `name`."""

    def __init__(self, answers: AnswerWriter, subject: str, name: str) -> None:
        self._answers = answers
        self._subject = subject
        self._name = name
        self._sent: deque[_Sent] = deque()
        self._count = 0

    async def add(self, payload: bytes) -> None:
        """Send a frame; waits while too many are on their way.

        Raises:
            As `AnswerWriter.store`, of this frame or one before it.
        """
        self._count += 1
        headers = self._answers.headers(f"{self._name}:{self._count}", self._count)
        while self._sent and self._sent[0].answer.done():
            await self._settle()
        if len(self._sent) >= WINDOW or not self._mailbox.connection.is_connected:
            # After a lost connection no frame may overtake those that were on their way.
            await self._settle(everything=len(self._sent) < WINDOW)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

        def arrived(frame: Frame) -> None:
            if not answer.done():
                answer.set_result(frame)

        reply = self._mailbox.token(arrived)
        try:
            await self._mailbox.send(self._subject, payload, reply=reply, headers=headers)
        except BusDisconnected:
            answer.cancel()
        except BaseException:
            self._mailbox.forget(reply)
            raise
        self._sent.append(_Sent(payload, headers, reply, answer))

    async def end(self, payload: bytes, *, after: bytes = b"") -> None:
        """Store the frame that ends the stream, and another one `after` it.

        Raises:
            As `AnswerWriter.store`.
        """
        await self._settle(everything=True)
        answers, name = self._answers, self._name
        self._count += 1
        # After a failure the numbers may have a gap; without a number the reader does not wait for it.
        number = 0 if after else self._count
        headers = answers.headers(f"{name}:{END}", number)
        ending = await answers.store(self._subject, payload, headers)
        if after:
            await answers.store_after(ending, self._subject, after, name)

    def close(self) -> None:
        """Wait for nothing more."""
        while self._sent:
            self._mailbox.forget(self._sent.popleft().reply)

    @property
    def _mailbox(self) -> Mailbox:
        return self._answers.js.mailbox

    async def _settle(self, *, everything: bool = False) -> None:
        """Wait until the oldest frame is stored, or all are; send frames in doubt again, in order."""
        while self._sent:
            oldest = self._sent[0]
            if await _stored(oldest.answer):
                self._mailbox.forget(oldest.reply)
                self._sent.popleft()
            else:
                await self._repeat()
            if not everything:
                return

    async def _repeat(self) -> None:
        while self._sent:
            sent = self._sent[0]
            await self._answers.store(self._subject, sent.payload, sent.headers)
            self._mailbox.forget(sent.reply)
            self._sent.popleft()


async def _stored(answer: asyncio.Future[Frame]) -> bool:
    """Whether JetStream confirms the frame in time."""
    if answer.cancelled():
        return False
    await asyncio.wait({answer}, timeout=API_TIMEOUT)
    if not answer.done():
        return False
    frame = answer.result()
    if status_of(frame):
        return False
    try:
        return "error" not in json.loads(frame.data)
    except (TypeError, ValueError):
        return False
