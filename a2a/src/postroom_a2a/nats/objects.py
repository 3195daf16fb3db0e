"""Object buckets on JetStream: content larger than a message, in the format of every NATS client (ADR-20).

A bucket is a stream `OBJ_<bucket>` with an object's chunks under `$O.<bucket>.C.<nuid>` and its description under
`$O.<bucket>.M.<name>`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from postroom_a2a.errors import (
    InvalidInput,
    MessageTooLarge,
    NotFound,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.nats.jetstream import MSG_ID, JetStream
from postroom_a2a.nats.kv_format import ROLLUP
from postroom_a2a.nats.ordered import OrderedConsumer
from postroom_a2a.nats.records import last_record

MAX_CHUNK = 512 * 1024
"""Bytes of a chunk, or half of the server's limit for a message if that is less."""

DAY = 86_400.0

_NAME = re.compile(r"[-A-Za-z0-9_]+")
_DIGEST = "SHA-256="


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The description of an object in its bucket.

    Attributes:
        digest: `SHA-256=` and the hash in base64url.
        nuid: the token of the object in the subject of its chunks.
    """

    name: str
    size: int
    chunks: int
    digest: str
    nuid: str


class ObjectBucket:
    """One bucket, which `open` makes; it keeps objects for `max_age` seconds, or for ever with 0."""

    def __init__(self, js: JetStream, name: str, config: Mapping[str, Any]) -> None:
        self.js = js
        self.name = name
        self.max_age = int(config.get("max_age") or 0) / 1e9
        self._stream = f"OBJ_{name}"
        self._direct = config.get("allow_direct") is True

    @classmethod
    async def open(
        cls,
        js: JetStream,
        name: str,
        *,
        max_age: float = DAY,
        max_bytes: int = -1,
        storage: str = "file",
        replicas: int = 1,
        create: bool = True,
    ) -> Self:
        """Open the bucket `name`, and make it if it is missing; a bucket that exists stays as it is.

        Args:
            name: letters, digits, `-` and `_`.
            max_age: seconds to keep an object; 0 for ever.
            max_bytes: size of the whole bucket; -1 for no limit. A full bucket refuses objects (`StreamFull`).
            storage: "file" or "memory".

        Raises:
            InvalidInput: the name is malformed.
            NotFound: the bucket is missing, and `create` is False.
            As `JetStream.api`.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r} is not the name of a bucket: use letters, digits, - and _"
            )
        wanted = {
            "name": f"OBJ_{name}",
            "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
            "retention": "limits",
            "discard": "new",
            "max_age": int(max_age * 1e9),
            "max_bytes": max_bytes,
            "storage": storage,
            "num_replicas": replicas,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        return cls(js, name, await js.open_stream(wanted, create=create))

    async def put(self, name: str, content: bytes) -> ObjectInfo:
        """Store an object, in place of the one of that name; returns its description.

        Raises:
            StreamFull, Refused: the object is not stored.
            As `JetStream.publish`.
        """
        before = await self._info(name)
        nuid = secrets.token_hex(11)
        size = min(MAX_CHUNK, self.js.mailbox.connection.max_payload // 2)
        view = memoryview(content)
        chunks = [view[start : start + size] for start in range(0, len(content), size)]
        digest = _digest(await asyncio.to_thread(hashlib.sha256, content))
        info = ObjectInfo(name, len(content), len(chunks), digest, nuid)
        try:
            for number, chunk in enumerate(chunks):
                headers = {MSG_ID: f"{nuid}:{number}"}
                await self.js.publish(self._chunks(nuid), bytes(chunk), headers=headers)
            await self._describe(info, {"options": {"max_chunk_size": size}})
        except BaseException:
            with suppress(PostroomError):
                await self._purge(nuid)
            raise
        if before is not None:
            await self._purge(before.nuid)
        return info

    async def get(self, name: str, *, limit: int, timeout: float = 60.0) -> bytes:
        """The content of an object.

        Args:
            limit: bytes that the object may have.

        Raises:
            NotFound: the bucket has no such object (any more).
            MessageTooLarge: the object is over `limit`.
            ProtocolViolation: the content does not match the digest.
            As `JetStream.api`.
        """
        info = await self._info(name)
        if info is None:
            raise NotFound(f"the bucket {self.name} has no object {name!r} (any more)")
        if info.size > limit:
            raise MessageTooLarge(f"the object {name!r} has {info.size} bytes, {limit} are allowed")
        try:
            async with asyncio.timeout(timeout):
                content = await self._content(info)
        except TimeoutError:
            raise RequestTimeout(f"the object {name!r} did not come in time") from None
        if _digest(await asyncio.to_thread(hashlib.sha256, content)) != info.digest:
            raise ProtocolViolation(f"the content of the object {name!r} does not match its digest")
        return content

    async def delete(self, name: str) -> None:
        """Remove an object, if the bucket has it; raises as `JetStream.publish`."""
        info = await self._info(name)
        if info is not None:
            await self._describe(ObjectInfo(name, 0, 0, "", info.nuid), {"deleted": True})
            await self._purge(info.nuid)

    async def _info(self, name: str) -> ObjectInfo | None:
        record = await last_record(self.js, self._stream, self._meta(name), direct=self._direct)
        if record is None:
            return None
        try:
            description = json.loads(record.payload)
            if description.get("deleted"):
                return None
            sizes = int(description.get("size", 0)), int(description.get("chunks", 0))
            digest, nuid = str(description.get("digest", "")), str(description["nuid"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation(
                f"the description of the object {name!r} is malformed"
            ) from error
        return ObjectInfo(name, *sizes, digest, nuid)

    async def _content(self, info: ObjectInfo) -> bytes:
        content = bytearray()
        after = 0
        while len(content) < info.size:
            policy: dict[str, Any] = {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": after + 1,
            }
            subject = self._chunks(info.nuid)
            with suppress(StreamBroken):  # goes on after the last chunk that came
                async with OrderedConsumer(self.js, self._stream, subject, **policy) as consumer:
                    if not consumer.pending:
                        raise NotFound(f"content of the object {info.name!r} is gone")
                    while len(content) < info.size:
                        record = await consumer.next()
                        if record is None:
                            raise NotFound(f"content of the object {info.name!r} is gone")
                        content += record.payload
                        after = record.sequence
        return bytes(content)

    async def _describe(self, info: ObjectInfo, more: Mapping[str, Any]) -> None:
        document = {
            "name": info.name,
            "bucket": self.name,
            "nuid": info.nuid,
            "size": info.size,
            "mtime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "chunks": info.chunks,
            "digest": info.digest,
            **more,
        }
        headers = {ROLLUP: "sub", MSG_ID: secrets.token_hex(12)}
        await self.js.publish(self._meta(info.name), json.dumps(document).encode(), headers=headers)

    async def _purge(self, nuid: str) -> None:
        await self.js.api(f"STREAM.PURGE.{self._stream}", {"filter": self._chunks(nuid)})

    def _chunks(self, nuid: str) -> str:
        return f"$O.{self.name}.C.{nuid}"

    def _meta(self, name: str) -> str:
        if not name:
            raise InvalidInput("an object needs a name")
        return f"$O.{self.name}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _digest(hashed: Any) -> str:
    return _DIGEST + base64.urlsafe_b64encode(hashed.digest()).decode()
