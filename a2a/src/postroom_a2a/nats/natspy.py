"""What keeps a client of nats-py hearing: its reader survives every frame that a stranger, or we, have it read.

It reaches into nats-py's inner parts, so the dependency is pinned to one release line and the contract suite runs
against it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable

from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol import parser

from postroom_a2a.errors import ProtocolViolation

# A subject may hold any byte but space, tab, CR and LF. The library splits lines at every white space, so that a
# stranger's vertical tab would be read as a frame for another subscription, or as a broken line. The server
# itself writes spaces between the fields: one, or two where it leaves out the reply (the system account does).
parser.MSG_RE = re.compile(rb"\AMSG ([^ \t\r\n]+) (\d+) (([^ \t\r\n]+) | )?(\d+)\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG ([^ \t\r\n]+) (\d+) (([^ \t\r\n]+) | )?(\d+) (\d+)\r\n")


def harden(client: Client) -> None:
    """Have the reader of `client` go on behind what it cannot handle; hardened already, nothing happens.

    nats-py's reader ends at the first exception that it did not expect, and the client stays connected and hears
    nothing any more. A subject or header that is no text is such, and so is the PONG of a flush that was cancelled or
    timed out.
    """
    if "_process_headers" in vars(client):
        return
    frames = client._ps  # noqa: SLF001
    read_frames, read_headers = frames.parse, client._process_headers  # noqa: SLF001

    async def parse(data: bytes = b"") -> None:
        left = None
        while True:
            try:
                await read_frames(data)
                return
            except (ProtocolError, OSError):  # the client connects again
                raise
            except Exception as error:
                if left is not None and len(frames.buf) >= left:
                    raise ProtocolError from error  # the frame is still there: it would fail again
                left, data = len(frames.buf), b""
                if not isinstance(error, asyncio.InvalidStateError):  # else nobody waits any more
                    said = f"an unreadable frame was ignored: {error!r}"
                    await client._error_cb(ProtocolViolation(said))  # noqa: SLF001

    async def guarded(headers: bytes) -> dict[str, str] | None:
        try:
            return await read_headers(headers)
        except (IndexError, UnicodeDecodeError):
            return None  # headers that are none are taken as not there

    def process_headers(headers: bytes | None) -> Awaitable[dict[str, str] | None]:
        return guarded(headers) if headers else read_headers(headers)

    vars(frames).update(parse=parse)
    vars(client).update(_process_headers=process_headers)
