"""The guard of everything outbound: which addresses are connected to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import (
    AddressRefused,
    EnvironmentFault,
    InvalidInput,
    PeerError,
    RequestTimeout,
)
from postroom.http.outbound import (
    FairLookups,
    OutboundPolicy,
    PrivateAccess,
    addresses,
    check_address,
    client_context,
    connect,
    is_public,
)

pytestmark = pytest.mark.anyio
SECONDS = 20.0
NONE = OutboundPolicy()

REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("100.100.100.200", "168.63.129.16", "169.254.170.2"),
    *(
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "fe80::1",
        "fec0::1",
    ),
    *("fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "2001::1", "2001:0:7f00:1::", "100::1"),
    *(
        "64:ff9b::10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
    ),
    *("2001:4860::5efe:10.0.0.1", "3fff::1", "5f00::1", "fe80::1%eth0"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111"]


@pytest.mark.requirement("egress-address-guarded")
@pytest.mark.parametrize("text", REFUSED)
def test_an_address_that_is_not_of_the_public_internet_is_refused(text: str):
    with pytest.raises(AddressRefused):
        check_address(text, "x.example", 443, NONE)


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_connected_to_as_it_is(text: str):
    assert check_address(text, "x.example", 443, NONE) == text


def test_a_mapped_address_is_connected_to_as_what_it_means():
    assert check_address("::ffff:1.1.1.1", "x", 443, NONE) == "1.1.1.1"
    assert check_address("64:ff9b::1.1.1.1", "x", 443, NONE) == "64:ff9b::101:101"


@given(st.ip_addresses())
def test_nothing_counts_as_public_that_python_calls_private(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
):
    if is_public(address):
        assert not address.is_private
        assert not address.is_multicast
        assert not address.is_link_local
        assert not address.is_loopback


@given(st.ip_addresses(v=4))
def test_no_form_of_an_address_is_more_public_than_the_address(address: ipaddress.IPv4Address):
    number = int(address)
    forms = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1),
        ipaddress.IPv6Address(number),
    ]
    if not is_public(address):
        assert not any(map(is_public, forms))


@pytest.mark.requirement("egress-address-guarded")
@pytest.mark.parametrize(
    "entry, host, port, address, opens",
    [
        ("127.0.0.1:11434", "127.0.0.1", 11434, "127.0.0.1", True),
        ("127.0.0.1:11434", "127.0.0.1", 11435, "127.0.0.1", False),
        ("127.0.0.1:11434", "other.example", 11434, "127.0.0.1", True),
        ("127.0.0.1:11434", "127.0.0.2", 11434, "127.0.0.2", False),
        ("10.0.0.0/8:443", "x", 443, "10.9.9.9", True),
        ("10.0.0.0/8:443", "x", 443, "11.0.0.1", True),  # public anyway
        ("10.0.0.0/8:443", "x", 443, "192.168.0.1", False),
        ("0.0.0.0/0:80", "x", 80, "169.254.169.254", False),
        ("169.254.169.254:80", "x", 80, "169.254.169.254", True),
        ("Models.LAN.:80", "models.lan", 80, "10.0.0.1", True),
        ("models.lan:80", "models.lan", 80, "169.254.169.254", False),
        ("models.lan:80", "other.lan", 80, "10.0.0.1", False),
        ("[::1]:80", "::1", 80, "::1", True),
        ("[fd00::]/8:80", "x", 80, "fd00::1", True),
    ],
)
def test_the_operator_opens_private_places_one_host_and_port_at_a_time(
    entry: str, host: str, port: int, address: str, opens: bool
):
    policy = OutboundPolicy.parse([entry])
    if opens:
        assert check_address(address, host, port, policy) == address
    else:
        with pytest.raises(AddressRefused):
            check_address(address, host, port, policy)


@pytest.mark.parametrize(
    "entry",
    ["127.0.0.1", "10.0.0.0/8", "x/8:80", "10.0.0.1/8:80", "0x7f.1:80", "a b:80", ":80", ""],
)
def test_an_entry_without_a_port_or_with_a_malformed_one_is_refused(entry: str):
    with pytest.raises(InvalidInput):
        PrivateAccess.parse(entry)


def policy_with(found: list[list[str]], *opened: str) -> tuple[OutboundPolicy, list[str]]:
    """A resolver that answers each time with the next of `found`."""
    asked: list[str] = []

    async def look_up(host: str, _port: int) -> list[str]:
        asked.append(host)
        return found[min(len(asked), len(found)) - 1]

    opened_places = tuple(PrivateAccess.parse(text) for text in opened)
    return OutboundPolicy(opened_places, look_up), asked


@asynccontextmanager
async def listening(context: ssl.SSLContext | None = None) -> AsyncGenerator[tuple[int, list[str]]]:
    """A server that says `hi`, and who has connected."""
    peers: list[str] = []

    async def hi(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(str(writer.get_extra_info("peername")[0]))
        writer.write(b"hi")
        writer.close()

    server = await asyncio.start_server(hi, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        server.close()


@pytest.mark.requirement("egress-address-guarded")
async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to():
    async with listening() as (port, peers):
        policy, asked = policy_with([["127.0.0.1"], ["127.0.0.2"]], f"x.example:{port}")
        reader, writer = await connect("X.example.", port, policy=policy, tls=None, timeout=SECONDS)
        assert await reader.read(-1) == b"hi"
        writer.close()

    assert asked == ["x.example"]
    assert len(peers) == 1


@pytest.mark.requirement("egress-address-guarded")
async def test_one_private_address_among_public_ones_refuses_the_name():
    policy, _ = policy_with([["1.1.1.1", "127.0.0.1"]])

    with pytest.raises(AddressRefused):
        await connect("x.example", 443, policy=policy, tls=None, timeout=SECONDS)


async def test_an_address_that_does_not_answer_is_not_the_end():
    async with listening() as (port, _):
        policy, _ = policy_with([["127.0.0.9", "127.0.0.1"]], f"x.example:{port}")
        with socket.create_server(("127.0.0.9", 0)):
            reader, writer = await connect(
                "x.example", port, policy=policy, tls=None, timeout=SECONDS
            )
            assert await reader.read(-1) == b"hi"
            writer.close()


async def test_both_families_come_by_turns():
    policy, _ = policy_with([["2606::1", "2606::2", "2606::3", "1.1.1.1", "8.8.8.8"]])

    found = await addresses("x.example", 443, policy)

    assert found == ["2606::1", "1.1.1.1", "2606::2", "8.8.8.8", "2606::3"]


async def test_a_name_that_is_not_there_is_a_fault_of_the_other_side():
    async def nothing(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(PeerError, match="cannot be resolved"):
        await connect(
            "x.example", 443, policy=OutboundPolicy(resolve=nothing), tls=None, timeout=SECONDS
        )


async def test_a_lookup_that_hangs_is_given_up():
    async def hang(host: str, port: int) -> list[str]:
        await asyncio.get_running_loop().create_future()
        return []

    with pytest.raises(RequestTimeout):
        await connect("x.example", 443, policy=OutboundPolicy(resolve=hang), tls=None, timeout=0.05)


async def test_the_systems_resolver_is_asked():
    async with listening() as (port, _):
        policy = OutboundPolicy.parse([f"localhost:{port}"])
        reader, writer = await connect("localhost", port, policy=policy, tls=None, timeout=SECONDS)
        assert await reader.read(-1) == b"hi"
        writer.close()


async def test_a_port_where_nobody_listens_is_a_fault_of_the_other_side():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    policy = OutboundPolicy.parse([f"127.0.0.1:{port}"])

    with pytest.raises(PeerError, match="cannot connect"):
        await connect("127.0.0.1", port, policy=policy, tls=None, timeout=SECONDS)


@pytest.mark.requirement("egress-refused-told")
async def test_a_certificate_must_be_for_the_host_and_of_a_known_authority(tmp_path: Path):
    ca_file = tmp_path / "ca.pem"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca_file))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("x.example").configure_cert(server)
    async with listening(server) as (port, _):
        policy, _ = policy_with([["127.0.0.1"]], f"x.example:{port}", f"y.example:{port}")
        known, unknown = client_context(ca_file), client_context()
        reader, writer = await connect("x.example", port, policy=policy, tls=known, timeout=SECONDS)
        assert await reader.read(-1) == b"hi"
        writer.close()
        with pytest.raises(PeerError, match="no TLS"):
            await connect("y.example", port, policy=policy, tls=known, timeout=SECONDS)
        with pytest.raises(PeerError, match="no TLS"):
            await connect("x.example", port, policy=policy, tls=unknown, timeout=SECONDS)


def test_certificates_that_cannot_be_read_are_a_fault_of_the_environment(tmp_path: Path):
    with pytest.raises(EnvironmentFault):
        client_context(tmp_path / "gone.pem")


@pytest.mark.requirement("attack-flood-slowed")
async def test_lookups_that_hang_are_bounded_for_each_worker_even_if_nobody_waits_for_them():
    begun: list[str] = []
    answered = asyncio.Event()

    async def resolve(host: str, _port: int) -> list[str]:
        begun.append(host)
        if host == "hangs":
            await answered.wait()
        return ["192.0.2.1"]

    lookups = FairLookups(resolve, most=2)
    asks = [asyncio.ensure_future(lookups.of("a")("hangs", 443)) for _ in range(4)]
    assert await lookups.of("b")("other", 443) == ["192.0.2.1"]
    for asked in asks:
        asked.cancel()
    await asyncio.wait(asks)
    late = asyncio.ensure_future(lookups.of("a")("late", 443))
    assert await lookups.of("b")("other", 443) == ["192.0.2.1"]
    assert sorted(begun) == ["hangs", "hangs", "other", "other"]

    answered.set()
    assert await late == ["192.0.2.1"]
