"""What the sidecar tells the control plane over HTTP: events, through the gateway's HTTP door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from postroom.errors import BusDisconnected, PeerError, PostroomError, RequestTimeout
from postroom.http.client import Dial, HttpClient, by_tcp
from postroom.sidecar.wire import BACKOFF

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
