"""The binding's own connection to a real nats-server: who may connect, what comes, and what survives."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

import postroom_a2a as a2a
from library.nats.agent import SUBJECT, PlainAgent
from library.nats.wireserver import ConfiguredServer, Proxy, UserKey
from postroom_a2a.binding.frames import Request
from postroom_a2a.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    ProtocolViolation,
    Refused,
    Unauthorized,
)
from postroom_a2a.live.calling import CoreCaller
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats import Credentials, WireConnection
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Frame

pytestmark = pytest.mark.anyio


class Inbox:
    """What came, and waiting for so many."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._more = asyncio.Event()

    def __call__(self, frame: Frame) -> None:
        self.frames.append(frame)
        self._more.set()

    async def have(self, count: int) -> list[Frame]:
        async with asyncio.timeout(20):
            while len(self.frames) < count:
                self._more.clear()
                await self._more.wait()
        return self.frames


async def echoed(connection: WireConnection) -> None:
    inbox = Inbox()
    await connection.subscribe_now("echo", inbox)
    await connection.publish("echo", b"hello", "back", {"Name": "value"})
    await connection.flush()
    [frame] = inbox.frames
    assert (frame.data, frame.reply, frame.headers) == (b"hello", "back", {"Name": "value"})


async def echoed_again(connection: WireConnection) -> None:
    inbox = Inbox()
    await connection.subscribe_now("echo.again", inbox)
    await connection.publish("echo.again", b"hello")
    await connection.flush()
    assert [frame.data for frame in inbox.frames] == [b"hello"]


async def until(true: Any) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 (a connection gives no other sign)
            await asyncio.sleep(0.005)


# ── who may connect ──────────────────────────────────────────────────────────────────────────────────

USER = "authorization { user: ann, password: s3cret }"


@pytest.mark.requirement("identity-revocation-everywhere")
@pytest.mark.parametrize(
    "config, good, options",
    [
        (USER, "ann:s3cret@", {}),
        (USER, "", {"user": "ann", "password": "s3cret"}),
        ("authorization { token: t0ken }", "t0ken@", {}),
        ("authorization { token: t0ken }", "", {"token": "t0ken"}),
    ],
)
async def test_users_and_tokens_are_let_in_and_others_are_told(
    tmp_path: Path, config: str, good: str, options: dict[str, Any]
):
    async with ConfiguredServer(tmp_path, config) as server:
        async with await a2a.connect(f"nats://{good}{server.place}", **options) as connection:
            await echoed(connection)
        with pytest.raises(Unauthorized):
            await a2a.connect(f"nats://{server.place}")


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_key_signs_the_servers_nonce(tmp_path: Path):
    pair, other = UserKey(), UserKey()
    config = f"authorization {{ users: [ {{ nkey: {pair.public} }} ] }}"
    async with ConfiguredServer(tmp_path, config) as server:
        credentials = Credentials(pair.sign, nkey=pair.public)
        async with await a2a.connect(server.place, credentials=credentials) as connection:
            await echoed(connection)
        with pytest.raises(Unauthorized):
            await a2a.connect(server.place, credentials=Credentials(other.sign, nkey=pair.public))


@pytest.mark.requirement("identity-revocation-everywhere")
@pytest.mark.parametrize("first", [False, True])
async def test_tls_is_spoken_and_the_server_is_verified(tmp_path: Path, first: bool):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    config = (
        f'tls {{ cert_file: "{cert}", key_file: "{key}", handshake_first: {str(first).lower()} }}'
    )
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with ConfiguredServer(tmp_path, config) as server:
        url = f"tls://{server.place}"
        async with await a2a.connect(url, tls=trusting, tls_first=first) as connection:
            await echoed(connection)
            await server.restart(kill=True)
            await until(lambda: connection.reconnects)
            await connection.flush()
        with pytest.raises(BusDisconnected):
            await a2a.connect(url, tls_first=first)  # nobody vouches for it


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_what_asks_for_tls_says_nothing_to_a_server_without(tmp_path: Path):
    async with ConfiguredServer(tmp_path, USER) as server:
        with pytest.raises(ProtocolViolation, match="no TLS"):
            await a2a.connect(f"tls://ann:s3cret@{server.place}")


