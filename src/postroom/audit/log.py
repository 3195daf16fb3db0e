"""Appends whole lines to the audit log, and reports when it cannot; `Alarm` tells people of it, once for each time.

`write` is in the way of every byte that passes the gateway, so it is one system call. Once a second `run` syncs what
was written, in a thread; it also deletes the oldest files and notices when the disk has space again. All methods are
called in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from postroom.audit.reading import Files, Position
from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.audit import ALLOWED, DENIED, AuditRecord
from postroom_a2a.times import format_time

log = get_logger(__name__)

SYNC_INTERVAL = 1.0
"""Seconds after which a line is on the disk: a power failure can take that much."""

EXPIRY_INTERVAL = 3600.0
"""Seconds between two looks for closed files that are too old."""

ROTATION_RETRY = 1024 * 1024
"""Bytes that a file which could not be closed still takes before the next try."""

KIND = "audit-unwritable"

PAUSE = 60.0
"""Seconds between two alerts: a disk that is full to the last byte takes a line now and then."""


@dataclass(slots=True)
class Trouble:
    """Why the log cannot be written.

    Attributes:
        reason: the words of the operating system.
        records: how many could not be written.
        acts: how many of them say what people did, which nothing waits for.
        unsynced: written data did not reach the disk; nothing is written until it does.
    """

    reason: str
    since: float
    records: int = 0
    acts: int = 0
    unsynced: bool = False


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A closed file: its number, its bytes, and when its last line was written."""

    number: int
    size: int
    written_at: float


