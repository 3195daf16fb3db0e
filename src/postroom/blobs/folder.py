"""The contents of blobs as files: `<first two hex digits>/<sha256>`, and `new/` for uploads.

A file gets its name only when it is whole and on disk. A file in `new/` at a start is left over from a killed process
and is removed. Everything here blocks; `Upload` does its work in threads.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from postroom.disk import check_space, sync
from postroom.errors import BlobsFull, BlobTooLarge, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.blobs import SHA256

BLOCK = 4096
"""Bytes that even the smallest blob counts for: it takes a block of the disk."""

RESERVE = 16 * 1024 * 1024
"""Bytes of the disk that blobs leave free for the log."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = get_logger(__name__)

T = TypeVar("T")


class BlobFolder:
    """Files by hash, within bounds.

    Args:
        largest: bytes of one blob.
        most: bytes of all blobs together.
    """

    def __init__(self, folder: Path, *, largest: int, most: int) -> None:
        self.largest = largest
        self._folder = folder
        self._most = most
        self._used = 0

    def open(self, known: Mapping[str, int]) -> None:
        """Make the folder, and remove every content that is not in `known` (hash to bytes).

        Raises:
            StateUnwritable: the folder cannot be made or read.
        """
        with typed_faults():
            self._new.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self._new.iterdir():
                left.unlink()
            self._used = 0
            for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
                if known.get(path.name) == path.stat().st_size:
                    self._used += _charge(known[path.name])
                else:
                    _log.warning("removing %s, which is no blob that is known", path.name[:80])
                    path.unlink()

    @property
    def used(self) -> int:
        """Bytes that blobs and uploads take now."""
        return self._used

    def check_room(self, size: int) -> None:
        """Refuse a blob of `size` bytes that would not fit now.

        Raises:
            BlobTooLarge: no blob may have that size.
            BlobsFull: the blobs together would have too many bytes.
            StateUnwritable: the disk is full.
        """
        if size > self.largest:
            raise BlobTooLarge(f"a blob has at most {self.largest} bytes")
        self._check_bounds(_charge(size))

    def _check_bounds(self, more: int) -> None:
        if self._used + more > self._most:
            raise BlobsFull(
                f"all blobs together have at most {self._most} bytes, and there is no room for it",
                remedy="the operator can remove some: postroom blob list",
            )
        check_space(self._folder, RESERVE + more)

    def upload(self) -> Upload:
        """A context manager with a new file; on exit the file is removed unless it was kept."""
        return Upload(self)

    def read(self, sha256: str) -> BinaryIO | None:
        """The content, open for reading; None if it is not there."""
        with typed_faults():
            try:
                return self.path(sha256).open("rb")
            except FileNotFoundError:
                return None

    def has(self, sha256: str, size: int) -> bool:
        """Whether the content is there, whole."""
        with typed_faults():
            try:
                return self.path(sha256).stat().st_size == size
            except FileNotFoundError:
                return False

    def remove(self, sha256: str) -> None:
        """Remove a content, if it is there."""
        path = self.path(sha256)
        with typed_faults():
            try:
                size = path.stat().st_size
                path.unlink()
            except FileNotFoundError:
                return
        self._used -= _charge(size)

    def path(self, sha256: str) -> Path:
        """The place of the content with that hash, whether or not it is there."""
        if SHA256.fullmatch(sha256) is None:
            raise ValueError("a blob's path needs its SHA-256 in 64 hexadecimal digits")
        return self._folder / sha256[:2] / sha256

    @property
    def _new(self) -> Path:
        return self._folder / "new"

    # ── for uploads ──

    def _create(self) -> tuple[Path, int]:
        path = self._new / secrets.token_hex(16)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return path, os.open(path, flags, 0o600)

    def _reserve(self, more: int) -> None:
        self._check_bounds(more)
        self._used += more

    def _release(self, charged: int) -> None:
        self._used -= charged

    def _place(self, upload: Path, sha256: str) -> bool:
        """Give a whole upload its name; False if the content was there already. On disk on return.

        Both cases do the same work, so that the time of an answer does not tell them apart.
        """
        path = self.path(sha256)
        new = not self.has(sha256, upload.stat().st_size)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        upload.replace(path)
        for folder in (path.parent, self._folder):
            sync(folder)
        return new


class Upload:
    """Content on its way in.

    Attributes:
        size: bytes so far.
    """

    def __init__(self, folder: BlobFolder) -> None:
        self.size = 0
        self._folder = folder
        self._hash = hashlib.sha256()
        self._path = Path()
        self._file = -1
        self._charged = 0
        self._kept = False

    async def __aenter__(self) -> Self:
        self._charge_for(1)
        try:
            with typed_faults():
                self._path, self._file = self._folder._create()  # noqa: SLF001 (its own upload)
        except BaseException:
            self._release()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(OSError):
            os.close(self._file)
        if not self._kept:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._release()

    async def write(self, data: bytes) -> None:
        """Add `data`.

        Raises:
            BlobTooLarge, BlobsFull, StateUnwritable: there is no room for it.
        """
        self._charge_for(self.size + len(data))
        await _in_thread(self._write, data)
        self.size += len(data)

    async def flush(self) -> str:
        """Write everything to the disk; returns its SHA-256.

        Raises:
            StateUnwritable: the disk failed or is full.
        """
        await _in_thread(os.fsync, self._file)
        return self._hash.hexdigest()

    async def keep(self, sha256: str) -> bool:
        """Give the content its name, the hash that `flush` returned; False if it was there already.

        Raises:
            StateUnwritable: the disk failed or is full.
        """
        new = await _in_thread(self._folder._place, self._path, sha256)  # noqa: SLF001
        self._kept = True
        if not new:
            self._release()
        return new

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _charge_for(self, size: int) -> None:
        if size > self._folder.largest:
            raise BlobTooLarge(f"a blob has at most {self._folder.largest} bytes")
        if (more := _charge(size) - self._charged) > 0:
            self._folder._reserve(more)  # noqa: SLF001
            self._charged += more

    def _release(self) -> None:
        self._folder._release(self._charged)  # noqa: SLF001
        self._charged = 0


def _charge(size: int) -> int:
    return max(BLOCK, -(-size // BLOCK) * BLOCK)


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run blocking work to its end even when the caller is cancelled, because the work uses a file descriptor."""
    running = asyncio.get_running_loop().run_in_executor(None, partial(_typed, work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _typed(work: Callable[..., T], *arguments: Any) -> T:
    with typed_faults():
        return work(*arguments)


@contextmanager
def typed_faults() -> Generator[None]:
    """Turn disk faults into `StateUnwritable`."""
    try:
        yield
    except OSError as error:
        what = "the disk is full" if error.errno in _FULL else f"the disk: {error.strerror}"
        raise StateUnwritable(
            f"{what}; the blob was not stored",
            remedy="free space on the disk of the state folder, then upload the blob again",
        ) from error
