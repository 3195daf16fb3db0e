"""`postroom audit`."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import answers, parameter
from postroom.cli.options import connect
from postroom.errors import PostroomError
from postroom.lines.frames import frame_words
from postroom.lines.text import Cell, columns, shortened
from postroom.protocol.audit import API, DENIED, SERVER
from postroom.protocol.limits import MAX_LINES
from postroom.view.tasks import short
from postroom.view.words import clock
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client


NEWEST = 100
"""Records that are shown where neither a number nor a time is given."""


@click.command("audit")
@answers(
    "--follow -f: Go on with what comes.",
    "--worker @NICK: Those of one agent (nick or uid).",
    "--task ID: About a task, or caused by it.",
    "--since TIME: 10m, 2h, 3d, or an RFC 3339 time.",
    "--all plumbing: Also beats, pulls, acknowledgements and answers of the bus.",
    "--raw: Frames of the bus as they are, not in words.",
    "--denied: What was refused alone.",
    parameter(
        f"--limit -n N: The last N; 0 for all. Without it {NEWEST}, or with --since all.",
        type=click.IntRange(0, MAX_LINES),
    ),
)
def command(
    since: str, raw: bool, denied: bool, limit: int | None, as_json: bool, **asked: Any
) -> None:
    """Show what passed the gateway, or was refused, and what people changed over the API, oldest first.

    What carries them is counted and not shown (--all shows it).
    --raw shows the frames of the bus themselves. With --json each record is one line of JSON,
    and the count goes to standard error.
    """
    if limit is None:
        limit = 0 if since else NEWEST
    with connect() as client:
        records = client.audit(since=since, denied=denied, limit=limit, **asked)
        lines, shown = AuditLines(client, raw=raw), 0
        for record in records:
            if (omitted := record.get("omitted")) is not None:
                click.echo(f"… {int(omitted)} lines of plumbing not shown (--all)", err=as_json)
                continue
            shown += 1
            click.echo(json.dumps(record, ensure_ascii=True) if as_json else lines.line(record))
        if not shown and not as_json:
            click.echo("nothing was denied" if denied else "no records")


_UID = re.compile(r"[0-9a-f]{32}")
_LONGEST = 400
REFRESH = 5.0
"""Seconds between two requests for the names of agents."""

_WIDTHS = (8, 10, 3, 11, 8)
"""Columns for time, worker, direction, act and size; the rest of 80 is for the object of the act."""

INDENT = " " * 10
LEAST = 20
"""The least columns for the object of the act in any terminal."""


class AuditLines:
    """Formats audit records."""

    def __init__(self, client: Client, *, raw: bool = False) -> None:
        self._client = client
        self._raw = raw
        self._nicks: dict[str, str] = {}
        self._asked = float("-inf")
        narrow = sys.stdout is not None and sys.stdout.isatty()
        self._columns = shutil.get_terminal_size().columns if narrow else 0

    def line(self, record: dict[str, Any]) -> str:
        """`record` on one line and, in a terminal, below it the reason of a denial. No character of it acts on the
        terminal.
        """
        said = {name: one_line(str(value), _LONGEST) for name, value in record.items()}
        denied = said.get("verdict") == DENIED
        if words := self._words(said):
            return self._sentence(said, words, _size(record.get("size")).strip(), denied=denied)
        cells = (
            _clock(said.get("at", "")),
            f"@{said.get('nick', '')}"
            if said.get("by") == API
            else self._name(said.get("worker", "")),
            said.get("direction", ""),
            _act(said),
            _size(record.get("size")),
        )
        # An earlier day makes its line longer: the time is never cut.
        widths = (max(_WIDTHS[0], len(cells[0])), *_WIDTHS[1:])
        head = " ".join(Cell(c).padded(width) for c, width in zip(cells, widths, strict=True))
        why = f"DENIED: {said.get('reason', '')}" if denied else ""
        rest = [part for part in self._rest(said, denied=denied) if part]
        if not self._columns:
            line = f"{head}  {'  '.join(([why] if denied else []) + rest)}".rstrip()
        else:
            room = max(LEAST, self._columns - columns(head) - 2)
            line = f"{head}  {shortened('  '.join(rest), room)}".rstrip()
            line = "\n".join([line, *_wrapped(why, self._columns)])
        return click.style(line, fg="red") if denied else line

    def _words(self, said: dict[str, str]) -> str:
        if self._raw or said.get("protocol") != "nats":
            return ""
        return frame_words(
            said.get("verb", ""),
            said.get("subject", ""),
            said.get("worker", ""),
            self._name,
            direction=said.get("direction", ""),
            verdict=said.get("verdict", ""),
        )

    def _sentence(self, said: dict[str, str], words: str, size: str, *, denied: bool) -> str:
        head = f"{_clock(said.get('at', ''))} {self._name(said.get('worker', ''))} {words}"
        why = f"refused: {said.get('reason', '')}" if denied else ""
        rest = [part for part in [size, *self._rest(said, denied=denied)[1:]] if part]
        if not self._columns:
            line = "  ".join([head, *([why] if why else []), *rest])
        else:
            line = shortened("  ".join([head, *rest]), max(LEAST, self._columns))
            line = "\n".join([line, *_wrapped(why, self._columns)])
        return click.style(line, fg="red") if denied else line

    def _rest(self, said: dict[str, str], *, denied: bool) -> list[str]:
        what = said.get("url") or _UID.sub(
            lambda found: self._name(found[0]), said.get("subject", "")
        )
        reason = said.get("reason", "")
        task, cause = said.get("task", ""), said.get("cause_task", "")
        message = said.get("cause_message", "")
        exact = "for" if said.get("cause_exact") == "True" else "perhaps for"
        return [
            what,
            said.get("status", ""),
            f"worker {self._name(said['worker'])}"
            if said.get("by") == API and "worker" in said
            else "",
            f"made {short(said['about'])}" if "about" in said else "",
            "" if denied else reason,
            f"task {short(task)}" if task else "",
            f"{exact} task {short(cause)}" if cause else "",
            f"{exact} message {message}" if message and not cause else "",
            f"message {short(said['message'])}"
            if said.get("by") == API and "message" in said
            else "",
            "(seen by the server)" if said.get("by") == SERVER else "",
        ]

    def _name(self, uid: str) -> str:
        """`@nick`, or the first digits of a uid without a nick."""
        if not _UID.fullmatch(uid):
            return uid
        if uid not in self._nicks and time.monotonic() - self._asked > REFRESH:
            self._ask()
        nick = self._nicks.get(uid, "")
        return f"@{one_line(nick, 40)}" if nick else uid[:8]

    def _ask(self) -> None:
        self._asked = time.monotonic()
        try:
            self._nicks.update((agent["uid"], agent["nick"]) for agent in self._client.agents())
        except PostroomError:
            return  # the records are shown all the same


def _clock(at: str) -> str:
    try:
        return clock(at, time.time())
    except PostroomError:
        return at


def _act(said: dict[str, str]) -> str:
    protocol, verb = said.get("protocol", ""), said.get("verb", "")
    return verb if protocol in {"nats", ""} else f"{protocol} {verb}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT)


def _size(size: object) -> str:
    return f"{size:>6} B" if isinstance(size, int) and size else ""
