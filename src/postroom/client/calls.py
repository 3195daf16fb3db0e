"""What all calls of the client share: how one is made, and what may stand in its path."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

from postroom.client.transport import PERHAPS_DONE, Query, Transport
from postroom.errors import InvalidInput
from postroom.protocol.ids import check_name

POLL = 25.0
"""Seconds that one waiting call may last; longer waits are several calls, so that a lost server shows."""

TASK_REF = re.compile(r"[0-9a-f]{4,32}")
"""A task's id, or so much of its beginning that the server can find the one that is meant."""


def new_key() -> str:
    """A fresh idempotency key: 32 hex digits."""
    return os.urandom(16).hex()


def name_of(ref: str) -> str:
    """A nick, uid or project as a path segment: its `@` or `#` is taken off.

    Raises:
        InvalidName: it is malformed, so that nothing else can ever stand in a path.
    """
    return check_name(ref.removeprefix("@").removeprefix("#"))


def task_ref(ref: str) -> str:
    """A task's id, or its beginning, as a path segment.

    Raises:
        InvalidInput: it is malformed.
    """
    if TASK_REF.fullmatch(ref) is None:
        raise InvalidInput(
            f"{ref!r} is no id of a task: 4 to 32 of the digits 0-9 and a-f",
            remedy="postroom task list",
        )
    return ref


def given(**values: str | float | None) -> dict[str, Any]:
    """Those of `values` that say something."""
    return {name: value for name, value in values.items() if value not in ("", None)}


class Calls:
    """Makes calls over `transport`; `clock` tells monotonic seconds, for waits."""

    def __init__(
        self, transport: Transport, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transport = transport
        self._clock = clock

    def _get(self, path: str, query: Query | None = None, *, patience: float = 0.0) -> Any:
        return self.transport.call("GET", path, params=query, repeatable=True, patience=patience)

    def _post(
        self, path: str, body: object = None, *, repeatable: bool = False, patience: float = 0.0
    ) -> Any:
        return self.transport.call(
            "POST", path, json=body, repeatable=repeatable, patience=patience
        )

    def _post_keyed(self, path: str, body: dict[str, Any]) -> Any:
        """`_post` of a body with an idempotency key, which an error names if the request may be stored.

        Raises:
            RequestTimeout, BusDisconnected: perhaps it is stored (`PERHAPS_DONE`).
        """
        try:
            return self._post(path, body, repeatable=True)
        except PERHAPS_DONE as error:
            error.remedy = f"the same again with --key {body['key']}, which never does it twice"
            raise

    def _wait(self, path: str, milestone: str, timeout: float) -> Any:
        """What `path` answers when it has come to `milestone`, or with `timed_out` after `timeout` seconds."""
        deadline = self._clock() + min(timeout, self.transport.left())
        while True:
            slice_ = max(0.0, min(POLL, deadline - self._clock()))
            query = {"wait": milestone, "timeout": round(slice_, 3)}
            found = self._get(path, query, patience=slice_)
            if not found.get("timed_out") or self._clock() >= deadline:
                return found
