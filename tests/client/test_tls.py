"""The client over TLS: whom it trusts, and what it says to somebody else."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from postroom.client.http import Client
from postroom.client.locate import locate
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.identity.certfolder import CertificateFolder
from postroom.tls import server_context
from tests.client.standin import Standin, status

pytestmark = pytest.mark.requirement("tls-client-verifies")


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


def test_it_trusts_the_authority_that_is_announced(
    secured: Standin, folder: CertificateFolder, tmp_path: Path
):
    secured.announce(tmp_path, ca=str(folder.ca))

    with Client.at(tmp_path) as client:
        assert client.status()["version"]


def test_the_environment_names_another_authority(
    secured: Standin, folder: CertificateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secured.announce(tmp_path)
    monkeypatch.setenv("POSTROOM_CA", str(folder.ca))

    assert locate(tmp_path).ca == str(folder.ca)
    with Client.at(tmp_path) as client:
        assert client.status()["version"]


def test_it_says_nothing_to_who_shows_a_certificate_of_another_authority(
    secured: Standin, tmp_path: Path
):
    other = CertificateFolder(tmp_path / "other")
    other.init((), days=90, now=time.time())
    secured.announce(tmp_path, ca=str(other.ca))

    with Client.at(tmp_path) as client, pytest.raises(ProtocolViolation, match="not the post room"):
        client.status()
    assert secured.requests == []


def test_without_an_authority_it_trusts_what_the_system_does(secured: Standin, tmp_path: Path):
    secured.announce(tmp_path)

    with Client.at(tmp_path) as client, pytest.raises(ProtocolViolation):
        client.status()
    assert secured.requests == []


def test_an_authority_that_cannot_be_read_is_named(secured: Standin, tmp_path: Path):
    secured.announce(tmp_path, ca=str(tmp_path / "gone.pem"))

    with pytest.raises(InvalidInput, match=r"gone\.pem"):
        Client.at(tmp_path)


def test_a_post_room_that_comes_back_with_tls_is_found(
    standin: Standin, folder: CertificateFolder, tmp_path: Path
):
    standin.answer("GET /v1/status", status())
    standin.announce(tmp_path)
    with Client.at(tmp_path) as client:
        assert client.status()["version"]

        later = Standin()
        context = server_context(folder.server)
        later._http.socket = context.wrap_socket(later._http.socket, server_side=True)
        later.url = later.url.replace("http:", "https:")
        later.answer("GET /v1/status", status())
        later.announce(tmp_path, ca=str(folder.ca))
        standin.stop_listening()

        assert client.status()["version"]
        later.close()
