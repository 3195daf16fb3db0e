"""One HTTP call to the control plane, for callers that wait: credential, deadlines, retries, and errors as types."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2

from postroom.client.near import NearTransport
from postroom.client.rules import (
    EVENT_STREAM,
    Endpoint,
    Locate,
    Outcome,
    Query,
    decoded,
    failed,
    judged,
    reported,
)
from postroom.errors import PostroomError
from postroom_a2a.retry import RetryPolicy, perform

if TYPE_CHECKING:
    from postroom.client.websocket import WebSocket


class Transport(Endpoint):
    """Calls a control plane, and blocks until it has answered.

    Args:
        sleep: waits so many seconds.
        base: the httpx2 transport to use; None for the socket of the post room if it has one, else TCP.
    """

    def __init__(
        self,
        locate: Locate,
        *,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        org: str = "",
        base: httpx2.BaseTransport | None = None,
    ) -> None:
        super().__init__(locate, retry=retry, clock=clock, org=org)
        self._sleep = sleep
        self._base = base
        self._http = self._connections()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Query | None = None,
        repeatable: bool = False,
        extra_time: float = 0.0,
    ) -> Any:
        """The JSON value in the control plane's answer, None for an empty answer.

        Args:
            json: the body, None for no body.
            repeatable: a second call with the same content has no second effect (see `Again`).
            extra_time: seconds that the answer may take beyond the usual.

        Raises:
            NotRunning: nobody listens at the address.
            RequestTimeout: no answer in time.
            Uncertain: the connection broke after a write was sent, and no later attempt shows its result.
            PeerError: the connection broke.
            ProtocolViolation: the answer is not JSON.
            PostroomError: the control plane's own error.
        """
        course = self._course(write=method != "GET", repeatable=repeatable)
        attempt = partial(self._attempt, method, path, json, params, extra_time)
        return decoded(perform(course, attempt, self._sleep))

    def _attempt(
        self, method: str, path: str, json: object, params: Query | None, extra_time: float
    ) -> Outcome:
        """One attempt."""
        asked = self._request(json, params, extra_time)
        try:
            with self._faults():
                return judged(self._http.request(method, self._url(path), **asked), self.retry)
        except PostroomError as error:
            return failed(error)

    @contextmanager
    def stream(self, path: str, params: Query, *, silence: float) -> Generator[httpx2.Response]:
        """An answer that is read as it comes; `silence` is the longest wait for its next bytes, in seconds.

        Raises the same errors as `call`, also while it is being read.
        """
        with self.exchange(
            "GET", path, silence=silence, params=params, headers=EVENT_STREAM
        ) as answer:
            yield answer

    @contextmanager
    def exchange(
        self,
        method: str,
        path: str,
        *,
        silence: float,
        content: Iterable[bytes] | None = None,
        params: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[httpx2.Response]:
        """A call with streamed body and answer, without repetition; else as `stream`."""
        with (
            self._faults(),
            self._http.stream(
                method,
                self._url(path),
                content=content,
                params=params,
                headers=self._headers() | dict(headers or {}),
                timeout=self._timeout(silence),
            ) as response,
        ):
            if response.is_error:
                response.read()
                raise reported(response)
            yield response

    def websocket(self, path: str, params: Query) -> WebSocket:
        """An open WebSocket; raises the errors of `WebSocket.connect`."""
        from postroom.client.websocket import WebSocket  # most commands need none

        return WebSocket.connect(self._server, self._url(path), params, self._headers())

    @staticmethod
    def decoded(response: httpx2.Response) -> Any:
        """The JSON value in the answer of an `exchange`."""
        response.read()
        return decoded(response)

    def _renew(self) -> None:
        self._http.close()
        self._http = self._connections()

    def _connections(self) -> httpx2.Client:
        base = self._base
        if base is None and self._server.socket:
            base = NearTransport(self._server)
        return httpx2.Client(transport=base, **self._connection())
