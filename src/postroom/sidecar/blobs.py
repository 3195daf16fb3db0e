"""Blobs between the agent and the control plane: passed on piece by piece, never held.

The agent's side is `httpd`; the control plane is asked over HTTP through the door.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import h11

from postroom.errors import (
    BusDisconnected,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    from_problem,
)
from postroom.http.server import Content
from postroom.protocol.blobs import blob_url
from postroom.sidecar.control_client import ControlAddress

STEP_TIMEOUT = 30.0
"""Seconds for one piece to be taken or to come."""

ANSWER_TIMEOUT = 60.0
"""Seconds from the last piece to the answer: the content is brought to the disk in between."""

MAX_DOCUMENT = 64 * 1024
CHUNK = 64 * 1024

_PASSED = frozenset({"content-type", "content-length", "etag"})
"""Headers of a content that the agent is told, too."""


class BlobRelay:
    """Stores and fetches blobs as one worker.

    Args:
        control: where the control plane is, and who asks.
    """

    def __init__(self, control: ControlAddress) -> None:
        self._control = control

    async def put(self, chunks: AsyncIterable[bytes], media_type: str) -> dict[str, Any]:
        """Store a content; returns its `url` and `size` when it is on disk.

        Raises:
            PostroomError: it was not stored: what the control plane or the agent's connection says.
        """
        line = await _Line.open(self._control)
        try:
            # It is asked before anything is sent, so that what has no room is not sent in vain.
            headers = [("transfer-encoding", "chunked"), ("expect", "100-continue")]
            await line.request("POST", "/v1/blobs", [*headers, ("content-type", media_type)])
            head = await line.head(ANSWER_TIMEOUT)
            digest = hashlib.sha256()
            if isinstance(head, h11.InformationalResponse):
                head = await _send(line, chunks, digest)
            answer = await line.document(head)
        finally:
            line.close()
        if answer.get("url") != blob_url(digest.hexdigest()):
            raise ProtocolViolation("the control plane has stored something else")
        return {"url": answer["url"], "size": answer.get("size")}

    async def get(self, sha256: str) -> Content:
        """A content, which comes as it is read.

        Raises:
            NotFound: there is none that this worker may read.
            PostroomError: there is no answer.
        """
        line = await _Line.open(self._control)
        try:
            await line.request("GET", f"/v1/blobs/{sha256}", [("connection", "close")])
            head = await line.head(ANSWER_TIMEOUT)
            if head.status_code != 200:
                await line.document(head)
                raise ProtocolViolation(f"the control plane answered {head.status_code}")
        except BaseException:
            line.close()
            raise
        headers = [(name.decode(), value.decode("latin-1")) for name, value in head.headers]
        kept = tuple((name, value) for name, value in headers if name in _PASSED)
        return Content(kept, line.pieces(), line.close)


async def _send(line: _Line, chunks: AsyncIterable[bytes], digest: Any) -> h11.Response:
    """Send the content; returns the head of the answer, which may come before its end."""

    async def send() -> None:
        async for data in chunks:
            digest.update(data)
            await line.send(h11.Data(data=data))
        await line.send(h11.EndOfMessage())

    sending = asyncio.ensure_future(send())
    answering = asyncio.ensure_future(line.head(None))
    try:
        await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            await sending
            async with line.faults(), asyncio.timeout(ANSWER_TIMEOUT):
                await asyncio.wait({answering})
        head = await answering
    finally:
        for task in (sending, answering):
            task.cancel()
        await asyncio.wait({sending, answering})
        for task in (sending, answering):
            if not task.cancelled():
                task.exception()  # whatever else went wrong says less
    if isinstance(head, h11.InformationalResponse):
        raise ProtocolViolation("the control plane goes on asking")
    return head


class _Line:
    """One request to the control plane and its answer, on a connection of its own."""

    def __init__(
        self,
        control: ControlAddress,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._control = control
        self._reader = reader
        self._writer = writer
        self._connection = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, control: ControlAddress) -> _Line:
        """Connect.

        Raises:
            BusDisconnected: nobody is there.
        """
        async with _Faults(), asyncio.timeout(STEP_TIMEOUT):
            reader, writer = await asyncio.open_connection(*control.address, limit=CHUNK)
        return cls(control, reader, writer)

    def close(self) -> None:
        """Close the connection; what was not taken is lost."""
        self._writer.transport.abort()

    @staticmethod
    def faults() -> _Faults:
        """Errors of the connection as ours."""
        return _Faults()

    async def request(self, method: str, path: str, headers: list[tuple[str, str]]) -> None:
        """Send the head of the request, and its end where it has no body."""
        known = [("host", self._control.host), ("authorization", f"Bearer {self._control.token}")]
        await self.send(h11.Request(method=method, target=path, headers=[*known, *headers]))
        if method == "GET":
            await self.send(h11.EndOfMessage())

    async def send(self, event: h11.Event) -> None:
        """Send one event, when the connection takes it."""
        async with _Faults(), asyncio.timeout(STEP_TIMEOUT):
            self._writer.write(self._connection.send(event) or b"")
            await self._writer.drain()

    async def head(self, timeout: float | None) -> h11.Response | h11.InformationalResponse:
        """The head of the answer, or that the body may be sent."""
        event = await self._next(timeout)
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise BusDisconnected("the control plane's answer ended before it began")
        return event

    async def document(self, head: h11.Response | h11.InformationalResponse) -> dict[str, Any]:
        """The JSON object that is the answer.

        Raises:
            PostroomError: the one that it reports.
        """
        body = bytearray()
        async for data in self.pieces():
            body += data
            if len(body) > MAX_DOCUMENT:
                raise ProtocolViolation("the control plane's answer is too long")
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if head.status_code >= 400:
            raise from_problem(document if isinstance(document, dict) else {}, head.status_code)
        if not isinstance(document, dict):
            raise ProtocolViolation("the control plane's answer is no JSON object")
        return document

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body of the answer as it comes."""
        while not isinstance(event := await self._next(STEP_TIMEOUT), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise BusDisconnected("the control plane's answer broke off")
            yield bytes(event.data)

    async def _next(self, timeout: float | None) -> Any:
        async with _Faults(), asyncio.timeout(timeout):
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(CHUNK))
            return event


class _Faults:
    """Errors of a connection as ours."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, PostroomError):
            return
        if isinstance(error, TimeoutError):
            raise RequestTimeout("the control plane did not answer in time") from error
        if isinstance(error, OSError):
            raise BusDisconnected(f"the control plane does not answer: {error}") from error
        if isinstance(error, h11.ProtocolError):
            raise ProtocolViolation(f"the control plane's answer is not HTTP: {error}") from error
