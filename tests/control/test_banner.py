"""What a person is told at a start beside the addresses."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.control import up
from postroom.control.banner import login_commands, notes, own_addresses
from postroom.control.endpoints import plan
from postroom.identity.certificates import Certificate
from postroom.settings import Settings


@dataclass
class Keeper:
    """What `notes` asks of a CertificateKeeper."""

    certificate: Certificate
    local: bool = True


@dataclass
class Host:
    """What `notes` asks of a bus."""

    doubts: tuple[str, ...] = ()


def told(
    *names: str, listen: str = "0.0.0.0", addresses: tuple[str, ...] = (), local: bool = True
) -> list[str]:
    settings = Settings(state=Path("/a state"), memory=True, listen=(listen,))
    keeper: Any = Keeper(Certificate("", "", names, 0, 0, "", self_issued=False), local)
    host: Any = Host()
    return list(notes(settings, plan(settings), host, keeper, addresses))


def test_an_address_that_the_certificate_lacks_is_told_with_the_command_that_mends_it():
    (note,) = told("localhost", "127.0.0.1", "box", addresses=("192.0.2.7",))

    assert "does not stand for 192.0.2.7" in note
    assert "postroom --state '/a state' tls init --force --host box --host 192.0.2.7" in note


def test_nothing_is_told_of_an_address_that_it_has_or_where_one_address_was_named():
    assert not told("localhost", "192.0.2.7", addresses=("192.0.2.7",))
    assert not told("192.0.2.9", listen="192.0.2.9", addresses=("192.0.2.7",))
    assert not told("localhost")


def test_the_certificate_of_somebody_else_needs_a_name_and_no_address():
    assert not told("box.example.org", addresses=("192.0.2.7",), local=False)
    (note,) = told("localhost", addresses=("192.0.2.7",), local=False)
    assert "a certificate that does" in note


def test_others_are_told_the_public_names_and_what_they_type(tmp_path: Path):
    public = ("https://box.example", "https://box.example:8443")
    settings = Settings(state=tmp_path, memory=True, public_urls=public)
    room: Any = object.__new__(up._PostRoom)
    room._endpoints, room._certificate = plan(settings), None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        urls = room._urls(listener, None, None)

    assert urls == (f"http://127.0.0.1:{listener_port(urls)}", *public)
    # A proxy shows a certificate of its own: no fingerprint of ours is told.
    keeper: Any = Authority("ab" * 32)
    assert list(login_commands(settings, urls[1:], keeper)) == [
        f"postroom login {url}" for url in public
    ]
    own = Settings(state=tmp_path, memory=True)
    assert list(login_commands(own, ("https://192.0.2.7:4281", "tls://192.0.2.7"), keeper)) == [
        f"postroom login https://192.0.2.7:4281 --fingerprint {'ab' * 32}"
    ]


def listener_port(urls: tuple[str, ...]) -> str:
    return urls[0].rpartition(":")[2]


@dataclass
class Authority:
    """What `login_commands` asks of a CertificateKeeper."""

    authority: str


def test_doubts_about_the_bus_are_told():
    settings = Settings(state=Path("unused"), memory=True)
    host: Any = Host(("it forgets",))

    assert list(notes(settings, plan(settings), host, None, ())) == ["it forgets"]


def test_the_own_address_is_one_that_this_machine_has():
    for address in own_addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((address, 0))
