"""The connections that tests run on: the library's own, and one of nats-py."""

from __future__ import annotations

from typing import Any

import nats
from nats.aio.client import Client

import postroom_a2a as a2a
from postroom_a2a.nats import WireConnection

own: bool = True
"""Whether the test of the moment uses the library's own connection."""


async def open_connection(url: str, **options: Any) -> Client | WireConnection:
    """A connection of the kind that is tested; options are nats-py's."""
    if not own:
        return await nats.connect(url, error_cb=_quiet, **options)
    return await a2a.connect(
        url, inbox_prefix=options.get("inbox_prefix", "_INBOX"), on_error=lambda _: None
    )


async def _quiet(_: Exception) -> None:
    """A test ends servers on purpose."""
