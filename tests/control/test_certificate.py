"""The certificate of a running post room: refused, made, renewed, taken anew, warned about."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from postroom.control import http_listener
from postroom.control.certificate import CertificateKeeper, certificate_files, open_certificate
from postroom.control.endpoints import plan
from postroom.control.http_listener import HttpListener, bind
from postroom.control.org_router import OrgRouter
from postroom.errors import InvalidInput, StateUnwritable
from postroom.identity.certfolder import CertificateFolder
from postroom.identity.certificates import DAY
from postroom.protocol.alerts import Alert
from postroom.settings import Settings
from postroom.tls import client_context

pytestmark = pytest.mark.anyio
HOST = "192.0.2.7"


class Alerts:
    """What was raised."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.changes = 0

    async def raise_one(self, alert: Alert) -> None:
        self.kinds += [alert.kind] * bool(alert.text)  # without a text it is the end of one

    def change(self) -> None:
        self.changes += 1


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path, tls="auto", listen=(HOST,))


@pytest.fixture
def folder(settings: Settings) -> CertificateFolder:
    made = CertificateFolder(settings.tls_folder)
    made.init([HOST], days=90, now=time.time())
    return made


def external(folder: CertificateFolder, settings: Settings, now: float = 0.0) -> Settings:
    """Settings that name a certificate of somebody else's, made at `now`."""
    elsewhere = CertificateFolder(settings.state / "elsewhere")
    elsewhere.init([HOST], days=90, now=now or time.time())
    return replace(
        settings, tls_cert=elsewhere.server, tls_key=elsewhere.server, tls_ca=elsewhere.ca
    )


def keeper(settings: Settings, clock: Clock) -> CertificateKeeper:
    files, folder = certificate_files(settings), CertificateFolder(settings.tls_folder)
    return CertificateKeeper(files, folder, plan(settings), clock)


@pytest.mark.requirement("tls-beyond-loopback")
async def test_beyond_loopback_nothing_starts_without_a_certificate(settings: Settings):
    with pytest.raises(InvalidInput, match="without TLS") as caught:
        open_certificate(settings, plan(settings))
    assert f"postroom tls init --host {HOST}" in caught.value.remedy


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_certificate_that_does_not_stand_for_the_address_is_refused(
    settings: Settings, folder: CertificateFolder
):
    other = replace(settings, listen=("192.0.2.8",))

    with pytest.raises(InvalidInput, match="does not stand for") as caught:
        open_certificate(other, plan(other))
    assert caught.value.remedy == "postroom tls init --force --host 192.0.2.8"


@pytest.mark.requirement("tls-beyond-loopback")
async def test_an_expired_certificate_of_somebody_elses_is_refused(
    settings: Settings, folder: CertificateFolder
):
    expired = external(folder, settings, time.time() - 91 * DAY)

    with pytest.raises(InvalidInput, match="expired"):
        open_certificate(expired, plan(expired))


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_certificate_that_is_not_valid_yet_is_refused(
    settings: Settings, folder: CertificateFolder
):
    early = external(folder, settings, time.time() + 2 * DAY)

    with pytest.raises(InvalidInput, match="valid from"):
        open_certificate(early, plan(early))


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_certificate_of_another_authority_than_the_one_named_is_refused(
    settings: Settings, folder: CertificateFolder
):
    mixed = replace(external(folder, settings), tls_ca=folder.ca)

    with pytest.raises(InvalidInput, match="certificate"):
        open_certificate(mixed, plan(mixed))


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_certificate_without_its_key_is_refused(settings: Settings):
    half = replace(settings, tls_cert=Path("cert.pem"))

    with pytest.raises(InvalidInput, match="together"):
        open_certificate(half, plan(half))


@pytest.mark.requirement("tls-beyond-loopback")
async def test_on_loopback_alone_an_authority_is_made_at_the_first_start(settings: Settings):
    always = replace(settings, listen=(), tls="always")

    made = open_certificate(always, plan(always))
    again = open_certificate(always, plan(always))

    assert made is not None
    assert again is not None
    assert again.certificate == made.certificate
    assert made.certificate.covers("127.0.0.1")


async def test_without_tls_there_is_no_certificate(settings: Settings):
    plain = replace(settings, listen=())

    assert open_certificate(plain, plan(plain)) is None
    assert not settings.tls_folder.exists()


@pytest.mark.requirement("tls-local-authority")
async def test_an_expired_local_certificate_is_renewed_at_the_start(
    settings: Settings, folder: CertificateFolder
):
    clock = Clock()
    folder.renew(now=clock.now - 100 * DAY)

    kept = keeper(settings, clock)
    kept.open()

    assert kept.certificate.days_left(clock.now) > 80


@pytest.mark.requirement("tls-local-authority")
async def test_a_local_certificate_is_renewed_in_the_last_third_of_its_life(
    settings: Settings, folder: CertificateFolder
):
    clock, alerts = Clock(), Alerts()
    folder.renew(now=clock.now - 61 * DAY)
    clock.now -= 6 * DAY
    kept = keeper(settings, clock)
    kept.open()
    before = kept.certificate

    await kept.step(alerts.change, alerts.raise_one)
    assert (alerts.changes, kept.certificate) == (0, before)

    clock.now += 6 * DAY
    await kept.step(alerts.change, alerts.raise_one)
    assert alerts.changes == 1
    assert kept.certificate.not_after > before.not_after
    assert alerts.kinds == []


