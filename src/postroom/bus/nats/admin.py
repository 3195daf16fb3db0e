"""`NatsAdmin`: the control plane's work on streams, consumers and records, in the core account.

`StreamSpec` and `ConsumerSpec` become JetStream's JSON (NATS ADR-1; durations are nanoseconds).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from postroom.bus.nats.bus import NatsBus
from postroom.bus.nats.link import stored_message
from postroom.bus.port import BusAdmin, Message
from postroom.errors import BusDisconnected, Conflict, NoResponders, NotFound
from postroom.protocol.intervals import CARD_LIFETIME
from postroom.protocol.streams import (
    BY_NAME,
    CARDS_BUCKET,
    PRESENCE_BUCKET,
    STREAMS,
    ConsumerSpec,
    StreamSpec,
)
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.ordered import OrderedConsumer, read_stream
from postroom_a2a.nats.records import Record, get_record, last_record

CALL_TIMEOUT = 10.0
"""Seconds for one call, reconnects and a server that is still loading included."""

SHAPE_TIMEOUT = 30.0
"""Seconds to make or examine a stream or consumer: on a cluster its copies may elect twice, nine seconds each."""


HEARTBEAT = 15.0
"""Seconds between the server's signs of life to who follows a stream. Whether the connection is up is known anyway."""

CLUSTER_HEARTBEAT = 1.0
"""The same on a cluster, where the server with the follower's consumer may die without a lost connection; three missing
ones are noticed."""

MARKER_TTL = 5.0
"""Seconds that the delete marker of an expired presence stays visible to watchers."""

_MIB = 1024 * 1024


class _Core(JetStream):
    """JetStream of an account that has it: no answer means that the server is down or not ready."""

    async def api(
        self, verb: str, body: Mapping[str, Any] | None = None, *, timeout: float = CALL_TIMEOUT
    ) -> dict[str, Any]:
        try:
            return await super().api(verb, body, timeout=timeout)
        except NoResponders as error:
            raise BusDisconnected("JetStream does not answer") from error