async def test_a_refusal_in_an_outage_ends_the_connection_for_good(tmp_path: Path):
    errors: list[Exception] = []
    async with ConfiguredServer(tmp_path, USER) as server:
        connection = await a2a.connect(f"ann:s3cret@{server.place}", on_error=errors.append)
        server.configure("authorization { user: ann, password: another }")
        await until(lambda: connection.is_closed)
        with pytest.raises(PostroomError):
            await connection.publish("a", b"")
    assert any(isinstance(error, Unauthorized) for error in errors)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_what_is_denied_fails_at_once(tmp_path: Path):
    config = """authorization { users: [ { user: ann, password: pw,
        permissions: { publish: ["open.>"], subscribe: ["_INBOX.>"] } } ] }"""
    errors: list[Exception] = []
    async with (
        ConfiguredServer(tmp_path, config) as server,
        await a2a.connect(f"ann:pw@{server.place}", on_error=errors.append) as connection,
    ):
        with pytest.raises(Forbidden, match="shut"):
            await Mailbox(connection).ask("shut", b"", timeout=20)
        with pytest.raises(Forbidden, match="a2a"):
            async with CoreServer(connection, SUBJECT, PlainAgent()):
                pass
        assert connection.is_connected
    assert not errors  # the calls that wait for it are told


# ── what comes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("size", [7, 65_536], ids=["tiny reads", "whole reads"])
async def test_ten_thousand_messages_come_in_order(tmp_path: Path, size: int):
    async with (
        ConfiguredServer(tmp_path) as server,
        Proxy(server.place, size) as url,
        await a2a.connect(url) as reading,
        await a2a.connect(server.place) as writing,
    ):
        inbox, slow = Inbox(), Inbox()

        async def later(frame: Frame) -> None:
            if frame.data.endswith(b"99"):
                await asyncio.sleep(0)
            slow(frame)

        await reading.subscribe_now("n.*", inbox)
        await reading.subscribe("n.*", cb=later)
        await reading.flush()
        count = 10_000 if size > 1000 else 300
        for number in range(count):
            await writing.publish(f"n.{number % 7}", b"%d" % number)
        numbers = [b"%d" % number for number in range(count)]
        assert [frame.data for frame in await inbox.have(count)] == numbers
        assert [frame.data for frame in await slow.have(count)] == numbers


@pytest.mark.requirement("core-never-deaf")
async def test_a_slow_consumer_loses_messages_and_is_told(tmp_path: Path):
    errors: list[Exception] = []
    options: Any = {"unread": 10, "unread_size": 1000, "on_error": errors.append}
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place, **options) as connection,
    ):
        handled, go_on = Inbox(), asyncio.Event()

        async def stuck(frame: Frame) -> None:
            await go_on.wait()
            handled(frame)

        subscription = await connection.subscribe("much", cb=stuck)
        for number in range(100):
            await connection.publish("much", b"%03d" % number)
        await connection.flush()
        go_on.set()
        await subscription.drain()
    assert subscription.dropped == 100 - len(handled.frames) > 80
    numbers = [int(each.data) for each in handled.frames]
    assert numbers == sorted(set(numbers))
    assert numbers[:10] == list(range(10))
    assert any(isinstance(error, Refused) for error in errors)


