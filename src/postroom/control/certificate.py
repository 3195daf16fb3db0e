"""The certificate of a running post room: checked before use, renewed or replaced while the post room runs.

nats-server and the HTTP API use a copy that was checked. So a half-written or wrong file of somebody else breaks
nothing: the old certificate stays until the new one fits.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable

from postroom.bus.server_config import ServerTls
from postroom.control.endpoints import Endpoints, OutwardAddress
from postroom.errors import InvalidInput, PostroomError, StateUnwritable
from postroom.identity.certfolder import CertificateFiles, CertificateFolder
from postroom.identity.certificates import (
    SERVER_DAYS,
    Certificate,
    day,
    near_its_end,
    read,
    warning_due,
)
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.settings import Settings
from postroom.tls import client_context, rehearse, server_context, show
from postroom_a2a.times import format_time

log = get_logger(__name__)

INTERVAL = 2.0
"""Seconds between two checks of the files."""

EXPIRING, REFUSED = "certificate-expiring", "certificate-refused"
"""Kinds of the alerts."""


def certificate_files(settings: Settings) -> CertificateFiles:
    """The certificate that `settings` name, or the local one."""
    if settings.tls_cert is None and settings.tls_key is None:
        return CertificateFolder(settings.tls_folder).files
    if settings.tls_cert is None or settings.tls_key is None:
        raise InvalidInput(
            "a certificate and its key go together", remedy="--tls-cert FILE --tls-key FILE"
        )
    return CertificateFiles(settings.tls_cert, settings.tls_key, settings.tls_ca, local=False)


def open_certificate(settings: Settings, endpoints: Endpoints) -> CertificateKeeper | None:
    """The certificate for `endpoints`, ready for use; None if no endpoint has TLS.

    Raises:
        InvalidInput: no certificate fits.
    """
    if not endpoints.certified:
        return None
    folder = CertificateFolder(settings.tls_folder)
    keeper = CertificateKeeper(certificate_files(settings), folder, endpoints)
    keeper.open()
    return keeper


class CertificateKeeper:
    """Presents a certificate and keeps it current.

    Args:
        folder: for the copy in use; for a local certificate also its authority.
    """

    def __init__(
        self,
        files: CertificateFiles,
        folder: CertificateFolder,
        endpoints: Endpoints,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._folder = folder
        self._endpoints = endpoints
        self._clock = clock
        self._warned: set[tuple[str, int]] = set()
        self._calm = False
        self.certificate: Certificate
        self.context: ssl.SSLContext
        self.client: ssl.SSLContext

    @property
    def ca(self) -> str:
        """Path of the authority that clients have to trust, "" if their system trusts it."""
        return str(self._files.ca.absolute()) if self._files.ca is not None else ""

    @property
    def authority(self) -> str:
        """SHA-256 of the authority that clients have to trust, "" if their system trusts it."""
        return read(self._files.ca.read_bytes()).fingerprint if self._files.ca is not None else ""

    @property
    def local(self) -> bool:
        """Whether the certificate is Postroom's own, not somebody else's."""
        return self._files.local

    @property
    def server_tls(self) -> ServerTls:
        """The TLS settings of nats-server."""
        return ServerTls(self._folder.serving, self.client, self._name)

    def pem(self) -> bytes:
        """The certificate that is presented, with its chain and its key."""
        return self._folder.serving.read_bytes()

    def shown(self) -> shapes.Certificate:
        """The certificate's entry in `postroom status`."""
        return {
            "names": list(self.certificate.names),
            "not_after": format_time(self.certificate.not_after),
            "fingerprint": self.certificate.fingerprint,
            "local": self._files.local,
            "ca": self.ca,
            "authority": self.authority,
        }

    def open(self) -> None:
        """Check the certificate, and begin to present it. A local one is made or renewed if that is due.

        Raises:
            InvalidInput: it is missing, expired, another key's, or not for this address.
            StateUnwritable: the folder cannot be written.
        """
        if self._files.local:
            self._make()
        self._stamps = self._seen = self._files.stamps()
        self.certificate, pem = self._read()
        self.client = client_context(self._files.ca)
        staged = self._folder.stage(pem)
        context = server_context(staged)
        self._name = self._endpoints.nats_name(self.certificate)
        rehearse(context, self.client, self._name)
        self._folder.promote()
        self.context = context

    async def run(self, changed: Callable[[], None], alert: RaiseAlert) -> None:
        """Keep it current until cancelled; `changed` is called when nats-server has to read another certificate."""
        # Ends an alert of an earlier process: this one has opened the present files.
        await alert(Alert(REFUSED, ""))
        while True:
            await self.step(changed, alert)
            well()
            await asyncio.sleep(INTERVAL)

    async def step(self, changed: Callable[[], None], alert: RaiseAlert) -> None:
        """One round: renew, take a new certificate, warn."""
        if self._files.local and near_its_end(self.certificate, self._clock()):
            await self._renew(alert)
        stamps = self._files.stamps()
        # Somebody else writes two files, so both are read once they are the same for two rounds.
        if stamps != self._stamps and (self._files.local or stamps == self._seen):
            await self._take(changed, alert)
            self._stamps = stamps
        self._seen = stamps
        await self._warn(alert)

    def _make(self) -> None:
        if self._folder.exists:
            found, _ = self._files.read()
            if near_its_end(found, self._clock()):
                self._folder.renew(now=self._clock())
        elif (outward := self._outward) is not None:
            name = outward.name
            wanted = "NAME" if outward.everywhere else name
            raise InvalidInput(
                f"refusing to listen on {name} without TLS",
                remedy=f"postroom tls init --host {wanted}, or --tls-cert FILE --tls-key FILE",
            )
        else:
            hosts = self._endpoints.names
            self._folder.init(hosts, days=SERVER_DAYS, now=self._clock())

    @property
    def _outward(self) -> OutwardAddress | None:
        """An address that other machines can reach, None if there is none."""
        grpc = self._endpoints.grpc
        far = grpc if grpc is not None and not grpc.near else None
        return self._endpoints.outward or self._endpoints.gateway or far

    def _read(self) -> tuple[Certificate, bytes]:
        certificate, pem = self._files.read()
        now, file = self._clock(), self._files.certificate
        remedy = "postroom tls renew" if self._files.local else "renew it where it comes from"
        if certificate.not_after <= now:
            raise InvalidInput(f"{file} expired on {day(certificate.not_after)}", remedy=remedy)
        if certificate.not_before > now:
            raise InvalidInput(f"{file} is valid from {day(certificate.not_before)} on")
        for name in self._endpoints.names:
            if not certificate.covers(name):
                remedy = (
                    f"postroom tls init --force --host {name}"
                    if self._files.local
                    else "take one that does, or listen on a name that it has"
                )
                raise InvalidInput(f"{file} does not stand for {name}", remedy=remedy)
        return certificate, pem

    async def _renew(self, alert: RaiseAlert) -> None:
        try:
            self._folder.renew(now=self._clock())
        except PostroomError as error:
            if (self.certificate.fingerprint, -1) not in self._warned:
                self._warned.add((self.certificate.fingerprint, -1))
                await alert(Alert(EXPIRING, f"the certificate cannot be renewed: {error}"))

    async def _take(self, changed: Callable[[], None], alert: RaiseAlert) -> None:
        try:
            certificate, pem = self._read()
            staged = self._folder.stage(pem)
            rehearse(server_context(staged), self.client, self._name)
        except StateUnwritable:
            raise  # it is taken once the disk has room
        except PostroomError as error:
            log.warning("refused the new certificate: %s", error)
            await alert(Alert(REFUSED, f"the new certificate is not taken: {error}"))
            return
        show(self.context, self._folder.promote())
        self.certificate = certificate
        changed()
        await alert(Alert(REFUSED, ""))
        log.info("a new certificate is in use, until %s", day(certificate.not_after))

    async def _warn(self, alert: RaiseAlert) -> None:
        watched = {"certificate": self.certificate}
        if self._files.local:
            watched["local authority"] = self._folder.authority()
        dues = {what: warning_due(each, self._clock()) for what, each in watched.items()}
        calm = not any(dues.values()) and (self.certificate.fingerprint, -1) not in self._warned
        if calm and not self._calm:
            await alert(Alert(EXPIRING, ""))
        self._calm = calm
        for what, certificate in watched.items():
            due = dues[what]
            if due is None or (certificate.fingerprint, due) in self._warned:
                continue
            self._warned.add((certificate.fingerprint, due))
            await alert(Alert(EXPIRING, f"the {what} expires on {day(certificate.not_after)}"))
