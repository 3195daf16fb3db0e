"""What a nats-server says before it knows who connects: its INFO."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from typing import Any

from postroom_a2a.bounds import MAX_SERVER_LINE
from postroom_a2a.errors import ProtocolViolation


def read_info(document: bytes) -> dict[str, Any]:
    """What follows the verb INFO.

    Raises:
        ProtocolViolation: it is no JSON object.
    """
    try:
        info = json.loads(document)
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise ProtocolViolation("the INFO of a nats-server is no JSON object")
    return info


async def fetch_info(
    host: str | None, port: int | None, *, tls: ssl.SSLContext | None = None, tls_name: str = ""
) -> dict[str, Any]:
    """Connect, read the INFO and hang up.

    Args:
        tls: for a server that does the TLS handshake before it says anything.
        tls_name: that its certificate is for, where that is not the host.

    Raises:
        OSError: nothing takes connections there, or TLS failed.
        ProtocolViolation: what listens there is no nats-server.
    """
    reader, writer = await asyncio.open_connection(
        host,
        port,
        limit=MAX_SERVER_LINE,
        ssl=tls,
        server_hostname=(tls_name or host) if tls else None,
    )
    try:
        verb, _, document = (await reader.readline()).partition(b" ")
    except ValueError as error:  # a line without an end
        raise ProtocolViolation("what listens there does not greet as a nats-server") from error
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if verb != b"INFO":
        raise ProtocolViolation("what listens there does not greet as a nats-server")
    return read_info(document)
