"""Trims the stream of requests: once it is half full, requests that every consumer has acknowledged go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from postroom_a2a.errors import PostroomError
from postroom_a2a.nats.jetstream import JetStream, covers

INTERVAL = 60.0
"""Seconds between two checks of the stream."""

_log = logging.getLogger(__name__)


async def run(js: JetStream, stream: str, subjects: Sequence[str]) -> None:
    """Trim from time to time, so that acknowledged requests never make the stream refuse a sender."""
    while True:
        await asyncio.sleep(INTERVAL)
        for subject in subjects:
            try:
                await trim(js, stream, subject)
            except PostroomError as error:
                _log.warning("requests to %s cannot be trimmed: %s", subject, error)


async def trim(js: JetStream, stream: str, subject: str) -> int:
    """Remove acknowledged requests to `subject` if the stream is half full; returns their number.

    Raises:
        As `JetStream.api`.
    """
    info = await js.api(f"STREAM.INFO.{stream}")
    limit = info["config"].get("max_bytes", -1)
    if limit <= 0 or info["state"]["bytes"] < limit / 2:
        return 0
    floor = await _floor(js, stream, subject)
    if not floor:
        return 0
    body = {"filter": subject, "seq": floor + 1}
    return int((await js.api(f"STREAM.PURGE.{stream}", body)).get("purged", 0))


async def _floor(js: JetStream, stream: str, subject: str) -> int:
    """The sequence up to which every consumer of the subject has acknowledged; 0 for none."""
    floors: list[int] = []
    offset = 0
    while True:
        page = await js.api(f"CONSUMER.LIST.{stream}", {"offset": offset})
        consumers = page.get("consumers") or []
        floors += [
            each["ack_floor"]["stream_seq"]
            for each in consumers
            if any(covers(wanted, subject) for wanted in _filters(each["config"]))
        ]
        offset += len(consumers)
        if not consumers or offset >= page.get("total", 0):
            return min(floors, default=0)


def _filters(config: dict[str, Any]) -> list[str]:
    if one := config.get("filter_subject"):
        return [one]
    return config.get("filter_subjects") or [">"]
