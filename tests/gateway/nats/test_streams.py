"""Reading NATS: any cut of a stream says the same, and no line is read in two ways."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.errors import ProtocolViolation
from postroom.gateway.nats.client_stream import TURN, ClientStream
from postroom.gateway.nats.server_stream import ServerStream
from postroom.gateway.nats.stream import HELD, TOO_LARGE, TOO_LONG, UNKNOWN, Stream

CONNECT = b'CONNECT {"verbose":false}\r\n'
EXAMPLES = max(100, settings().max_examples)


class Noted:
    """Allows everything but subjects that begin with `no`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def connect(self, options: bytes) -> bytes:
        if options == b"no":
            raise ProtocolViolation("Authorization Violation")
        self.said.append(("CONNECT", options))
        return b"CONNECT <" + options + b">\r\n"

    def publish(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> bool:
        block = data[start : start + header] if header <= HELD else b""
        self.said.append(("PUB", subject, reply, header, size, block))
        return not subject.startswith(b"no")

    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> bool:
        self.said.append(("SUB", subject, queue, sid))
        return not subject.startswith(b"no")

    def unsubscribe(self, sid: bytes, most: int) -> bool:
        self.said.append(("UNSUB", sid, most))
        return True

    def inform(self, info: bytes) -> bytes:
        self.said.append(("INFO", info))
        return b"INFO <" + info + b">\r\n"

    def message(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> None:
        self.said.append(("MSG", subject, reply, header, size))

    def error(self, text: bytes) -> None:
        self.said.append(("-ERR", text))


def _client(connected: bool = True) -> tuple[ClientStream, Noted]:
    noted = Noted()
    stream = ClientStream(noted)
    if connected:
        stream.feed(CONNECT)
        noted.said.clear()
    return stream, noted


def _fed(stream: ClientStream | ServerStream, pieces: list[bytes]) -> bytes:
    return b"".join(bytes(each) for piece in pieces for each in stream.feed(piece))


subjects = st.from_regex(r"\A(no\.)?[a-z0-9$_]{1,8}(\.[a-z0-9*>]{1,8}){0,3}\Z").map(str.encode)
payloads = st.binary(max_size=64) | st.binary(min_size=HELD - 20, max_size=HELD + 20)
HEADER = b"NATS/1.0\r\nNats-Msg-Id: m1\r\n\r\n"


@st.composite
def _frames(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A frame of a client, and whether it is to be passed on."""
    subject, reply = draw(subjects), draw(st.just(b"") | subjects)
    kind = draw(st.sampled_from(["PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG"]))
    middle = reply + b" " if reply else draw(st.sampled_from([b"", b" "]))
    passed = not subject.startswith(b"no")
    if kind == "PUB":
        body = draw(payloads)
        return b"PUB %b %b%d\r\n%b\r\n" % (subject, middle, len(body), body), passed
    if kind == "HPUB":
        body = HEADER + draw(payloads)
        sizes = (subject, middle, len(HEADER), len(body), body)
        return b"HPUB %b %b%d %d\r\n%b\r\n" % sizes, passed
    if kind == "SUB":
        return b"SUB %b %b7\r\n" % (subject, middle), passed
    if kind == "UNSUB":
        return draw(st.sampled_from([b"UNSUB 7\r\n", b"UNSUB 7 \r\n", b"UNSUB 7 10\r\n"])), True
    return kind.encode() + b"\r\n", True


@pytest.mark.requirement("gateway-nats-no-smuggling")
@given(st.lists(_frames(), max_size=8), st.data())
@settings(max_examples=EXAMPLES)
def test_any_cut_of_a_clients_stream_says_and_passes_on_the_same(
    frames: list[tuple[bytes, bool]], data: st.DataObject
):
    whole = b"".join(frame for frame, _ in frames)
    passed = b"".join(frame for frame, allowed in frames if allowed)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]

    one, asked_once = _client()
    many, asked_in_pieces = _client()

    assert _fed(one, [whole]) == passed
    assert _fed(many, pieces) == passed
    assert asked_in_pieces.said == asked_once.said
    assert not one.broken
    assert not many.broken


@pytest.mark.requirement("gateway-nats-no-smuggling")
def test_a_stream_of_single_bytes_says_and_passes_on_the_same():
    frames = (
        b"PUB a 5\r\nhello\r\nPUB no.b 2\r\nhi\r\nHPUB c r 30 32\r\n" + HEADER + b"ok\r\nPING\r\n"
    )
    frames = frames.replace(b"30 32", b"%d %d" % (len(HEADER), len(HEADER) + 2))
    stream, noted = _client()

    passed = _fed(stream, [bytes([byte]) for byte in frames])

    assert passed == frames.replace(b"PUB no.b 2\r\nhi\r\n", b"")
    assert [said[1] for said in noted.said] == [b"a", b"no.b", b"c"]


class _LineByLine(ClientStream):
    """Without the short way for common frames."""

    _run = Stream._run


@pytest.mark.requirement("gateway-nats-no-smuggling")
@given(st.lists(_frames(), min_size=1, max_size=4), st.data())
@settings(max_examples=EXAMPLES)
def test_the_short_way_for_common_frames_reads_what_the_long_one_reads(
    frames: list[tuple[bytes, bool]], data: st.DataObject
):
    whole = bytearray(b"".join(frame for frame, _ in frames))
    for at in data.draw(st.lists(st.integers(0, min(len(whole), 80) - 1), max_size=3)):
        whole[at : at + 1] = data.draw(
            st.sampled_from([b"", b" ", b".", b"*", b'"', b"0", b"\t", b"\n"])
        )
    short, asked = _client()
    noted = Noted()
    long = _LineByLine(noted)
    long.feed(CONNECT)
    noted.said.clear()

    assert _fed(short, [bytes(whole)]) == _fed(long, [bytes(whole)])
    assert asked.said == noted.said
    assert short.broken == long.broken


messages = st.binary(max_size=40).map(lambda body: b"MSG s.x 1 %d\r\n%b\r\n" % (len(body), body))
others = st.sampled_from(
    [b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b"INFO {}\r\n", b"MSG a 1  0\r\n\r\n"]
)


@pytest.mark.requirement("gateway-nats-no-smuggling")
@given(st.lists(messages | others, max_size=8), st.data())
@settings(max_examples=EXAMPLES)
def test_any_cut_of_a_servers_stream_says_and_passes_on_the_same(
    frames: list[bytes], data: st.DataObject
):
    whole = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    first, second = Noted(), Noted()

    passed = _fed(ServerStream(first), [whole])

    assert _fed(ServerStream(second), pieces) == passed
    assert first.said == second.said
    assert passed == b"".join(frames).replace(b"INFO {}", b"INFO <{}>")


# One line, one reading. The reference says in one expression per verb what may be said; a body follows.
_FIELD = rb"[^ \r\n]+"
_SIZE = rb"(?:0|[1-9][0-9]{0,8})"
_GRAMMAR = re.compile(
    b"|".join(
        [
            rb"PUB @F (?:(?:@F)? )?@N",
            rb"HPUB @F (?:(?:@F)? )?(?P<header>@N) (?P<total>@N)",
            rb"SUB @F (?:(?:@F)? )?[0-9]{1,20}",
            rb"UNSUB [0-9]{1,20}(?: (?:@N)?)?",
            rb"PING|PONG",
        ]
    )
    .replace(b"@F", _FIELD)
    .replace(b"@N", _SIZE)
)


def _reference(line: bytes) -> bool:
    """Whether `line`, with its end, may be said."""
    if not line.endswith(b"\r\n") or b"\r\n" in line[:-2]:
        return False
    found = _GRAMMAR.fullmatch(line[:-2])
    if found is None:
        return False
    if found["header"] is not None:
        return 12 <= int(found["header"]) <= int(found["total"])
    return True


LINES = [
    b"PUB a.b 5\r\n",
    b"PUB a.b r.s 5\r\n",
    b"PUB a.b  5\r\n",
    b"HPUB a.b r 12 17\r\n",
    b"HPUB a.b 12 17\r\n",
    b"SUB a.> q 7\r\n",
    b"SUB a.*  7\r\n",
    b"UNSUB 7\r\n",
    b"UNSUB 7 3\r\n",
    b"PING\r\n",
]


@pytest.mark.requirement("gateway-nats-no-smuggling")
@pytest.mark.parametrize("line", LINES)
def test_of_all_mutations_by_one_byte_only_lines_of_the_grammar_are_read(line: bytes):
    accepted = 0
    for at in range(len(line)):
        for byte in range(256):
            mutant = line[:at] + bytes([byte]) + line[at + 1 :]
            if not mutant.endswith(b"\r\n") or b"\r\n" in mutant[:-2]:
                continue  # not one line any more
            stream, _noted = _client()
            stream.feed(mutant)
            # A handler is asked about subjects, so a bare CR, LF or tab there is for it to refuse (`Rights`).
            strange = re.search(rb"[\r\n]", mutant[:-2])
            assert strange or _reference(mutant) == (not stream.broken), mutant
            accepted += not stream.broken
    assert accepted > 1 or line == b"PING\r\n"


@pytest.mark.requirement("gateway-nats-no-smuggling")
@pytest.mark.parametrize(
    "line",
    [
        b"pub a 5\r\nhello\r\n",
        b"Pub a 5\r\nhello\r\n",
        b"PUB\ta 5\r\nhello\r\n",
        b"PUB a\t5\r\nhello\r\n",
        b"PUB  a 5\r\nhello\r\n",
        b"PUB a   5\r\nhello\r\n",
        b"PUB a 5 \r\nhello\r\n",
        b" PUB a 5\r\nhello\r\n",
        b"PUB a +5\r\nhello\r\n",
        b"PUB a 05\r\nhello\r\n",
        b"PUB a 5\nhello\r\n",
        b"PUB a 5\r\r\nhello\r\n",
        b"PUB a 5\r\nhello\n",
        b"PUB a 5\r\nhelloPING\r\n",
        b"PUB a 4\r\nhello\r\n",
        b"PUB a -1\r\n\r\n",
        b"PUB a 0x5\r\nhello\r\n",
        b"PUB a \xd9\xa5\r\nhello\r\n",
        b"PUB a\r\n\r\n",
        b"PUB a b c 5\r\nhello\r\n",
        b"HPUB a 40 30\r\n",
        b"HPUB a 0 5\r\nhello\r\n",
        b"PING \r\n",
        b"PING x\r\n",
        b"ping\r\n",
        b"SUB a\r\n",
        b"SUB a x1\r\n",
        b"UNSUB\r\n",
        b"UNSUB x\r\n",
        b"+OK\r\n",
        b"-ERR 'x'\r\n",
        b"INFO {}\r\n",
        b"MSG a 1 0\r\n\r\n",
        b"CONNECT {}\r\n",
        b"\r\n",
        b"\x00\r\n",
    ],
)
def test_another_spelling_is_not_read(line: bytes):
    stream, _noted = _client()

    passed = _fed(stream, [line + b"PUB a 2\r\nhi\r\n"])

    assert stream.broken == UNKNOWN
    assert passed == b""


@pytest.mark.requirement("gateway-nats-no-smuggling")
@pytest.mark.parametrize(
    "line", [b"PING\r\n", b"PUB a 0\r\n\r\n", b"connect {}\r\n", b"CONNECT\r\n"]
)
def test_nothing_is_read_before_connect(line: bytes):
    stream, noted = _client(connected=False)

    assert stream.feed(line) == [] or line == b"CONNECT\r\n"
    assert stream.broken or noted.said == [("CONNECT", b"")]


def test_what_came_before_a_bad_line_is_passed_on_and_nothing_after_it():
    stream, _noted = _client()

    assert _fed(stream, [b"PING\r\nping\r\nPONG\r\n", b"PING\r\n"]) == b"PING\r\n"


def test_a_large_payload_is_passed_on_in_the_pieces_that_came():
    stream, _noted = _client()
    start = b"PUB a 900000\r\n" + b"x" * 1000
    middle = b"y" * 800_000

    assert stream.feed(start)[0] is start
    assert stream.feed(middle)[0] is middle
    assert stream.within
    assert _fed(stream, [b"z" * 99_000 + b"\r\nPING\r\n"]).endswith(b"z\r\nPING\r\n")
    assert not stream.within


def test_a_line_without_an_end_is_refused_at_its_limit():
    stream, _noted = _client()

    stream.feed(b"SUB " + b"x" * 5000)

    assert stream.broken == TOO_LONG


def test_more_than_the_server_takes_is_refused_before_a_byte_of_it_passes():
    stream, _noted = _client()
    stream.max_payload = 100

    assert _fed(stream, [b"PUB a 101\r\n" + b"x" * 50]) == b""
    assert stream.broken == TOO_LARGE


@pytest.mark.requirement("attack-flood-slowed")
@pytest.mark.parametrize("frame", [b"UNSUB 1\r\n", b"PUB a.b 2\r\nhi\r\n"])
def test_of_a_piece_with_very_many_frames_a_part_is_read_at_once_and_the_rest_follows(
    frame: bytes,
):
    stream, noted = _client()
    frames = frame * (2 * TURN + 1)

    first = b"".join(stream.feed(frames))
    counted = [stream.frames]
    rest = b""
    while stream.more:
        rest += b"".join(stream.feed(b""))
        counted.append(stream.frames)

    assert first + rest == frames
    assert counted == [TURN, TURN, 1]
    assert len(noted.said) == 2 * TURN + 1


def test_pings_count_as_frames():
    stream, _ = _client()

    stream.feed(b"PING\r\nPONG\r\nPI")

    assert stream.frames == 2
