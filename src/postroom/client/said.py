"""What an `Agent` says and is told: texts, data and files, as parts of an A2A Message."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.client.files import media_type_for, whole_file
from postroom.errors import InvalidInput, MessageTooLarge
from postroom.protocol import parts

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient

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

    def __init__(self, client: AsyncClient, json: Mapping[str, Any]) -> None:
        self._client = client
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
            async with aclosing(self._client.get_blob(self.json["url"])) as pieces:
                async for piece in pieces:
                    yield piece
        else:
            raise InvalidInput("this part has no content to read", remedy="`data` has its value")


async def said(client: AsyncClient, what: Sequence[Sayable]) -> list[dict[str, Any]]:
    """The parts of what is said; files are uploaded.

    Raises:
        InvalidInput: nothing is said, or a file cannot be read.
    """
    if not what:
        raise InvalidInput("a message needs a text, data or a file")
    return [await _part(client, one) for one in what]


async def _part(client: AsyncClient, one: Sayable) -> dict[str, Any]:
    if isinstance(one, str):
        return {"text": one}
    if not isinstance(one, File):
        return dict(one)
    url = await _upload(client, one)
    named = {"filename": one.name} if one.name else {}
    return {"url": url, "mediaType": one.media_type, **named}


async def _upload(client: AsyncClient, file: File) -> str:
    """Store a file as a blob; returns its URL."""
    source = file.source
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as content:
            return await client.put_blob(content, file.media_type)
    except OSError as error:
        raise InvalidInput(f"{file.source} cannot be read: {error.strerror}") from error


def _free(folder: Path, name: str) -> Path:
    """A path in `folder` that nothing has."""
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path
