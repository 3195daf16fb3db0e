"""The audit records of one HTTP request: one before it is forwarded, one when it was answered; or a refusal."""

from __future__ import annotations

import re
from typing import Any

import h11

from postroom.errors import PostroomError
from postroom.gateway.connection import GatewayConnection
from postroom.protocol.audit import DENIED, IN, OUT

MAX_URL = 2048

_BEFORE = re.compile(r"\w+://|/\w+/|")
"""The part before a user and a host."""


class RequestRecord:
    """Writes the records of one request."""

    def __init__(self, conn: GatewayConnection, request: h11.Request, url: str) -> None:
        message, task, exact = conn.cause.now()
        self._conn = conn
        self._said: dict[str, Any] = {
            "verb": request.method.decode("ascii")[:32],
            "url": url[:MAX_URL],
            "cause_message": message,
            "cause_task": task,
            "cause_exact": exact,
        }
        self._announced = sum(
            int(value) for name, value in request.headers if name == b"content-length"
        )
        self._size = self._announced + _head_size(request)

    def allowed(self) -> None:
        """Record that the request is about to be forwarded; `size` is its head and the body that it announces.

        Raises:
            StateUnwritable: the log cannot keep the record; the request must not be forwarded.
        """
        self._conn.write(direction=OUT, size=self._size, **self._said)

    def denied(self, error: PostroomError) -> None:
        """Record the refusal."""
        self._conn.write(
            direction=OUT, size=self._size, verdict=DENIED, reason=error.message, **self._said
        )

    def answered(self, status: int, size: int, reason: str = "", *, sent: int = 0) -> None:
        """Record the answer, or the failure `reason`; `size` is the answer's body, `sent` the request's."""
        if sent > self._announced:  # a chunked body has no size before it ends
            said = f"a body of {sent} bytes was sent"
            reason = f"{reason}; {said}" if reason else said
        self._conn.write(direction=IN, status=status, size=size, reason=reason, **self._said)


def without_user(target: str) -> str:
    """An unreadable target without its query and without a possible user and password.

    A password may hold any character, so everything up to the last `@` goes.
    """
    found = _BEFORE.match(target)
    prefix = found[0] if found else ""
    place, _, query = target.removeprefix(prefix).partition("?")
    if (
        "@" in query
    ):  # the password may have a question mark: then nobody knows where the host begins
        return prefix
    return prefix + place.rpartition("@")[2]


def _head_size(request: h11.Request) -> int:
    """Bytes of its head."""
    size = len(request.method) + len(request.target)
    return size + sum(len(name) + len(value) for name, value in request.headers)
