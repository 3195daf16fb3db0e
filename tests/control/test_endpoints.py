"""Where a post room listens: what the settings mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.control.endpoints import OutwardAddress, plan
from postroom.errors import InvalidInput
from postroom.identity.certificates import Certificate
from postroom.settings import Settings


def settings(*listen: str, tls: str = "auto") -> Settings:
    return Settings(state=Path("unused"), listen=listen, tls=tls)


def certificate(*names: str) -> Certificate:
    return Certificate("", "", names, 0, 0, "", self_issued=False)


def test_without_an_address_all_stays_on_loopback_without_tls():
    endpoints = plan(settings())

    assert endpoints.nats_host == "127.0.0.1"
    assert not endpoints.encrypted
    assert endpoints.hosts(4280, 0, ()) == {"127.0.0.1:4280", "localhost:4280", "[::1]:4280"}


@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.parametrize(
    "text,address,port",
    [
        ("192.0.2.1", "192.0.2.1", None),
        ("192.0.2.1:443", "192.0.2.1", 443),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("::", "::", None),
        ("2001:db8::1", "2001:db8::1", None),
        ("[2001:db8::1]:443", "2001:db8::1", 443),
        ("[::]", "::", None),
    ],
)
def test_an_address_means_tls_for_the_bus_and_the_api_there(
    text: str, address: str, port: int | None
):
    endpoints = plan(settings(text))

    assert endpoints.outward == OutwardAddress(address, address, port)
    assert endpoints.nats_host == address
    assert endpoints.encrypted
    assert not endpoints.loopback_tls


@pytest.mark.parametrize(
    "text", ["", ":443", "192.0.2.1:", "192.0.2.1:x", "192.0.2.1:65536", "a b", "x.invalid"]
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(InvalidInput):
        plan(settings(text))


def test_a_host_name_is_looked_up_and_is_what_the_certificate_must_have():
    endpoints = plan(settings("localhost:1"))

    assert endpoints.outward is not None
    assert endpoints.outward.address in ("127.0.0.1", "::1")
    assert endpoints.names == ("localhost",)


def test_two_addresses_are_refused_with_what_to_name_instead():
    with pytest.raises(InvalidInput) as caught:
        plan(settings("192.0.2.1", "192.0.2.2"))
    assert "0.0.0.0" in caught.value.remedy


@pytest.mark.requirement("tls-beyond-loopback")
def test_always_means_tls_on_loopback_too():
    endpoints = plan(settings(tls="always"))

    assert endpoints.loopback_tls
    assert endpoints.names == ("127.0.0.1",)


@pytest.mark.requirement("tls-beyond-loopback")
def test_the_hosts_that_are_served_are_those_of_the_certificate():
    endpoints = plan(settings("0.0.0.0"))

    assert endpoints.hosts(1, 443, ("Box.example.org", "2001:db8::7")) == {
        *("127.0.0.1:1", "localhost:1", "[::1]:1"),
        *("box.example.org:443", "box.example.org", "[2001:db8::7]:443", "[2001:db8::7]"),
    }


def test_the_bus_is_known_by_a_name_that_its_certificate_has():
    everywhere, here = plan(settings("0.0.0.0")), plan(settings("192.0.2.1"))

    assert everywhere.nats_name(certificate("box.example.org", "127.0.0.1")) == "127.0.0.1"
    assert everywhere.nats_name(certificate("*.example.org", "box.example.org")) == (
        "box.example.org"
    )
    assert here.nats_name(certificate("192.0.2.1")) == "192.0.2.1"
    with pytest.raises(InvalidInput):
        everywhere.nats_name(certificate("*.example.org"))


def test_others_are_told_a_name_that_leads_here():
    everywhere = plan(settings("0.0.0.0"))

    names = ("localhost", "127.0.0.1", "*.example.org", "box", "192.0.2.7")
    assert everywhere.public_names(certificate(*names)) == ("box", "192.0.2.7")
    assert everywhere.public_names(certificate("localhost")) == ("0.0.0.0",)
    assert plan(settings("192.0.2.1")).public_names(certificate(*names)) == ("192.0.2.1",)


@pytest.mark.parametrize("tls,usual,other", [("auto", 80, 443), ("always", 443, 80)])
def test_a_host_without_the_port_that_its_scheme_has_anyway_is_served(
    tls: str, usual: int, other: int
):
    own = {"127.0.0.1", "localhost", "[::1]"}

    assert own < plan(settings(tls=tls)).hosts(usual, 0, ())
    assert not own & plan(settings(tls=tls)).hosts(other, 0, ())
