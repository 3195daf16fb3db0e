"""The rules of a call to the control plane, without I/O: what its errors mean, and whether it may be repeated.

`Transport` (one thread waits) and `AsyncTransport` (a task waits) do the sending and the pausing; what follows from an
outcome is decided here for both, once.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
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
    from_problem,
)
from postroom.protocol.ids import check_name
from postroom_a2a.retry import (
    Again,
    Course,
    Failure,
    Repeating,
    RetryPolicy,
    retry_after,
)

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 30.0
"""Seconds; the slowest plain call is stopping a worker, with its grace period."""

GRACE = 1.0
"""Seconds that an answer may be late where `within` limits the time; the minimum of each call."""

PERHAPS_DONE = (RequestTimeout, BusDisconnected)
"""The control plane's errors when it cannot know whether the bus has stored a record."""

OF_ALL = ("/v1/orgs", "/v1/shutdown")
"""Paths of the whole post room, not of one organisation."""

EVENT_STREAM = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
"""Headers of a request for server-sent events."""

Locate = Callable[[], ServerAddress]
Query = Mapping[str, str | int | float]


Outcome = httpx2.Response | Failure


def failed(error: PostroomError) -> Failure:
    """The failure of an attempt that has brought no answer."""
    if isinstance(error, NotRunning):
        return Failure(error, Again.ALWAYS)
    if isinstance(error, PeerError) and not isinstance(error, (RequestTimeout, ProtocolViolation)):
        return Failure(error, Again.IF_REPEATABLE, sent=True)
    return Failure(error, Again.NEVER)


class Endpoint:
    """A control plane that is found again when it has moved.

    A restarted post room may have another port and another token, so after a refused connection or a refused
    credential the address is looked up again.

    Args:
        locate: returns the control plane's address; may raise `NotRunning`.
        retry: how often failed calls are repeated.
        clock: monotonic seconds, for `within`.
        org: organisation of the calls, "" for the default one.

    Attributes:
        program: what the calls name as their `User-Agent`, "" for nothing.
    """

    program = ""

    def __init__(
        self,
        locate: Locate,
        *,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        org: str = "",
    ) -> None:
        self.retry = retry or RetryPolicy()
        self._locate = locate
        self._clock = clock
        self._end = math.inf
        self._before = f"/orgs/{check_name(org, 'organisation')}" if org else ""
        self._server = locate()

    @property
    def server(self) -> ServerAddress:
        """The address used last."""
        return self._server

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

    def look_up(self) -> None:
        """Find the control plane again; raises `NotRunning` if it has ended."""
        before, self._server = self._server, self._locate()
        # Another start may show another certificate, from another authority at the same path.
        if self._server.origin.startswith("https:") and self._server != before:
            self._renew()

    def hopeless(self, error: PostroomError) -> bool:
        """Whether `error` says that a kept key counts no more; one in a state folder may only be an old one."""
        if not isinstance(error, Unauthorized) or self._server.pid:
            return False
        before = self._server
        self.look_up()
        return self._server == before

    def _renew(self) -> None:
        """Replace the connections: the next ones may trust another authority."""
        raise NotImplementedError

    def _course(self, *, write: bool, repeatable: bool) -> Course[httpx2.Response]:
        """The course of one call; `write`: the server may have done something even if no answer came.

        Raises the errors of `Transport.call`.
        """
        rules: Repeating[httpx2.Response] = Repeating(
            self.retry,
            write=write,
            repeatable=repeatable,
            left=self.left,
            moved=self._moved,
            paused=self._after_pause,
        )
        return rules.course()

    def _moved(self) -> bool:
        before = self._server
        self.look_up()
        return self._server != before

    def _after_pause(self, error: PostroomError) -> None:
        if isinstance(error, NotRunning):
            self.look_up()

    def _timeout(self, silence: float) -> httpx2.Timeout:
        longest = self.left() + GRACE
        return httpx2.Timeout(min(silence, longest), connect=min(CONNECT_TIMEOUT, longest))

    def _request(self, json: object, params: Query | None, extra_time: float) -> dict[str, Any]:
        """Arguments of one attempt."""
        return {
            "json": json,
            "params": params,
            "headers": self._headers(),
            "timeout": self._timeout(ANSWER_TIMEOUT + extra_time),
        }

    def _url(self, path: str) -> str:
        shared = not path.startswith("/v1/") or path.startswith(OF_ALL)
        return self._server.origin + ("" if shared else self._before) + path

    def _headers(self) -> dict[str, str]:
        named = {"User-Agent": self.program} if self.program else {}
        token = self._server.token  # who joins has none yet
        return {"Authorization": f"Bearer {token}", **named} if token else named

    def _connection(self) -> dict[str, Any]:
        """Arguments of an httpx2 client."""
        # Ignore proxies in the environment: what answers at the address has to be the post room itself.
        if not self._server.origin.startswith("https:"):
            # It trusts nobody: all authorities of the system would be read, in vain, by every command.
            return {"trust_env": False, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
        return {"trust_env": False, "verify": self._server.context()}

    @contextmanager
    def _faults(self) -> Generator[None]:
        """Turn errors of httpx2 into ours."""
        server = self._server
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if (doubt := _doubt(error)) is not None:
                raise server.distrust(doubt) from error
            raise server.silent() from error
        except httpx2.TimeoutException as error:
            raise RequestTimeout(f"the post room at {server.url} did not answer in time") from error
        except httpx2.TransportError as error:
            raise PeerError(f"the connection to the post room broke: {error}") from error


def judged(response: httpx2.Response, policy: RetryPolicy) -> Outcome:
    """The response, or the failure that it reports."""
    if not response.is_error:
        return response
    asked, error = response.headers.get("retry-after"), reported(response)
    status, patient = response.status_code, policy.patient
    again = Again.after(status, retry_after=asked is not None, patient=patient)
    wait = retry_after(asked) if asked and patient and again is Again.ALWAYS else 0.0
    return Failure(error, again, sent=isinstance(error, PERHAPS_DONE), wait=wait)


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


def decoded(response: httpx2.Response) -> Any:
    """The JSON value in an answer that was read, None for an empty one."""
    if not response.content or response.status_code == HTTPStatus.NO_CONTENT:
        return None
    try:
        return response.json()
    except ValueError as error:
        raise ProtocolViolation(f"{response.request.url.path} did not answer JSON") from error
