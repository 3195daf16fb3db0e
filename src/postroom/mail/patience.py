"""Who is told that a message waits: its sender, and people where that is not as it should be.

One rule for all agents. A message has been waiting for too long when nobody took it within the patience of its
recipient, which is a setting. A session in somebody's terminal that does not get its mail by itself has none: a worker
that writes to one is told at once (who sends over the API has that in the answer). A person reads when they like.

Its sender gets one more receipt of `accepted`, whose reason says for how long it waits, and why, if the sender may know
whether the recipient is there; so the message says it to whoever looks. Of what one agent has sent to another, one
message tells at a time, until it is taken. People get one alert for each recipient, but for sessions whose mail waits
as their senders know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from postroom.directory.grants import GrantScope, reach
from postroom.errors import NotLetIn, UnknownRecipient
from postroom.mail.clerk import Clerk
from postroom.projection.due import Due
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.receipts import State
from postroom.settings import DEFAULT_ORG
from postroom.store.agents import Party
from postroom.store.alerts import STALE
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow


@dataclass(frozen=True, slots=True)
class Waits:
    """What is known of agents whose mail may wait.

    Attributes:
        blocked: uids of the sessions that do not get their mail by themselves.
        blocker: why a session is one of them, "" for any other agent.
        settling: those, and the ones that did not until that many seconds ago.
        why: why an agent has not taken its mail, such as `offline since 12:03`; "" for not known, as of agents of
            other organisations.
        told: what the sender to a blocked session is told.
    """

    blocked: Callable[[], Collection[str]] = tuple
    blocker: Callable[[str], str] = lambda _: ""
    settling: Callable[[float], Collection[str]] = lambda _: ()
    why: Callable[[str], str] = lambda _: ""
    told: Callable[[Party], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A message that waits, and whether its sender and people are to be told."""

    row: MessageRow
    tell: bool
    alarm: bool

    @property
    def seq(self) -> int:
        """Its sequence."""
        return self.row.seq


class Patience:
    """The job that tells them.

    Args:
        alert: appends an alert.
        after: seconds in `accepted` that are too long.
    """

    def __init__(
        self,
        database: Database,
        clerk: Clerk,
        alert: RaiseAlert,
        after: float,
        waits: Waits | None = None,
        *,
        org: str = DEFAULT_ORG,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._clerk = clerk
        self._alert = alert
        self._after = after
        self._waits = waits or Waits()
        self._org = org
        self._clock = clock

    async def find(self, now: float) -> Due[Overdue]:
        """The messages of which somebody is to be told."""
        before = now - self._after
        blocked, settling = self._waits.blocked(), self._waits.settling(self._after)

        def find(store: Store) -> Due[Overdue]:
            untold = store.pending.untold(before, settling) + store.pending.untold_at_once(blocked)
            telling = {row.seq: row for row in store.messages.messages_at(untold)}
            first = {
                row.recipient: row for row in reversed(store.pending.untaken(before, settling))
            }
            alarming = {row.seq: row for row in first.values()}
            following = store.pending.next_untaken(before, settling)
            found = [
                Overdue(row, seq in telling, seq in alarming)
                for seq, row in sorted((telling | alarming).items())
            ]
            return Due(found, None if following is None else following + self._after)

        return await self._database.read(find)

    def due_at(self, row: MessageRow) -> float | None:
        """When it has been in `accepted` for too long."""
        return row.stored_at + (0.0 if self._waits.blocker(row.recipient) else self._after)

    async def act(self, row: Overdue) -> None:
        """Append the receipt and the alert."""
        message = row.row
        pair = {message.sender, message.recipient}

        def read(store: Store) -> tuple[dict[str, Party], int, bool]:
            waiting = store.pending.count_untaken(message.recipient)
            return store.agents.parties(pair), waiting, self._sees(store, message)

        parties, waiting, sees = await self._database.read(read)
        sender, to = parties[message.sender], parties[message.recipient]
        why = self._waits.why(message.recipient)
        if row.tell:
            said = self._waits.told(to) if sees else ""
            said = said or _line(self._after, to, why if sees else "")
            await self._clerk.report(message, State.ACCEPTED, said)
        if row.alarm:
            first = f"the first from @{sender.nick or sender.uid}"
            text = f"has not taken its messages for {_span(self._after)}: {waiting} wait, {first}"
            await self._alert(Alert(STALE, f"{text}; {why}" if why else text, message.recipient))

    def _sees(self, store: Store, message: MessageRow) -> bool:
        """Whether its sender may know whether the recipient is there."""
        who, to = message.sender, message.recipient
        with suppress(NotLetIn, UnknownRecipient):
            reach(store, self._org, who, to, GrantScope.CARD, self._clock())
            return True
        return False


def _line(seconds: float, to: Party, why: str) -> str:
    name = f"@{to.nick or to.uid}"
    return f"stored, not seen for {_span(seconds)}: {name} {why or 'has not taken it'}"


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:g} s"


def offline_since(at: float) -> str:
    """Why an agent that is not there takes nothing; `at` is its last sign of life."""
    now, seen = time.localtime(), time.localtime(at)
    same = now[:3] == seen[:3]
    return f"offline since {time.strftime('%H:%M' if same else '%Y-%m-%d %H:%M', seen)}"
