"""Blobs between the agent and the control plane: passed on piece by piece, never held."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.http.client import HttpClient
from postroom.http.server import Content
from postroom.protocol.blobs import blob_url

_PASSED = frozenset({"content-type", "content-length", "etag"})
"""Headers of a content that the agent is told, too."""


class BlobRelay:
    """Stores and fetches blobs as one worker; `control` asks the control plane."""

    def __init__(self, control: HttpClient) -> None:
        self._control = control

    async def put(self, chunks: AsyncIterable[bytes], media_type: str) -> dict[str, Any]:
        """Store a content; returns its `url` and `size` when it is on disk.

        Raises:
            PostroomError: it was not stored: what the control plane or the agent's connection says.
        """
        digest = hashlib.sha256()

        async def hashed() -> AsyncGenerator[bytes]:
            async for data in chunks:
                digest.update(data)
                yield data

        kind = [("content-type", media_type)]
        stored = await self._control.ask("POST", "/v1/blobs", headers=kind, body=hashed())
        async with stored:
            answer = await stored.document()
        if answer.get("url") != blob_url(digest.hexdigest()):
            raise ProtocolViolation("the control plane has stored something else")
        return {"url": answer["url"], "size": answer.get("size")}

    async def get(self, sha256: str) -> Content:
        """A content, which comes as it is read.

        Raises:
            NotFound: there is none that this worker may read.
        """
        answer = await self._control.ask("GET", f"/v1/blobs/{sha256}")
        try:
            if answer.status != 200:
                await answer.document()
                raise ProtocolViolation(f"the control plane answered {answer.status}")
        except BaseException:
            answer.close()
            raise
        kept = tuple((name, value) for name, value in answer.headers if name in _PASSED)
        return Content(kept, answer.pieces(), answer.close)
