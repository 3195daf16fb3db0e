"""The client over TLS: whom it trusts, and what it says to somebody else."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from postroom.client.http import Client
from postroom.client.locate import ServerAddress
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.identity.certfolder import CertificateFolder
from postroom.tls import server_context
from tests.client.standin import Standin, status

pytestmark = pytest.mark.requirement("tls-beyond-loopback")


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    made = CertificateFolder(tmp_path / "tls")
    made.init((), days=90, now=time.time())
    return made


@pytest.fixture
def secured(standin: Standin, folder: CertificateFolder) -> Standin:
    """The stand-in, with TLS."""
    context: ssl.SSLContext = server_context(folder.server)
    standin._http.socket = context.wrap_socket(standin._http.socket, server_side=True)
    standin.url = standin.url.replace("http:", "https:")
    standin.answer("GET /v1/status", status())
    return standin


def client_of(room: Standin, ca: Path | None = None) -> Client:
    """A client of a post room at a URL, as a login or a key leads to it."""
    return Client.on(lambda: ServerAddress(room.url, 0, room.token, str(ca or "")))


def test_it_trusts_the_authority_that_it_is_told_of(secured: Standin, folder: CertificateFolder):
    with client_of(secured, folder.ca) as client:
        assert client.status()["version"]


def test_it_says_nothing_to_who_shows_a_certificate_of_another_authority(
    secured: Standin, tmp_path: Path
):
    other = CertificateFolder(tmp_path / "other")
    other.init((), days=90, now=time.time())

    with (
        client_of(secured, other.ca) as client,
        pytest.raises(ProtocolViolation, match="not the post room"),
    ):
        client.status()
    assert secured.requests == []


def test_without_an_authority_it_trusts_what_the_system_does(secured: Standin):
    with client_of(secured) as client, pytest.raises(ProtocolViolation):
        client.status()
    assert secured.requests == []


def test_an_authority_that_cannot_be_read_is_named(secured: Standin, tmp_path: Path):
    with pytest.raises(InvalidInput, match=r"gone\.pem"):
        client_of(secured, tmp_path / "gone.pem")


def test_a_post_room_of_this_machine_needs_no_authority(secured: Standin, standin: Standin):
    """Its socket is not for others, whatever its port speaks."""
    address = ServerAddress(secured.url, 1, secured.token, socket="control.sock")
    assert address.origin == secured.url.replace("https:", "http:")


def test_a_post_room_that_comes_back_with_tls_is_found(standin: Standin, folder: CertificateFolder):
    standin.answer("GET /v1/status", status())
    found = [ServerAddress(standin.url, 1, standin.token)]
    with Client.on(lambda: found[-1]) as client:
        assert client.status()["version"]

        later = Standin()
        context = server_context(folder.server)
        later._http.socket = context.wrap_socket(later._http.socket, server_side=True)
        later.url = later.url.replace("http:", "https:")
        later.answer("GET /v1/status", status())
        found.append(ServerAddress(later.url, 1, later.token, str(folder.ca)))
        standin.stop_listening()

        assert client.status()["version"]
        later.close()
