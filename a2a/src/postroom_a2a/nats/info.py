"""INFO, the line by which a nats-server greets whoever connects."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from typing import Any

from postroom_a2a.bounds import MAX_SERVER_LINE
from postroom_a2a.errors import ProtocolViolation


def read_info(document: bytes) -> dict[str, Any]:
    """The JSON object after the verb INFO; `ProtocolViolation` if it is not one."""
    try:
        info = json.loads(document)
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise ProtocolViolation("the INFO of a nats-server is not a JSON object")
    return info


async def fetch_info(
    host: str | None, port: int | None, *, tls: ssl.SSLContext | None = None, tls_name: str = ""
) -> dict[str, Any]:
    """Connect, read the INFO and hang up.

    Args:
        tls: context for a server that begins TLS before it sends anything.
        tls_name: the name in its certificate, where that is not the host.

    Raises:
        OSError: nothing listens there, or TLS failed.
        ProtocolViolation: something other than a nats-server listens there.
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
