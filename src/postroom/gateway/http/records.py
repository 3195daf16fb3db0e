"""The audit records of one HTTP request: one before it is forwarded, one when it was answered; or a refusal."""

from __future__ import annotations

from typing import Any

import h11

from postroom.errors import PostroomError
from postroom.gateway.visit import Visit
from postroom.protocol.audit import DENIED, IN, OUT

MAX_URL = 2048


class RequestRecord:
    """Writes about one request.

    Args:
        visit: whose.
        request: as it was read.
        url: without its query.
    """

    def __init__(self, visit: Visit, request: h11.Request, url: str) -> None:
        message, task, exact = visit.cause.now()
        self._visit = visit
        self._said: dict[str, Any] = {
            "verb": request.method.decode("ascii")[:32],
            "url": url[:MAX_URL],
            "cause_message": message,
            "cause_task": task,
            "cause_exact": exact,
        }
        self._size = _size(request)

    def allowed(self) -> None:
        """It is about to be forwarded; `size` is that of its head and of the body that it announces.

        Raises:
            StateUnwritable: it could not be kept, and the request must not be forwarded.
        """
        self._visit.write(direction=OUT, size=self._size, **self._said)

    def denied(self, error: PostroomError) -> None:
        """It is refused."""
        self._visit.write(
            direction=OUT, size=self._size, verdict=DENIED, reason=error.message, **self._said
        )

    def answered(self, status: int, size: int, reason: str = "") -> None:
        """It was answered, or it failed for `reason`; `size` is that of the answer's body."""
        self._visit.passed += self._size + size
        self._visit.write(direction=IN, status=status, size=size, reason=reason, **self._said)


def _size(request: h11.Request) -> int:
    size = len(request.method) + len(request.target)
    for name, value in request.headers:
        size += len(name) + len(value)
        if name == b"content-length":
            size += int(value)
    return size