class AuditLog:
    """The audit log of a post room; implements `AuditSink`.

    Args:
        path: of the current file; closed ones lie beside it.
        file_bytes: size at which a file is closed.
        files: closed ones that are kept, at least 1.
        keep: seconds that a closed one is kept after its last line, None for ever.
        lossy: a record that cannot be written is counted, and its traffic passes nevertheless.
    """

    def __init__(
        self,
        path: Path,
        *,
        file_bytes: int = 64 * 1024 * 1024,
        files: int = 64,
        keep: float | None = None,
        lossy: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.files = Files(path)
        self.lossy = lossy
        self.trouble: Trouble | None = None
        self._clock = clock
        self._limit = self._file_bytes = file_bytes
        self._most = max(1, files)
        self._keep = keep
        self._look_again = 0.0  # for files that are too old
        self._grown: asyncio.Future[None] | None = None
        self._turned: asyncio.Future[None] | None = None
        self._syncing = threading.Lock()
        self._closed = False
        self._retired: list[int] = []
        self._crowded = True  # an earlier process may have been killed before it deleted
        try:
            self._descriptor = self.files.append()
        except OSError as error:
            raise self._unwritable(error.strerror) from error
        self._number = self.files.number()
        self._size = os.fstat(self._descriptor).st_size
        self._synced = Position(self._number, self._size)
        # A line that an earlier process left unfinished gets its break first.
        self._torn = self._ends_torn()
        if lossy:
            log.warning("THE AUDIT LOG IS LOSSY: what cannot be recorded passes nevertheless")
            self._note("lossy", "from here on what cannot be recorded passes nevertheless")

    @property
    def end(self) -> Position:
        """The position behind the last line; nothing before it is ever taken back."""
        return Position(self._number, self._size)

    def growth(self) -> asyncio.Future[None]:
        """Done at the next write; wait for it with `asyncio.wait`, since others share it."""
        if self._grown is None:
            self._grown = asyncio.get_running_loop().create_future()
        return self._grown

    def turn(self) -> asyncio.Future[None]:
        """Done when trouble begins or ends; wait for it with `asyncio.wait`, since others share it."""
        if self._turned is None:
            self._turned = asyncio.get_running_loop().create_future()
        return self._turned

    # Writing.

    def write(self, lines: bytes) -> None:
        """See `AuditSink.write`; a write that is cut short leaves nothing behind."""
        if self.trouble is not None or self._torn:
            self._write_again(lines)
            return
        try:
            written = os.write(self._descriptor, lines)
        except OSError as error:
            self._refuse(lines, error.strerror)
            return
        self._size += written
        if written != len(lines):
            self._take_back(written)
            self._refuse(lines, "No space left for whole lines")
            return
        if self._grown is not None:
            self._grown = _done(self._grown)
        if self._size >= self._limit:
            self._rotate()

    def note(self, line: bytes) -> None:
        """Write a line about what a person has done already; where that fails, it is counted, and nothing is raised."""
        try:
            self.write(line)
        except StateUnwritable:
            if self.trouble is not None:
                self.trouble.acts += 1

    def _write_again(self, lines: bytes) -> None:
        """Write `lines` after trouble, or behind a torn line."""
        trouble = self.trouble
        if trouble is not None and trouble.unsynced:
            self._refuse(lines, trouble.reason)
            return
        data = b"\n" * self._torn + (self._gap_record(trouble) if trouble else b"") + lines
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._refuse(lines, error.strerror)
            return
        self._size += written
        if written != len(data):
            self._take_back(written)
            self._refuse(lines, "No space left for whole lines")
            return
        self._torn, self.trouble = False, None
        if trouble is not None:
            log.warning("the audit log can be written again")
            self._turned = _done(self._turned)
        self._grown = _done(self._grown)

    def _gap_record(self, trouble: Trouble) -> bytes:
        """The first record after trouble: how many are missing, and what became of their traffic."""
        fate = "passed unrecorded" if self.lossy else "was not let through"
        records = f"{trouble.records} record{'s' * (trouble.records != 1)}"
        acts = (
            f"; {trouble.acts} of them are about people, who were let act" if trouble.acts else ""
        )
        return AuditRecord(
            at=format_time(self._clock()),
            verb="lost",
            verdict=ALLOWED if self.lossy else DENIED,
            reason=f"{records} could not be written since {format_time(trouble.since)}"
            f" ({trouble.reason}); their traffic {fate}{acts}",
        ).encode()

    def _take_back(self, written: int) -> None:
        try:
            os.ftruncate(self._descriptor, self._size - written)
        except OSError as error:
            log.error("a torn line stays in the audit log: %s", error)
            self._torn = True
        else:
            self._size -= written

    def _refuse(self, lines: bytes, why: str | None) -> None:
        self._fail(why)
        if self.trouble is not None:
            self.trouble.records += lines.count(b"\n")
        if not self.lossy and lines:
            raise self._unwritable(why)

    def _fail(self, why: str | None, *, unsynced: bool = False) -> None:
        if self.trouble is not None:
            self.trouble.unsynced |= unsynced
            return
        self.trouble = Trouble(why or "unknown error", self._clock(), unsynced=unsynced)
        what = "TRAFFIC GOES ON UNRECORDED" if self.lossy else "nothing passes the gateway"
        log.error("the audit log cannot be written, %s: %s", what, why)
        self._turned = _done(self._turned)

    def _unwritable(self, why: str | None) -> StateUnwritable:
        return StateUnwritable(
            f"cannot write the audit log {self.files.path}: {why}", remedy="free space on its disk"
        )

    def _note(self, verb: str, reason: str, size: int = 0) -> None:
        record = AuditRecord(at=format_time(self._clock()), verb=verb, reason=reason, size=size)
        self.write(record.encode())

    def _ends_torn(self) -> bool:
        if not self._size or not self.files.path.is_file():
            return False
        with self.files.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    # Rotation.

    def _rotate(self) -> None:
        try:
            descriptor = self.files.rotate(self._number)
        except OSError as error:
            log.error("cannot begin a new file of the audit log: %s", error)
            self._limit = self._size + ROTATION_RETRY
            return
        self._retired.append(self._descriptor)
        self._descriptor = descriptor
        self._number += 1
        self._size = 0
        self._torn = False
        self._limit = self._file_bytes
        self._crowded = True

    async def _delete_oldest(self) -> None:
        """Delete the files above the limit, and those that are too old, each after a line that says so."""
        due = self._keep is not None and self._clock() >= self._look_again
        if not self._crowded and not due:
            return
        self._crowded = False  # a line written below may close a file and set it again
        for number in self.files.closed()[: -self._most]:
            if not await self._delete(number, f"over {self._most} closed files"):
                return
        if self._keep is None:
            return
        self._look_again = self._clock() + EXPIRY_INTERVAL
        for old in self.too_old():
            if not await self._delete(old.number, f"older than {self._keep / 86400:.0f} days"):
                return

    def too_old(self) -> list[ClosedFile]:
        """The closed files whose last line is older than what is kept, the oldest first."""
        found: list[ClosedFile] = []
        for number in self.files.closed() if self._keep is not None else ():
            with suppress(FileNotFoundError):
                about = self.files.closed_path(number).stat()
                if about.st_mtime >= self._clock() - (self._keep or 0):
                    break
                found.append(ClosedFile(number, about.st_size, about.st_mtime))
        return found

    async def delete_too_old(self) -> list[ClosedFile]:
        """Delete those now; returns what they were."""
        found = self.too_old()
        self._look_again = 0.0
        await self._delete_oldest()
        return found

    async def _delete(self, number: int, why: str) -> bool:
        """Delete a closed file; False if it could not be, and it is tried again."""
        path = self.files.closed_path(number)
        try:
            size = path.stat().st_size
            self._note("delete", f"{path.name}: {why}", size)
            await asyncio.to_thread(path.unlink, missing_ok=True)
        except (OSError, StateUnwritable) as error:
            log.error("cannot delete a file of the audit log: %s", error)
            self._crowded = True
            return False
        return True

    # The disk.

    async def run(self) -> None:
        """Sync the log and delete old files, until cancelled."""
        while True:
            if self.trouble is None and self._synced == self.end and not self._crowded:
                await asyncio.wait(
                    {self.growth(), self.turn()},
                    timeout=None if self._keep is None else EXPIRY_INTERVAL,
                    return_when="FIRST_COMPLETED",
                )
            await asyncio.sleep(SYNC_INTERVAL)
            await self.tend()
            well()

    async def tend(self) -> None:
        """One round of `run`."""
        end = self.end
        if self.trouble is not None or self._synced != end:
            why = await asyncio.to_thread(self._sync)
            if why:
                self._fail(why, unsynced=True)
                return
            self._synced = end
        self._find_removed()
        if self.trouble is not None:
            self.trouble.unsynced = False
            self._write_again(b"")
        if self.trouble is None:
            await self._delete_oldest()

    def _sync(self) -> str:
        """Sync everything that was written; returns why it failed, or ""."""
        with self._syncing:
            if self._closed:
                return ""
            retired = list(self._retired)
            try:
                for descriptor in (*retired, self._descriptor):
                    _sync(descriptor)
                if retired:
                    self.files.sync_folder()
            except OSError as error:
                return f"fsync: {error.strerror}"
            for descriptor in retired:
                self._retired.remove(descriptor)
                os.close(descriptor)
            return ""

    def _find_removed(self) -> None:
        """Begin a new file where the current one was removed or replaced under us."""
        path, mine = self.files.path, os.fstat(self._descriptor)
        try:
            there = path.stat()
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                return
        except OSError as error:
            log.error("the file of the audit log is gone: %s", error)
        try:
            descriptor = self.files.append()
        except OSError as error:
            self._fail(error.strerror, unsynced=True)
            return
        self._retired.append(self._descriptor)
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._torn = self._ends_torn()
        self._fail("its file was removed")

    def close(self) -> None:
        """Sync everything and close the files."""
        why = self._sync()
        if why:
            log.error("the end of the audit log may not be on the disk: %s", why)
        with self._syncing:
            self._closed = True
            for descriptor in (*self._retired, self._descriptor):
                os.close(descriptor)
            self._retired = []


def _done(waited: asyncio.Future[None] | None) -> None:
    if waited is not None and not waited.done():
        waited.set_result(None)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a pipe or a terminal cannot be synced
            raise


def trouble_of(log: AuditLog) -> str:
    """Why `log` cannot be written now, "" if it can."""
    if log.trouble is None:
        return ""
    fate = "traffic goes on unrecorded" if log.lossy else "nothing passes the gateway"
    return f"the audit log cannot be written, {fate}: {log.trouble.reason}"


class Alarm:
    """Raises the alerts; one that the bus cannot take waits until it can.

    Args:
        tell: raises and ends alerts; raises an error where that is to be tried again.
        space: raises `StateUnwritable` while the disk of the bus is full: writing then would break its stream.
    """

    def __init__(self, log: AuditLog, tell: RaiseAlert, space: Callable[[], None]) -> None:
        self._log = log
        self._tell = tell
        self._space = space
        self._untold = ""
        self._stands = True  # an alert may be left from an earlier process

    async def run(self) -> None:
        """Watch the log until cancelled."""
        while True:
            if not self._untold:
                await self._over()
                while not (text := trouble_of(self._log)):
                    await asyncio.wait({self._log.turn()})
                self._untold = text
            self._space()
            await self._tell(Alert(KIND, self._untold))
            self._untold, self._stands = "", True
            well()
            while self._log.trouble is not None:
                await asyncio.wait({self._log.turn()})
            await self._over()
            await asyncio.sleep(PAUSE)

    async def _over(self) -> None:
        if self._stands and self._log.trouble is None:
            await self._tell(Alert(KIND, ""))
            self._stands = False
        well()
