"""A stream as its reader counts it: gaps, beats, acknowledgements, foreign frames. Without a wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from postroom_a2a.binding import flow
from postroom_a2a.binding.frames import (
    COMPLETE,
    Flow,
    encode_complete,
    encode_result,
    encode_stream_frame,
)
from postroom_a2a.errors import NoResponders, ProtocolViolation, StreamBroken


@dataclass
class Frame:
    data: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    reply: str = ""
    subject: str = "inbox"


def reading(call_id: Any = "c1", window: int = 4, beat: float = 10) -> flow.FrameReader:
    return flow.FrameReader(call_id, "a2a.agent.x.rpc", Flow(window, beat))


def event(number: int = 0, call_id: Any = "c1", reply: str = "back") -> Frame:
    headers = {"A2A-Sequence": str(number)} if number else {}
    return Frame(encode_stream_frame(encode_result(call_id, b"1")), headers, reply)


def beat(number: int) -> Frame:
    return Frame(headers={"A2A-Beat": str(number)}, reply="back")


def test_a_gap_in_the_sequence_breaks_the_stream():
    stream = reading()
    stream.read(event(1))
    with pytest.raises(StreamBroken, match="2 frames were lost after frame 1"):
        stream.read(event(4))


def test_a_beat_tells_of_a_lost_frame_that_no_other_followed():
    stream = reading()
    stream.read(event(1))
    with pytest.raises(StreamBroken):
        stream.read(beat(2))


def test_a_frame_that_comes_twice_is_read_once():
    stream = reading()
    assert stream.read(event(1)) is not None
    assert stream.read(event(1)) is None


def test_frames_without_numbers_are_taken_as_they_come():
    stream = reading()
    assert [stream.read(event()) is not None for _ in range(3)] == [True] * 3


def test_a_server_that_beats_may_be_silent_for_three_beats_and_another_for_five_minutes():
    stream = reading()
    assert stream.idle == flow.IDLE
    stream.read(beat(0))
    assert stream.idle == 30


def test_each_half_window_is_acknowledged():
    stream = reading(window=4)
    due = []
    for number in range(1, 7):
        stream.read(event(number))
        due.append(stream.due())
    assert due == [0, 2, 0, 4, 0, 6]


def test_nothing_is_acknowledged_to_a_server_that_names_no_subject_for_it():
    stream = reading(window=2)
    stream.read(event(1, reply=""))
    assert stream.due() == 0


@pytest.mark.parametrize(
    "call_id, other", [(10, "10"), ("10", 10), (1, True), ("a", "b"), ("a", None)]
)
def test_a_frame_of_another_id_or_type_of_id_is_a_violation(call_id: Any, other: Any):
    with pytest.raises(ProtocolViolation):
        reading(call_id).read(event(1, other))


def test_complete_ends_the_stream_and_has_to_be_the_stream_s_own():
    stream = reading()
    assert stream.read(Frame(encode_complete("c1"))) is None
    assert stream.over
    with pytest.raises(ProtocolViolation):
        reading().read(Frame(encode_complete("c2")))
    assert COMPLETE == "complete"


def test_a_bare_error_ends_a_stream_with_that_error():
    stream = reading()
    said = stream.read(
        Frame(b'{"jsonrpc":"2.0","id":"c1","error":{"code":-32004,"message":"no streams"}}')
    )
    assert said is not None
    assert said.error is not None
    assert (said.error.code, stream.over) == (-32004, True)


def test_a_transport_error_breaks_the_stream_with_its_text():
    payload = b'{"protocol":"a2a-nats/1","kind":"transport-error","id":"c1","message":"Task not found: nope"}'
    with pytest.raises(StreamBroken, match="Task not found: nope"):
        reading().read(Frame(payload))


def test_no_responders_is_told_from_a_server_that_went_away():
    status = Frame(headers={"Status": "503"})
    with pytest.raises(NoResponders):
        reading().read(status)
    stream = reading()
    stream.read(event(1))
    with pytest.raises(StreamBroken):
        stream.read(status)


def test_a_status_header_of_a_peer_is_no_status():
    with pytest.raises(ProtocolViolation):
        reading().read(Frame(headers={"Status": "503"}, reply="back"))


@pytest.mark.parametrize(
    "payload, sequence",
    [
        (b"ack 16", 16),
        (b"ack", 0),
        (b"ack -1", 0),
        (b"ack x", 0),
        (b"end", 0),
        (b"ack " + b"9" * 99, 0),
    ],
)
def test_an_acknowledgement_is_a_number_and_nothing_else(payload: bytes, sequence: int):
    assert flow.acknowledged(payload) == sequence
