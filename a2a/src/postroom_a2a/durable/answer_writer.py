"""Storing answers: in order, each once, and again until the log has them.

Every frame carries a `Nats-Msg-Id` that names the request and the frame. The frame that decides how a request ended
has the same id whoever sends it, so the log drops a second ending.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom_a2a.binding.headers import LANE, SEQUENCE
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
"""Frames of one stream that may be on their way to the log."""

PAUSE_CAP = 10.0
"""Seconds: longest pause before an answer is sent again."""

END = "end"
"""Of the id of the frame that decides how a request ended."""

AFTER = "complete"
"""Of the id of the `complete` that follows an error."""

_log = logging.getLogger(__name__)


class Undeliverable(PostroomError):
    """An answer that the log refused again and again."""

    code = "undeliverable"


@dataclass(slots=True)
class AnswerWriter:
    """Stores the answers of a server, frame by frame.

    Attributes:
        lane: subject that answers announce, "" for none.
        attempts: refusals after which an answer is given up.
        repair: makes the streams again that answers and claims need, if it may.
    """

    js: JetStream
    lane: str
    attempts: int
    repair: Callable[[], Awaitable[None]]
    failures: int = 0

    def headers(self, name: str, sequence: int = 0) -> dict[str, str]:
        """Of a frame: its id, our lane, and its number in a stream."""
        headers = {MSG_ID: name}
        if self.lane:
            headers[LANE] = self.lane
        if sequence:
            headers[SEQUENCE] = str(sequence)
        return headers

    async def store(self, subject: str, payload: bytes, headers: dict[str, str]) -> Stored:
        """Store a frame; while the log cannot be reached, for as long as that takes.

        Returns:
            Where it is, or the first of its id.

        Raises:
            MessageTooLarge: nothing was stored, and never will be.
            Undeliverable: it was refused `attempts` times.
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
        """Store the `complete` that follows an error; not if another has ended the stream with its `complete`.

        Args:
            ending: where the frame is that decided how the stream ended.
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
            return False  # rather two ends than none
        return base64.b64decode(found["message"].get("data", "")) == payload


@dataclass(slots=True)
class _Sent:
    payload: bytes
    headers: dict[str, str]
    reply: str
    answer: asyncio.Future[Frame]


class StreamAnswer:
    """The frames of one stream: sent one after the other, without waiting for the log's word on each.

    Args:
        name: of the request, for the ids.
    """

    def __init__(self, answers: AnswerWriter, subject: str, name: str) -> None:
        self._answers = answers
        self._subject = subject
        self._name = name
        self._sent: deque[_Sent] = deque()
        self._count = 0

    async def add(self, payload: bytes) -> None:
        """Send a frame; waits where too many are on their way.

        Raises:
            As `Answers.store`, of this frame or one before it.
        """
        self._count += 1
        headers = self._answers.headers(f"{self._name}:{self._count}", self._count)
        while self._sent and self._sent[0].answer.done():
            await self._settle()
        if len(self._sent) >= WINDOW or not self._mailbox.connection.is_connected:
            # While there is no connection nothing may overtake what it took with it.
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
        """Send the frame that decides how the stream ended, and another that follows it; all are stored then.

        Raises:
            As `Answers.store`.
        """
        await self._settle(everything=True)
        answers, name = self._answers, self._name
        self._count += 1
        # After a fault the numbers may have a gap, for which the reader must not wait.
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
        """See the oldest frame stored, or all of them; what is in doubt is sent again, in order."""
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
    """Whether the log says so, within the time that an answer of it takes."""
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
