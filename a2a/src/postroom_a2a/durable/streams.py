"""Streams, durables and names of the durable binding, with our settings for them (docs/binding.md)."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from postroom_a2a.binding.subjects import MAX_DURABLE, check_subject, queue_group
from postroom_a2a.errors import (
    Conflict,
    EnvironmentFault,
    NoResponders,
    NotFound,
    PostroomError,
    Refused,
    RequestTimeout,
)
from postroom_a2a.nats.jetstream import JetStream, covers

_AGENT = re.compile(r"([^.*>\s]+)\.agent\.[^.*>\s]+\.requests")


@dataclass(frozen=True, slots=True)
class Streams:
    """Names of the streams, and settings for new ones; an existing stream keeps its own.

    Attributes:
        claims: KV bucket of the claims.
        create: make missing streams and add missing subjects; False where operators provision them.
        max_age: seconds that requests, answers and claims stay.
        max_bytes: of the stream of requests, and of the one of answers. Full of requests, it refuses a sender; full of
            answers, it drops the oldest.
        claims_bytes: of the claims; beyond it the oldest goes.
        per_client: stored answers of one client; beyond it the oldest goes.
        replicas: servers that keep a copy.
    """

    requests: str = "A2A_REQUESTS"
    responses: str = "A2A_RESPONSES"
    claims: str = "A2A_CLAIMS"
    create: bool = True
    max_age: float = 24 * 3600.0
    max_bytes: int = 1 << 30
    claims_bytes: int = 256 << 20
    per_client: int = 16_384
    replicas: int = 1
    storage: Literal["file", "memory"] = "file"

    @property
    def claims_stream(self) -> str:
        """The stream under the bucket of the claims."""
        return f"KV_{self.claims}"

    async def ensure_requests(self, js: JetStream, subject: str) -> None:
        """Provide a stream for requests to `subject` (with `create`, also to its lane).

        Raises:
            EnvironmentFault: this connection cannot; the message names the obstacle.
        """
        settings = {**self._common(), "max_bytes": self.max_bytes, "discard": "new"}
        await self._ensure(js, self.requests, request_subjects(subject), subject, settings)

    async def ensure_responses(self, js: JetStream, namespace: str, subject: str = "") -> None:
        """Provide a stream for the answers to the clients of a namespace.

        Args:
            subject: of the one client that matters to a provisioned stream; "" for all.

        Raises:
            As `ensure_requests`.
        """
        settings = {
            **self._common(),
            "max_bytes": self.max_bytes,
            "max_msgs_per_subject": self.per_client,
            "discard": "old",
        }
        subjects = [response_pattern(namespace)]
        await self._ensure(js, self.responses, subjects, subject or subjects[0], settings)

    async def ensure_claims(self, js: JetStream) -> None:
        """Provide the bucket of the claims.

        Raises:
            As `ensure_requests`.
        """
        subjects = [f"$KV.{self.claims}.>"]
        settings = {
            **self._common(),
            "max_bytes": self.claims_bytes,
            "max_msgs_per_subject": 1,
            "discard": "old",
            "allow_direct": True,
            "allow_rollup_hdrs": True,
        }
        await self._ensure(js, self.claims_stream, subjects, subjects[0], settings)

    def _common(self) -> dict[str, Any]:
        return {
            "storage": self.storage,
            "num_replicas": self.replicas,
            "max_age": int(self.max_age * 1e9),
            "duplicate_window": int(min(120.0, self.max_age) * 1e9),
        }

    async def _ensure(
        self,
        js: JetStream,
        name: str,
        subjects: Sequence[str],
        needed: str,
        settings: dict[str, Any],
    ) -> None:
        """Provide a stream for `needed` at least, and if possible for all `subjects`."""
        try:
            if self.create:
                await _make(js, name, subjects, needed, settings)
                return
            there = await subjects_of(js, name)
        except NotFound as error:
            raise EnvironmentFault(
                f"there is no stream {name} that stores {needed}",
                remedy="create it",
            ) from error
        except NoResponders as error:
            raise EnvironmentFault(
                f"the stream {name} for {needed} cannot be reached: JetStream is off on this server or account",
                remedy="switch JetStream on",
            ) from error
        except RequestTimeout as error:
            raise EnvironmentFault(
                f"the stream {name} for {needed} cannot be reached: JetStream's API does not answer this connection",
                remedy="it may lack the permission to publish to $JS.API",
            ) from error
        except Refused as error:
            raise EnvironmentFault(f"the stream {name} cannot store {needed}: {error}") from error
        if not any(covers(have, needed) for have in there):
            raise EnvironmentFault(
                f"the stream {name} does not store {needed}, only {', '.join(there)}",
                remedy=f"add the subject {needed} to it",
            )


async def _make(
    js: JetStream, name: str, subjects: Sequence[str], needed: str, settings: dict[str, Any]
) -> None:
    try:
        await js.ensure_stream(name, subjects, **settings)
    except Refused:
        # Another stream may store a part of the wildcard, for one agent for example.
        if needed in subjects:
            raise
        await js.ensure_stream(name, [needed], **settings)


async def subjects_of(js: JetStream, name: str) -> list[str]:
    """The subjects of a stream.

    Raises:
        As `JetStream.api`.
    """
    return list((await js.api(f"STREAM.INFO.{name}"))["config"].get("subjects", ()))


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer of the requests to one subject."""

    js: JetStream
    streams: Streams
    name: str
    subject: str

    async def floor(self) -> int:
        """Sequence up to which the replicas have acknowledged every request.

        Raises:
            As `JetStream.api`.
        """
        info = await self.js.api(f"CONSUMER.INFO.{self.streams.requests}.{self.name}")
        return int(info.get("ack_floor", {}).get("stream_seq", 0))

    async def start(
        self, floor: int | None, deliver: Literal["recent", "all"], abandon_after: float
    ) -> dict[str, Any]:
        """The settings for the start of the durable, in case `ensure` has to make it.

        Args:
            floor: last result of `floor`, None before the first. Our own progress does not count: behind the floor may
                be a request that another replica holds and will never answer.
            abandon_after: seconds that "recent" goes back.

        Raises:
            As `JetStream.api`.
        """
        if floor is not None and not await self._is_renewed(floor):
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": floor + 1}
        if deliver == "all":
            return {"deliver_policy": "all"}
        since = datetime.fromtimestamp(time.time() - abandon_after, UTC)
        return {"deliver_policy": "by_start_time", "opt_start_time": since.isoformat()}

    async def ensure(self, start: dict[str, Any], ack_wait: float) -> float:
        """Make the durable if it is missing; returns the `ack_wait` that it has, in seconds.

        Raises:
            EnvironmentFault: the durable is for other requests, or its stream is missing.
            As `JetStream.api`.
        """
        config = {
            "ack_policy": "explicit",
            "ack_wait": int(ack_wait * 1e9),
            "filter_subject": self.subject,
            "max_deliver": -1,
            **start,
        }
        js, stream = self.js, self.streams.requests
        try:
            there = await js.ensure_consumer(stream, self.name, config)
        except Conflict:  # a replica was quicker
            there = await js.ensure_consumer(stream, self.name, config)
        except NotFound:  # the stream is gone
            await self.streams.ensure_requests(js, self.subject)
            there = await js.ensure_consumer(stream, self.name, config)
        if there.get("filter_subject") != self.subject:
            raise EnvironmentFault(
                f"the durable {self.name} of the stream {stream} is not for {self.subject} but for "
                f"{there.get('filter_subject') or 'several subjects'}",
                remedy="name another durable",
            )
        return int(there.get("ack_wait", 30e9)) / 1e9

    async def _is_renewed(self, last: int) -> bool:
        """Whether the stream was made again, with sequences from 1."""
        try:
            state = (await self.js.api(f"STREAM.INFO.{self.streams.requests}"))["state"]
        except NotFound:
            await self.streams.ensure_requests(self.js, self.subject)
            return True
        return int(state.get("last_seq", 0)) < last


