"""Key-value buckets on JetStream, in the format that every NATS client reads and writes (ADR-8).

A bucket is a stream `KV_<bucket>` over `$KV.<bucket>.>` that keeps the last message of each key. A deletion is a
message with a header, and the server may write one for an expired key: in both cases the key reads as absent.
"""

from __future__ import annotations

import math
import re
import secrets
from asyncio import sleep
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Self

from postroom_a2a.errors import (
    BusDisconnected,
    InvalidInput,
    LostUpdate,
    NoResponders,
    PeerError,
    Refused,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.nats.jetstream import LAST_SUBJECT_SEQUENCE, MSG_ID, TTL, JetStream
from postroom_a2a.nats.kv_format import (
    OPERATION,
    ROLLUP,
    BucketEntry,
    BucketSettings,
    read_entry,
)
from postroom_a2a.nats.ordered import HEARTBEAT, OrderedConsumer
from postroom_a2a.nats.records import Record, last_record
from postroom_a2a.retry import Backoff

_NAME = re.compile(r"[-A-Za-z0-9_]+")
_KEY = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*")
_FILTER = re.compile(r"([-/_=A-Za-z0-9]+|\*)(\.([-/_=A-Za-z0-9]+|\*))*(\.>)?|>")


class Bucket:
    """One bucket; `open` makes the stream if it is missing.

    Args:
        config: the stream's configuration; without it keys have no time to live, and only the leader answers.

    Attributes:
        has_ttl: whether its keys may have a time to live; if not, `ttl` arguments have no effect.
    """

    def __init__(
        self, js: JetStream, name: str, config: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.js = js
        self.name = name
        self.has_ttl = config.get("allow_msg_ttl") is True
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._direct = config.get("allow_direct") is True
        marker = config.get("subject_delete_marker_ttl") or 0
        self._marker_ttl = marker / 1e9 if self.has_ttl else 0.0

    @classmethod
    async def open(
        cls,
        js: JetStream,
        name: str,
        settings: BucketSettings | None = None,
        *,
        create: bool = True,
    ) -> Self:
        """Open the bucket `name`, and make it if it is missing.

        Args:
            name: letters, digits, `-` and `_`.

        Raises:
            InvalidInput: the name is malformed.
            NotFound: the bucket is missing, and `create` is False.
            As `JetStream.api`.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r} is not the name of a bucket: use letters, digits, - and _"
            )
        settings = settings or BucketSettings()
        config = await js.open_stream(settings.config(name), create=create)
        if settings.key_ttl and not config.get("allow_msg_ttl"):
            config = await _with_ttl(js, config, settings)
        return cls(js, name, config)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, key: str, *, fresh: bool = False) -> BucketEntry | None:
        """The entry of `key`; None for an absent, deleted or expired key.

        Args:
            fresh: ask the leader, since a replica may be a moment behind.

        Raises:
            InvalidInput: the key is malformed.
            As `JetStream.api`.
        """
        entry = await self._last(key, fresh=fresh)
        return None if entry is None or entry.deleted else entry

    async def watch(
        self, keys: str = ">", *, values: bool = True, heartbeat: float = HEARTBEAT
    ) -> AsyncGenerator[BucketEntry | None, None]:
        """The entries of `keys`, then every change; close the generator to end it.

        After the present entries it yields None once ("that was all"), then each change: `deleted` for a key that it
        yielded before and that is gone. After a gap or a reconnect it reads again and yields what differs.

        Args:
            keys: filter; `*` for one token, `>` for the rest.
            values: False to leave the values out.
            heartbeat: seconds between the server's heartbeats in silence.

        Raises:
            InvalidInput: the filter is malformed.
            NotFound: the bucket is gone.
            BusDisconnected: the connection was closed.
            Refused: the server cannot make the consumer.
        """
        if not _FILTER.fullmatch(keys):
            raise InvalidInput(f"{keys!r} is not a filter of keys")
        known: dict[str, int] = {}
        complete, backoff = False, Backoff(0.1, 2.0)
        while True:
            try:
                async with aclosing(
                    self._changes(keys, known, values=values, heartbeat=heartbeat)
                ) as changes:
                    async for entry in changes:
                        backoff.reset()
                        if entry is not None or not complete:
                            yield entry
                        complete = complete or entry is None
            except (StreamBroken, RequestTimeout, NoResponders, BusDisconnected):
                if self.js.mailbox.connection.is_closed:
                    raise BusDisconnected("the connection was closed during a watch") from None
            await sleep(backoff.next())

    async def entries(self, keys: str = ">", *, values: bool = True) -> list[BucketEntry]:
        """The entries of `keys` (a filter, as for `watch`) now, the least recently written first; raises as `watch`."""
        found: dict[str, BucketEntry] = {}
        async with aclosing(self.watch(keys, values=values)) as watch:
            async for entry in watch:
                if entry is None:
                    break
                found.pop(entry.key, None)
                if not entry.deleted:
                    found[entry.key] = entry
        return list(found.values())

    async def keys(self, keys: str = ">") -> list[str]:
        """The keys that exist now and that the filter matches; raises as `watch`."""
        return [entry.key for entry in await self.entries(keys, values=False)]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────

    async def put(self, key: str, value: bytes, *, ttl: float = 0.0) -> int:
        """Write; returns the revision.

        Args:
            ttl: seconds, rounded up to whole ones, after which the key expires; 0 for never.

        Raises:
            InvalidInput: the key is malformed.
            MessageTooLarge, StreamFull, Refused: the value is not written.
            RequestTimeout, BusDisconnected, NoResponders: no answer came; the value may be written.
        """
        return await self._write(key, value, ttl=ttl)

    async def create(self, key: str, value: bytes, *, ttl: float = 0.0) -> int:
        """Write a key that does not exist.

        Raises:
            LostUpdate: it exists.
            As `put`.
        """
        for _ in range(3):
            try:
                return await self._write(key, value, ttl=ttl, expected=0)
            except LostUpdate:
                last = await self._last(key, fresh=True)
                if last is None:  # it expired in between
                    continue
                if not last.deleted:
                    raise
                return await self._write(key, value, ttl=ttl, expected=last.revision)
        raise LostUpdate(f"the key {key!r} comes and goes: try again")

    async def update(self, key: str, value: bytes, revision: int, *, ttl: float = 0.0) -> int:
        """Write if `revision` is the key's last one; 0 for a key that was never written.

        Raises:
            LostUpdate: it is not the last one.
            As `put`.
        """
        return await self._write(key, value, ttl=ttl, expected=revision)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Mark the key as deleted (if `revision` is the last one); its history stays. Raises as `update`."""
        await self._write(key, b"", expected=revision, headers={OPERATION: "DEL"})

    async def purge(self, key: str, *, revision: int | None = None) -> None:
        """Remove the key and its history (if `revision` is the last one). Raises as `update`.

        The mark of the removal expires, too, if the bucket's keys may have a time to live.
        """
        headers = {OPERATION: "PURGE", ROLLUP: "sub"}
        await self._write(key, b"", ttl=self._marker_ttl, expected=revision, headers=headers)

    async def clear(self, keys: str = ">") -> None:
        """Remove what the filter matches, with history and marks, unseen by a watch; raises as `JetStream.api`."""
        if not _FILTER.fullmatch(keys):
            raise InvalidInput(f"{keys!r} is not a filter of keys")
        await self.js.api(f"STREAM.PURGE.{self._stream}", {"filter": self._prefix + keys})

    # ── the wire ─────────────────────────────────────────────────────────────────────────────────────────

    async def _write(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float = 0.0,
        expected: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        # With the id `publish` may send it again when the answer was lost.
        mark = secrets.token_hex(12)
        wire = {**(headers or {}), MSG_ID: mark}
        if expected is not None:
            wire[LAST_SUBJECT_SEQUENCE] = str(expected)
        if ttl > 0 and self.has_ttl:
            wire[TTL] = f"{math.ceil(ttl)}s"
        try:
            return (await self.js.publish(self._subject(key), value, headers=wire)).sequence
        except LostUpdate:
            # The server checks the expected sequence before the id, so it may have refused the second copy because
            # of the first.
            last = await last_record(self.js, self._stream, self._subject(key), direct=False)
            if last is None or last.headers.get(MSG_ID) != mark:
                raise
            return last.sequence

    async def _last(self, key: str, *, fresh: bool) -> BucketEntry | None:
        direct = self._direct and not fresh
        record = await last_record(self.js, self._stream, self._subject(key), direct=direct)
        return None if record is None else self._read(record)

    async def _changes(
        self, keys: str, known: dict[str, int], *, values: bool, heartbeat: float
    ) -> AsyncGenerator[BucketEntry | None, None]:
        """What differs from `known`, then None, then the changes, until the consumer breaks."""
        policy = {"deliver_policy": "last_per_subject", "headers_only": not values}
        subject = self._prefix + keys
        async with OrderedConsumer(
            self.js, self._stream, subject, heartbeat=heartbeat, **policy
        ) as consumer:
            seen: set[str] | None = set()
            rest = consumer.pending
            while True:
                if seen is not None and not rest:
                    for each in _gone(known, seen):
                        yield each
                    seen = None
                    yield None
                record = await consumer.next()
                rest = record.pending if record else 0
                if record is None:
                    continue
                entry = self._read(record)
                if seen is not None:
                    seen.add(entry.key)
                if entry.deleted:
                    if known.pop(entry.key, None) is not None:
                        yield entry
                elif known.get(entry.key) != entry.revision:
                    known[entry.key] = entry.revision
                    yield entry

    def _read(self, record: Record) -> BucketEntry:
        return read_entry(record.subject.removeprefix(self._prefix), record)

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise InvalidInput(
                f"{key!r} is not the key of a bucket: use letters, digits, - / _ = and dots between them"
            )
        return self._prefix + key


def _gone(known: dict[str, int], seen: set[str]) -> list[BucketEntry]:
    """The keys of before a gap that left no mark."""
    return [
        BucketEntry(key, b"", known.pop(key), deleted=True)
        for key in list(known)
        if key not in seen
    ]


async def _with_ttl(
    js: JetStream, config: dict[str, Any], settings: BucketSettings
) -> dict[str, Any]:
    """The stream's configuration after an attempt to allow its keys a time to live."""
    change = {**config, **settings.ttl_config()}
    try:
        return (await js.api(f"STREAM.UPDATE.{config['name']}", change))["config"]
    except (Refused, PeerError):  # an old server, or no permission: go on without
        return config


__all__ = ["Bucket", "BucketEntry", "BucketSettings"]
