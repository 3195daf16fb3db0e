"""What a person is told at a start beside the addresses."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.control.banner import notes, own_addresses
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


def test_doubts_about_the_bus_are_told():
    settings = Settings(state=Path("unused"), memory=True)
    host: Any = Host(("it forgets",))

    assert list(notes(settings, plan(settings), host, None, ())) == ["it forgets"]


def test_the_own_address_is_one_that_this_machine_has():
    for address in own_addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((address, 0))
