"""Sandboxes on other machines: where they find the gateway, and the settings of who runs them."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from postroom.control.certificate import CertificateKeeper
from postroom.control.endpoints import Endpoints
from postroom.errors import InvalidInput
from postroom.gateway.listener import TlsListener, bind_listener
from postroom.gateway.server import Gateway
from postroom.sandbox.opensandbox.remote import Remote
from postroom.settings import DEFAULT_GATEWAY_PORT, Settings


@dataclass(frozen=True, slots=True)
class Outside:
    """What is needed to let sandboxes of other machines in."""

    endpoints: Endpoints
    certificate: CertificateKeeper

    def listen(self, gateway: Gateway) -> TlsListener | None:
        """The gateway's listener for them, bound; None if there is to be none.

        Raises:
            PortTaken: the address cannot be listened on.
        """
        wanted = self.endpoints.gateway
        if wanted is None:
            return None
        port = DEFAULT_GATEWAY_PORT if wanted.port is None else wanted.port
        listener = bind_listener(wanted.address, port)
        return TlsListener(listener, self.certificate.context, gateway.admit)

    def remote(self, settings: Settings, port: int, operator: str) -> Remote | None:
        """How workers are put on the OpenSandbox server of `settings`; None without one.

        Args:
            settings: which server, and what to show it.
            port: where the gateway's listener is.
            operator: public key of this post room, by which its sandboxes are told from others'.

        Raises:
            InvalidInput: a setting is missing or unsafe.
        """
        if not settings.opensandbox_url:
            return None
        _check_url(settings.opensandbox_url)
        ca = self.certificate.ca
        return Remote(
            url=settings.opensandbox_url.rstrip("/"),
            key=_key(settings),
            image=settings.opensandbox_image,
            python=settings.opensandbox_python,
            gateway=self.endpoints.gateway_address(port),
            gateway_ca=Path(ca).read_text(encoding="utf-8") if ca else "",
            room=hashlib.sha256(operator.encode()).hexdigest()[:32],
            run=secrets.token_hex(8),
        )


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise InvalidInput(
            "POSTROOM_OPENSANDBOX_URL is no URL of a server", remedy="e.g. https://host:8080"
        )
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise InvalidInput(
            "POSTROOM_OPENSANDBOX_URL leads over the network without TLS: workers' credentials go there",
            remedy="give the server a certificate, and name it with https://",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _key(settings: Settings) -> str:
    if settings.opensandbox_key or settings.opensandbox_key_file is None:
        return settings.opensandbox_key
    try:
        return settings.opensandbox_key_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidInput(
            f"the key of OpenSandbox cannot be read from {settings.opensandbox_key_file}: {error.strerror}"
        ) from error
