"""CONNECT: a tunnel carries TLS to the host that it was opened for, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import ProtocolViolation
from postroom.gateway.http.tunnel import MAX_HELLO, ClientHello
from tests.gateway.http.rig import DEADLINE, HOST, Near, Site

pytestmark = pytest.mark.anyio


def hello_for(name: str | None) -> bytes:
    """What Python's own TLS says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(came, goes, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return goes.read()


def with_extension(hello: bytes, kind: int, body: bytes) -> bytes:
    """The ClientHello with one more extension at its end."""
    extension = kind.to_bytes(2) + len(body).to_bytes(2) + body
    message = hello[9:]
    at = 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2])
    at += 1 + message[at]
    extensions = message[at + 2 :] + extension
    message = message[:at] + len(extensions).to_bytes(2) + extensions
    handshake = b"\x01" + len(message).to_bytes(3) + message
    return hello[:3] + len(handshake).to_bytes(2) + handshake


HELLO = hello_for("API.example.test")


@pytest.mark.requirement("egress-address-guarded")
def test_the_name_is_found_in_its_one_spelling():
    assert ClientHello().feed(HELLO) == "api.example.test"


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(40, 400))
def test_a_hello_in_any_pieces_and_records_says_the_same(pieces: list[int], record: int):
    handshake = HELLO[5:]
    parts = [handshake[at : at + record] for at in range(0, len(handshake), record)]
    if len(parts) > 16:
        parts = [handshake]
    data = b"".join(HELLO[:3] + len(part).to_bytes(2) + part for part in parts)
    hello, at, name = ClientHello(), 0, None
    for size in [*pieces, len(data)]:
        if at < len(data):
            assert name is None
            name = hello.feed(data[at : at + size])
            at += size

    assert name == "api.example.test"
    assert hello.raw == data


@pytest.mark.requirement("egress-address-guarded")
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00",
        hello_for(None),
        hello_for("192.0.2.1"),
        with_extension(HELLO, 0xFE0D, b"x" * 40),
        with_extension(HELLO, 0, b"\x00\x05\x00\x00\x02ab"),
        b"\x16\x03\x01\x40\x00\x01\x00\x80\x00" + b"x" * (MAX_HELLO + 10),
        (b"\x16\x03\x01\x00\x01\x01") * 20,
    ],
)
def test_what_is_no_clear_hello_is_refused(data: bytes):
    with pytest.raises(ProtocolViolation):
        ClientHello().feed(data)


@given(st.binary(max_size=300))
def test_no_bytes_are_anything_but_refused_or_waited_for(data: bytes):
    for start in (b"", HELLO[:5], HELLO[: len(HELLO) // 2]):
        with contextlib.suppress(ProtocolViolation):
            ClientHello().feed(start + data)


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255))
def test_a_hello_with_a_changed_byte_names_a_host_or_is_refused(at: int, byte: int):
    changed = HELLO[:at] + bytes([byte]) + HELLO[at + 1 :]
    try:
        name = ClientHello().feed(changed)
    except ProtocolViolation:
        return
    assert name is None or name.isascii()


async def connect(near: Near, place: str) -> bytes:
    await near.send(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE):
        return await near.reader.readuntil(b"\r\n\r\n")


async def tls(
    near: Near, site: Site, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context()
    site.way.authority.configure_trust(context)
    loop = asyncio.get_running_loop()
    transport = near.writer.transport
    protocol = transport.get_protocol()
    async with asyncio.timeout(DEADLINE):
        inner = await loop.start_tls(transport, protocol, context, server_hostname=name)
    assert inner is not None
    return near.reader, asyncio.StreamWriter(inner, protocol, near.reader, loop)


@pytest.mark.requirement("audit-recorded-first")
async def test_a_tunnel_carries_tls_end_to_end_and_is_written_down_at_both_ends(site: Site):
    site.way.keep(site.rule)
    site.way.allow(site.rule, credentials=("key",))
    site.way.cause.task_changed("t1", "working")
    async with site.way.open() as enter:
        near = await enter()
        assert b" 200 " in await connect(near, site.rule)
        assert site.way.said("protocol", "verb", "url", "verdict") == [
            ("tunnel", "CONNECT", site.rule, "allowed")
        ]
        reader, writer = await tls(near, site, HOST)
        writer.write(b"GET /secret-path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(DEADLINE):
            answer = await reader.readuntil(b"ok")
        writer.close()
        await site.way.until(lambda: len(site.way.sink.records) == 2)

    [call] = site.outside.calls
    opened, closed = site.way.sink.records
    assert b"200 OK" in answer
    assert "authorization" not in call.headers
    assert (opened.cause_task, closed.cause_task) == ("t1", "t1")
    assert closed.size > 1000
    assert "secret-path" not in site.way.sink.text


@pytest.mark.requirement("egress-address-guarded")
async def test_tls_for_another_host_gets_nothing_through(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        await connect(near, site.rule)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await tls(near, site, "other.example.test")
        await site.way.until(lambda: len(site.way.sink.records) == 2)

    assert site.outside.calls == []
    denied = site.way.sink.records[-1]
    assert (denied.verdict, denied.url) == ("denied", site.rule)
    assert "other.example.test" in denied.reason


@pytest.mark.requirement("egress-address-guarded")
async def test_what_is_not_tls_gets_nothing_through(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        await connect(near, site.rule)
        await near.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await near.rest() == b""
        await site.way.until(lambda: len(site.way.sink.records) == 2)

    assert site.way.sink.records[-1].verdict == "denied"
    assert site.outside.calls == []


@pytest.mark.parametrize(
    "place, status",
    [
        ("other.example.test:443", b"403"),
        (HOST, b"422"),
        (f"{HOST}:1", b"403"),
        ("10.0.0.1:443", b"403"),
        ("8.8.8.8:443", b"422"),
        (f"user@{HOST}:443", b"422"),
    ],
)
async def test_a_tunnel_to_what_no_rule_names_is_refused(site: Site, place: str, status: bytes):
    async with site.way.open() as enter:
        near = await enter()
        head = await connect(near, place)

    assert head.startswith(b"HTTP/1.1 " + status)
    assert [verdict for (verdict,) in site.way.said("verdict")] == ["denied"]
    assert len(site.way.offences) == place.startswith("10.")
    assert site.outside.connections == 0


async def test_a_rule_with_a_path_opens_no_tunnel_and_says_what_to_do(site: Site):
    site.way.allow(f"https://{site.rule}/v1")
    async with site.way.open() as enter:
        near = await enter()
        await near.send(f"CONNECT {site.rule} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        near.writer.write_eof()
        answer = await near.rest()

    assert answer.startswith(b"HTTP/1.1 403")
    assert b"would hide the path" in answer
