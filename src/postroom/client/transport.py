"""One HTTP call to the control plane: credential, deadlines, retries, and errors as types."""

from __future__ import annotations

import enum
import math
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from postroom.client.locate import ServerAddress
from postroom.errors import (
    BusDisconnected,
    NotRunning,
    PeerError,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    Unauthorized,
    Uncertain,
    from_problem,
)
from postroom.protocol.ids import check_name
from postroom_a2a.retry import RetryPolicy

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 30.0
"""Seconds; the slowest plain call is stopping a worker, with its grace period."""

GRACE = 1.0
"""Seconds that an answer may be late where `within` limits the time; the minimum of each call."""

PERHAPS_DONE = (RequestTimeout, BusDisconnected)
"""The control plane's errors when it cannot know whether the bus has stored a record."""

OF_ALL = ("/v1/orgs", "/v1/shutdown")
"""Paths of the whole post room, not of one organisation."""

Locate = Callable[[], ServerAddress]
Query = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error of a call; `sent`: the server may have acted on it."""

    error: PostroomError
    again: Again
    sent: bool = False


class Transport:
    """Calls a control plane and finds it again when it has moved.

    A restarted post room may have another port and another token, so after a refused connection or a refused
    credential the address is looked up again.

    Args:
        locate: returns the control plane's address; may raise `NotRunning`.
        retry: how often failed calls are repeated.
        sleep: waits so many seconds.
        clock: monotonic seconds, for `within`.
        org: organisation of the calls, "" for the default one.
        base: the httpx2 transport to use, e.g. one over a Unix socket; None for TCP.
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
        self.retry = retry or RetryPolicy()
        self._locate = locate
        self._sleep = sleep
        self._clock = clock
        self._end = math.inf
        self._before = f"/orgs/{check_name(org, 'organisation')}" if org else ""
        self._base = base
        self._server = locate()
        self._http = self._connections()

    @property
    def server(self) -> ServerAddress:
        """The address used last."""
        return self._server

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @contextmanager
    def within(self, seconds: float | None) -> Generator[None]:
        """Limit the calls in a `with` block to so many seconds and `GRACE` together, repetitions included; None: no
        limit.
        """
        before, self._end = self._end, self._clock() + (math.inf if seconds is None else seconds)
        try:
            yield
        finally:
            self._end = before

    def left(self) -> float:
        """Seconds until the end that `within` has set."""
        return max(0.0, self._end - self._clock())

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
            repeatable: a second call with the same content has no second effect (see `retry`).
            extra_time: seconds that the answer may take beyond the usual.

        Raises:
            NotRunning: nobody listens at the address.
            RequestTimeout: no answer in time.
            Uncertain: the connection broke after a write was sent, and no later attempt shows its result.
            PeerError: the connection broke.
            ProtocolViolation: the answer is not JSON.
            PostroomError: the control plane's own error.
        """
        failures, lost = 0, None
        while True:
            outcome = self._attempt(method, path, json, params, extra_time)
            if isinstance(outcome, httpx2.Response):
                return _decode(outcome)
            if method != "GET" and outcome.sent:
                lost = lost or outcome.error
            failures += 1
            if failures >= self.retry.attempts or not self._may(outcome.again, repeatable):
                raise _unknown(outcome.error, lost)
            pause = self.retry.delay(failures)
            if pause >= self.left():
                raise _unknown(outcome.error, lost)
            self._sleep(pause)
            if isinstance(outcome.error, NotRunning):
                try:
                    self.look_up()
                except PostroomError as error:
                    raise _unknown(error, lost) from error

    def _timeout(self, silence: float) -> httpx2.Timeout:
        longest = self.left() + GRACE
        return httpx2.Timeout(min(silence, longest), connect=min(CONNECT_TIMEOUT, longest))

    def _may(self, again: Again, repeatable: bool) -> bool:
        if again is Again.IF_MOVED:
            before = self._server
            self.look_up()
            return self._server != before
        return again is Again.ALWAYS or (again is Again.IF_REPEATABLE and repeatable)

    def _attempt(
        self, method: str, path: str, json: object, params: Query | None, extra_time: float
    ) -> httpx2.Response | _Failure:
        """One attempt."""
        timeout = self._timeout(ANSWER_TIMEOUT + extra_time)
        url = self._url(path)
        try:
            with self._faults():
                response = self._http.request(
                    method, url, json=json, params=params, headers=self._headers(), timeout=timeout
                )
        except NotRunning as error:
            return _Failure(error, Again.ALWAYS)
        except (RequestTimeout, ProtocolViolation) as error:
            return _Failure(error, Again.NEVER)
        except PeerError as error:
            return _Failure(error, Again.IF_REPEATABLE, sent=True)
        if not response.is_error:
            return response
        asked, error = "retry-after" in response.headers, reported(response)
        again = Again.after(response.status_code, retry_after=asked)
        return _Failure(error, again, sent=isinstance(error, PERHAPS_DONE))

    @contextmanager
    def stream(self, path: str, params: Query, *, silence: float) -> Generator[httpx2.Response]:
        """An answer that is read as it comes; `silence` is the longest wait for its next bytes, in seconds.

        Raises the same errors as `call`, also while it is being read.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        with self.exchange("GET", path, silence=silence, params=params, headers=headers) as answer:
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
        timeout = self._timeout(silence)
        url = self._url(path)
        with (
            self._faults(),
            self._http.stream(
                method,
                url,
                content=content,
                params=params,
                headers=self._headers() | dict(headers or {}),
                timeout=timeout,
            ) as response,
        ):
            if response.is_error:
                response.read()
                raise reported(response)
            yield response

    def look_up(self) -> None:
        """Find the control plane again; raises `NotRunning` if it has ended."""
        before, self._server = self._server, self._locate()
        # Another start may show another certificate, from another authority at the same path.
        if self._server.url.startswith("https:") and self._server != before:
            self._http.close()
            self._http = self._connections()

    def _connections(self) -> httpx2.Client:
        # Ignore proxies in the environment: the address is on this machine.
        if not self._server.url.startswith("https:"):
            return httpx2.Client(trust_env=False, transport=self._base)
        from postroom.tls import client_context

        ca = Path(self._server.ca) if self._server.ca else None
        return httpx2.Client(trust_env=False, transport=self._base, verify=client_context(ca))

    @staticmethod
    def decoded(response: httpx2.Response) -> Any:
        """The JSON value in the answer of an `exchange`."""
        response.read()
        return _decode(response)

    def _url(self, path: str) -> str:
        shared = not path.startswith("/v1/") or path.startswith(OF_ALL)
        return self._server.url + ("" if shared else self._before) + path

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._server.token}"}

    @contextmanager
    def _faults(self) -> Generator[None]:
        """Turn errors of httpx2 into ours."""
        url = self._server.url
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if (doubt := _doubt(error)) is not None:
                raise ProtocolViolation(
                    f"the server at {url} is not the post room: {doubt}",
                    remedy="POSTROOM_CA names another authority to trust",
                ) from error
            raise NotRunning(f"no post room answers at {url}", remedy="postroom up") from error
        except httpx2.TimeoutException as error:
            raise RequestTimeout(f"the post room at {url} did not answer in time") from error
        except httpx2.TransportError as error:
            raise PeerError(f"the connection to the post room broke: {error}") from error