class NatsAdmin(BusAdmin):
    """Implements `BusAdmin`.

    Args:
        bus: connection to the account with JetStream, with every right there.
        memory: keep streams in memory: their records end with the server.
        replicas: copies of each record; 3 on a cluster.
        own_server: its memory is ours to use, for what counts only for seconds.
    """

    def __init__(
        self, bus: NatsBus, *, memory: bool = False, replicas: int = 1, own_server: bool = False
    ) -> None:
        self.jetstream = _Core(bus.jetstream.mailbox)
        self._heartbeat = HEARTBEAT if replicas == 1 else CLUSTER_HEARTBEAT
        self._storage: dict[str, Any] = {
            "storage": "memory" if memory else "file",
            "replicas": replicas,
        }
        self._passing: dict[str, Any] = dict(self._storage)
        if own_server:
            self._passing["storage"] = "memory"

    # Shapes.

    async def ensure_stream(self, spec: StreamSpec) -> None:
        storage = self._passing if spec.passing else self._storage
        await self._ensure(stream_config(spec, **storage), passing=spec.passing)

    async def ensure_bucket(self, bucket: str = CARDS_BUCKET) -> None:
        """Create or change a KV bucket that only the control plane reaches."""
        if bucket == CARDS_BUCKET:
            await self._ensure(cards_config(**self._storage))
        else:
            await self._ensure(bucket_config(bucket, **self._storage))

    async def ensure_presence_bucket(self) -> None:
        """Create the presence bucket; the stream PRESENCE must exist."""
        await self._ensure(presence_config(**self._passing), passing=True)

    async def _ensure(self, wanted: Mapping[str, Any], *, passing: bool = False) -> None:
        name = wanted["name"]
        try:
            await self.jetstream.api(f"STREAM.CREATE.{name}", wanted, timeout=SHAPE_TIMEOUT)
        except Conflict:
            storage = (await self._about(name))["config"]["storage"]
            if passing and storage != wanted["storage"]:
                await self.jetstream.api(f"STREAM.DELETE.{name}", timeout=SHAPE_TIMEOUT)
                await self.jetstream.api(f"STREAM.CREATE.{name}", wanted, timeout=SHAPE_TIMEOUT)
                return
            # The storage cannot change and need not: the stream keeps the one it was made with.
            changed = {**wanted, "storage": storage}
            await self.jetstream.api(f"STREAM.UPDATE.{name}", changed, timeout=SHAPE_TIMEOUT)

    async def ensure_consumer(self, spec: ConsumerSpec) -> None:
        wanted = consumer_config(spec)
        with suppress(NotFound):
            info = await self.jetstream.api(
                f"CONSUMER.INFO.{spec.stream}.{spec.durable}", timeout=SHAPE_TIMEOUT
            )
            # The start position cannot change.
            wanted.pop("opt_start_seq", None)
            begun = ("deliver_policy", "opt_start_seq")
            wanted |= {key: info["config"][key] for key in begun if key in info["config"]}
        await self.jetstream.create_consumer(
            spec.stream, spec.durable, wanted, timeout=SHAPE_TIMEOUT
        )

    async def delete_consumer(self, stream: str, durable: str) -> None:
        with suppress(NotFound):
            await self.jetstream.api(f"CONSUMER.DELETE.{stream}.{durable}")

    # Records.

    async def replay(
        self, stream: str, *, after: int = 0, subjects: tuple[str, ...] = ()
    ) -> AsyncIterator[Message]:
        async for record in read_stream(self.jetstream, stream, after=after, subjects=subjects):
            yield _message(record)

    async def follow(self, stream: str, *, after: int = 0) -> AsyncGenerator[Message | None]:
        start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        beat = self._heartbeat
        async with OrderedConsumer(self.jetstream, stream, (), heartbeat=beat, **start) as consumer:
            if not consumer.pending:
                yield None
            while True:
                record = await consumer.next()
                if record is not None:
                    yield _message(record)
                if record is None or not record.pending:
                    yield None

    async def get(self, stream: str, sequence: int) -> Message:
        return _message(await get_record(self.jetstream, stream, sequence))

    async def last(self, stream: str, subject: str) -> Message | None:
        record = await last_record(self.jetstream, stream, subject, direct=False)
        return _message(record) if record else None

    async def delete(self, stream: str, sequence: int) -> None:
        with suppress(NotFound):
            request = {"seq": sequence, "no_erase": True}
            await self.jetstream.api(f"STREAM.MSG.DELETE.{stream}", request)

    async def purge(self, stream: str, subject: str = "") -> int:
        request = {"filter": subject} if subject else {}
        return int((await self.jetstream.api(f"STREAM.PURGE.{stream}", request))["purged"])

    async def created(self, stream: str) -> str:
        """The instant of its creation, which identifies it; "" without the stream."""
        try:
            return str((await self._about(stream))["created"])
        except NotFound:
            return ""

    async def last_sequence(self, stream: str) -> int:
        return int((await self._about(stream))["state"]["last_seq"])

    async def _about(self, stream: str) -> dict[str, Any]:
        return await self.jetstream.api(f"STREAM.INFO.{stream}", timeout=SHAPE_TIMEOUT)

    # Consumers.

    async def pending(self, stream: str, durable: str) -> tuple[int, int]:
        info = await self.jetstream.api(f"CONSUMER.INFO.{stream}.{durable}")
        return int(info["num_pending"]), int(info["num_ack_pending"])

    async def poke(self, stream: str, durable: str) -> None:
        """As `BusAdmin.poke`: a pull that takes nothing, since no record fits into one byte."""
        request = {"batch": 1, "no_wait": True, "max_bytes": 1}
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        await self.jetstream.ask(verb, json.dumps(request).encode())


