"""One line for each record of the audit log, with names in the place of uids."""

from __future__ import annotations

import re
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.output import Cell, clock
from postroom.cli.tasks.lines import short
from postroom.errors import PostroomError
from postroom.protocol.audit import DENIED, SERVER
from postroom.protocol.text import one_line
from postroom.protocol.times import parse_time

if TYPE_CHECKING:
    from postroom.client.http import Client

_UID = re.compile(r"[0-9a-f]{32}")
_LONGEST = 400
REFRESH = 5.0
"""Seconds between two questions for the names of agents."""

_WIDTHS = {"at": 16, "who": 14, "protocol": 6, "way": 3, "verb": 7, "size": 9}


class Lines:
    """Makes lines.

    Args:
        client: to ask for nicks.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nicks: dict[str, str] = {}
        self._asked = float("-inf")
        narrow = sys.stdout is not None and sys.stdout.isatty()
        self._columns = shutil.get_terminal_size().columns if narrow else 0

    def line(self, record: dict[str, Any]) -> str:
        """`record` on one line; nothing in it acts on the terminal."""
        said = {name: one_line(str(value), _LONGEST) for name, value in record.items()}
        denied = said.get("verdict") == DENIED
        cells = {
            "at": _clock(said.get("at", "")),
            "who": self._name(said.get("worker", "")),
            "protocol": said.get("protocol", ""),
            "way": said.get("direction", ""),
            "verb": said.get("verb", ""),
            "size": _size(record.get("size")),
        }
        head = "  ".join(Cell(cells[name]).padded(width) for name, width in _WIDTHS.items())
        rest = "  ".join(part for part in self._rest(said, denied=denied) if part)
        if self._columns:
            rest = Cell(rest).padded(max(20, self._columns - sum(_WIDTHS.values()) - 12)).rstrip()
        line = f"{head}  {rest}".rstrip()
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
            f"DENIED: {reason}" if denied else "",
            what,
            said.get("status", ""),
            "" if denied else reason,
            f"task {short(task)}" if task else "",
            f"{exact} task {short(cause)}" if cause else "",
            f"{exact} message {message}" if message and not cause else "",
            "(seen by the server)" if said.get("by") == SERVER else "",
        ]

    def _name(self, uid: str) -> str:
        """`@nick`; the first digits of a uid that has none (any more)."""
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
        return clock(parse_time(at), time.time())
    except PostroomError:
        return at


def _size(size: object) -> str:
    return f"{size:>7} B" if isinstance(size, int) and size else ""
