"""Prints a conversation, line by line."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import click

from postroom.lines.parts import body_lines, part_lines
from postroom.lines.words import block, clock
from postroom.protocol.receipts import RANK, State, is_final
from postroom_a2a.text import one_line

OWN = 1024
"""Messages whose ids are remembered, and own messages whose states are."""

_COLOURS = {"human": "green", "worker": "cyan", "external": "magenta", "service": "blue"}


@dataclass(slots=True)
class _Own:
    """A message from the person, and its state."""

    record: Any
    state: State = State.ACCEPTED
    reason: str = ""

    @property
    def final(self) -> bool:
        return is_final(self.state, expects_reply=bool(self.record.get("expects_reply")))

    @property
    def said(self) -> str:
        return f"· {self.state.value}" + (f": {one_line(self.reason, 200)}" if self.reason else "")


class Screen:
    """Prints posts, messages and receipts.

    Args:
        echoed: the terminal shows what the person types, so it is not printed again.
        receipts: print the receipts of own messages.
    """

    def __init__(self, me: str, *, echoed: bool, receipts: bool) -> None:
        self._me = me
        self._echoed = echoed
        self._receipts = receipts
        self._shown: deque[str] = deque(maxlen=OWN)
        self._own: dict[str, _Own] = {}

    def sent(self, record: Any) -> None:
        """Remember a line that the person has typed here, and show it where the terminal did not."""
        message_id = record["id"]
        if message_id in self._own:
            return
        self._own[message_id] = _Own(record)
        if len(self._own) > OWN:
            del self._own[next(iter(self._own))]
        if self._echoed and record["text"]:  # of a file only its path was typed
            self._shown.append(message_id)
        self.show(record)

    def is_to_me(self, record: Any) -> bool:
        """Whether `record` is a message to the person; a post is not."""
        return "to" in record and record["to"]["uid"] == self._me

    def show(self, record: Any) -> bool:
        """Print a post or message once; returns whether it was printed."""
        if record["id"] in self._shown:
            return False
        self._shown.append(record["id"])
        if record.get("reply_to"):
            self.receipt(record["reply_to"], State.ANSWERED.value, "")
        self._line(record)
        return True

    def happened(self, line: str) -> None:
        """Print what is no message."""
        click.echo(line)
        sys.stdout.flush()

    def receipt(self, message_id: str, state: str, reason: str) -> None:
        """Print the new state of an own message, if it is a final one."""
        own = self._own.get(message_id)
        if own is None or not self._receipts or state not in set(State):
            return
        reached = State(state)
        if RANK[reached] <= RANK[own.state]:
            return
        own.state, own.reason = reached, reason
        if own.final:
            colour = "red" if reached is State.DEAD else None
            click.echo(click.style(f"    {own.said}", dim=True, fg=colour))

    def _line(self, record: Any) -> None:
        sender = record["from"]
        mine = sender["uid"] == self._me
        colour = _COLOURS.get(sender.get("kind", ""))
        name = click.style(f"[{self._nick(record)}]", fg=colour, bold=mine or None)
        when = click.style(self._when(record), dim=True)
        head = f"{when} {name}"
        if record["text"] and not record.get("subject"):
            head = block(f"{head} ", record["text"])
            lines = [f"    {line}" for line in part_lines(record)]
        else:
            lines = body_lines(record)
        click.echo("\n".join([head, *lines]))
        sys.stdout.flush()

    def _when(self, record: Any) -> str:
        return clock(record.get("at") or record["sent_at"], time.time())

    def _nick(self, record: Any) -> str:
        sender = record["from"]
        return one_line(str(sender.get("nick") or sender["uid"]), 64)