async def ensure_all(admin: BusAdmin) -> None:
    """Create or update every stream of the design, and on NATS the buckets."""
    await asyncio.gather(*(admin.ensure_stream(spec) for spec in STREAMS))
    if isinstance(admin, NatsAdmin):
        await asyncio.gather(admin.ensure_presence_bucket(), admin.ensure_bucket())


def _message(record: Record) -> Message:
    return stored_message(
        record.subject, record.payload, record.headers, record.sequence, record.stored_at
    )


def nanoseconds(seconds: float) -> int:
    """Seconds in the server's unit."""
    return round(seconds * 1e9)


def stream_config(spec: StreamSpec, *, storage: str, replicas: int) -> dict[str, Any]:
    """The request to create or update a stream.

    It switches rollup, TTL, schedules, counters and batches off instead of leaving them to a default: with one of them
    a worker's header could delete or reorder the records of others.
    """
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": spec.max_bytes,
        "max_msgs": spec.max_messages,
        "max_msg_size": spec.max_message_bytes,
        "max_age": nanoseconds(spec.max_age),
        "max_msgs_per_subject": spec.max_per_subject or -1,
        "discard": "new" if spec.discard_new else "old",
        "discard_new_per_subject": spec.max_per_subject_refuses,
        "max_consumers": spec.max_consumers,
        "duplicate_window": nanoseconds(spec.duplicate_window),
        "allow_direct": False,
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
        "allow_msg_schedules": False,
        "allow_msg_counter": False,
        "allow_atomic": False,
        "deny_delete": False,
        "deny_purge": False,
    }


def consumer_config(spec: ConsumerSpec) -> dict[str, Any]:
    """The request to create a consumer."""
    start: dict[str, Any] = {"deliver_policy": "new" if spec.start_new else "all"}
    if spec.start_sequence:
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": spec.start_sequence}
    return {
        "durable_name": spec.durable,
        "name": spec.durable,
        **start,
        "ack_policy": "explicit",
        "ack_wait": nanoseconds(spec.ack_wait),
        "max_deliver": spec.max_deliver,
        "max_ack_pending": spec.max_ack_pending,
        "filter_subjects": list(spec.filter_subjects),
        "replay_policy": "instant",
        "metadata": dict(spec.metadata),
    }


def bucket_config(bucket: str, *, storage: str, replicas: int) -> dict[str, Any]:
    """A KV bucket that only the control plane can reach (NATS ADR-8)."""
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": 256 * _MIB,
        "max_msg_size": _MIB,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "duplicate_window": nanoseconds(120),
    }


def cards_config(*, storage: str, replicas: int) -> dict[str, Any]:
    """The registry of Agent Cards; the card of an agent that is gone expires."""
    return {
        **bucket_config(CARDS_BUCKET, storage=storage, replicas=replicas),
        "max_age": nanoseconds(CARD_LIFETIME),
        "duplicate_window": nanoseconds(CARD_LIFETIME),
    }


def presence_config(*, storage: str, replicas: int) -> dict[str, Any]:
    """The presence bucket, sourced from the stream PRESENCE.

    Its source is not the workers' subjects: delete markers switch rollup on, with which any worker could wipe all keys.
    Keys expire after the source's `max_age`, with a marker that watchers see.
    """
    source = BY_NAME["PRESENCE"]
    return {
        **bucket_config(PRESENCE_BUCKET, storage=storage, replicas=replicas),
        "max_age": nanoseconds(source.max_age),
        "duplicate_window": nanoseconds(min(source.max_age, source.duplicate_window)),
        "discard": "old",
        "subject_delete_marker_ttl": nanoseconds(MARKER_TTL),
        "sources": [
            {
                "name": source.name,
                "subject_transforms": [
                    {
                        "src": source.subjects[0],
                        "dest": f"$KV.{PRESENCE_BUCKET}.{{{{wildcard(1)}}}}",
                    }
                ],
            }
        ],
    }
