"""Commands and files of the workspace, for agents without a shell of their own.

Paths are relative to the workspace, and no link in them is followed: the sidecar opens the files, and the agent must
not see what procfs shows to the sidecar.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import signal
import stat
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from postroom.errors import Forbidden, InvalidInput, NotFound, RequestTimeout, StateUnwritable
from postroom.protocol.limits import MAX_ENTRIES, MAX_OUTPUT, MAX_PATH, MAX_READ
from postroom.protocol.verbs import RunCommand
from postroom.sidecar.process import AgentProcess
from postroom_a2a.text import one_line

FILE_TIMEOUT = 30.0
"""Seconds for a file operation."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command.

    Attributes:
        exit_code: 128 + N if signal N ended it.
        stdout, stderr: the first `MAX_OUTPUT` bytes of each; invalid UTF-8 became U+FFFD.
        timed_out: it was killed at the end of its time.
    """

    exit_code: int
    stdout: str
    stderr: str
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One name in a folder: `kind` is `file`, `folder`, `link` or `other`, `mode` the permission bits in octal."""

    name: str
    kind: str
    size: int
    mode: str


class Workstation(Protocol):
    """Runs the agent's commands and works on its files."""

    async def run(self, command: RunCommand) -> CommandResult:
        """Run a program, without standard input, to its end.

        Raises:
            InvalidInput: its folder is not one of the workspace, or it cannot be started.
        """
        ...

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes of a file from `offset`; b"" at its end."""
        ...

    async def write(self, path: str, content: bytes, mode: int) -> None:
        """Make or replace a file; makes its folders. Raises PostroomError."""
        ...

    async def entries(self, path: str) -> list[FolderEntry]:
        """The entries of a folder by name, at most `MAX_ENTRIES`. Raises as `read`."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content. Raises as `read`."""
        ...


class Captured:
    """The beginning of an output."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.truncated = False

    def add(self, data: bytes) -> None:
        """Keep `data` as far as there is room."""
        room = MAX_OUTPUT - len(self._kept)
        self._kept += data[:room]
        self.truncated = self.truncated or len(data) > room

    @property
    def text(self) -> str:
        """The beginning as text."""
        return self._kept.decode("utf-8", errors="replace")


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a path of the workspace, () for the workspace itself; raises InvalidInput."""
    names = tuple(name for name in path.split("/") if name not in {"", "."})
    if path.startswith("/") or ".." in names:
        raise InvalidInput(
            f"{one_line(path, 100)!r} is not a path in the workspace",
            remedy="use a path relative to the workspace, without '..'",
        )
    if "\0" in path or len(os.fsencode(path)) > MAX_PATH:
        raise InvalidInput(f"the path is longer than {MAX_PATH} bytes or has a NUL byte")
    return names


