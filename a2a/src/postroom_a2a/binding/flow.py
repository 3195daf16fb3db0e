"""Flow control of a stream on core NATS: frames, acknowledgements and silence, and the server's end of it.

The server numbers its frames and names a subject in each. There a client acknowledges the frames that it has read
(`ack 16`) and ends the stream (`end`). Rules: docs/binding.md, Streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroom_a2a.binding.frames import (
    BEAT,
    COMPLETE,
    SEQUENCE,
    TRANSPORT_ERROR,
    Flow,
    Response,
    decode_response,
    sequence_of,
)
from postroom_a2a.binding.subjects import may_publish_to
from postroom_a2a.errors import (
    BusDisconnected,
    MessageTooLarge,
    NoResponders,
    ProtocolViolation,
    StreamBroken,
)
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import FAULTS, NO_RESPONDERS, Frame, status_of
from postroom_a2a.rpc import Code, Id, RpcError

END = b"end"
"""Payload with which a client ends a stream."""

_ACK = b"ack "
_MAX_ACK = 24

SILENT_BEATS = 3
"""Missed heartbeats after which a server counts as gone."""

IDLE = 300.0
"""Seconds that a server without heartbeats may be silent within a stream."""


def ack(sequence: int) -> bytes:
    """Payload that acknowledges the frames up to `sequence`."""
    return _ACK + str(sequence).encode()


def acknowledged(payload: bytes) -> int:
    """The acknowledged sequence in a payload, 0 for any other payload."""
    if payload.startswith(_ACK) and len(payload) <= _MAX_ACK and payload[4:].isdigit():
        return int(payload[4:])
    return 0


def no_responders(subject: str) -> NoResponders:
    """The error of a call that nobody serves."""
    return NoResponders(
        f"nobody serves {subject}",
        remedy="start its agent, and see that it uses this subject on the same NATS server",
    )


class FrameReader:
    """The client's end of one stream.

    Args:
        call_id: every frame has to repeat it.
        subject: of the request, for error texts.
        idle: seconds of silence after which the stream is broken; 0 for the default.

    Attributes:
        over: whether the server has ended the stream.
        back: subject for acknowledgements, "" until the server names a permitted one.
    """

    def __init__(self, call_id: Id, subject: str, flow: Flow, idle: float = 0.0) -> None:
        self.over = False
        self.back = ""
        self._id = call_id
        self._subject = subject
        self._flow = flow
        self._idle = idle
        self._begun = False
        self._beats = False
        self._sequence = 0
        self._said = 0

    @property
    def idle(self) -> float:
        """Seconds that the server may be silent from now on."""
        if self._idle:
            return self._idle
        return SILENT_BEATS * self._flow.beat if self._beats else IDLE

    def read(self, frame: Frame) -> Response | None:
        """The event or error in a frame; None for a frame without either.

        Raises:
            NoResponders: nobody serves the subject.
            StreamBroken: a frame was lost, or the server reports a failure of the stream.
            ProtocolViolation: the frame does not belong to this stream.
        """
        if status := status_of(frame):
            self.over = True
            if status == NO_RESPONDERS and not self._begun:
                raise no_responders(self._subject)
            raise StreamBroken(f"the server answered with status {status}")
        self._begun = True
        if frame.reply and may_publish_to(frame.reply):
            self.back = frame.reply
        headers = frame.headers or {}
        if not frame.data and BEAT in headers:
            self._beats = True
            self._follow(_count(headers[BEAT]))
            return None
        if number := sequence_of(headers):
            if number <= self._sequence:
                return None
            self._follow(number - 1)
            self._sequence = number
        return self._event(decode_response(frame.data))

    def _follow(self, number: int) -> None:
        if number > self._sequence:
            lost = number - self._sequence
            raise StreamBroken(f"{lost} frames were lost after frame {self._sequence}")

    def _event(self, response: Response) -> Response | None:
        if response.kind == TRANSPORT_ERROR:
            self.over = True
            text = response.error.message if response.error else ""
            raise StreamBroken(f"the server's stream failed: {text}")
        if not answers(response, self._id):
            raise ProtocolViolation(f"a frame of another call is in the stream of {self._id!r}")
        # An error ends the stream, and so does a bare response.
        self.over = response.kind in {COMPLETE, ""} or response.error is not None
        return None if response.kind == COMPLETE else response

    def due(self) -> int:
        """The sequence to acknowledge now, 0 for none."""
        window = self._flow.window
        if not window or not self.back or self._sequence - self._said < max(1, window // 2):
            return 0
        self._said = self._sequence
        return self._sequence


def answers(response: Response, call_id: Id) -> bool:
    """Whether a response answers the call; "10" is not 10. An error may lack an id that its server could not read."""
    if response.id is None and response.error is not None:
        return True
    return response.id == call_id and type(response.id) is type(call_id)


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


BURST = 64
"""Frames to a client without a window between two flushes."""

STALL_NOTICE = 0.5
"""Seconds after which a stream with a full window counts as stalled."""

MIN_BEAT = 0.5
"""Shortest period of heartbeats in seconds, whatever the client asks for."""


# ── the server's end ──────────────────────────────────────────────────────────────────────────────


class FrameWriter:
    """Numbers and publishes the frames of one stream, no more than the client's window takes.

    Args:
        mailbox: receives the acknowledgements, and the NATS server's notice that nobody listens.
        reply: the client's subject.
        stall: seconds that a client may leave a full window unacknowledged.
        on_gone: called when the client listens no more.
        on_stall: called with True when the stream stalls, and with False when it goes on or ends.
        prefix: of the subject for acknowledgements, where the mailbox's own has a wildcard.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        reply: str,
        flow: Flow,
        *,
        stall: float,
        on_gone: Callable[[], None],
        on_stall: Callable[[bool], None],
        prefix: str = "",
    ) -> None:
        self._mailbox = mailbox
        self._reply = reply
        self._flow = flow
        self._stall = stall
        self._on_gone = on_gone
        self._on_stall = on_stall
        self._stalled = False
        self._sequence = 0
        self._acknowledged = 0
        self._room: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._period = max(flow.beat, MIN_BEAT) if flow.beat else 0.0
        self._sent_at = self._loop.time()
        self._alarm: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._back = mailbox.token(self._arrived, prefix=prefix)

    async def open(self) -> None:
        """Send the first heartbeat, if the client takes them: the call was accepted."""
        if self._period:
            await self._beat()
            self._alarm = self._loop.call_later(self._period, self._silence)

    def close(self) -> None:
        """Stop heartbeats, and listen no more."""
        self._mailbox.forget(self._back)
        if self._alarm is not None:
            self._alarm.cancel()

    async def send(self, frame: bytes) -> None:
        """Publish an event; waits while the client's window is full.

        Raises:
            RpcError: the error that has to end the stream.
            BusDisconnected: the connection takes nothing.
        """
        window = self._flow.window
        if window and self._sequence - self._acknowledged >= window:
            await self._wait(window)
        try:
            await self._publish(frame, self._back)
        except MessageTooLarge as error:
            raise too_large(error) from error
        if not window and self._sequence % BURST == 0:
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Flush, since the client does not acknowledge; a 503 of the NATS server comes before this returns."""
        connection = self._mailbox.connection
        try:
            if connection.is_connected:
                await connection.flush()
        except FAULTS as error:
            raise BusDisconnected(f"the NATS connection takes nothing: {error}") from error

    async def send_last(self, frame: bytes) -> None:
        """Publish an error or the end, whether or not the window is full.

        Raises:
            BusDisconnected: the connection takes nothing.
        """
        await self._publish(frame, "")

    async def _publish(self, frame: bytes, back: str) -> None:
        headers = {SEQUENCE: str(self._sequence + 1)}
        await self._mailbox.send(self._reply, frame, reply=back, headers=headers)
        self._sequence += 1
        self._sent_at = self._loop.time()

    async def _wait(self, window: int) -> None:
        while self._sequence - self._acknowledged >= window:
            self._room = room = self._loop.create_future()
            notice = self._loop.call_later(STALL_NOTICE, self._notice_stall)
            alarm = self._loop.call_later(self._stall, _break_off, room, self._stall)
            try:
                await room
            finally:
                notice.cancel()
                alarm.cancel()
                self._room = None
                if self._stalled:
                    self._stalled = False
                    self._on_stall(False)

    def _notice_stall(self) -> None:
        self._stalled = True
        self._on_stall(True)

    def _arrived(self, frame: Frame) -> None:
        if status_of(frame) == NO_RESPONDERS or frame.data == END:
            self._on_gone()
        elif sequence := acknowledged(frame.data):
            self._acknowledged = max(self._acknowledged, min(sequence, self._sequence))
            if self._room is not None and not self._room.done():
                self._room.set_result(None)

    async def _beat(self) -> None:
        headers = {BEAT: str(self._sequence)}
        self._sent_at = self._loop.time()
        await self._mailbox.send(self._reply, b"", reply=self._back, headers=headers)

    def _silence(self) -> None:
        due = self._sent_at + self._period - self._loop.time()
        if due <= 0 and (self._beating is None or self._beating.done()):
            self._beating = self._loop.create_task(self._beat())
            self._beating.add_done_callback(_reported)
            due = self._period
        self._alarm = self._loop.call_later(max(due, 0.01), self._silence)


def too_large(error: MessageTooLarge) -> RpcError:
    """The error in place of an answer that does not fit; its text names the limit."""
    return RpcError(Code.INTERNAL_ERROR, f"the answer cannot be sent: {error.message}")


def _break_off(room: asyncio.Future[None], stall: float) -> None:
    if not room.done():
        room.set_exception(
            RpcError(Code.INTERNAL_ERROR, f"the client acknowledged nothing for {stall:g} s")
        )


def _reported(beat: asyncio.Task[None]) -> None:
    # A heartbeat that could not be sent counts as lost: the next one is as good.
    if not beat.cancelled():
        beat.exception()
