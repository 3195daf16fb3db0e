"""What the sidecar tells the control plane over HTTP: events, through the gateway's HTTP door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h11

from postroom.errors import BusDisconnected, PeerError, PostroomError, ProtocolViolation
from postroom.sidecar.wire import backoff

TIMEOUT = 10.0
MAX_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the control plane is, and who asks.

    Attributes:
        address: host and port to connect to.
        host: value of the Host header.
        token: the worker's bearer token.
    """

    address: tuple[str, int]
    host: str
    token: str = field(repr=False)

    @classmethod
    def direct(cls, url: str, token: str) -> ControlAddress:
        """That of `url` itself, where there is no gateway."""
        parts = urlsplit(url)
        return cls((parts.hostname or "127.0.0.1", parts.port or 80), parts.netloc, token)


class ControlClient:
    """Posts to the control plane as one worker."""

    def __init__(self, control: ControlAddress) -> None:
        self._control = control

    async def post_events(
        self, uid: str, events: Sequence[dict[str, Any]], *, attempts: int = 5
    ) -> None:
        """Report events of worker `uid`; tried `attempts` times.

        Raises:
            PostroomError: they were not taken.
        """
        body = json.dumps({"events": list(events)}).encode()
        for attempt in range(1, attempts + 1):
            try:
                async with asyncio.timeout(TIMEOUT):
                    status = await self._post(f"/v1/workers/{uid}/sdk-events", body)
                if status < 500:
                    break
                error: PostroomError = PeerError(f"the control plane answered {status}")
            except OSError as cause:  # TimeoutError is one
                error = BusDisconnected(f"the control plane does not answer: {cause}")
            if attempt == attempts:
                raise error
            await asyncio.sleep(backoff(attempt))
        if status >= 300:
            raise PeerError(f"the control plane refused the events: {status}")

    async def _post(self, path: str, body: bytes) -> int:
        reader, writer = await asyncio.open_connection(*self._control.address)
        try:
            connection = h11.Connection(h11.CLIENT)
            headers = [
                ("host", self._control.host),
                ("authorization", f"Bearer {self._control.token}"),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Request(method="POST", target=path, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                writer.write(connection.send(event) or b"")
            await writer.drain()
            return await _status(connection, reader)
        except h11.ProtocolError as error:
            raise ProtocolViolation(f"the control plane's answer is not HTTP: {error}") from error
        finally:
            writer.close()


async def _status(connection: h11.Connection, reader: asyncio.StreamReader) -> int:
    received = 0
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return event.status_code
        if event is h11.NEED_DATA:
            data = await reader.read(MAX_ANSWER_BYTES)
            received += len(data)
            if received > MAX_ANSWER_BYTES:
                raise ProtocolViolation("the control plane's answer is too long")
            connection.receive_data(data)
        elif not isinstance(event, h11.InformationalResponse):
            raise ConnectionResetError("the connection ended before the answer")