@pytest.mark.requirement("core-never-deaf")
async def test_what_nobody_waits_for_keeps_its_place_and_goes_also_alone(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place, on_error=lambda _: None) as connection,
    ):
        inbox = Inbox()
        await connection.subscribe_now("n", inbox)
        assert connection.post_later("n", b"1")
        await connection.publish("n", b"2")
        assert connection.post_later("n", b"3")
        assert connection.post("n", b"4")
        await inbox.have(4)
        assert connection.post_later("n", b"5")
        frames = await inbox.have(5)
        assert [frame.data for frame in frames] == [b"1", b"2", b"3", b"4", b"5"]

        await server.stop(kill=True)
        await until(lambda: not connection.is_connected)
        assert not connection.post("n", b"6")
        assert not connection.post_later("n", b"6")


@pytest.mark.requirement("core-never-deaf")
async def test_an_answer_sent_at_once_stays_behind_what_was_sent_before(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place) as connection,
        await a2a.connect(server.place) as other,
    ):
        inbox, asked = Inbox(), Inbox()

        async def answer(frame: Frame) -> None:
            assert connection.post_later("n", b"1")
            await connection.publish("n", b"2")  # at once: the request came alone
            await connection.publish("n", b"3")
            asked(frame)

        await connection.subscribe("ask", cb=answer)
        await connection.flush()
        await other.subscribe_now("n", inbox)
        await other.flush()
        for number in range(20):
            await other.publish("ask", b"")
            await asked.have(number + 1)
        frames = await inbox.have(60)
        assert [frame.data for frame in frames] == [b"1", b"2", b"3"] * 20


async def test_what_a_function_raises_is_told_and_the_next_frame_comes(tmp_path: Path):
    errors: list[Exception] = []
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place, on_error=errors.append) as connection,
    ):
        inbox = Inbox()

        def fail(frame: Frame) -> None:
            inbox(frame)
            raise ValueError("mine")

        await connection.subscribe_now("a", fail)
        await connection.publish("a", b"1")
        await connection.publish("a", b"2")
        await connection.flush()
    assert len(inbox.frames) == len(errors) == 2


async def test_a_large_message_comes_whole_and_one_over_the_limit_is_refused_here(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path, "max_payload: 2MB") as server,
        await a2a.connect(server.place) as connection,
    ):
        inbox = Inbox()
        await connection.subscribe_now("big", inbox)
        data = bytes(range(256)) * (8192 - 1)
        await connection.publish("big", data, headers={"A": "b"})
        await connection.flush()
        assert inbox.frames[0].data == data
        with pytest.raises(MessageTooLarge):
            await connection.publish("big", bytes(connection.max_payload + 1))
        server.configure("max_payload: 1MB")
        await server.restart(kill=True)
        await until(lambda: connection.max_payload == 1024 * 1024)


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x 0\r\n\r\n", "a\t", "a" * 5000])
async def test_a_subject_that_would_be_another_command_is_refused(tmp_path: Path, subject: str):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place) as connection,
    ):
        with pytest.raises(InvalidInput):
            await connection.publish(subject, b"")
        with pytest.raises(InvalidInput):
            await connection.subscribe_now(subject, lambda _: None)
        if subject:
            with pytest.raises(InvalidInput):
                await connection.publish("a", b"", subject)
        await echoed(connection)


async def test_drain_hands_over_what_was_sent_and_then_closes(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place) as other,
    ):
        connection, inbox = await a2a.connect(server.place), Inbox()

        async def take(frame: Frame) -> None:
            await asyncio.sleep(0)
            inbox(frame)

        await connection.subscribe("work", cb=take)
        await connection.flush()
        for _ in range(1000):
            await other.publish("work", b"x")
        await other.flush()
        await connection.drain()
        assert len(inbox.frames) == 1000
        assert connection.is_closed
        assert not connection.is_connected


# ── what survives ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("kill", [False, True])
async def test_an_outage_loses_neither_subscriptions_nor_what_is_published_in_it(
    tmp_path: Path, kill: bool
):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place, on_error=lambda _: None) as connection,
    ):
        inbox = Inbox()
        await connection.subscribe_now("kept.*", inbox)
        await connection.flush()
        await server.stop(kill=kill)
        await until(lambda: not connection.is_connected)
        for number in range(100):
            await connection.publish(f"kept.{number}", b"%d" % number)
        with pytest.raises(BusDisconnected):
            await connection.flush()
        await server.restart()
        frames = await inbox.have(100)
        assert [frame.data for frame in frames] == [b"%d" % number for number in range(100)]
        assert connection.reconnects == 1


