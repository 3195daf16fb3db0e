"""Calls of JetStream's management interface: a subject, JSON in, JSON or a typed error out (NATS ADR-1)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

from postroom.bus.nats.link import Link, remaining
from postroom.bus.nats.replies import Replies
from postroom.errors import BusDisconnected, NotFound, PostroomError, ProtocolViolation
from postroom.protocol.subjects import JETSTREAM
from postroom_a2a.nats.jetstream_errors import TEMPORARY, refusal

CALL_TIMEOUT = 10.0
"""Seconds for one call, reconnects and a server that is still loading included."""

NO_MESSAGE = 10037
NO_SEQUENCE = 10043
NO_CONSUMER = 10014
NO_STREAM = 10059
NAME_IN_USE = 10058

_ABSENT = frozenset({NO_MESSAGE, NO_CONSUMER, NO_STREAM})


class ApiError(Exception):
    """What the server answered instead of a result; becomes a `PostroomError` at the port.

    Args:
        error: JetStream's `error` object.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("description", "")))
        self.error = error
        self.code = int(error.get("err_code", 0))

    def translated(self, what: str) -> PostroomError:
        """The error of the port."""
        if self.code in _ABSENT:
            return NotFound(f"{what}: {self}")
        return refusal(self.error, what)


class Api:
    """Calls JetStream over one connection; every call may be made twice, so they survive reconnects."""

    def __init__(self, link: Link, replies: Replies) -> None:
        self._link = link
        self._replies = replies

    async def call(self, verb: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask `$JS.API.<verb>`.

        Raises:
            ApiError: the server refused.
            BusDisconnected: JetStream does not answer (it is off, or not for this account).
            RequestTimeout: no answer in time.
        """
        deadline = asyncio.get_running_loop().time() + CALL_TIMEOUT
        payload = json.dumps(request).encode() if request else b""
        pause = 0.02
        while True:
            answer = await self._replies.ask(
                f"$JS.API.{verb}", payload, answerer=JETSTREAM, deadline=deadline, repeat=True
            )
            document = {} if answer.no_responders else _document(answer.frame.data)
            error = document.get("error")
            unready = answer.no_responders or (error or {}).get("code") == 503
            temporary = unready and (error is None or error.get("err_code") in TEMPORARY)
            left = remaining(deadline) or 0.0
            if temporary and left and (self._link.recovering or error):
                await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311
                pause = min(pause * 2, 0.5)
                continue
            if answer.no_responders:
                raise BusDisconnected("JetStream does not answer")
            if error:
                raise ApiError(error)
            return document

    async def do(self, verb: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `call`, with the errors of the port: `NotFound`, `Refused` and its kinds."""
        try:
            return await self.call(verb, request)
        except ApiError as error:
            raise error.translated(verb.replace(".", " ").lower()) from error


def _document(payload: bytes) -> dict[str, Any]:
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise ProtocolViolation("JetStream's answer is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("JetStream's answer is no JSON object")
    return document
