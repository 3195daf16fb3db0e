"""The durable that the replicas of a server share: made where it lacks, and never at all of history."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from postroom_a2a.durable.streams import Streams
from postroom_a2a.errors import Conflict, EnvironmentFault, NotFound
from postroom_a2a.nats.jetstream import JetStream


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer of the requests to one subject.

    Attributes:
        js: JetStream.
        streams: names and settings of the streams.
        name: of the durable.
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
            deliver: where to begin then.
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