@pytest.mark.requirement("core-never-deaf")
async def test_what_is_kept_during_an_outage_is_bounded(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place, pending=10_000, on_error=lambda _: None) as connection,
    ):
        await server.stop(kill=True)
        await until(lambda: not connection.is_connected)
        for _ in range(9):
            await connection.publish("a", bytes(1000))
        with pytest.raises(BusDisconnected):
            await connection.publish("a", bytes(1000))


@pytest.mark.requirement("core-never-deaf")
async def test_publishing_waits_for_a_server_that_does_not_read(tmp_path: Path):
    async with ConfiguredServer(tmp_path) as server:
        proxy = Proxy(server.place)
        async with (
            proxy as url,
            await a2a.connect(url, ping_interval=0.2, on_error=lambda _: None) as connection,
        ):
            proxy.stall()
            sent = 0
            while connection.is_connected:  # two pings without an answer end it
                await connection.publish("a", bytes(500_000))
                sent += 1
                if sent > 100:
                    break
            assert sent < 60
            await until(lambda: connection.reconnects)


@pytest.mark.requirement("core-never-deaf")
async def test_a_connection_that_hangs_is_found_and_replaced(tmp_path: Path):
    async with ConfiguredServer(tmp_path) as server:
        proxy = Proxy(server.place)
        async with (
            proxy as url,
            await a2a.connect(url, ping_interval=0.05, on_error=lambda _: None) as connection,
            await a2a.connect(server.place) as other,
        ):
            agent = PlainAgent()
            async with CoreServer(connection, SUBJECT, agent, queue=""):
                proxy.stall()
                await until(lambda: connection.reconnects)
                await connection.flush()
                caller = CoreCaller(other, SUBJECT)
                answer = await caller.call(Request("1", "echo", [1]), timeout=20)
                assert answer.result == [1]
                await caller.close()


@pytest.mark.requirement("core-never-deaf")
async def test_another_server_of_the_list_takes_over(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path / "1") as first,
        ConfiguredServer(tmp_path / "2") as second,
        await a2a.connect([first.place, second.place], on_error=lambda _: None) as connection,
    ):
        await first.stop(kill=True)
        await until(lambda: connection.reconnects)
        await echoed(connection)


# ── who keeps trying, and how ────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-never-deaf")
async def test_a_server_that_refuses_in_an_outage_is_asked_for_ever_by_who_insists(tmp_path: Path):
    """A server that has just started may not know its accounts yet."""
    errors: list[Exception] = []
    async with (
        ConfiguredServer(tmp_path, USER) as server,
        await a2a.connect(
            f"ann:s3cret@{server.place}", insist=True, on_error=errors.append
        ) as connection,
    ):
        back = connection.changed
        await server.stop(kill=True)
        (tmp_path / "nats.conf").write_text("")
        stranger = ConfiguredServer(tmp_path, "authorization { user: bob, password: x }")
        stranger._port = server._port
        async with stranger:
            await until(lambda: connection._pool._entries[0].refusals > 3)
            assert not connection.is_closed
        await server.restart()
        await asyncio.wait_for(back, 20)
        await echoed(connection)
    assert len([error for error in errors if isinstance(error, Unauthorized)]) == 1


