"""What the sidecar tells the control plane over HTTP: events, through the gateway's HTTP door."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from postroom.errors import (
    BusDisconnected,
    PeerError,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
)
from postroom.http.client import Dial, HttpClient, by_tcp
from postroom.http.server import Content
from postroom.protocol.blobs import blob_url
from postroom.sidecar.bus import BACKOFF

TIMEOUT = 10.0


def control_http(dial: Dial, host: str, token: str) -> HttpClient:
    """Asks the control plane as the worker with that bearer token; `host` is its name in the Host header."""
    headers = {"host": host, "authorization": f"Bearer {token}"}
    return HttpClient("the control plane", dial, headers)


def direct(url: str, token: str) -> HttpClient:
    """The same where there is no gateway."""
    parts = urlsplit(url)
    return control_http(
        by_tcp(parts.hostname or "127.0.0.1", parts.port or 80), parts.netloc, token
    )


class ControlClient:
    """Posts to the control plane as one worker."""

    def __init__(self, control: HttpClient) -> None:
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
                status = await self._post(f"/v1/workers/{uid}/sdk-events", body)
                if status < 500:
                    break
                error: PostroomError = PeerError(f"the control plane answered {status}")
            except (BusDisconnected, RequestTimeout) as cause:
                error = cause
            if attempt == attempts:
                raise error
            await asyncio.sleep(BACKOFF.delay(attempt))
        if status >= 300:
            raise PeerError(f"the control plane refused the events: {status}")

    async def _post(self, path: str, body: bytes) -> int:
        kind = [("content-type", "application/json")]
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._control.ask("POST", path, headers=kind, body=body)
        except TimeoutError as error:
            raise RequestTimeout("the control plane did not answer in time") from error
        answer.close()
        return answer.status


_PASSED = frozenset({"content-type", "content-length", "etag"})
"""Headers of a content that the agent is told, too."""


class BlobRelay:
    """Stores and fetches blobs as one worker; `control` asks the control plane."""

    def __init__(self, control: HttpClient) -> None:
        self._control = control

    async def put(self, chunks: AsyncIterable[bytes], media_type: str) -> dict[str, Any]:
        """Store a content; returns its `url` and `size` when it is on disk.

        Raises:
            PostroomError: it was not stored: what the control plane or the agent's connection says.
        """
        digest = hashlib.sha256()

        async def hashed() -> AsyncGenerator[bytes]:
            async for data in chunks:
                digest.update(data)
                yield data

        kind = [("content-type", media_type)]
        stored = await self._control.ask("POST", "/v1/blobs", headers=kind, body=hashed())
        async with stored:
            answer = await stored.document()
        if answer.get("url") != blob_url(digest.hexdigest()):
            raise ProtocolViolation("the control plane has stored something else")
        return {"url": answer["url"], "size": answer.get("size")}

    async def get(self, sha256: str) -> Content:
        """A content, which comes as it is read.

        Raises:
            NotFound: there is none that this worker may read.
        """
        answer = await self._control.ask("GET", f"/v1/blobs/{sha256}")
        try:
            if answer.status != 200:
                await answer.document()
                raise ProtocolViolation(f"the control plane answered {answer.status}")
        except BaseException:
            answer.close()
            raise
        kept = tuple((name, value) for name, value in answer.headers if name in _PASSED)
        return Content(kept, answer.pieces(), answer.close)
