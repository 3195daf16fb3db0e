"""Who a client behind proxies is, and where a post room is reached."""

from __future__ import annotations

import pytest

from postroom.errors import Forbidden, InvalidInput
from postroom.protocol.origins import origin_of
from postroom.protocol.proxies import Caller, Proxies

PROXIES = Proxies.of(["10.0.0.0/24", "2001:db8::5"])


def caller(peer: str, *headers: tuple[str, str], proxies: Proxies = PROXIES) -> Caller:
    return proxies.caller(peer, [(name.encode(), value.encode()) for name, value in headers])


@pytest.mark.requirement("api-key-required")
def test_a_proxy_of_ours_says_who_has_called_it():
    said = ("x-forwarded-for", "198.51.100.7")

    assert caller("10.0.0.3", said) == Caller("198.51.100.7")
    assert caller("2001:db8::5", said, ("x-forwarded-proto", "https")) == Caller(
        "198.51.100.7", "https"
    )
    assert caller("10.0.0.3", ("forwarded", 'proto=https;for="[2001:db8::9]:4711"')) == Caller(
        "2001:db8::9"
    )


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("peer", ["198.51.100.1", "10.0.1.1", "2001:db8::6", "", "unix"])
@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-forwarded-proto"])
def test_nobody_else_is_believed(peer: str, name: str):
    assert caller(peer, (name, "for=10.0.0.1")) == Caller(peer)
    assert caller("127.0.0.1", ("x-forwarded-for", "10.0.0.1"), proxies=Proxies()) == Caller(
        "127.0.0.1"
    )


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize(
    "chain,client",
    [
        ("1.1.1.1, 198.51.100.7", "198.51.100.7"),
        ("198.51.100.7, 10.0.0.9", "198.51.100.7"),
        ("10.0.0.9, 198.51.100.7, 10.0.0.9", "198.51.100.7"),
        ("10.0.0.7, 10.0.0.9", "10.0.0.7"),
        ("198.51.100.7, unknown", "10.0.0.3"),
        ("198.51.100.7, , 10.0.0.9", "10.0.0.9"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("", "10.0.0.3"),
        ("<script>", "10.0.0.3"),
    ],
)
def test_what_stands_before_the_first_stranger_is_the_strangers_own_word(chain: str, client: str):
    assert caller("10.0.0.3", ("x-forwarded-for", chain)).address == client


@pytest.mark.requirement("api-key-required")
def test_headers_of_several_lines_are_one_list():
    forged, added = ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "198.51.100.7")

    assert caller("10.0.0.3", forged, added).address == "198.51.100.7"


@pytest.mark.requirement("api-key-required")
def test_two_headers_that_disagree_are_refused_since_a_proxy_writes_one_and_passes_the_other_on():
    with pytest.raises(Forbidden):
        caller("10.0.0.3", ("forwarded", "for=1.1.1.1"), ("x-forwarded-for", "198.51.100.7"))
    same = ("forwarded", "for=198.51.100.7"), ("x-forwarded-for", "198.51.100.7")
    assert caller("10.0.0.3", *same).address == "198.51.100.7"


@pytest.mark.parametrize("value", ["by=1.1.1.1", "for=1.1.1.1;for=2.2.2.2", "for=_hidden", '"'])
def test_an_element_without_one_address_leaves_the_proxy_as_the_client(value: str):
    assert caller("10.0.0.3", ("forwarded", value)).address == "10.0.0.3"


def test_what_is_no_network_is_refused():
    with pytest.raises(InvalidInput, match=r"proxy\.example"):
        Proxies.of(["proxy.example"])


@pytest.mark.parametrize(
    "text,url,hosts",
    [
        ("https://Box.example", "https://box.example", {"box.example", "box.example:443"}),
        ("https://box.example:443/", "https://box.example", {"box.example", "box.example:443"}),
        ("https://box.example:8443", "https://box.example:8443", {"box.example:8443"}),
        ("https://[2001:db8::1]", "https://[2001:db8::1]", {"[2001:db8::1]", "[2001:db8::1]:443"}),
        ("http://localhost:4280", "http://localhost:4280", {"localhost:4280"}),
    ],
)
def test_an_origin_is_known_by_each_form_that_clients_send(text: str, url: str, hosts: set[str]):
    assert origin_of(text).url == url
    assert origin_of(text).authorities == hosts


@pytest.mark.parametrize(
    "text",
    [
        "box.example",
        "ftp://box.example",
        "https://",
        "https://box.example/postroom",
        "https://box.example?x=1",
        "https://box.example#x",
        "https://me@box.example",
        "https://box.example:0",
        "https://box.example:70000",
        "http://box.example",
        "http://10.0.0.1",
        "https://0x7f.1",
        "https://[::1",
    ],
)
def test_what_is_no_origin_or_would_send_keys_in_the_clear_is_refused(text: str):
    with pytest.raises(InvalidInput):
        origin_of(text)