async def test_the_first_connect_waits_for_a_server_that_is_late_and_no_longer(tmp_path: Path):
    async with ConfiguredServer(tmp_path) as server:
        await server.stop(kill=True)
        with pytest.raises(BusDisconnected):
            await a2a.connect(server.place, wait=0.05)
        connecting = asyncio.create_task(a2a.connect(server.place, wait=20))
        await server.restart()
        async with await connecting as connection:
            await echoed(connection)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_certificate_is_checked_against_the_name_that_was_asked_for(tmp_path: Path):
    authority = trustme.CA()
    issued = authority.issue_cert("bus.test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    for first in (False, True):
        config = f'tls {{ cert_file: "{cert}", key_file: "{key}", handshake_first: {str(first).lower()} }}'
        async with ConfiguredServer(tmp_path, config) as server:
            options: Any = {"tls": trusting, "tls_first": first}
            async with await a2a.connect(
                server.place, tls_name="bus.test", **options
            ) as connection:
                await echoed(connection)
            for name in ("", "another.test"):
                with pytest.raises(BusDisconnected):
                    await a2a.connect(server.place, tls_name=name, **options)


async def test_a_stream_of_ones_own_begins_with_what_must_be_said_first(tmp_path: Path):
    """As the way out of a sandbox is: a Unix socket, and a line that says whose connection it is."""
    heard: list[bytes] = []
    async with ConfiguredServer(tmp_path) as server:
        host, _, port = server.place.partition(":")

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readline())
            far, back = await asyncio.open_connection(host, int(port))

            async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                while data := await source.read(65_536):
                    target.write(data)
                target.close()

            await asyncio.gather(pump(reader, back), pump(far, writer))

        path = str(tmp_path / "way.sock")

        async def dial(factory: Any, _: object) -> Any:
            loop = asyncio.get_running_loop()
            transport, session = await loop.create_unix_connection(factory, path)
            transport.write(b"who: me\n")
            return transport, session

        async with (
            await asyncio.start_unix_server(relay, path),
            await a2a.connect("gateway.test", dial=dial) as connection,
        ):
            await echoed(connection)
            connection.reconnect()
            await until(lambda: connection.reconnects)
            await echoed_again(connection)
        with pytest.raises(InvalidInput, match="tls_first"):
            await a2a.connect("gateway.test", dial=dial, tls_first=True)
    assert heard == [b"who: me\n"] * 2


@pytest.mark.requirement("core-never-deaf")
async def test_a_renewed_connection_loses_nothing_and_repeats_nothing(tmp_path: Path):
    async with (
        ConfiguredServer(tmp_path) as server,
        await a2a.connect(server.place) as connection,
        await a2a.connect(server.place) as other,
    ):
        plain, shared, sent = Inbox(), Inbox(), Inbox()
        await connection.subscribe_now("n", plain)
        await connection.subscribe_now("n", shared, queue="q")
        await other.subscribe_now("back", sent)
        await connection.flush()
        await other.flush()
        stop, count = asyncio.Event(), 0

        async def load() -> None:
            nonlocal count
            while not stop.is_set():
                for _ in range(20):
                    await other.publish("n", b"%d" % count)
                    await connection.publish("back", b"%d" % count)
                    count += 1
                await other.flush()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load())
            for _ in range(10):
                await connection.renew()
            stop.set()
        numbers = [b"%d" % number for number in range(count)]
        assert [frame.data for frame in await plain.have(count)] == numbers
        assert sorted(int(frame.data) for frame in await shared.have(count)) == list(range(count))
        assert [frame.data for frame in await sent.have(count)] == numbers
        assert connection.reconnects == 0


async def test_a_renewal_that_fails_leaves_the_connection_as_it_is(tmp_path: Path):
    async with ConfiguredServer(tmp_path, USER) as server:
        proxy = Proxy(server.place)
        async with (
            proxy as url,
            await a2a.connect(url, user="ann", password="s3cret") as connection,
        ):
            object.__setattr__(connection._options, "password", "wrong")
            with pytest.raises(Unauthorized):
                await connection.renew()
            await echoed(connection)
            object.__setattr__(connection._options, "password", "s3cret")
            await connection.renew()
            await echoed_again(connection)
            assert connection.reconnects == 0
