"""The routes of blobs as methods (docs/api.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

from postroom.client.calls import Calls
from postroom.client.records import Blob
from postroom.errors import ProtocolViolation
from postroom.protocol.blobs import sha256_of

CHUNK = 64 * 1024
SILENCE = 60.0
"""Seconds for one piece to be taken or to come."""


class BlobCalls(Calls):
    """Content that is too large for messages, as their operator. Nothing of it is held in memory."""

    def put_blob(self, content: BinaryIO, media_type: str) -> str:
        """Store a content; its URL, when it is on disk.

        Every agent that is told the URL may read it.
        """
        path, method = "/v1/blobs", "POST"
        if content.seekable():
            start = content.tell()
            named = hashlib.sha256()
            for data in _pieces(content):
                named.update(data)
            path, method = f"{path}/{named.hexdigest()}", "PUT"
            content.seek(start)
        headers = {"Content-Type": media_type}
        with self.transport.exchange(
            method, path, silence=SILENCE, content=_pieces(content), headers=headers
        ) as response:
            return str(self.transport.decoded(response)["url"])

    def get_blob(self, url: str) -> Iterator[bytes]:
        """The content that a URL names, as it comes.

        Raises:
            InvalidInput: it is no URL of a blob.
            ProtocolViolation: at the end: what came is something else.
        """
        wanted, found = sha256_of(url), hashlib.sha256()
        with self.transport.exchange("GET", f"/v1/blobs/{wanted}", silence=SILENCE) as response:
            for data in response.iter_raw(CHUNK):
                found.update(data)
                yield data
        if found.hexdigest() != wanted:
            raise ProtocolViolation("what came is not what the URL names")

    def blobs(self, limit: int = 100) -> list[Blob]:
        """Blobs, the largest first."""
        return self._get("/v1/blobs", {"limit": limit})["blobs"]

    def remove_blob(self, url: str) -> None:
        """Remove a content, whoever names it."""
        self.transport.call("DELETE", f"/v1/blobs/{sha256_of(url)}")


def _pieces(content: BinaryIO) -> Iterator[bytes]:
    while data := content.read(CHUNK):
        yield data
