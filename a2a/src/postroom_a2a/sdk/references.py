"""Large content, sent by reference (extension `urn:postroom:a2a:large-content:1`; docs/binding.md, Large content).

For a caller that asked for the extension, an agent puts the content of a part into an object bucket and sends a URL in
its place. The caller's side puts the content back.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf.message import Message as Proto

from a2a import types
from postroom_a2a.binding.frames import CONTENT
from postroom_a2a.errors import (
    MessageTooLarge,
    NotFound,
    ProtocolViolation,
    Refused,
)
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.objects import DAY, ObjectBucket
from postroom_a2a.nats.port import Connection

BUCKET = "A2A_CONTENT"
SCHEME = "nats-object"

THRESHOLD = 256 * 1024
"""Bytes of content from which on a part goes by reference."""

MAX_FETCHED = 64 * 1024 * 1024
"""Most bytes of one part to fetch, by default."""

_SMALL = 1024  # content below this is not worth a reference
_FRAME = 8192  # bytes for the frame and headers around an answer
_REMEMBERED = 1024
_URL = re.compile(rf"{SCHEME}://([-A-Za-z0-9_]+)/([-A-Za-z0-9_]+)")

M = TypeVar("M", bound=Proto)


class LargeContent:
    """An object bucket for the content of large parts.

    Args:
        threshold: bytes of content from which on a part goes by reference.
        limit: most bytes of one part to fetch.
        timeout: seconds to fetch one part.
    """

    def __init__(
        self,
        bucket: ObjectBucket,
        *,
        threshold: int = THRESHOLD,
        limit: int = MAX_FETCHED,
        timeout: float = 60.0,
    ) -> None:
        self._bucket = bucket
        self._threshold = threshold
        self._limit = limit
        self._timeout = timeout
        self._names: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    @classmethod
    async def open(
        cls,
        connection: Connection | JetStream,
        *,
        bucket: str = BUCKET,
        max_age: float = DAY,
        max_bytes: int = -1,
        create: bool = True,
        **options: Any,
    ) -> LargeContent:
        """Large content in the bucket of that name; without `create`, a missing bucket is an error.

        Args:
            max_age: seconds that content stays.
            max_bytes: of the bucket; -1 for no limit.

        Raises:
            As `ObjectBucket.open`.
        """
        js = connection if isinstance(connection, JetStream) else JetStream(Mailbox(connection))
        opened = await ObjectBucket.open(
            js, bucket, max_age=max_age, max_bytes=max_bytes, create=create
        )
        return cls(opened, **options)

    async def detach(self, message: M) -> M:
        """`message` with references in place of large content; the same object if it has none.

        Parts over the threshold go by reference, then the largest others until the answer fits into one message.

        Raises:
            Refused: the content could not be stored, and does not fit into one message.
            As `ObjectBucket.put`.
        """
        room = self._bucket.js.mailbox.connection.max_payload - _FRAME
        chosen = _chosen([len(_content(part)) for part in parts_of(message)], self._threshold)
        total = _wire_size(message)
        if not chosen or (total <= room and chosen[0][0] <= self._threshold):
            return message
        copy = type(message)()
        copy.CopyFrom(message)
        parts = list(parts_of(copy))
        try:
            for size, index in chosen:
                if size <= self._threshold and total <= room:
                    break
                total -= size
                await self._detach(parts[index])
        except Refused:
            if _wire_size(message) <= room:
                return message
            raise
        return copy

    async def attach(self, message: M) -> M:
        """Put the content in place of the references in `message`; returns `message`.

        Raises:
            NotFound: content is gone.
            MessageTooLarge: content is over the limit.
            ProtocolViolation: a reference is malformed, or its object has other content.
            As `ObjectBucket.get`.
        """
        for part in parts_of(message):
            if part.url.startswith(f"{SCHEME}://") and CONTENT in part.metadata:
                await self._attach(part)
        return message

    async def _detach(self, part: types.Part) -> None:
        content = _content(part)
        digest = (await asyncio.to_thread(hashlib.sha256, content)).digest()
        name, until = self._names.get(digest, ("", 0.0))
        if until < time.monotonic():
            name = secrets.token_hex(16)
            await self._bucket.put(name, content)
            # A repeated answer names the same object while that has half of its time left.
            self._names[digest] = name, time.monotonic() + (self._bucket.max_age or DAY) / 2
            if len(self._names) > _REMEMBERED:
                self._names.popitem(last=False)
        said = {"digest": digest.hex(), "size": len(content), "kind": part.WhichOneof("content")}
        part.metadata[CONTENT] = said
        part.url = f"{SCHEME}://{self._bucket.name}/{name}"

    async def _attach(self, part: types.Part) -> None:
        said = part.metadata[CONTENT]
        found = _URL.fullmatch(part.url)
        try:
            size, digest, kind = int(said["size"]), str(said["digest"]), str(said["kind"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation("a reference to large content is malformed") from error
        if found is None or kind not in {"text", "raw"}:
            raise ProtocolViolation(f"{part.url!r} is not a reference to large content")
        if found[1] != self._bucket.name:
            raise ProtocolViolation(
                f"the content is in the bucket {found[1]}; this client reads {self._bucket.name}"
            )
        if size > self._limit:
            raise MessageTooLarge(f"the content has {size} bytes, {self._limit} are allowed")
        try:
            content = await self._bucket.get(found[2], limit=size, timeout=self._timeout)
        except NotFound as error:
            raise NotFound(
                "the content of a part is gone",
                remedy="agents keep it for a limited time: ask again",
            ) from error
        if hashlib.sha256(content).hexdigest() != digest or len(content) != size:
            raise ProtocolViolation("the content of a part does not match its reference")
        if kind == "raw":
            part.raw = content
        else:
            try:
                part.text = content.decode()
            except UnicodeDecodeError as error:
                raise ProtocolViolation("the content of a text part is not UTF-8") from error
        del part.metadata.fields[CONTENT]
        if not part.metadata.fields:
            part.ClearField("metadata")


def parts_of(message: Proto) -> Iterator[types.Part]:
    """Every part in a message, an artifact, a task, or another proto."""
    if isinstance(message, types.Part):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.file.package == "google.protobuf":
            continue
        if isinstance(value, Proto):
            yield from parts_of(value)
        elif not field.message_type.GetOptions().map_entry:
            for each in value:
                yield from parts_of(each)


def _content(part: types.Part) -> bytes:
    return part.raw or part.text.encode()


def _chosen(sizes: list[int], threshold: int) -> list[tuple[int, int]]:
    """Sizes and indices of the parts that may go by reference, the largest first."""
    least = min(_SMALL, threshold)
    places = [(size, index) for index, size in enumerate(sizes) if size > least]
    return sorted(places, reverse=True)


def _wire_size(message: Proto) -> int:
    """Approximate bytes of the answer in its larger encoding, JSON with base64."""
    raw = sum(len(part.raw) for part in parts_of(message))
    return message.ByteSize() + raw // 3