def _unknown(error: PostroomError, lost: PostroomError | None) -> PostroomError:
    """`error`, or `Uncertain` if an earlier attempt was `lost`: the server may have acted on it."""
    if (
        lost is None
        or isinstance(error, RequestTimeout)
        or type(error) is type(lost) is BusDisconnected
    ):
        return error
    later = "" if error is lost else f"; then {error.message}"
    return Uncertain(f"whether it was done is not known: {lost.message}{later}")


def _doubt(error: BaseException | None) -> str | None:
    """Why the certificate is not trusted, None if `error` has another reason."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None


def reported(response: httpx2.Response) -> PostroomError:
    """The error in an error response (RFC 9457); a plain one where the response is not a problem document."""
    try:
        document = response.json()
    except ValueError:
        document = {}
    status = response.status_code
    error = from_problem(document if isinstance(document, dict) else {}, status)
    if status == HTTPStatus.UNAUTHORIZED and not isinstance(error, Unauthorized):
        return Unauthorized(error.message, remedy=error.remedy)
    return error


def _decode(response: httpx2.Response) -> Any:
    if not response.content or response.status_code == HTTPStatus.NO_CONTENT:
        return None
    try:
        return response.json()
    except ValueError as error:
        raise ProtocolViolation(f"{response.request.url.path} did not answer JSON") from error


class Again(enum.Enum):
    """Whether a failed call may be repeated."""

    ALWAYS = "the server did not act"
    IF_REPEATABLE = "the server may have acted"
    IF_MOVED = "the credential may be an old one"
    NEVER = "it would fail again"

    @classmethod
    def after(cls, status: int, *, retry_after: bool) -> Again:
        """The rule above for an HTTP error status; `retry_after`: the response has that header."""
        if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after:
            return cls.ALWAYS
        if status == HTTPStatus.UNAUTHORIZED:
            return cls.IF_MOVED
        return cls.IF_REPEATABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else cls.NEVER