def named_file(path: str) -> tuple[str, ...]:
    """As `parts_of`, but the workspace itself is refused."""
    if not (parts := parts_of(path)):
        raise InvalidInput("the path is the workspace itself", remedy="name something in it")
    return parts


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncGenerator[None]:
    """A deadline; raises RequestTimeout when it has passed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RequestTimeout(f"{what} took over {seconds:g} s") from error


class LocalWorkstation(Workstation):
    """A `Workstation` of the sidecar's own processes and files."""

    def __init__(self, root: Path, env: Mapping[str, str]) -> None:
        self._root = root
        self._env = dict(env)

    async def run(self, command: RunCommand) -> CommandResult:
        """See `Workstation`. At the program's end the rest of its group is killed."""
        cwd = self._root.joinpath(*parts_of(command.cwd))
        if not await asyncio.to_thread(cwd.is_dir):
            raise InvalidInput(f"{one_line(command.cwd, 100)!r} is not a folder of the workspace")
        try:
            env = self._env | dict(command.env)
            process = await AgentProcess.start(command.words, env, str(cwd))
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else "it has a NUL byte"
            word = one_line(command.words[0], 100)
            raise InvalidInput(f"{word!r} cannot be started: {text}") from error
        out, err, timed_out = Captured(), Captured(), False
        try:
            process.input.close()
            async with asyncio.TaskGroup() as reading:
                reading.create_task(_keep(process.stdout, out))
                reading.create_task(_keep(process.stderr, err))
                try:
                    async with asyncio.timeout(command.timeout):
                        ended = await process.ended()
                except TimeoutError:
                    timed_out = True
                    process.send_signal(signal.SIGKILL)
                    ended = await process.ended()
                process.read_rest()
        finally:
            process.close()
        return CommandResult(
            ended.code, out.text, err.text, out.truncated, err.truncated, timed_out
        )

    async def read(self, path: str, offset: int, length: int) -> bytes:
        *folders, name = named_file(path)

        def read() -> bytes:
            with self._folder(folders) as folder:
                # O_NONBLOCK: the opening of a named pipe would wait.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(name, flags, dir_fd=folder)
                try:
                    if not stat.S_ISREG(os.fstat(file).st_mode):
                        raise InvalidInput(f"{one_line(path, 100)!r} is not a file")
                    return os.pread(file, min(length, MAX_READ), offset)
                finally:
                    os.close(file)

        return await _in_thread(path, read)

    async def write(self, path: str, content: bytes, mode: int) -> None:
        """See `Workstation`. The file appears as a whole or not at all."""
        *folders, name = named_file(path)

        def write() -> None:
            with self._folder(folders, make=True) as folder:
                new = f".{secrets.token_hex(8)}.new"
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                file = os.open(new, flags, 0o600, dir_fd=folder)
                try:
                    with os.fdopen(file, "wb") as opened:
                        opened.write(content)
                        os.fchmod(file, mode)
                    os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    with suppress(OSError):
                        os.unlink(new, dir_fd=folder)
                    raise

        await _in_thread(path, write)

    async def entries(self, path: str) -> list[FolderEntry]:
        parts = parts_of(path)

        def look() -> list[FolderEntry]:
            with self._folder(parts) as folder, os.scandir(folder) as found:
                return sorted(_first(map(_entry, found)), key=lambda entry: entry.name)

        return await _in_thread(path, look)

    async def remove(self, path: str) -> None:
        *folders, name = named_file(path)

        def remove() -> None:
            with self._folder(folders) as folder:
                if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                    shutil.rmtree(name, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)

        await _in_thread(path, remove)

    @contextmanager
    def _folder(self, parts: Sequence[str], *, make: bool = False) -> Generator[int]:
        """A descriptor of a folder, opened name by name: a path that was checked before could change in between."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(self._root, flags)
        try:
            for name in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


async def _keep(reader: asyncio.StreamReader, captured: Captured) -> None:
    while data := await reader.read(64 * 1024):
        captured.add(data)


async def _in_thread(path: str, work: Callable[[], _Result]) -> _Result:
    named = one_line(path or ".", 100)
    try:
        async with within(FILE_TIMEOUT, f"the work on {named!r}"):
            return await asyncio.to_thread(work)
    except FileNotFoundError as error:
        raise NotFound(f"the workspace has no {named!r}") from error
    except PermissionError as error:
        raise Forbidden(f"{named!r}: {error.strerror}") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise InvalidInput(f"{named!r}: {error.strerror}") from error
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}:
            raise InvalidInput(f"{named!r}: {error.strerror}") from error
        raise StateUnwritable(f"{named!r}: {error.strerror}") from error


def _first(entries: Iterator[FolderEntry]) -> list[FolderEntry]:
    return [entry for _, entry in zip(range(MAX_ENTRIES), entries, strict=False)]


def _entry(found: os.DirEntry[str]) -> FolderEntry:
    about = found.stat(follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(about.st_mode), "other")
    name = os.fsencode(found.name).decode("utf-8", errors="replace")
    return FolderEntry(name, kind, about.st_size, f"{stat.S_IMODE(about.st_mode):o}")
