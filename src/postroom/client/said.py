"""What an `Agent` says and is told: texts, data and files, as parts of an A2A Message."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from postroom.client.files import media_type_for, whole_file
from postroom.errors import InvalidInput, MessageTooLarge, ProtocolViolation
from postroom.protocol import parts
from postroom.protocol.blobs import sha256_of

if TYPE_CHECKING:
    from postroom.client.async_transport import AsyncTransport

CHUNK = 64 * 1024
SILENCE = 60.0
"""Seconds for one piece of a file to be taken or to come."""

MOST = 64 * 1024 * 1024
"""Bytes that `Part.read` holds in memory; `Part.save` has no such bound."""


class File:
    """A file to send: a path, or bytes with a name. It is uploaded once it is sent."""

    def __init__(self, source: str | Path | bytes, *, name: str = "", media_type: str = "") -> None:
        self.source = source if isinstance(source, bytes) else Path(source)
        self.name = name or ("" if isinstance(self.source, bytes) else self.source.name)
        self.media_type = media_type_for(self.name, media_type)


Sayable = str | File | Mapping[str, Any]
"""A text, a file, or a part as A2A's JSON has it, such as `{"data": {...}}`."""


class Part:
    """One part of what was said; `json` is the part as A2A has it.

    Attributes:
        kind: `text`, `data` or `file`, "" for one that this version does not know.
        media_type: as stated, else that of its kind.
        name: of a file, made harmless; "" for none.
        text, data: the content of a part of that kind, else "" and None.
    """

    def __init__(self, transport: AsyncTransport, json: Mapping[str, Any]) -> None:
        self._transport = transport
        self.json = json
        self.kind = parts.kind_of(json)
        self.media_type = parts.media_type_of(json)
        self.name = parts.name_in(json)
        self.text = str(json["text"]) if self.kind == parts.TEXT else ""
        self.data = json.get("data")

    async def read(self, most: int = MOST) -> bytes:
        """The content; raises MessageTooLarge if it has more than `most` bytes."""
        content = bytearray()
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                content += piece
                if len(content) > most:
                    raise MessageTooLarge(
                        f"the content has more than {most} bytes", remedy="save() takes any size"
                    )
        return bytes(content)

    async def save(self, to: str | Path) -> Path:
        """Write the content to the file `to`, or under its own name into the folder `to`; returns the path.

        In a folder it never takes the place of another file.
        """
        path = Path(to)
        if path.is_dir():
            path = _free(path, self.name or "file")
        with whole_file(path) as file:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
        return path

    async def _pieces(self) -> AsyncGenerator[bytes]:
        if self.kind == parts.TEXT:
            yield self.text.encode()
        elif isinstance(raw := self.json.get("raw"), str):
            yield base64.b64decode(raw)
        elif self.kind == parts.FILE:
            async with aclosing(_download(self._transport, self.json["url"])) as pieces:
                async for piece in pieces:
                    yield piece
        else:
            raise InvalidInput("this part has no content to read", remedy="`data` has its value")


async def said(transport: AsyncTransport, what: Sequence[Sayable]) -> list[dict[str, Any]]:
    """The parts of what is said; files are uploaded.

    Raises:
        InvalidInput: nothing is said, or a file cannot be read.
    """
    if not what:
        raise InvalidInput("a message needs a text, data or a file")
    return [await _part(transport, one) for one in what]


async def _part(transport: AsyncTransport, one: Sayable) -> dict[str, Any]:
    if isinstance(one, str):
        return {"text": one}
    if not isinstance(one, File):
        return dict(one)
    url = await _upload(transport, one)
    named = {"filename": one.name} if one.name else {}
    return {"url": url, "mediaType": one.media_type, **named}


async def _upload(transport: AsyncTransport, file: File) -> str:
    """Store a file as a blob; returns its URL."""
    source = file.source
    try:
        digest = await asyncio.to_thread(_digest, source)
        body = source if isinstance(source, bytes) else _read(source)
        headers = {"Content-Type": file.media_type}
        async with transport.exchange(
            "PUT", f"/v1/blobs/{digest}", silence=SILENCE, content=body, headers=headers
        ) as answer:
            return str((await transport.decoded(answer))["url"])
    except OSError as error:
        raise InvalidInput(f"{file.source} cannot be read: {error.strerror}") from error


def _digest(source: bytes | Path) -> str:
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _read(path: Path) -> AsyncGenerator[bytes]:
    with await asyncio.to_thread(_opened, path) as file:
        while data := await asyncio.to_thread(file.read, CHUNK):
            yield data


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


async def _download(transport: AsyncTransport, url: str) -> AsyncGenerator[bytes]:
    wanted, found = sha256_of(url), hashlib.sha256()
    async with transport.exchange("GET", f"/v1/blobs/{wanted}", silence=SILENCE) as answer:
        async for data in answer.aiter_raw(CHUNK):
            found.update(data)
            yield data
    if found.hexdigest() != wanted:
        raise ProtocolViolation("the content does not have the hash in the URL")


def _free(folder: Path, name: str) -> Path:
    """A path in `folder` that nothing has."""
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path
