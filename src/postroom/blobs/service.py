"""Takes and gives blobs: contents in files, readers in SQL (docs/architecture.md, Blobs).

An agent that may not read a blob gets the same answer as for a blob that does not exist. An upload of content that is
there already is received like any other. So only a reader can find out that the content is there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
)
from contextlib import contextmanager, suppress
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
"""Bytes of one write or read."""

UPLOADS = 32
UPLOADS_EACH = 4
"""Concurrent uploads: of all agents together, and of one agent."""

LONGEST = 3600.0
"""Seconds that one upload may take, however steady it is: nobody may occupy an upload slot for ever."""

KEEP = 7 * 86400.0
"""Seconds that a blob is kept after its last upload while no message and no task names it."""

INTERVAL = 3600.0
"""Seconds between two sweeps."""

SWEPT = 4096
"""The most blobs that one sweep removes."""

CaughtUp = Callable[[], Awaitable[None]]
"""Returns when all that is in the log now is folded. Raises `TimeoutError` if that takes too long."""

_log = get_logger(__name__)


class BlobService:
    """All blobs of a post room.

    A caller is an agent's uid, or `rows.EVERYBODY` for the operator. The operator reads every blob, and every agent
    may read the operator's uploads.

    Args:
        caught_up: waits for the fold, because an agent may ask for a blob before the message that names it is
            folded.
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
        # A content and its row are added and removed together.
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Remove what killed processes have left.

        Raises:
            StateUnwritable: the folder cannot be used.
        """
        known = await self._database.read(lambda store: store.blobs.all_sizes())
        await asyncio.to_thread(self._folder.open, known)

    async def there(self, sha256: str, caller: str) -> BlobRow | None:
        """The blob, if the caller could read it now. It then counts as uploaded again, and the caller need not send
        it.
        """
        async with self._turn:
            now = self._clock()
            row = await self._database.write(
                lambda store: store.blobs.touch_readable(sha256, caller, now)
            )
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

        After an error nothing of the content is left.

        Args:
            expected: SHA-256 that the content must have, "" for any.
            size: announced bytes, 0 where the size is not known.

        Raises:
            InvalidInput: the content has another hash.
            BlobTooLarge, BlobsFull, StateUnwritable: there is no room.
            Refused: too many uploads run at once.
            RequestTimeout: the upload took too long.
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
                return await self._database.write(lambda store: store.blobs.store_blob(row, caller))
            except RequestTimeout:
                raise  # perhaps committed; if not, the next start removes the content
            except PostroomError:
                if new:
                    await asyncio.to_thread(self._folder.remove, sha256)
                raise

    async def get(self, sha256: str, caller: str) -> BlobRow:
        """The blob with that hash.

        Raises:
            NotFound: the caller may read no such blob.
            RequestTimeout: the fold did not catch up in time.
        """
        row = await self._readable(sha256, caller)
        if row is None and caller != rows.EVERYBODY:
            # The message that names the blob may have arrived before its record was folded. Wait also where no such
            # blob exists: the time of an answer must not tell a missing blob from one of other agents.
            try:
                await self._caught_up()
            except TimeoutError as error:
                raise RequestTimeout(
                    "the post room is behind with its log; try again in a moment"
                ) from error
            row = await self._readable(sha256, caller)
        if row is None:
            raise _unknown()
        return row

    async def content(self, row: BlobRow) -> BinaryIO:
        """The content of a blob, open for reading; the caller closes it.

        Raises:
            NotFound: it has been removed.
        """
        file = await asyncio.to_thread(self._folder.read, row.sha256)
        if file is None:
            raise _unknown()
        return file

    async def give(self, hashes: Iterable[str], sender: str, other: BlobService) -> None:
        """Copy blobs to another organisation as uploads of `sender`, as far as `sender` may pass them on here.

        Raises:
            BlobsFull, Refused, StateUnwritable, RequestTimeout: perhaps not all were copied; give them again.
        """
        for sha256 in await self._database.read(lambda store: store.blobs.sizes([*hashes], sender)):
            if await other.there(sha256, sender) is not None:
                continue
            row = await self.get(sha256, rows.EVERYBODY)
            with suppress(NotFound), await self.content(row) as file:
                await other.take(
                    pieces(file), sender, row.media_type, expected=sha256, size=row.size
                )

    async def largest(self, limit: int, after: str = "") -> list[BlobRow]:
        """Blobs, the largest first; with `after` those that come after the blob with that hash."""
        return await self._database.read(lambda store: store.blobs.largest(limit, after))

    async def remove(self, sha256: str) -> None:
        """Remove a blob, even one that a message or a task names."""
        async with self._turn:
            found = await self._database.write(lambda store: store.blobs.forget(sha256=sha256))
            await asyncio.to_thread(self._folder.remove, sha256)
        if not found:
            raise _unknown()

    async def sweep(self) -> int:
        """Remove at most `SWEPT` blobs that nothing names and nobody uploaded within `KEEP`; returns how many."""
        before, removed = self._clock() - KEEP, 0
        while removed < SWEPT:
            old = await self._database.read(lambda store: store.blobs.unnamed_before(before=before))
            for row in old:
                async with self._turn:
                    if await self._database.write(
                        lambda store, sha256=row.sha256: store.blobs.forget_unnamed(sha256, before)
                    ):
                        await asyncio.to_thread(self._folder.remove, row.sha256)
                        removed += 1
            if len(old) < rows.PAGE:
                break
        _log.info("%d blobs that nothing names were removed", removed)
        return removed

    async def _readable(self, sha256: str, caller: str) -> BlobRow | None:
        if caller == rows.EVERYBODY:
            return await self._database.read(lambda store: store.blobs.blob_by_hash(sha256=sha256))
        return await self._database.read(
            lambda store: store.blobs.readable(sha256=sha256, uid=caller)
        )

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
