"""`postroom logs`: the agent's output, apart from its sidecar's own lines.

A worker writes its log itself, so the log is untrusted data: a link or a pipe in its place is refused, and no line of
it acts on a terminal. The sidecar puts a prefix before each line of the agent, which tells the source.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import click

from postroom.cli.completion import agents
from postroom.cli.declaring import answers, number_option, parameter
from postroom.cli.options import chosen_org, connect, state_folder
from postroom.cli.output import print_json, terminal_width
from postroom.errors import NotFound
from postroom.view.words import clock
from postroom_a2a.text import printable
from postroom_a2a.times import format_time

LOUD = frozenset({"WARNING", "ERROR", "CRITICAL"})
"""Levels of a sidecar's own lines that are shown beside the agent's output."""


@click.command("logs")
@answers(
    parameter("nick", shell_complete=agents),
    number_option("--lines -l N: How many to begin with.", click.IntRange(1, 100_000), 100),
    "--follow -f: Go on with what comes, until Ctrl-C.",
    "--times -t: Say when and where each line was printed.",
    "--all everything: Also what the worker's sidecar logs.",
)
def command(
    nick: str, lines: int, follow: bool, times: bool, everything: bool, as_json: bool
) -> None:
    """Show what the agent of the worker NICK (or uid) printed, as it printed it.

    Warnings of its sidecar go to standard error. Local times are shown on a terminal, or with --times. For a uid no
    post room needs to be running. With --follow each line is a JSON object if --json is given.
    """

    def wanted(line: LogLine) -> bool:
        return everything or line.source != SIDECAR or line.level in LOUD

    uid = _uid(nick)
    found = read_log(_workers() / uid / "log", lines, wanted, follow=follow)
    if as_json:
        _print_json(uid, found, follow=follow)
        return
    times = times or everything or terminal_width() is not None
    empty = True
    for line in found:
        empty = False
        beside = line.source == SIDECAR and not everything
        click.echo(_shown(line, times=times or beside), err=beside)
    if empty:
        click.echo("nothing was printed", err=True)


def _print_json(uid: str, found: Iterator[LogLine], *, follow: bool) -> None:
    if follow:
        for line in found:
            click.echo(json.dumps(_record(line), ensure_ascii=True))
        return
    entries = [_record(line) for line in found]
    print_json({"uid": uid, "lines": [entry["text"] for entry in entries], "entries": entries})


def _record(line: LogLine) -> dict[str, str | None]:
    return {"at": line.at, "source": line.source, "text": line.text}


def _shown(line: LogLine, *, times: bool) -> str:
    if not times:
        return line.text
    when = clock(line.at, time.time()) if line.at is not None else " " * 8
    mark = {"stdout": "out", "stderr": "err", "sidecar": "***"}.get(line.source, "   ")
    return f"{click.style(f'{when} {mark}|', dim=True)} {line.text}"


def _workers() -> Path:
    from postroom.settings import DEFAULT_ORG, Settings

    return Settings(state=state_folder()).for_org(chosen_org() or DEFAULT_ORG).workers


def _uid(ref: str) -> str:
    from postroom.protocol.ids import UID, check_uid

    if UID.fullmatch(ref):
        return ref
    with connect() as client:
        return check_uid(client.worker(ref)["uid"])


LOOK = 0.2
"""Seconds between two checks for new lines; not every system reports a change of a file."""

SIDECAR = "sidecar"
REFUSED = "agent action refused"
"""Beginning of the sidecar's line about an action that it refused: the agent's author has to see it."""

_LOGGED = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}) ([A-Z]+) postroom(?:\.[a-z0-9_]+)* (.*)"
)
_PRINTED = re.compile(r"agent (stdout|stderr|over-long line): ?(.*)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log.

    Attributes:
        at: RFC 3339; None if that is not known.
        source: `stdout`, `stderr`, `over-long line`, `sidecar`, or "" for another writer, such as the sandbox.
        level: of the sidecar's own lines, "" for others.
    """

    at: str | None
    source: str
    text: str
    level: str = ""


Wanted = Callable[[LogLine], bool]


def read_line(raw: bytes) -> LogLine:
    """A line from its bytes in the file."""
    text = printable(raw.decode(errors="replace").rstrip("\r\n"))
    if (logged := _LOGGED.fullmatch(text)) is None:
        return LogLine(None, "", text)
    try:
        at = format_time(datetime.strptime(logged[1], "%Y-%m-%dT%H:%M:%S%z").timestamp())
    except ValueError:
        at = None
    if printed := _PRINTED.fullmatch(logged[3]):
        return LogLine(at, printed[1], printed[2])
    level = "WARNING" if logged[3].startswith(REFUSED) else logged[2]
    return LogLine(at, SIDECAR, logged[3], level)


def read_log(path: Path, count: int, wanted: Wanted, *, follow: bool) -> Iterator[LogLine]:
    """The last `count` lines that are `wanted`, those of the rotated file too; with `follow` also every later line."""
    file = _open(path)
    try:
        found: deque[LogLine] = deque(maxlen=count)
        with contextlib.suppress(NotFound), _open(path.with_name(f"{path.name}.1")) as former:
            found.extend(filter(wanted, map(read_line, former)))
        begun = b""
        for raw in file:
            if follow and not raw.endswith(b"\n"):
                begun = raw  # an incomplete line
            elif wanted(line := read_line(raw)):
                found.append(line)
        yield from found
        while follow:
            chunk = file.read()
            if not chunk:
                time.sleep(LOOK)
                later = _replaced(path, file)
                chunk = file.read()
                if later is not None and not chunk:
                    file.close()
                    file = later
            *lines, begun = (begun + chunk).split(b"\n")
            yield from filter(wanted, map(read_line, lines))
    finally:
        file.close()


def _replaced(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The file at `path`, if it is no longer `file`."""
    try:
        later = _open(path)
    except NotFound:
        return None
    if os.path.sameopenfile(later.fileno(), file.fileno()):
        later.close()
        return None
    return later


def _open(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"no log at {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotFound(f"no log at {path}: not a file")
    return os.fdopen(descriptor, "rb")
