"""How a conversation looks, one line after the other."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import click

from postroom.cli.output import block, clock
from postroom.protocol.receipts import RANK, State
from postroom.protocol.text import one_line

OWN = 1024
"""Messages whose ids, and own ones whose states, are remembered."""

_COLOURS = {"human": "green", "worker": "cyan", "external": "magenta", "service": "blue"}


class Screen:
    """Prints posts, messages and receipts.

    Args:
        me: uid of the person.
        echoed: the terminal shows what the person types, so it is not printed again.
        receipts: print how own messages fare.
    """

    def __init__(self, me: str, *, echoed: bool, receipts: bool) -> None:
        self._me = me
        self._echoed = echoed
        self._receipts = receipts
        self._shown: deque[str] = deque(maxlen=OWN)
        self._states: dict[str, State] = {}

    def sent(self, record: Any) -> None:
        """Take note of what the person has typed here, and print it where the terminal did not."""
        if self._echoed:
            self._shown.append(record["id"])
        self._states[record["id"]] = State.ACCEPTED
        if len(self._states) > OWN:
            del self._states[next(iter(self._states))]
        self.show(record)

    def is_to_me(self, record: Any) -> bool:
        """Whether `record` is a message to the person; a post is to nobody in particular."""
        return "to" in record and record["to"]["uid"] == self._me

    def show(self, record: Any) -> bool:
        """Print a post or message; returns whether it was, which is not so the second time."""
        if record["id"] in self._shown:
            return False
        self._shown.append(record["id"])
        when = clock(record.get("at") or record["sent_at"], time.time())
        sender = record["from"]
        nick = one_line(str(sender.get("nick") or sender["uid"]), 64)
        mine = sender["uid"] == self._me
        name = click.style(f"[{nick}]", fg=_COLOURS.get(sender.get("kind", "")), bold=mine or None)
        click.echo(block(f"{click.style(when, dim=True)} {name} ", record["text"]))
        sys.stdout.flush()
        return True

    def receipt(self, message_id: str, state: str, reason: str) -> None:
        """Print the new state of an own message, once per state, dim."""
        before = self._states.get(message_id)
        if before is None or not self._receipts or state not in set(State):
            return
        reached = State(state)
        if RANK[reached] <= RANK[before]:
            return
        self._states[message_id] = reached
        detail = f": {one_line(reason, 200)}" if reason else ""
        colour = "red" if reached is State.DEAD else None
        click.echo(click.style(f"    · {reached.value}{detail}", dim=True, fg=colour))