@pytest.mark.requirement("tls-local-authority")
async def test_a_certificate_of_somebody_elses_is_warned_about_three_times(
    settings: Settings, folder: CertificateFolder
):
    clock, alerts = Clock(), Alerts()
    kept = keeper(external(folder, settings, clock.now), clock)
    kept.open()
    counts = []

    for left in (40, 20, 19, 6, 5, 0.5, 0.2):
        clock.now = kept.certificate.not_after - left * DAY
        await kept.step(alerts.change, alerts.raise_one)
        counts.append(len(alerts.kinds))

    assert counts == [0, 1, 1, 2, 2, 3, 3]
    assert set(alerts.kinds) == {"certificate-expiring"}


@pytest.mark.requirement("tls-local-authority")
async def test_a_renewal_that_fails_is_told_once(settings: Settings, folder: CertificateFolder):
    clock, alerts = Clock(), Alerts()
    kept = keeper(settings, clock)
    kept.open()
    folder.ca_key.unlink()
    clock.now += 61 * DAY

    for _ in range(3):
        await kept.step(alerts.change, alerts.raise_one)

    assert alerts.kinds == ["certificate-expiring"]


async def shown(port: int, ca: Path) -> str:
    """Fingerprint of the certificate that listens on `port`."""
    context = client_context(ca)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return sha256(certificate).hexdigest()


@pytest.mark.requirement("tls-local-authority")
async def test_a_new_certificate_is_shown_to_new_connections_and_open_ones_stay(
    settings: Settings, folder: CertificateFolder
):
    alerts, kept = Alerts(), keeper(settings, Clock())
    kept.open()
    listener = bind("127.0.0.1", 0, usual=0)
    port = listener.getsockname()[1]
    http = HttpListener(OrgRouter(frozenset({f"{HOST}:{port}"})), listener, kept.context)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(http.serve())
        held = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(folder.ca), server_hostname=HOST
        )
        before = await shown(port, folder.ca)

        folder.renew(now=time.time())
        await kept.step(alerts.change, alerts.raise_one)

        assert await shown(port, folder.ca) == kept.certificate.fingerprint != before
        held[1].write(f"GET /livez HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        assert b"200" in await held[0].readline()
        held[1].close()
        http.stop()


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_replacement_that_does_not_fit_is_not_taken(
    settings: Settings, folder: CertificateFolder
):
    alerts = Alerts()
    theirs = external(folder, settings)
    kept = keeper(theirs, Clock())
    kept.open()
    before = folder.serving.read_bytes()
    assert theirs.tls_cert is not None

    for content in (b"half", folder.server.read_bytes()):  # the second one is of another authority
        theirs.tls_cert.write_bytes(content)
        theirs.tls_cert.chmod(0o600)
        for _ in range(3):
            await kept.step(alerts.change, alerts.raise_one)

    assert alerts.kinds == ["certificate-refused"] * 2
    assert alerts.changes == 0
    assert folder.serving.read_bytes() == before


@pytest.mark.requirement("tls-local-authority")
async def test_a_replacement_of_somebody_elses_is_taken_when_it_has_come_to_rest(
    settings: Settings, folder: CertificateFolder
):
    alerts = Alerts()
    theirs = external(folder, settings)
    kept = keeper(theirs, Clock())
    kept.open()
    CertificateFolder(settings.state / "elsewhere").renew(now=time.time())

    await kept.step(alerts.change, alerts.raise_one)
    assert alerts.changes == 0
    await kept.step(alerts.change, alerts.raise_one)

    assert alerts.changes == 1
    assert kept.certificate == certificate_files(theirs).read()[0]


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_client_without_tls_or_with_another_authority_is_told_nothing(
    settings: Settings, folder: CertificateFolder, tmp_path: Path
):
    kept = keeper(settings, Clock())
    kept.open()
    other = CertificateFolder(tmp_path / "other")
    other.init([HOST], days=90, now=time.time())
    listener = bind("127.0.0.1", 0, usual=0)
    port = listener.getsockname()[1]
    http = HttpListener(OrgRouter(frozenset({f"{HOST}:{port}"})), listener, kept.context)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(http.serve())
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(other.ca), server_hostname=HOST
            )
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /livez HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        try:
            said = await reader.read()
        except ConnectionResetError:
            said = b""
        assert b"HTTP" not in said
        writer.close()
        http.stop()


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_connection_whose_handshake_does_not_come_is_cut(
    settings: Settings, folder: CertificateFolder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_listener, "HANDSHAKE_TIMEOUT", 0.05)
    kept = keeper(settings, Clock())
    kept.open()
    listener = bind("127.0.0.1", 0, usual=0)
    http = HttpListener(OrgRouter(frozenset()), listener, kept.context)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(http.serve())
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        http.stop()


async def test_an_address_of_another_machine_is_named():
    with pytest.raises(InvalidInput, match="no address 192"):
        bind("192.0.2.1", 0, usual=0, tls=True)


@pytest.mark.requirement("background-supervised")
async def test_a_new_certificate_that_a_full_disk_keeps_from_its_place_is_taken_later(
    settings: Settings, folder: CertificateFolder, monkeypatch: pytest.MonkeyPatch
):
    alerts, clock = Alerts(), Clock()
    watched = keeper(settings, clock)
    watched.open()
    before = watched.certificate
    CertificateFolder(settings.tls_folder).renew(now=time.time())

    def full(*_: object) -> Path:
        raise StateUnwritable("the disk is full")

    for part in ("stage", "promote"):
        with monkeypatch.context() as patch:
            patch.setattr(CertificateFolder, part, full)
            for _ in range(3):
                with pytest.raises(StateUnwritable):  # for its supervisor, who tells people
                    await watched.step(alerts.change, alerts.raise_one)
    assert watched.certificate == before

    await watched.step(alerts.change, alerts.raise_one)
    assert watched.certificate != before
    assert (alerts.kinds, alerts.changes) == ([], 1)
