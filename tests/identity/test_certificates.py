"""Certificates of the local authority: what they say, what they may say, and who takes them."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.identity import certificates
from postroom.identity.certfolder import CertificateFiles, CertificateFolder, own_names
from postroom.identity.certificates import (
    DAY,
    issue,
    make_authority,
    near_its_end,
    read,
    warning_due,
)
from postroom.tls import client_context, rehearse, server_context

HOSTS = ("box.example.org", "192.0.2.7", "2001:db8::7")


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    made = CertificateFolder(tmp_path / "tls")
    made.init(HOSTS, days=90, now=time.time())
    return made


@pytest.mark.requirement("tls-local-authority")
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", *HOSTS])
def test_a_client_that_trusts_the_authority_takes_the_server_for_each_name(
    folder: CertificateFolder, name: str
):
    rehearse(server_context(folder.server), client_context(folder.ca), name)


@pytest.mark.requirement("tls-local-authority")
@pytest.mark.parametrize("name", ["example.org", "192.0.2.8", "evil.example"])
def test_a_client_takes_the_server_for_no_other_name(folder: CertificateFolder, name: str):
    with pytest.raises(InvalidInput, match=r"does not stand for"):
        rehearse(server_context(folder.server), client_context(folder.ca), name)


@pytest.mark.requirement("tls-local-authority")
def test_a_client_of_another_authority_refuses_the_server(
    folder: CertificateFolder, tmp_path: Path
):
    other = CertificateFolder(tmp_path / "other")
    other.init((), days=90, now=time.time())

    with pytest.raises(InvalidInput, match="certificate"):
        rehearse(server_context(folder.server), client_context(other.ca), "localhost")


@pytest.mark.requirement("tls-local-authority")
@pytest.mark.parametrize("name", ["bank.example", "192.0.2.8", "notbox.example.org"])
def test_the_authority_refuses_names_that_it_was_not_made_for(name: str):
    authority = make_authority(["box.example.org", "192.0.2.7"], now=time.time())

    with pytest.raises(InvalidInput, match=r"may not vouch"):
        issue(authority, [name], now=time.time())


@pytest.mark.requirement("tls-local-authority")
@pytest.mark.parametrize("name", ["bank.example", "192.0.2.8"])
def test_a_client_refuses_what_the_authority_was_made_to_sign_beyond_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    authority = make_authority(["box.example.org", "192.0.2.7"], now=time.time())
    monkeypatch.setattr(certificates, "_check_permitted", lambda *_: None)  # a thief would not ask
    forged = issue(authority, [name], now=time.time())
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "forged.pem").write_bytes(forged.certificate + forged.key)
    server, client = server_context(tmp_path / "forged.pem"), client_context(tmp_path / "ca.pem")

    with pytest.raises(InvalidInput, match="permitted subtree"):
        rehearse(server, client, name)


def test_the_authority_signs_servers_and_no_further_authorities(folder: CertificateFolder):
    authority = x509.load_pem_x509_certificate(folder.ca.read_bytes())
    server = x509.load_pem_x509_certificate(folder.server.read_bytes())

    above = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    below = server.extensions.get_extension_for_class(x509.BasicConstraints)

    assert above.critical
    assert (above.value.ca, above.value.path_length) == (True, 0)
    assert not below.value.ca


@pytest.mark.requirement("tls-local-authority")
def test_the_folder_and_all_files_in_it_are_for_this_user_alone(folder: CertificateFolder):
    assert folder.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.folder.iterdir()} == {0o600}


def test_an_authority_that_is_there_is_not_replaced_unless_told_to(folder: CertificateFolder):
    before = folder.ca.read_bytes()

    with pytest.raises(Conflict):
        folder.init((), days=90, now=time.time())
    assert folder.ca.read_bytes() == before

    folder.init((), days=90, now=time.time(), force=True)
    assert folder.ca.read_bytes() != before


@pytest.mark.requirement("tls-local-authority")
def test_a_renewed_certificate_has_the_same_names_and_the_same_authority(
    folder: CertificateFolder,
):
    before, ca = read(folder.server.read_bytes()), folder.ca.read_bytes()

    after = folder.renew(now=time.time() + 30 * DAY)

    assert after.names == before.names
    assert after.fingerprint != before.fingerprint
    assert after.not_after - before.not_after == pytest.approx(30 * DAY, abs=5)
    assert folder.ca.read_bytes() == ca


def test_an_expired_authority_renews_nothing(folder: CertificateFolder):
    with pytest.raises(InvalidInput, match="authority has expired"):
        folder.renew(now=time.time() + 3651 * DAY)


def test_a_certificate_does_not_outlive_its_authority(folder: CertificateFolder):
    late = folder.renew(now=time.time() + 3640 * DAY)

    assert late.not_after == folder.authority().not_after


@pytest.mark.requirement("tls-beyond-loopback")
def test_a_key_that_others_can_read_is_refused(folder: CertificateFolder):
    folder.server.chmod(0o640)

    with pytest.raises(InvalidInput, match="others can read") as caught:
        folder.files.read()
    assert caught.value.remedy == f"chmod 600 {folder.server}"


@pytest.mark.requirement("tls-beyond-loopback")
def test_the_key_of_another_certificate_is_refused(folder: CertificateFolder):
    mixed = CertificateFiles(folder.server, folder.ca_key, folder.ca, local=False)

    with pytest.raises(InvalidInput, match="another certificate"):
        mixed.read()


@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(folder: CertificateFolder, content: bytes):
    folder.server.write_bytes(content)

    with pytest.raises(InvalidInput):
        folder.files.read()


def test_a_missing_file_is_named(folder: CertificateFolder):
    folder.server.unlink()

    with pytest.raises(NotFound, match=r"server\.pem"):
        folder.files.read()


@pytest.mark.parametrize("host", ["", "a b", "-x.example", "*", "a" * 64, "x_y", "http://x"])
def test_what_is_no_host_gets_no_certificate(tmp_path: Path, host: str):
    with pytest.raises(InvalidInput):
        CertificateFolder(tmp_path / "tls").init([host], days=90, now=time.time())


def test_own_names_are_loopback_and_this_machine():
    assert own_names()[:3] == ("localhost", "127.0.0.1", "::1")


def test_a_wildcard_covers_one_label():
    certificate = certificates.Certificate("", "", ("*.example.org",), 0, 0, "", False)

    assert certificate.covers("box.example.org")
    assert not certificate.covers("example.org")
    assert not certificate.covers("a.box.example.org")


@pytest.mark.requirement("tls-local-authority")
@pytest.mark.parametrize(
    "left,due", [(40, None), (22, None), (20.9, 21), (6.9, 7), (0.9, 1), (-1, 1)]
)
def test_a_warning_is_due_three_weeks_a_week_and_a_day_before_the_end(left: float, due: int | None):
    certificate = certificates.Certificate("", "", (), 0, 90 * DAY, "", False)

    assert warning_due(certificate, (90 - left) * DAY) == due


def test_a_certificate_of_a_short_life_is_not_warned_about_from_its_first_day():
    certificate = certificates.Certificate("", "", (), 0, 6 * DAY, "", False)

    assert warning_due(certificate, 1 * DAY) is None
    assert warning_due(certificate, 4.5 * DAY) == 7
    assert near_its_end(certificate, 4 * DAY)


def test_our_own_clients_speak_the_newest_version_alone(folder: CertificateFolder):
    old = client_context(folder.ca)
    assert old.minimum_version is ssl.TLSVersion.TLSv1_3
    assert server_context(folder.server).minimum_version is ssl.TLSVersion.TLSv1_2
