"""The sidecar's HTTP requests to the control plane: events, and blobs piece by piece."""

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

MAX_PENDING = 16 * 1024 * 1024
"""Bytes of an answer with what people have said: an edited input may be long."""

_REFUSED = frozenset({400, 413, 415, 422})
"""Statuses of an answer that another try would not change."""


def control_http(dial: Dial, host: str, token: str) -> HttpClient:
    """A client of the control plane with the worker's bearer token; `host` goes into the Host header."""
    headers = {"host": host, "authorization": f"Bearer {token}"}
    return HttpClient("the control plane", dial, headers)


def direct(url: str, token: str) -> HttpClient:
    """The same, dialled directly where there is no gateway."""
    parts = urlsplit(url)
    return control_http(
        by_tcp(parts.hostname or "127.0.0.1", parts.port or 80), parts.netloc, token
    )


class EventsRefused(PeerError):
    """The control plane will never take these events."""


class ControlClient:
    """Reports one worker's events, and asks what people say to its agent."""

    def __init__(self, control: HttpClient) -> None:
        self._control = control

    async def post_events(
        self, uid: str, events: Sequence[dict[str, Any]], *, attempts: int = 5
    ) -> None:
        """Report events of worker `uid`, in at most `attempts` tries.

        Raises:
            PostroomError: the control plane did not take them.
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

    async def post_batch(self, uid: str, run: str, first: int, lines: Sequence[bytes]) -> int:
        """Report events, each a JSON object, of which the first has the number `first` in `run`.

        Returns the number behind the last that is stored, 0 if the control plane does not say.

        Raises:
            EventsRefused: they are not what it takes.
            PostroomError: perhaps not stored; report them again.
        """
        head = json.dumps({"run": run, "first": first})
        body = head.encode()[:-1] + b',"events":[' + b",".join(lines) + b"]}"
        kind = [("content-type", "application/json")]
        path = f"/v1/workers/{uid}/sdk-events"
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._control.ask("POST", path, headers=kind, body=body)
                async with answer:
                    if answer.status in _REFUSED:
                        raise EventsRefused(f"the control plane answered {answer.status}")
                    following = (await answer.document()).get("next")
        except TimeoutError as error:
            raise RequestTimeout("the control plane did not answer in time") from error
        return following if type(following) is int else 0

    async def pending(self, uid: str, after: int, wait: float) -> tuple[list[dict[str, Any]], int]:
        """What people have said to the worker's agent after that event, and the event to ask after next.

        Waits for at most `wait` seconds; raises PostroomError.
        """
        path = f"/v1/workers/{uid}/control/pending?after_id={after}&wait={wait:g}"
        try:
            async with asyncio.timeout(wait + TIMEOUT):
                answer = await self._control.ask("GET", path)
                async with answer:
                    document = await answer.document(MAX_PENDING)
        except TimeoutError as error:
            raise RequestTimeout("the control plane did not answer in time") from error
        records, following = document.get("records"), document.get("next")
        if not isinstance(records, list) or type(following) is not int:
            raise ProtocolViolation("the control plane's answer has no records")
        return [record for record in records if isinstance(record, dict)], following

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
"""Headers of a blob's answer that the agent gets, too."""


class BlobRelay:
    """Stores and fetches blobs as one worker; passes them on piece by piece and holds none."""

    def __init__(self, control: HttpClient) -> None:
        self._control = control

    async def put(self, chunks: AsyncIterable[bytes], media_type: str) -> dict[str, Any]:
        """Store a blob; returns its `url` and `size` when it is on disk."""
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
            raise ProtocolViolation("the control plane has stored a blob with another digest")
        return {"url": answer["url"], "size": answer.get("size")}

    async def get(self, sha256: str) -> Content:
        """A blob, fetched as it is read.

        Raises:
            NotFound: no such blob, or this worker may not read it.
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
