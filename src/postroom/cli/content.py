"""What a person says with a command: a text, files, data, a subject, a thread. Files are uploaded first, as blobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from postroom.cli.arguments import text_argument
from postroom.cli.declaring import parameter, takes
from postroom.cli.waiting import SLOW
from postroom.errors import InvalidInput, MessageTooLarge
from postroom.protocol.limits import MAX_ENVELOPE_BYTES
from postroom_a2a import strict_json
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client

STEP = 1.0
"""Seconds between two words about an upload."""


@dataclass(frozen=True, slots=True)
class Given:
    """The options of `content_options` and `talk_options`, as a command got them."""

    files: tuple[str, ...]
    kind: str
    data: tuple[str, ...]
    subject: str = ""
    thread: str = ""

    @property
    def talk(self) -> dict[str, Any]:
        """Subject and thread, as fields of what is sent."""
        return {"subject": self.subject, "thread": self.thread}

    @property
    def parts(self) -> bool:
        """Whether anything but a text is to be said."""
        return bool(self.files or self.data)


content_options = takes(
    parameter(
        "--file files PATH: A file to send; repeatable.",
        type=click.Path(dir_okay=False, allow_dash=True),
        multiple=True,
    ),
    "--type kind T: Media type of the file; by its name if not given.",
    "--data JSON|@FILE...: A JSON value to send; repeatable.",
)
"""The options of `Given`, without those of `talk_options`."""

talk_options = takes(
    "--subject S: Subject, one line.", "--thread ID: Conversation that it belongs to."
)


def said(words: tuple[str, ...], given: Given) -> str:
    """The text: the words, or standard input for `-`; "" where files or data are said without words.

    Raises:
        click.UsageError: nothing is said, or standard input is asked for twice.
        MessageTooLarge: standard input holds more than a message can.
    """
    if given.kind and len(given.files) != 1:
        raise click.UsageError("--type is the media type of one --file")
    inputs = [word for word in (*given.files, *given.data) if word in ("-", "@-")]
    if len(inputs) + (words == ("-",)) > 1:
        raise click.UsageError("standard input can be read once only")
    # Without words nobody asked for standard input: it may be a pipe that never ends.
    return "" if given.parts and not words else text_argument(words)


def upload_parts(client: Client, given: Given) -> list[dict[str, Any]]:
    """The files and data as parts of a message; on return the files are stored as blobs.

    Raises:
        InvalidInput: a file cannot be read, or data is not JSON; nothing was uploaded before a fault of data.
    """
    data = [{"data": _json(word)} for word in given.data]
    return [*(upload(client, path, given.kind) for path in given.files), *data]


def upload(client: Client, path: str, kind: str = "") -> dict[str, Any]:
    """Store a file (`-` for standard input) as a blob; returns the part that names it."""
    from postroom.client.files import media_type_for
    from postroom.protocol.parts import file_name

    media_type = media_type_for(path, kind)
    with _opened(path) as file:
        named = "" if path == "-" else os.fsencode(Path(path).name).decode(errors="replace")
        said_so_far = Progress(file_name(named) or "standard input", _size(file))
        url = client.put_blob(file, media_type, moved=said_so_far.moved)
        said_so_far.end()
    part = {"url": url, "mediaType": media_type}
    return {**part, "filename": named} if named else part


class Progress:
    """Says on standard error how far an upload is, once it takes longer than `SLOW`.

    Args:
        size: bytes of the content, None where that is not known.
        clock: monotonic seconds.
    """

    def __init__(
        self, name: str, size: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._size = size
        self._clock = clock
        self._next = clock() + SLOW
        self._moved = 0
        self._changing = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    def moved(self, count: int) -> None:
        """So many more bytes went."""
        self._moved += count
        if self._clock() < self._next:
            return
        from postroom.view.words import size_of

        self._next = self._clock() + STEP
        of = f" of {size_of(self._size)}" if self._size else ""
        line = f"uploading {self._name}: {size_of(self._moved)}{of}"
        if self._changing:
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)
        elif not self._shown:  # a log needs no second line
            click.echo(line, err=True)
        self._shown = True

    def end(self) -> None:
        """Clear the line that changed."""
        if self._shown and self._changing:
            click.echo("\r\x1b[K", nl=False, err=True)


@contextmanager
def _opened(path: str) -> Generator[BinaryIO]:
    if path == "-":
        if sys.stdin is None:
            raise InvalidInput("there is no standard input")
        # Not `sys.stdin.buffer`, which has noted at the start whether it can be read twice.
        with open(sys.stdin.fileno(), "rb", closefd=False) as file:
            yield file
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InvalidInput(f"{one_line(path, 200)!r} cannot be read: {error.strerror}") from error
    with file:
        yield file


def _size(file: BinaryIO) -> int | None:
    """Bytes of a regular file."""
    if not file.seekable():
        return None
    return os.fstat(file.fileno()).st_size


def _json(word: str) -> Any:
    """The JSON value that `--data` names: itself, or in a file after `@`."""
    content, where = os.fsencode(word), "--data"
    if word.startswith("@"):
        where = word[1:]
        with _opened(where) as file:
            content = file.read(MAX_ENVELOPE_BYTES + 1)
    if len(content) > MAX_ENVELOPE_BYTES:
        raise MessageTooLarge(
            f"the data is over the limit of {MAX_ENVELOPE_BYTES} bytes",
            remedy="send it as a file: --file PATH",
        )
    try:
        return strict_json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{one_line(where, 200)!r} is not JSON: {error}",
            remedy="such as --data '{\"count\": 3}', or --data @FILE",
        ) from error
