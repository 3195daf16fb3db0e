"""Blobs: upload, fetch, and for who operates list and remove. Bodies pass as streams, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, BinaryIO

from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from postroom.blobs.service import pieces
from postroom.control.ops.table import Answer, Operations
from postroom.control.org_router import Receive, Send
from postroom.control.org_router import Scope as AsgiScope
from postroom.control.parameters import Limit, Sha256
from postroom.control.parts import Parts
from postroom.errors import BlobsFull, BlobTooLarge, NotFound, PeerError, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.blobs import (
    DEFAULT_MEDIA_TYPE,
    blob_url,
    check_sha256,
    media_type_of,
)
from postroom.protocol.principal import Principal, Scope
from postroom.store.blobs import BlobRow
from postroom_a2a.times import format_time

READ_TIMEOUT = 30.0
"""Seconds that a reader may take for one piece of a content."""


LastBlob = Annotated[str, Field(description="The hash of the last blob that was read: `next`.")]

STORED = (
    Answer(200, answers.Stored, text="The caller could read it already."),
    Answer(201, answers.Stored, text="It is stored."),
)
CONTENT = Answer(200, str, DEFAULT_MEDIA_TYPE, "The content.", "hello")


operations = Operations()


@operations.put(
    "/v1/blobs/{sha256}",
    Scope.SEND,
    door=True,
    fails=(PeerError, BlobTooLarge, BlobsFull, Refused),
    content=True,
    answers=(*STORED,),
)
async def put(parts: Parts, sha256: Sha256, request: Request, me: Principal) -> Response:
    """Store a content under its hash.

    It passes as a stream, up to 64 MiB. 200 at once if the caller could read it already; nothing was stored after
    422, the answer to content with another hash.
    """
    check_sha256(sha256)
    if (row := await parts.blobs.there(sha256, me.only)) is not None:
        return JSONResponse(_stored(row))
    return await _take(parts, request, me.only, sha256)


@operations.post(
    "/v1/blobs",
    Scope.SEND,
    door=True,
    fails=(PeerError, BlobTooLarge, BlobsFull, Refused),
    content=True,
    answers=(STORED[1],),
)
async def post(parts: Parts, request: Request, me: Principal) -> Response:
    """Store a content whose hash is not known before.

    It passes as a stream, up to 64 MiB.
    """
    return await _take(parts, request, me.only)


async def _take(parts: Parts, request: Request, uid: str, expected: str = "") -> Response:
    media_type = media_type_of(request.headers.get("content-type", ""))
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else 0
    try:
        row = await parts.blobs.take(
            request.stream(), uid, media_type, expected=expected, size=size
        )
    except ClientDisconnect as error:
        raise PeerError("the upload ended before its end") from error
    return JSONResponse(_stored(row), 201)


@operations.get(
    "/v1/blobs/{sha256}",
    Scope.READ,
    door=True,
    fails=(NotFound,),
    answers=(CONTENT, Answer(304, text="The caller has it.")),
    crosses=True,
    strangers=True,
)
@operations.head(
    "/v1/blobs/{sha256}",
    Scope.READ,
    door=True,
    fails=(NotFound,),
    answers=(CONTENT, Answer(304, text="The caller has it.")),
    crosses=True,
    strangers=True,
)
async def get(parts: Parts, sha256: Sha256, request: Request, me: Principal) -> Response:
    """Fetch a content.

    `ETag` is its hash; 304 for the same `If-None-Match`. A blob is served as an attachment of no type: the part
    that names it says what it is.
    """
    row = await parts.blobs.get(check_sha256(sha256), me.only)
    headers = _headers(row)
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"etag": headers["etag"]})
    return ContentResponse(await parts.blobs.content(row), headers, request.method == "HEAD")


@operations.get("/v1/blobs", Scope.OPERATE)
async def list_(parts: Parts, limit: Limit = 100, after: LastBlob = "") -> answers.Blobs:
    """List what is stored, the largest first."""
    found = await parts.blobs.largest(limit, check_sha256(after) if after else "")
    smaller = found[-1].sha256 if len(found) >= limit else None
    return {"blobs": [_shown(row) for row in found], "next": smaller}


@operations.delete("/v1/blobs/{sha256}", Scope.OPERATE, status=204, fails=(NotFound,))
async def remove(parts: Parts, sha256: Sha256) -> None:
    """Remove a content.

    Who was told its URL cannot fetch it any more.
    """
    await parts.blobs.remove(check_sha256(sha256))


def _stored(row: BlobRow) -> answers.Stored:
    # No field says whether somebody else had uploaded it before.
    return {"url": blob_url(row.sha256), "sha256": row.sha256, "size": row.size}


def _shown(row: BlobRow) -> shapes.Blob:
    return {
        "url": blob_url(row.sha256),
        "sha256": row.sha256,
        "size": row.size,
        "media_type": row.media_type,
        "named": row.named,
        "created_at": format_time(row.created_at),
        "touched_at": format_time(row.touched_at),
    }


def _headers(row: BlobRow) -> dict[str, str]:
    # A browser gets a file, never a page of this address. The part of a message that names the blob has its media type:
    # the type of the first upload would tell a later uploader that somebody had it before.
    return {
        "content-type": DEFAULT_MEDIA_TYPE,
        "content-length": str(row.size),
        "content-disposition": f'attachment; filename="{row.sha256}"',
        "etag": f'"{row.sha256}"',
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-cache",
    }


class ContentResponse(Response):
    """Sends an open file piece by piece and closes it; a reader that is too slow is cut.

    Args:
        empty: send only the headers.
    """

    def __init__(self, file: BinaryIO, headers: dict[str, str], empty: bool) -> None:
        super().__init__(headers=headers)
        self._file = file
        self._empty = empty

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Handle one request (ASGI 3)."""
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            async for data in self._pieces():
                async with asyncio.timeout(READ_TIMEOUT):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._file.close()

    def _pieces(self) -> AsyncIterator[bytes]:
        return _none() if self._empty else pieces(self._file)


async def _none() -> AsyncIterator[bytes]:
    return
    yield b""  # pragma: no cover (what makes it a generator)
