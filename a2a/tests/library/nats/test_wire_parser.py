"""The parser of the binding's own connection: cut anywhere, strict, bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_a2a.bounds import MAX_SERVER_LINE
from postroom_a2a.errors import InvalidInput, ProtocolViolation
from postroom_a2a.nats.frame import WireFrame, read_headers, write_headers
from postroom_a2a.nats.parser import Parser

token = st.binary(min_size=1, max_size=12).filter(lambda b: not set(b) & set(b" \t\r\n"))
message = st.tuples(
    st.integers(1, 10**9), token, st.one_of(st.just(b""), token), st.binary(max_size=300)
)
block = st.one_of(
    st.just(b""), st.just(b"NATS/1.0 503\r\n\r\n"), st.just(b"NATS/1.0\r\nA:b\r\n\r\n")
)
control = st.sampled_from(
    [(b"PING", b""), (b"PONG", b""), (b"+OK", b""), (b"INFO", b"{}"), (b"-ERR", b"'x'")]
)
item = st.one_of(
    st.tuples(st.just("message"), message, block), st.tuples(st.just("control"), control)
)


def written(items: list) -> bytes:
    out = b""
    for kind, *rest in items:
        if kind == "control":
            verb, said = rest[0]
            out += verb + (b" " + said if said else b"") + b"\r\n"
            continue
        (sid, subject, reply, data), head = rest
        fields = [b"HMSG" if head else b"MSG", subject, b"%d" % sid, *([reply] if reply else [])]
        fields += [b"%d" % len(head)] if head else []
        out += (
            b" ".join([*fields, b"%d" % (len(head) + len(data))]) + b"\r\n" + head + data + b"\r\n"
        )
    return out


def expected(items: list) -> list:
    found = []
    for kind, *rest in items:
        if kind == "control":
            found.append(rest[0])
        else:
            (sid, subject, reply, data), head = rest
            found.append((b"%d" % sid, subject, reply, head, data))
    return found


def parsed(pieces: list[bytes]) -> list:
    found: list = []
    parser = Parser(lambda *each: found.append(each), lambda *each: found.append(each))
    for piece in pieces:
        parser.feed(piece)
    return found


@given(items=st.lists(item, max_size=6), cuts=st.lists(st.integers(0, 3000), max_size=8))
def test_a_stream_means_the_same_wherever_it_is_cut(items: list, cuts: list[int]):
    stream = written(items)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert parsed(pieces) == expected(items)
    assert parsed([bytes([byte]) for byte in stream]) == expected(items)


@pytest.mark.parametrize(
    "stream",
    [
        b"msg a 1 0\r\n\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 +1\r\n",
        b"MSG a 1 1\r\nxyz\r\n",
        b"MSG a 1\r\n",
        b"MSG a b c d 1\r\n",
        b"MSG a 1 9999999999\r\n",
        b"MSG  1 0\r\n\r\n",
        b"MSG\ta\t1\t0\r\n\r\n",
        b"HMSG a 1 9 5\r\n",
        b"HMSG a 1 5\r\n",
        b"PING x\r\n",
        b"HELLO\r\n",
        b"\r\n",
        b"x" * (MAX_SERVER_LINE + 2),
    ],
)
def test_what_no_nats_server_writes_ends_the_reading(stream: bytes):
    with pytest.raises(ProtocolViolation):
        parsed([stream])


def test_a_large_message_is_put_together_once():
    data = bytes(8 * 1024 * 1024)
    stream = b"MSG a 1 %d\r\n" % len(data) + data + b"\r\n"
    pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]
    assert parsed(pieces)[0][4] == data


def test_a_reply_that_is_left_out_may_leave_two_spaces():
    assert parsed([b"MSG a 1  2\r\nhi\r\n"]) == [(b"1", b"a", b"", b"", b"hi")]


def test_bytes_that_are_no_utf_8_come_back_as_they_were():
    frame = WireFrame(b"a.\xff", b"\xfe", b"NATS/1.0\r\nName: \xff\r\n\r\n", b"")
    assert frame.subject.encode("utf-8", "surrogateescape") == b"a.\xff"
    assert frame.reply.encode("utf-8", "surrogateescape") == b"\xfe"
    assert frame.headers is not None
    assert write_headers(frame.headers) == b"NATS/1.0\r\nName: \xff\r\n\r\n"


@given(
    headers=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), max_size=30),
    )
)
def test_headers_come_back_as_they_were(headers: dict[str, str]):
    assert read_headers(write_headers(headers)) == headers


def test_a_status_is_two_headers():
    assert read_headers(b"NATS/1.0 409 Consumer Deleted\r\n\r\n") == {
        "Status": "409",
        "Description": "Consumer Deleted",
    }


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"": "x"}, {"a": "x\r\nb: y"}, {"a:": "x"}])
def test_a_header_that_would_be_another_is_refused(headers: dict[str, str]):
    with pytest.raises(InvalidInput):
        write_headers(headers)