# ── names ────────────────────────────────────────────────────────────────────────────────────────────


def namespace_of(subject: str) -> str:
    """The namespace of an agent's request subject: its first token.

    Raises:
        InvalidInput: requests cannot be sent to `subject`.
    """
    return check_subject(subject).split(".", 1)[0]


def request_subjects(subject: str) -> list[str]:
    """The subjects that the stream of requests needs for an agent: in our form, for every agent of the namespace."""
    if match := _AGENT.fullmatch(subject):
        subject = f"{match[1]}.agent.*.requests"
    return [subject, lane_of(subject)]


def lane_of(subject: str) -> str:
    """The subject of calls that overtake others."""
    return f"{subject}.control"


def response_pattern(namespace: str) -> str:
    """The pattern of the answers to all clients of a namespace."""
    return f"{namespace}.client.*.responses"


def dead_letter_subject(subject: str) -> str:
    """The subject of a request that was given up."""
    return f"{namespace_of(subject)}.deadletter.{subject}"


def durable_name(subject: str) -> str:
    """The durable that all servers of an agent share, also those of other makers."""
    return queue_group(subject)


def lane_durable_name(durable: str) -> str:
    """The durable of the lane that belongs to `durable`."""
    return f"{durable[: MAX_DURABLE - 8]}_control"


# ── trimming ─────────────────────────────────────────────────────────────────────────────────────────


INTERVAL = 60.0
"""Seconds between two checks of the stream."""

_log = logging.getLogger(__name__)


async def keep_trimmed(js: JetStream, stream: str, subjects: Sequence[str]) -> None:
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
