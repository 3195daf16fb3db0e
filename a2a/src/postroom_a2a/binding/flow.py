"""Flow control of a stream on core NATS: frames, acknowledgements and silence. Pure.

The server numbers its frames and names a subject in each. There a client acknowledges the frames that it has read
(`ack 16`) and ends the stream (`end`). Rules: docs/binding.md, Streams.
"""

from __future__ import annotations

from postroom_a2a.binding.frames import (
    BEAT,
    COMPLETE,
    TRANSPORT_ERROR,
    Flow,
    Response,
    decode_response,
    sequence_of,
)
from postroom_a2a.binding.subjects import may_publish_to
from postroom_a2a.errors import NoResponders, ProtocolViolation, StreamBroken
from postroom_a2a.nats.port import NO_RESPONDERS, Frame, status_of
from postroom_a2a.rpc import Id

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
