"""Takes and gives blobs: contents in files, readers in SQL (docs/architecture.md, Blobs).

Who may not read a blob is told what is told of one that is not there, and an upload of content that is there already
is received like any other: that somebody has it shows only to who may read it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from postroom.blobs.folder import BlobFolder, Upload
from postroom.errors import (
    InvalidInput,
    NotFound,
    PostroomError,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.store import blobs as rows
from postroom.store.blobs import BlobRow
from postroom.store.database import Database

CHUNK = 256 * 1024
"""Bytes that are written or read at a time."""

UPLOADS = 32
UPLOADS_EACH = 4
"""Uploads at once: of all, and of one agent."""

LONGEST = 3600.0
"""Seconds for one upload, however steadily it comes: nobody may hold a place for ever."""

KEEP = 7 * 86400.0
"""Seconds that a blob which no message and no task names is kept after its last upload."""

INTERVAL = 3600.0
"""Seconds between two sweeps."""

SWEPT = 4096
"""Blobs that one sweep removes at most."""

CaughtUp = Callable[[], Awaitable[None]]
"""Returns when all that is in the log now is folded; raises `TimeoutError` if that takes too long."""

_log = get_logger(__name__)


class BlobService:
    """All blobs of a post room.

    A caller is an agent's uid, or `rows.EVERYBODY` for the operator, who reads all and whose uploads all may read.

    Args:
        caught_up: waits for the fold: who is named a blob may ask for it before the log is folded.
    """

    def __init__(
        self,
        database: Database,
        folder: BlobFolder,
        caught_up: CaughtUp,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._folder = folder
        self._caught_up = caught_up
        self._clock = clock
        self._uploads: Counter[str] = Counter()
        # A content and its row come and go together.
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Remove what killed processes have left.

        Raises:
            StateUnwritable: the folder cannot be used.
        """
        known = await self._database.read(rows.all_sizes)
        await asyncio.to_thread(self._folder.open, known)

    async def there(self, sha256: str, caller: str) -> BlobRow | None:
        """The blob, if the caller could read it now: it need not be uploaded again, and is kept as if it had been."""
        async with self._turn:
            touch = partial(rows.touch_readable, sha256=sha256, uid=caller, now=self._clock())
            row = await self._database.write(touch)
            if row is None or not await asyncio.to_thread(self._folder.has, sha256, row.size):
                return None
            return row

    async def take(
        self,
        chunks: AsyncIterable[bytes],
        caller: str,
        media_type: str,
        *,
        expected: str = "",
        size: int = 0,
    ) -> BlobRow:
        """Store a blob; it is on disk when this returns, and the caller may read it.

        Args:
            expected: hash that it must have, "" for any.
            size: bytes that are announced, 0 where that is not known.

        Raises:
            InvalidInput: it has another hash; nothing is left of it.
            BlobTooLarge, BlobsFull, StateUnwritable: there is no room; nothing is left of it.
            Refused: too many uploads at once.
            RequestTimeout: it took too long; nothing is left of it.
        """
        with self._upload(caller):
            self._folder.check_room(size)
            async with self._folder.upload() as upload:
                try:
                    async with asyncio.timeout(LONGEST):
                        await _fill(upload, chunks)
                except TimeoutError as error:
                    raise RequestTimeout("the upload takes too long") from error
                found = await upload.flush()
                if expected and found != expected:
                    raise InvalidInput(
                        f"the content's SHA-256 is {found}, not {expected}; it was not stored"
                    )
                return await self._keep(upload, found, caller, media_type)

    async def _keep(self, upload: Upload, sha256: str, caller: str, media_type: str) -> BlobRow:
        now = self._clock()
        row = BlobRow(sha256, upload.size, media_type, created_at=now, touched_at=now)
        async with self._turn:
            new = await upload.keep(sha256)
            try:
                stored = partial(rows.store_blob, row=row, reader=caller)
                return await self._database.write(stored)
            except RequestTimeout:
                raise  # it may be committed; if not, the next start removes the content
            except PostroomError:
                if new:
                    await asyncio.to_thread(self._folder.remove, sha256)
                raise

    async def get(self, sha256: str, caller: str) -> BlobRow:
        """The blob with that hash.

        Raises:
            NotFound: there is none that the caller may read.
            RequestTimeout: whether it may is not known in time.
        """
        row = await self._readable(sha256, caller)
        if row is None and caller != rows.EVERYBODY:
            # The message that names it may have come sooner than its record was folded. Also where there is no such
            # blob, which must not be told from one of others by the time that the answer takes.
            try:
                await self._caught_up()
            except TimeoutError as error:
                raise RequestTimeout("the records of messages are not folded in time") from error
            row = await self._readable(sha256, caller)
        if row is None:
            raise _unknown()
        return row

    async def content(self, row: BlobRow) -> BinaryIO:
        """The content of a blob, open for reading; whoever asked closes it.

        Raises:
            NotFound: it has been removed.
        """
        file = await asyncio.to_thread(self._folder.read, row.sha256)
        if file is None:
            raise _unknown()
        return file

    async def largest(self, limit: int) -> list[BlobRow]:
        """Blobs, the largest first."""
        return await self._database.read(partial(rows.largest, limit=limit))

    async def remove(self, sha256: str) -> None:
        """Remove a blob, whoever names it."""
        async with self._turn:
            found = await self._database.write(partial(rows.forget, sha256=sha256))
            await asyncio.to_thread(self._folder.remove, sha256)
        if not found:
            raise _unknown()

    async def sweep(self) -> int:
        """Remove blobs that nothing names and nobody uploaded of late, at most `SWEPT`; returns how many."""
        before, removed = self._clock() - KEEP, 0
        while removed < SWEPT:
            old = await self._database.read(partial(rows.unnamed_before, before=before))
            for row in old:
                forget = partial(rows.forget_unnamed, sha256=row.sha256, before=before)
                async with self._turn:
                    if await self._database.write(forget):
                        await asyncio.to_thread(self._folder.remove, row.sha256)
                        removed += 1
            if len(old) < rows.PAGE:
                break
        return removed

    async def run(self) -> None:
        """Sweep every `INTERVAL` seconds until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL * random.uniform(0.9, 1.1))  # noqa: S311 (jitter)
            try:
                removed = await self.sweep()
            except PostroomError as error:
                _log.warning("old blobs could not be removed: %s", error)
            else:
                _log.info("%d blobs that nothing names were removed", removed)

    async def _readable(self, sha256: str, caller: str) -> BlobRow | None:
        if caller == rows.EVERYBODY:
            return await self._database.read(partial(rows.blob_by_hash, sha256=sha256))
        return await self._database.read(partial(rows.readable, sha256=sha256, uid=caller))

    @contextmanager
    def _upload(self, caller: str) -> Generator[None]:
        own = self._uploads[caller] >= UPLOADS_EACH and caller != rows.EVERYBODY
        if own or self._uploads.total() >= UPLOADS:
            raise Refused("too many uploads at once", remedy="try again in a moment")
        self._uploads[caller] += 1
        try:
            yield
        finally:
            self._uploads[caller] -= 1
            if not self._uploads[caller]:
                del self._uploads[caller]


async def pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """A content in chunks."""
    while data := await asyncio.to_thread(file.read, CHUNK):
        yield data


async def _fill(upload: Upload, chunks: AsyncIterable[bytes]) -> None:
    waiting = bytearray()
    async for data in chunks:
        waiting += data
        if len(waiting) >= CHUNK:
            await upload.write(bytes(waiting))
            waiting.clear()
    if waiting:
        await upload.write(bytes(waiting))


def _unknown() -> NotFound:
    return NotFound("there is no such blob that you may read")
