"""Streams, durables and names of the durable binding, and what we set where we make them (docs/binding.md)."""

from __future__ import annotations

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
    Refused,
    RequestTimeout,
)
from postroom_a2a.nats.jetstream import JetStream, covers

_AGENT = re.compile(r"([^.*>\s]+)\.agent\.[^.*>\s]+\.requests")


@dataclass(frozen=True, slots=True)
class Streams:
    """Names of the streams, and the settings of those that are made here; one that is there keeps its own.

    Attributes:
        claims: KV bucket of the claims.
        create: make what is missing and add missing subjects; False where operations provision the streams.
        max_age: seconds after which requests, answers and claims are gone.
        max_bytes: of the requests, and of the answers. Full of requests, a sender is refused; full of answers, the
            oldest goes.
        claims_bytes: of the claims; the oldest goes.
        per_client: answers of one client that are kept; the oldest goes.
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
        """See to it that requests to `subject` are stored; its lane, too, where streams are made here.

        Raises:
            EnvironmentFault: they are not, and this connection cannot make it so; the message names what is lacking.
        """
        settings = {**self._common(), "max_bytes": self.max_bytes, "discard": "new"}
        await self._ensure(js, self.requests, request_subjects(subject), subject, settings)

    async def ensure_responses(self, js: JetStream, namespace: str, subject: str = "") -> None:
        """See to it that the answers to the clients of a namespace are stored.

        Args:
            subject: of the one client that matters, where the streams are provisioned; "" for all.

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
        """See to it that there is a bucket for the claims.

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
        """The stream stores `needed` at least, and if it can be, all of `subjects`."""
        try:
            if self.create:
                await _make(js, name, subjects, needed, settings)
                return
            there = await subjects_of(js, name)
        except NotFound as error:
            raise EnvironmentFault(
                f"there is no stream {name} that stores {needed}", remedy="create it"
            ) from error
        except NoResponders as error:
            raise EnvironmentFault(
                f"the stream {name} for {needed} cannot be had: JetStream is off on this server or for this account",
                remedy="switch JetStream on",
            ) from error
        except RequestTimeout as error:
            raise EnvironmentFault(
                f"the stream {name} for {needed} cannot be had: JetStream's API does not answer this connection",
                remedy="it may lack the right to publish to $JS.API",
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
        # Another stream may have a part of the wildcard, an agent of its own for example.
        if needed in subjects:
            raise
        await js.ensure_stream(name, [needed], **settings)


async def subjects_of(js: JetStream, name: str) -> list[str]:
    """What the stream stores.

    Raises:
        As `JetStream.api`.
    """
    return list((await js.api(f"STREAM.INFO.{name}"))["config"].get("subjects", ()))


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer of the requests to one subject.

    Attributes:
        streams: names and settings of the streams.
    """

    js: JetStream
    streams: Streams
    name: str
    subject: str

    async def floor(self) -> int:
        """Sequence up to which every request is dealt with, by whichever replica.

        Raises:
            As `JetStream.api`.
        """
        info = await self.js.api(f"CONSUMER.INFO.{self.streams.requests}.{self.name}")
        return int(info.get("ack_floor", {}).get("stream_seq", 0))

    async def start(
        self, floor: int | None, deliver: Literal["recent", "all"], abandon_after: float
    ) -> dict[str, Any]:
        """Where it has to begin if it has to be made.

        Args:
            floor: what `floor` said last, None if it was never there. Behind it may be requests that another replica
                holds and will not come to answer, so what only we know to be dealt with says nothing.
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
        """See that it is there; one that is keeps its settings.

        Returns:
            Its seconds until a request without a sign of life is another's.

        Raises:
            EnvironmentFault: it is for other requests, or its stream is not there.
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
        """Whether the stream was deleted and made again, so that it counts anew."""
        try:
            state = (await self.js.api(f"STREAM.INFO.{self.streams.requests}"))["state"]
        except NotFound:
            # It is made as at the start, or the fault is told.
            await self.streams.ensure_requests(self.js, self.subject)
            return True
        return int(state.get("last_seq", 0)) < last


# ── names ────────────────────────────────────────────────────────────────────────────────────────────


def namespace_of(subject: str) -> str:
    """The namespace of an agent's request subject: its first token.

    Raises:
        InvalidInput: it is no subject that requests can be sent to.
    """
    return check_subject(subject).split(".", 1)[0]


def request_subjects(subject: str) -> list[str]:
    """What the stream of the requests has to store for an agent, and in our form for each agent of its namespace."""
    if match := _AGENT.fullmatch(subject):
        subject = f"{match[1]}.agent.*.requests"
    return [subject, lane_of(subject)]


def lane_of(subject: str) -> str:
    """Where the calls go that have to overtake others."""
    return f"{subject}.control"


def response_pattern(namespace: str) -> str:
    """Where the answers to all clients of a namespace are stored."""
    return f"{namespace}.client.*.responses"


def dead_letter_subject(subject: str) -> str:
    """Where a request goes that was given up."""
    return f"{namespace_of(subject)}.deadletter.{subject}"


def durable_name(subject: str) -> str:
    """The durable that all servers of an agent share, those of other makers too."""
    return queue_group(subject)


def lane_durable_name(durable: str) -> str:
    """The durable of the lane beside `durable`."""
    return f"{durable[: MAX_DURABLE - 8]}_control"
