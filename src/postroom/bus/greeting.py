"""The greeting of a nats-server (INFO), which it sends before authentication."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from postroom.errors import BusDisconnected, ProtocolViolation, ServerFailed
from postroom_a2a.nats.info import fetch_info

TIMEOUT = 5.0
"""Seconds for connection, handshake and greeting."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The greeting of one server.

    Attributes:
        info: the INFO document; its fields depend on the server.
    """

    url: str
    info: dict[str, Any]

    @property
    def version(self) -> str:
        """Version of the server, e.g. "2.15.1"."""
        return str(self.info.get("version", ""))

    @property
    def server_id(self) -> str:
        """The server's address for the system account."""
        return str(self.info.get("server_id", ""))

    @property
    def cluster(self) -> str:
        """Name of the server's cluster, "" for a single server."""
        return str(self.info.get("cluster", ""))


async def greeting(
    url: str, tls: ssl.SSLContext | None = None, *, timeout: float = TIMEOUT
) -> Greeting:
    """The greeting of the server at `url`, `nats://host:port`.

    Args:
        tls: for a server that does the TLS handshake before its greeting.
        timeout: seconds for connection, handshake and greeting.

    Raises:
        BusDisconnected: nothing accepts connections there, or it stays silent.
        ServerFailed: not a nats-server, no valid certificate, or a greeting before TLS.
    """
    where = urlsplit(url)
    try:
        async with asyncio.timeout(timeout):
            return Greeting(url, await fetch_info(where.hostname, where.port, tls=tls))
    except ProtocolViolation as error:
        raise ServerFailed(
            f"what listens at {url} does not greet as a nats-server",
            remedy="correct POSTROOM_NATS_URL; tls:// is for a server that wants TLS first",
        ) from error
    except TimeoutError as error:
        raise BusDisconnected(f"{url} stays silent") from error
    except ssl.SSLCertVerificationError as error:
        raise ServerFailed(
            f"the certificate of {url} is not valid here: {error.verify_message}",
            remedy="name the authority that signed it in POSTROOM_NATS_CA",
        ) from error
    except ssl.SSLError as error:
        # An attacker in between could talk a client out of TLS if it let the server speak first.
        raise ServerFailed(
            f"{url} does not begin with TLS",
            remedy="give that server a tls block with handshake_first: true",
        ) from error
    except OSError as error:
        raise BusDisconnected(f"{url} cannot be reached: {error.strerror or error}") from error
