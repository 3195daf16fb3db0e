"""`NatsAdmin`: what the control plane does to streams, consumers and records, in the core account."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from postroom.bus.acceptance import MSG_ID
from postroom.bus.nats import config
from postroom.bus.nats.api import NAME_IN_USE, NO_CONSUMER, NO_MESSAGE, NO_SEQUENCE, Api, ApiError
from postroom.bus.nats.bus import NatsBus
from postroom.bus.nats.replaying import replay
from postroom.bus.port import BusAdmin, Message
from postroom.errors import NotFound
from postroom.protocol.streams import CARDS_BUCKET, STREAMS, ConsumerSpec, StreamSpec
from postroom.protocol.subjects import JETSTREAM, sender_of

POKE_TIMEOUT = 5.0


class NatsAdmin:
    """Implements `BusAdmin`.

    Args:
        bus: a connection to the account with JetStream, with every right there.
        memory: keep streams in memory: all is gone when the server ends.
        replicas: copies of each record; 3 on a cluster.
    """

    def __init__(self, bus: NatsBus, *, memory: bool = False, replicas: int = 1) -> None:
        self._bus = bus
        self._api = Api(bus._link, bus._replies)  # noqa: SLF001 (one connection, two ports)
        self._storage: dict[str, Any] = {
            "storage": "memory" if memory else "file",
            "replicas": replicas,
        }

    # Shapes.

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """As `BusAdmin.ensure_stream`."""
        await self._ensure(config.stream_config(spec, **self._storage))

    async def ensure_bucket(self, bucket: str = CARDS_BUCKET) -> None:
        """Create a KV bucket, or change it; only the control plane reaches it."""
        if bucket == CARDS_BUCKET:
            await self._ensure(config.cards_config(**self._storage))
        else:
            await self._ensure(config.bucket_config(bucket, **self._storage))

    async def ensure_presence_bucket(self) -> None:
        """Create the presence bucket; the stream PRESENCE must exist."""
        await self._ensure(config.presence_config(**self._storage))

    async def _ensure(self, wanted: Mapping[str, Any]) -> None:
        name = wanted["name"]
        try:
            await self._api.call(f"STREAM.CREATE.{name}", wanted)
        except ApiError as error:
            if error.code != NAME_IN_USE:
                raise error.translated(f"stream {name}") from error
            # Storage cannot be changed, and need not be: it is what the stream was made with.
            present = (await self._api.do(f"STREAM.INFO.{name}"))["config"]
            await self._api.do(f"STREAM.UPDATE.{name}", {**wanted, "storage": present["storage"]})

    async def ensure_consumer(self, spec: ConsumerSpec) -> None:
        """As `BusAdmin.ensure_consumer`."""
        wanted = config.consumer_config(spec)
        try:
            info = await self._api.call(f"CONSUMER.INFO.{spec.stream}.{spec.durable}")
        except ApiError as error:
            if error.code != NO_CONSUMER:
                raise error.translated(f"consumer {spec.stream} {spec.durable}") from error
        else:
            # Where it began cannot be changed.
            wanted.pop("opt_start_seq", None)
            begun = ("deliver_policy", "opt_start_seq")
            wanted |= {key: info["config"][key] for key in begun if key in info["config"]}
        request = {"stream_name": spec.stream, "config": wanted}
        await self._api.do(f"CONSUMER.DURABLE.CREATE.{spec.stream}.{spec.durable}", request)

    async def delete_consumer(self, stream: str, durable: str) -> None:
        """As `BusAdmin.delete_consumer`."""
        try:
            await self._api.do(f"CONSUMER.DELETE.{stream}.{durable}")
        except NotFound:
            return

    # Records.

    def replay(
        self, stream: str, *, after: int = 0, subjects: tuple[str, ...] = ()
    ) -> AsyncIterator[Message]:
        """As `BusAdmin.replay`."""
        return replay(self._bus._link, self._api, self._bus.uid, stream, after, subjects)  # noqa: SLF001

    async def get(self, stream: str, sequence: int) -> Message:
        """As `BusAdmin.get`."""
        answer = await self._api.do(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
        return _record(answer["message"])

    async def last(self, stream: str, subject: str) -> Message | None:
        """As `BusAdmin.last`."""
        try:
            answer = await self._api.call(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except ApiError as error:
            if error.code == NO_MESSAGE:
                return None
            raise error.translated(f"stream {stream}") from error
        return _record(answer["message"])

    async def delete(self, stream: str, sequence: int) -> None:
        """As `BusAdmin.delete`."""
        try:
            await self._api.call(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        except ApiError as error:
            if error.code not in (NO_MESSAGE, NO_SEQUENCE):
                raise error.translated(f"record {sequence} of {stream}") from error

    async def purge(self, stream: str, subject: str = "") -> int:
        """As `BusAdmin.purge`."""
        request = {"filter": subject} if subject else {}
        return int((await self._api.do(f"STREAM.PURGE.{stream}", request))["purged"])

    async def created(self, stream: str) -> str:
        """The instant at which it was made, by which it is known from all others; "" if there is none."""
        try:
            return str((await self._api.do(f"STREAM.INFO.{stream}"))["created"])
        except NotFound:
            return ""

    async def last_sequence(self, stream: str) -> int:
        """As `BusAdmin.last_sequence`."""
        return int((await self._api.do(f"STREAM.INFO.{stream}"))["state"]["last_seq"])

    # Consumers.

    async def pending(self, stream: str, durable: str) -> tuple[int, int]:
        """As `BusAdmin.pending`."""
        info = await self._api.do(f"CONSUMER.INFO.{stream}.{durable}")
        return int(info["num_pending"]), int(info["num_ack_pending"])

    async def poke(self, stream: str, durable: str) -> None:
        """As `BusAdmin.poke`: a pull that takes nothing, since no record fits into one byte."""
        deadline = asyncio.get_running_loop().time() + POKE_TIMEOUT
        await self._bus._replies.ask(  # noqa: SLF001
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}",
            json.dumps({"batch": 1, "no_wait": True, "max_bytes": 1}).encode(),
            answerer=JETSTREAM,
            deadline=deadline,
            repeat=True,
        )


async def ensure_all(admin: BusAdmin) -> None:
    """Create or update every stream of the design, and on NATS the buckets."""
    await asyncio.gather(*(admin.ensure_stream(spec) for spec in STREAMS))
    if isinstance(admin, NatsAdmin):
        await asyncio.gather(admin.ensure_presence_bucket(), admin.ensure_bucket())


def _record(document: Mapping[str, Any]) -> Message:
    headers = _headers(base64.b64decode(document.get("hdrs", "")))
    return Message(
        id=headers.get(MSG_ID, ""),
        sender_uid=sender_of(document["subject"]),
        subject=document["subject"],
        payload=base64.b64decode(document.get("data", "")),
        metadata=headers,
        timestamp=datetime.fromisoformat(document["time"]).timestamp(),
        sequence=int(document["seq"]),
    )


def _headers(block: bytes) -> dict[str, str]:
    """Headers of a stored record: a version line, then `name: value` lines."""
    headers = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers
