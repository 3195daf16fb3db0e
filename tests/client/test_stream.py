from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import httpx2
import pytest

from postroom.client.locate import ServerAddress
from postroom.client.stream import RECONNECT, EventStream, SeenEvents
from postroom.client.transport import Transport
from postroom.errors import NotFound, PeerError, ProtocolViolation
from postroom_a2a.retry import RetryPolicy
from tests.client.standin import DEADLINE, TOKEN, Standin, frame, mail, post

SOON = replace(RECONNECT, base=0.0)


@pytest.fixture
def transport(standin: Standin) -> Iterator[Transport]:
    transport = Transport(lambda: ServerAddress(standin.url, 1, TOKEN))
    yield transport
    transport.close()


def feed(transport: Transport, after: str = "0", retry: RetryPolicy = SOON) -> EventStream:
    return EventStream(transport, {"project": "main"}, after=after, retry=retry)


def test_events_come_in_order_and_comments_are_none(standin: Standin, transport: Transport):
    frames = standin.stream()
    frames.put(b": hello\n\n" + frame("post", 5, post(5, "a")))
    frames.put(frame("post", 6, post(6, "b"))[:20])
    frames.put(frame("post", 6, post(6, "b"))[20:])
    events = list(islice(feed(transport, after="4"), 2))
    assert [(e.id, e.kind, e.data["text"]) for e in events] == [
        ("5", "post", "a"),
        ("6", "post", "b"),
    ]
    assert standin.stream_requests.get(timeout=DEADLINE).query == {"project": "main", "after": "4"}


def test_a_line_separator_inside_a_text_ends_no_line(standin: Standin, transport: Transport):
    standin.stream().put('id: 1\nevent: post\ndata: {"text": "a\u2028b"}\n\n'.encode())
    (event,) = islice(feed(transport), 1)
    assert event.data == {"text": "a\u2028b"}


@pytest.mark.requirement("client-stream-resumes")
def test_after_a_loss_it_goes_on_behind_the_last_record_and_shows_none_twice(
    standin: Standin, transport: Transport
):
    first, second = standin.stream(), standin.stream()
    first.put(frame("post", 7, post(7, "a")))
    first.put(None)
    second.put(frame("post", 7, post(7, "a")) + frame("post", 8, post(8, "b")))
    events = list(islice(feed(transport), 2))
    assert [event.data["text"] for event in events] == ["a", "b"]
    asked = [standin.stream_requests.get(timeout=DEADLINE).query["after"] for _ in range(2)]
    assert asked == ["0", "7"]


def test_receipts_do_not_move_the_place_to_resume_at(standin: Standin, transport: Transport):
    first, second = standin.stream(), standin.stream()
    first.put(frame("mail", 7, mail(7, "a")))
    first.put(frame("receipt", 900, {"message_id": "m7", "state": "seen"}))
    first.put(None)
    second.put(frame("mail", 8, mail(8, "b")))
    assert [event.id for event in islice(feed(transport), 3)] == ["7", "900", "8"]
    asked = [standin.stream_requests.get(timeout=DEADLINE).query["after"] for _ in range(2)]
    assert asked == ["0", "7"]


def test_two_receipts_under_one_id_are_two_events(standin: Standin, transport: Transport):
    frames = standin.stream()
    for state in ("delivered", "delivered", "seen"):
        frames.put(frame("receipt", 7, {"message_id": "m7", "state": state}))
    states = [event.data["state"] for event in islice(feed(transport), 2)]
    assert states == ["delivered", "seen"]


def test_a_refusal_is_raised_and_not_repeated(transport: Transport, standin: Standin):
    unknown = EventStream(transport, {"chat": "x"}, after="0", retry=SOON)
    transport.inner._server = replace(transport.server, url=standin.url + "/elsewhere")
    with pytest.raises(NotFound):
        next(iter(unknown))
    assert len(standin.requests) == 1


def test_attempts_to_connect_again_end(standin: Standin, transport: Transport):
    for _ in range(3):
        standin.stream().put(None)
    with pytest.raises(PeerError):
        list(feed(transport, retry=replace(SOON, attempts=3)))
    assert len(standin.requests) == 3


def test_what_is_not_json_is_a_violation(standin: Standin, transport: Transport):
    standin.stream().put(b"id: 1\nevent: post\ndata: {\n\n")
    with pytest.raises(ProtocolViolation):
        next(iter(feed(transport)))


def test_closing_wakes_a_reader_that_waits(standin: Standin, transport: Transport):
    standin.stream()
    stream = feed(transport)
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.extend(stream))
    reader.start()
    assert stream.connected.wait(DEADLINE)
    stream.close()
    reader.join(DEADLINE)
    assert not reader.is_alive()
    assert got == []


def test_the_memory_for_duplicates_is_bounded():
    seen = SeenEvents(limit=2)
    events = [httpx2.ServerSentEvent(event="post", data="", id=str(n)) for n in range(3)]
    assert all(seen.is_new(event) for event in events)
    assert not seen.is_new(events[2])
    assert seen.is_new(events[0])
