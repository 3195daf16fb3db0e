"""The sender of pushes against receivers that fail in each way, on real sockets."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from postroom.errors import AddressRefused, InvalidInput
from postroom.http.outbound import OutboundPolicy, addresses, client_context
from postroom.identity.certificates import issue, make_authority
from postroom.protocol.hosts import canonical_host
from postroom.webhooks.sender import NOT_OPEN, Sender
from tests.push.receivers import HANG, OK, Receiver, answering, receiver

pytestmark = pytest.mark.anyio


def sender_to(*places: str, deadline: float = 5.0, **more: object) -> Sender:
    policy = OutboundPolicy(OutboundPolicy.parse(places).private, **more)  # ty: ignore[invalid-argument-type]
    return Sender(policy, client_context, deadline=deadline)


def sender_for(found: Receiver, deadline: float = 5.0) -> Sender:
    return sender_to(f"127.0.0.1:{found.port}", deadline=deadline)


async def test_a_push_is_one_post_of_exactly_these_bytes():
    async with receiver(OK) as hook:
        headers = [("content-type", "application/a2a+json")]
        outcome = await sender_for(hook).post(hook.url + "?a=b", headers, b'{"x": 1}')
        (got,) = hook.got
    assert outcome.delivered
    assert (got.path, got.body) == ("/hook?a=b", b'{"x": 1}')
    assert got.headers["host"] == f"127.0.0.1:{hook.port}"
    assert got.headers["content-type"] == "application/a2a+json"


@pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 500, 503])
async def test_what_is_no_success_is_a_failure_with_its_status(status: int):
    async with receiver(answering(status, retry_after="7")) as hook:
        outcome = await sender_for(hook).post(hook.url, [], b"{}")
    assert (outcome.delivered, outcome.status, outcome.wait) == (False, status, 7.0)
    assert str(status) in outcome.reason


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int):
    async with receiver() as inner, receiver(answering(status, location=inner.url)) as hook:
        sender = sender_to(f"127.0.0.1:{hook.port}", f"127.0.0.1:{inner.port}")
        outcome = await sender.post(hook.url, [], b"{}")
        assert "redirect" in outcome.reason
        assert inner.got == []


async def test_a_receiver_that_hangs_costs_no_more_than_the_deadline():
    async with receiver(HANG) as hook:
        begun = time.monotonic()
        outcome = await sender_for(hook, 0.3).post(hook.url, [], b"{}")
        assert time.monotonic() - begun < 10.0
        assert outcome.reason == "no answer within 0.3 s"
        await hook.when(lambda: hook.open == 0)


async def test_an_answer_without_an_end_is_cut_off_and_its_status_counts():
    endless = b"HTTP/1.1 200 x\r\ncontent-length: 999999999\r\n\r\n" + 4 * 1024 * 1024 * b"x"
    async with receiver(endless) as hook:
        outcome = await sender_for(hook).post(hook.url, [], b"{}")
        assert outcome.delivered
        await hook.when(lambda: hook.open == 0)


async def test_a_head_without_an_end_and_what_is_no_http_are_failures():
    for said in (b"HTTP/1.1 200 x\r\n" + 80_000 * b"a: b\r\n", b"hello\r\n\r\n", b"\xff"):
        async with receiver(said) as hook:
            outcome = await sender_for(hook, 2.0).post(hook.url, [], b"{}")
        assert (outcome.delivered, outcome.status) == (False, 0)


async def test_nobody_listening_is_a_failure():
    async with receiver() as hook:
        sender = sender_for(hook)
    outcome = await sender.post(hook.url, [], b"{}")
    assert "cannot connect" in outcome.reason


async def test_a_private_address_is_refused_unless_the_operator_has_opened_it():
    async with receiver() as hook:
        closed = sender_to()
        with pytest.raises(InvalidInput, match="not at an address"):
            closed.check(hook.url)
        assert (await closed.post(hook.url, [], b"{}")).reason == NOT_OPEN
        assert hook.got == []
        assert (await sender_for(hook).post(hook.url, [], b"{}")).delivered


@pytest.mark.requirement("webhooks-guarded")
@pytest.mark.parametrize("host", ["metadata.google.internal", "METADATA.goog.", "api.localhost"])
async def test_a_name_of_a_clouds_metadata_is_refused_without_a_look_at_what_it_means(host: str):
    async def public(_host: str, _port: int) -> list[str]:
        raise AssertionError("it was looked up")

    url = f"https://{host}/"
    with pytest.raises(InvalidInput, match="not at an address"):
        sender_to(resolve=public).check(url)
    assert (await sender_to(resolve=public).post(url, [], b"{}")).reason == NOT_OPEN
    with pytest.raises(AddressRefused):
        await addresses(canonical_host(host), 443, OutboundPolicy(resolve=public))


@pytest.mark.parametrize("place", ["localhost:8080", "127.0.0.1:8080", "127.0.0.0/8:8080"])
async def test_what_the_operator_has_opened_of_this_machine_is_reached_by_its_name(place: str):
    async def here(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    policy = OutboundPolicy(OutboundPolicy.parse([place]).private, resolve=here)
    assert await addresses("localhost", 8080, policy) == ["127.0.0.1"]
    with pytest.raises(AddressRefused):
        await addresses("localhost", 8081, policy)


@pytest.mark.requirement("webhooks-guarded")
@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "100.100.100.200"])
async def test_an_address_of_a_clouds_metadata_is_refused_at_each_attempt(address: str):
    async def inside(_host: str, _port: int) -> list[str]:
        return [address]

    sender = sender_to(resolve=inside)
    sender.check("https://hook.example/")
    for _ in range(2):
        outcome = await sender.post("https://hook.example/", [], b"{}")
        assert outcome.reason == NOT_OPEN


@pytest.mark.requirement("webhooks-guarded")
async def test_a_name_that_means_a_private_address_is_refused_whatever_it_meant_before():
    async with receiver() as hook:
        asked: list[str] = []

        async def rebinding(host: str, _port: int) -> list[str]:
            asked.append(host)
            return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

        url = f"https://hook.example:{hook.port}/"
        sender = sender_to(resolve=rebinding, deadline=0.2)
        sender.check(url)  # no name is looked up
        assert asked == []
        # The address that was checked is the one that is connected to; a second look would mean this machine.
        first = await sender.post(url, [], b"{}")
        assert (first.delivered, len(asked)) == (False, 1)
        second = await sender.post(url, [], b"{}")
        assert (second.reason, len(asked)) == (NOT_OPEN, 2)
        assert hook.got == []


async def test_who_made_the_url_is_not_told_what_a_name_means_inside():
    async def inside(_host: str, _port: int) -> list[str]:
        return ["10.1.2.3"]

    outcome = await sender_to(resolve=inside).post("https://intranet.example/", [], b"{}")
    assert "10.1.2.3" not in outcome.reason


def test_http_is_for_places_that_the_operator_has_opened():
    sender = sender_to("10.0.0.0/8:80", "hooks.internal:8080")
    sender.check("https://hooks.example/")
    sender.check("http://10.1.2.3/")
    sender.check("http://hooks.internal:8080/")
    for url in ("http://hooks.example/", "http://93.184.216.34/", "http://hooks.internal/"):
        with pytest.raises(InvalidInput, match="everybody on the way"):
            sender.check(url)
    for url in ("https://0x7f000001/", "https://127.0.0.1/", "https://[::1]/", "https://a:0x/"):
        with pytest.raises(InvalidInput):
            sender.check(url)


@pytest.mark.requirement("webhooks-guarded")
async def test_a_receiver_with_a_certificate_that_nobody_vouches_for_gets_nothing(tmp_path: Path):
    now = time.time()
    authority = make_authority(["127.0.0.1"], now=now)
    pair = issue(authority, ["127.0.0.1"], now=now)
    whole, ca = tmp_path / "server.pem", tmp_path / "ca.pem"
    whole.write_bytes(pair.certificate + pair.key)
    ca.write_bytes(authority.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(whole)
    async with receiver(tls=context) as hook:
        url, place = hook.url.replace("http:", "https:"), f"127.0.0.1:{hook.port}"
        outcome = await sender_to(place).post(url, [], b"{}")
        assert "no TLS" in outcome.reason
        assert hook.got == []
        trusting = Sender(OutboundPolicy.parse([place]), lambda: client_context(ca))
        assert (await trusting.post(url, [], b"{}")).delivered
