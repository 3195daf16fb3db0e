"""What concerns the sessions of one person: their mail, what becomes of it, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from postroom.directory.presence import Callers
from postroom.directory.sessions import Sessions
from postroom.feed.events import OPENED, PAGE, FeedEvent, FeedPage, FeedSource
from postroom.mail.inbox import Inboxes
from postroom.projection.changes import (
    Change,
    ChangeListener,
    Changes,
    Signal,
    of_agent,
    of_sessions,
)
from postroom.projection.tail import Next, Quiet, TailPage
from postroom.protocol import shapes
from postroom.protocol.handover import how_of
from postroom.protocol.sessions import SessionStanding
from postroom.store.sessions import SessionRow
from postroom_a2a.times import format_time


class SessionsFeed(FeedSource[int]):
    """Events `mail`, unread messages to any session of `owner`; `state`, one has another state; `session`, one has
    come, has another nick, or has ended.

    The sequence of the last message is the cursor. A reader that is so slow that changes were dropped is cut off, since
    nothing would tell it again of a `state`; it comes back, and asks for the messages that it holds. Sessions that are
    not gone count as there meanwhile.
    """

    limit = 4096  # what one commit of the fold may bring

    def __init__(
        self,
        changes: Changes,
        sessions: Sessions,
        inboxes: Inboxes,
        callers: Callers,
        owner: str,
    ) -> None:
        super().__init__(changes, of_sessions(owner))
        self._sessions = sessions
        self._inboxes = inboxes
        self._callers = callers
        self._owner = owner
        self._listener = ChangeListener()
        self._followed: dict[str, ExitStack] = {}

    @contextmanager
    def listen(self) -> Generator[Next]:
        listening = self._changes.listen(*self._topics, limit=self.limit, only=self.concerns)
        with listening as self._listener:
            try:
                for session in self._sessions.owned(self._owner):
                    self._follow(session)
                yield self._next
            finally:
                for held in self._followed.values():
                    held.close()

    async def _next(self, timeout: float) -> Change | Signal:
        found = await self._listener.next(timeout)
        return Signal.CLOSED if found is Signal.GAP else found

    def concerns(self, change: Change) -> bool:
        if change.kind == "session":
            return True
        return change.kind in ("mail", "receipt") and change.recipient in self._followed

    async def open(self, after: int) -> FeedPage[int]:
        return TailPage([OPENED], after, more=True)

    async def read(self, after: int) -> FeedPage[int]:
        found = await self._inboxes.past_of(list(self._followed), after, PAGE)
        events = [FeedEvent("mail", mail.as_json(), mail.seq) for mail in found]
        return TailPage(events, found[-1].seq if found else after, more=len(found) >= PAGE)

    async def heard(self, change: Change | Quiet, after: int) -> FeedPage[int] | None:
        if not isinstance(change, Change):
            return TailPage((), after)
        if change.kind == "mail":
            return None if change.seq > after else TailPage((), after)
        if change.kind == "receipt":
            return TailPage([FeedEvent("state", _state(change))], after)
        return await self._session(change, after)

    async def _session(self, change: Change, after: int) -> FeedPage[int]:
        session: SessionRow = change.row
        if change.state == "ended":
            if (held := self._followed.pop(session.uid, None)) is not None:
                held.close()
        else:
            self._follow(session)
        if not change.state:
            return TailPage((), after)
        (shown,) = await self._sessions.shown([session])
        # With the instant, or a reader would take a name that comes back for a repeated event.
        now = format_time(time.time())
        told: shapes.SessionChange = {**shown, "what": change.state, "at": now}
        # There may be mail to a new one that nobody heard of.
        return TailPage([FeedEvent("session", told)], after, more=True)

    def _follow(self, session: SessionRow) -> None:
        if session.uid not in self._followed:
            self._followed[session.uid] = ExitStack()
            self._listener.join((of_agent(session.uid),))
        held = self._followed[session.uid]
        held.close()
        if session.state != SessionStanding.GONE:
            self._callers.called(session.uid)
            held.enter_context(self._callers.waiting(session.uid))


def _state(change: Change) -> shapes.MailState:
    reason = change.row.reason
    return {
        "id": change.id,
        "to": change.recipient,
        "state": change.state,
        "reason": "" if how_of(reason) else reason,
    }
