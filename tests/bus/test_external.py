"""A NATS that somebody else runs: what is taken, what is refused and how that is told, and what is seen of it later."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from library.servers import open_server
from postroom.bus.external import ExternalBus
from postroom.bus.nats import NatsAdmin, NatsBus
from postroom.bus.places import parse_servers
from postroom.errors import (
    BusDisconnected,
    EnvironmentFault,
    InvalidInput,
    ServerFailed,
    ServerTooOld,
    exit_code,
)
from postroom.identity.account_publisher import push_accounts, system_connection
from postroom.identity.trust import Trust
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import BY_NAME
from tests.bus.certificates import Authority
from tests.cluster import Change, Cluster, running_cluster

pytestmark = pytest.mark.anyio

PATIENCE = 30.0
ENVIRONMENT = 10
"""Exit status: something on this machine or its surroundings, a person has to act."""


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust.load_or_create(tmp_path / "keys")


def external(trust: Trust, *urls: str, wait: float = 0.5, **more: Any) -> ExternalBus:
    credential = trust.system_credential()
    return ExternalBus(
        parse_servers(urls),
        credential.for_connection(),
        lambda: trust.proxy_key.public,
        wait=wait,
        **more,
    )


@asynccontextmanager
async def examined(trust: Trust, *urls: str, **more: Any) -> AsyncGenerator[ExternalBus]:
    bus = external(trust, *urls, **more)
    try:
        await bus.start()
        yield bus
    finally:
        await bus.stop()


async def refusal(trust: Trust, *urls: str, **more: Any) -> EnvironmentFault:
    """Why they are refused."""
    with pytest.raises(EnvironmentFault) as caught:
        async with examined(trust, *urls, **more):
            pass
    assert caught.value.remedy
    assert exit_code(caught.value) == ENVIRONMENT
    return caught.value


async def test_a_single_server_that_flushes_each_record_is_taken(trust: Trust, tmp_path: Path):
    async with (
        running_cluster(tmp_path / "n", trust, size=1) as cluster,
        examined(trust, *cluster.urls) as bus,
    ):
        assert bus.address.servers == cluster.urls
        assert (bus.replicas, bus.pid, bus.doubts) == (1, 0, ())
        assert bus.version.startswith("2.")


def _without_jetstream(config: dict[str, Any]) -> None:
    del config["jetstream"]


def _lazy(config: dict[str, Any]) -> None:
    del config["jetstream"]["sync_interval"]


def _without_proxies(config: dict[str, Any]) -> None:
    del config["proxies"]


def _of_another_gateway(config: dict[str, Any]) -> None:
    other = "UCJN3MY5PNVX4NXR3AAS4CKFOYPN3W6GHQDNOUGCX443BT5EV4B4ICPL"
    config["proxies"] = {"trusted": [{"key": other}]}


def _small_store(config: dict[str, Any]) -> None:
    config["jetstream"]["max_file_store"] = 1024**3


def _forgetful(config: dict[str, Any]) -> None:
    config["resolver"] = "MEMORY"


def _caching(config: dict[str, Any]) -> None:
    config["resolver"] = {"type": "cache", "dir": config["resolver"]["dir"]}


def _short_lines(config: dict[str, Any]) -> None:
    del config["max_control_line"]


def _small_messages(config: dict[str, Any]) -> None:
    config["max_payload"] = 64 * 1024


@pytest.mark.requirement("nats-unfit-refused")
@pytest.mark.parametrize(
    "change, said",
    [
        (_without_jetstream, "JetStream is off"),
        (_lazy, "before they are on disk"),
        (_without_proxies, "does not trust the gateway"),
        (_of_another_gateway, "does not trust the gateway"),
        (_small_store, "limits of the streams"),
        (_forgetful, "resolver"),
        (_caching, "resolver"),
        (_short_lines, "max_control_line"),
        (_small_messages, "max_payload"),
    ],
)
async def test_a_server_that_lacks_something_is_refused_with_the_remedy(
    trust: Trust, tmp_path: Path, change: Change, said: str
):
    async with running_cluster(tmp_path / "n", trust, size=1, change=change) as cluster:
        error = await refusal(trust, *cluster.urls)

    assert isinstance(error, ServerFailed)
    assert said in error.message
    assert "postroom nats config" in error.remedy


@pytest.mark.requirement("nats-unfit-refused")
async def test_two_servers_are_refused_since_both_stand_still_when_one_dies(
    trust: Trust, tmp_path: Path
):
    async with running_cluster(tmp_path / "n", trust, size=2) as cluster:
        error = await refusal(trust, *cluster.urls)

    assert "2 servers" in error.message
    assert "3 or more" in error.remedy


@pytest.mark.requirement("nats-unfit-refused")
async def test_a_server_that_is_too_old_is_refused_before_anything_is_said_to_it(trust: Trust):
    heard: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "N", "version": "2.10.25", "nonce": "n", "max_payload": 1024**2}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        heard.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as double:
        port = double.sockets[0].getsockname()[1]
        error = await refusal(trust, f"nats://127.0.0.1:{port}")

    assert isinstance(error, ServerTooOld)
    assert "2.10.25" in error.message
    assert heard == [b""]


@pytest.mark.requirement("nats-unfit-refused")
async def test_another_operator_no_operator_and_nobody_are_told_apart(trust: Trust, tmp_path: Path):
    other = Trust.load_or_create(tmp_path / "others")
    async with (
        running_cluster(tmp_path / "n", other, size=1) as cluster,
        open_server(tmp_path / "plain") as plain,
    ):
        foreign = await refusal(trust, *cluster.urls)
        without = await refusal(trust, plain)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        nobody = await refusal(trust, f"nats://127.0.0.1:{unheard.getsockname()[1]}")

    assert "another operator" in foreign.message
    assert "no operator" in without.message
    assert isinstance(nobody, BusDisconnected)
    assert "cannot be reached" in nobody.message
    assert "POSTROOM_NATS_URL" in nobody.remedy


async def test_what_is_no_nats_is_told(trust: Trust):
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as double:
        port = double.sockets[0].getsockname()[1]
        with pytest.raises(ServerFailed, match="does not greet"):
            await external(trust, f"nats://127.0.0.1:{port}").start()


async def test_servers_that_do_not_belong_together_are_refused(trust: Trust, tmp_path: Path):
    async with (
        running_cluster(tmp_path / "one", trust, size=1) as one,
        running_cluster(tmp_path / "two", trust, size=1) as two,
    ):
        error = await refusal(trust, *one.urls, *two.urls)

    assert "not of the same cluster" in error.message


async def test_a_server_that_comes_up_late_is_waited_for(trust: Trust, tmp_path: Path):
    async with running_cluster(tmp_path / "n", trust, size=1) as cluster:
        await cluster.nodes[0].kill()
        bus = external(trust, *cluster.urls, wait=PATIENCE)
        starting = asyncio.create_task(bus.start())
        await cluster.nodes[0].start()
        await starting
        await bus.stop()


def _encrypted(authority: Authority, *, first: bool) -> Change:
    def change(config: dict[str, Any]) -> None:
        files = {"cert_file": str(authority.chain), "key_file": str(authority.key)}
        config["tls"] = files | {"handshake_first": first}

    return change


@pytest.mark.requirement("tls-beyond-loopback")
async def test_an_encrypted_connection_is_made_and_checked_by_the_named_authority(
    trust: Trust, tmp_path: Path
):
    authority = Authority.make(tmp_path)
    change = _encrypted(authority, first=True)
    async with running_cluster(
        tmp_path / "n", trust, size=1, change=change, authority=authority.file
    ) as cluster:
        secure = cluster.urls[0].replace("nats:", "tls:")
        async with examined(trust, secure, authority=authority.file) as bus:
            system = await system_connection(bus.address, trust.system_credential())
            assert await push_accounts(system, trust)
            await system.close()
        unknown = await refusal(trust, secure)
        clear = await refusal(trust, cluster.urls[0])

    assert "POSTROOM_NATS_CA" in unknown.remedy
    assert "tls://" in clear.remedy


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_server_that_speaks_before_tls_is_refused_since_it_could_be_made_to_leave_it_out(
    trust: Trust, tmp_path: Path
):
    authority = Authority.make(tmp_path)
    change = _encrypted(authority, first=False)
    async with (
        running_cluster(
            tmp_path / "late", trust, size=1, change=change, authority=authority.file
        ) as late,
        running_cluster(tmp_path / "without", trust, size=1) as without,
    ):
        secure = [url.replace("nats:", "tls:") for url in (*late.urls, *without.urls)]
        errors = [await refusal(trust, url, authority=authority.file) for url in secure]
        clear = await refusal(trust, *late.urls)

    for error in errors:
        assert "does not begin with TLS" in error.message
        assert "handshake_first" in error.remedy
    assert "tls://" in clear.remedy


@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.parametrize(
    "url", ["nats://10.0.0.7:4222", "nats.example.org", "nats://[2001:db8::1]"]
)
def test_clear_text_to_another_machine_is_refused(url: str):
    with pytest.raises(InvalidInput, match="clear text") as caught:
        parse_servers([url])
    assert "tls://" in caught.value.remedy


@pytest.mark.parametrize(
    "urls, full",
    [
        (["nats://127.0.0.1"], ("nats://127.0.0.1:4222",)),
        (["localhost:1"], ("nats://localhost:1",)),
        (["nats://[::1]:5"], ("nats://[::1]:5",)),
        (["tls://a.example:1", "tls://b.example"], ("tls://a.example:1", "tls://b.example:4222")),
    ],
)
def test_an_address_is_completed(urls: list[str], full: tuple[str, ...]):
    assert parse_servers(urls) == full


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1", "nats://", "nats://127.0.0.1/x", "nats://127.0.0.1:port", "ws://a"]
)
def test_what_is_no_address_of_a_nats_is_refused(url: str):
    with pytest.raises(InvalidInput, match="POSTROOM_NATS_URL"):
        parse_servers([url])


def test_a_credential_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(InvalidInput) as caught:
        parse_servers(["nats://user:s3cret@127.0.0.1"])
    assert "s3cret" not in str(caught.value)
    assert "postroom nats config" in caught.value.remedy


def test_clear_and_encrypted_addresses_are_not_mixed():
    with pytest.raises(InvalidInput, match="mixes"):
        parse_servers(["nats://127.0.0.1", "tls://127.0.0.1"])


def test_on_loopback_tls_can_be_demanded_too():
    with pytest.raises(InvalidInput, match="clear text"):
        parse_servers(["nats://127.0.0.1"], always_tls=True)


@pytest.mark.requirement("background-supervised")
async def test_a_look_at_the_servers_that_nobody_foresaw_ends_nothing(
    trust: Trust, monkeypatch: pytest.MonkeyPatch
):
    said: asyncio.Queue[str] = asyncio.Queue()
    bus = external(trust, "nats://127.0.0.1:1", interval=0.01, report=said.put_nowait)

    async def reports(_: object = ()) -> list[Any]:
        raise KeyError("unforeseen")

    monkeypatch.setattr(bus, "_reports", reports)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(bus.run())
        assert "unforeseen" in await said.get()
        await bus.stop()


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.requirement("background-supervised")
async def test_on_a_cluster_each_death_is_reported_and_ends_nothing(trust: Trust, tmp_path: Path):
    said: asyncio.Queue[str] = asyncio.Queue()

    async def hears(words: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while words not in await said.get():
                pass

    async with (
        running_cluster(tmp_path / "n", trust, change=_lazy) as cluster,
        examined(trust, *cluster.urls, interval=0.1, report=said.put_nowait) as bus,
    ):
        assert bus.replicas == 3
        assert "sync_interval" in bus.doubts[0]
        watching = asyncio.create_task(bus.run())
        await cluster.nodes[0].kill()
        await hears("n0 of the NATS does not answer")
        await cluster.nodes[0].start()
        await hears("n0 of the NATS has come")
        for node in cluster.nodes:
            await node.kill()
        await hears("no connection")
        await asyncio.gather(*(node.start() for node in cluster.nodes))
        await hears("well again")
        assert not watching.done()
        await bus.stop()
        await asyncio.wait_for(watching, PATIENCE)


async def test_a_stream_of_one_copy_gets_three_on_a_cluster(trust: Trust, tmp_path: Path):
    async with running_cluster(tmp_path / "n", trust) as cluster:
        bus = await _core(trust, cluster)
        await NatsAdmin(bus).ensure_stream(BY_NAME["INBOX"])

        await NatsAdmin(bus, replicas=3).ensure_stream(BY_NAME["INBOX"])

        info = await NatsAdmin(bus).jetstream.api("STREAM.INFO.INBOX")
        assert info["config"]["num_replicas"] == 3
        await bus.close()


async def _core(trust: Trust, cluster: Cluster) -> NatsBus:
    async with cluster.system() as system:
        await push_accounts(system, trust)
    credential = trust.core_credential()
    return await NatsBus.connect(
        cluster.urls[0], uid=CONTROL_PLANE, jwt=lambda: credential.jwt, sign=credential.sign
    )
