"""One session in `postroom connect run`: its record and mail, its calls to the post room, and who may wake it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from postroom import __version__
from postroom.client.http import AsyncClient
from postroom.client.rules import Locate
from postroom.connect import processes
from postroom.connect.dialects import DIALECTS, Use
from postroom.connect.journal import Journal, Record
from postroom.connect.mailbox import Event, Kind, Mailbox, Offer, Rules
from postroom.connect.places import Settings
from postroom.errors import CallerError, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.receipts import State
from postroom.protocol.shapes import Mail

log = get_logger(__name__)

HEARTBEAT = 3600.0
"""Seconds after which the post room hears of a session that is open: it ends one that it has not heard of for days."""

GREETING = (
    "Postroom: this session has the address @{nick}. Agents and people write to it, and their mail comes here by "
    "itself, with its sender as the post room has proven it. Tools a2a_* write to others, answer and delegate."
)
ENDED = "the session has ended"
TWICE = "Another process has this conversation open under @{nick}, so this one has an address of its own."


@dataclass(slots=True)
class Waiter:
    """A hook in the background that waits for text to wake its client with.

    Attributes:
        text: what it is to give; None for the end of the wait.
        taken: whether the client has got it.
    """

    text: asyncio.Future[str | None]
    taken: asyncio.Future[bool]

    @classmethod
    def made(cls) -> Waiter:
        """A new one."""
        loop = asyncio.get_running_loop()
        return cls(loop.create_future(), loop.create_future())

    def end(self) -> None:
        """It waits for nothing further."""
        if not self.text.done():
            self.text.set_result(None)


@dataclass(eq=False, slots=True)
class Asked:
    """A permission that a session asks its person for.

    Attributes:
        agent: id of the subagent that asks, "" for the session itself.
        over: why nobody is asked any further.
    """

    use: Use
    agent: str
    over: asyncio.Future[str]

    def end(self, why: str) -> None:
        """Nobody is asked any further."""
        if not self.over.done():
            self.over.set_result(why)


@dataclass(eq=False)
class Session:
    """A session that is registered.

    Attributes:
        lock: held from an event until its answer was taken: two hooks of one event do not race for the same mail.
        greeted: the present conversation was told its address.
        twin: nick of the session that has the same conversation open in another process.
        state: `busy`, `idle` or `gone`, as it stands; `told` as the post room knows it.
        sent: ids of messages that it sent and of its tasks, as far as somebody has answered them.
        subagents: ids of calls of tools that subagents have made.
        asked: permissions that it asks its person for.
        waking: it is being woken.
        rename_key: the post room is to know it by another key.
        news: called when the post room is to be told something, or mail may wake.
    """

    record: Record
    box: Mailbox
    journal: Journal
    find: Locate
    org: str
    news: Callable[[], None]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiter: Waiter | None = None
    greeted: bool = False
    twin: str = ""
    told: str = ""
    told_at: float = 0.0
    heard: str = ""
    heard_at: float = field(default_factory=time.time)
    sent: set[str] = field(default_factory=set)
    subagents: dict[str, None] = field(default_factory=dict)
    asked: set[Asked] = field(default_factory=set)
    rename_key: bool = False
    waking: bool = False
    forget_process: Callable[[], None] = lambda: None
    _client: AsyncClient | None = None

    # ── the post room ──

    @property
    def client(self) -> AsyncClient:
        """Calls with the session's own key; made at the first call. Raises what finding the post room raises."""
        if self._client is None:
            made = AsyncClient.on(lambda: replace(self.find(), token=self.record.secret), self.org)
            made.transport.program = f"postroom-connect/{__version__}"
            self._client = made
        return self._client

    async def close(self) -> None:
        """Close its connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def tell(self) -> None:
        """Tell the post room what it does not know: receipts, and how the session stands.

        Raises:
            PostroomError: not all of it was told.
        """
        owed: dict[tuple[State, str], list[str]] = {}
        for letter in self.box.owed:
            if letter.owed is not None:
                how = letter.how if letter.owed is State.DELIVERED else ""
                owed.setdefault((letter.owed, how), []).append(letter.mail["id"])
        for (state, how), ids in sorted(owed.items()):
            for at in range(0, len(ids), 50):
                await self.client.acknowledge(ids[at : at + 50], state.value, **_given(how=how))
                self.box.told(ids[at : at + 50], state)
                self.save()
        if self.rename_key:
            self.rename_key = False
            await self.client.note_session(self.record.uid, key=self.record.key)
        state = self.state
        if state != self.told or (state != "gone" and time.time() - self.told_at > HEARTBEAT):
            await self.client.note_session(self.record.uid, state)
            self.told, self.told_at = state, time.time()

    async def sync(self) -> None:
        """Ask for the unread mail: what is missing here comes in, what is over elsewhere goes."""
        before = list(self.box.letters.values())
        found = await self.client.inbox(limit=200)
        known = {mail["id"]: mail for mail in found}
        last = found[-1]["seq"] if len(found) == 200 else float("inf")
        for letter in before:
            mail = letter.mail
            if mail["id"] not in known and mail["seq"] <= last and not letter.seen:
                self.box.over(mail["id"])
        for mail in found:
            await self.take(mail)
        self.save()

    async def know(self, ids: Iterable[str]) -> None:
        """Have the unread ones of these messages, also those that the feed has not brought yet."""
        for each in ids:
            if each not in self.box.letters:
                mail = await self.client.message(each)
                mine = mail["to"]["uid"] == self.record.uid
                if mine and mail["state"] in (State.ACCEPTED, State.DELIVERED):
                    await self.take(mail)

    async def take(self, mail: Mail) -> bool:
        """A message has come; whether it is new."""
        if not self.box.add(mail):
            return False
        await self._answers(mail)
        return True

    async def _answers(self, mail: Mail) -> None:
        """Find out whether a message answers one of the session's own to its sender: a worker may name any."""
        asked, about = mail["reply_to"], mail.get("about", "")
        if not (asked or about) or self.box.rules.wakes(mail):
            return
        try:
            if about and await self._shares(about, mail["from"]["uid"]):
                self.sent.add(about)
            elif asked and await self._asked(asked, mail["from"]["uid"]):
                self.sent.add(asked)
        except CallerError:
            log.info("a message to @%s answers none of its own", self.record.nick)

    async def _asked(self, message: str, other: str) -> bool:
        """Whether the session sent that message to that agent."""
        first = await self.client.message(message)
        return (first["from"]["uid"], first["to"]["uid"]) == (self.record.uid, other)

    async def _shares(self, task: str, other: str) -> bool:
        """Whether a task is between the session and that agent."""
        view = await self.client.task(task)
        return {self.record.uid, other} == {view["requester"]["uid"], view["worker"]["uid"]}

    # ── the client ──

    @property
    def state(self) -> str:
        """`busy`, `idle` or `gone`."""
        if not self.record.alive:
            return "gone"
        return "busy" if self.box.busy else "idle"

    @property
    def living(self) -> bool:
        """Whether its process lives, as far as that can be known."""
        return not self.record.pid or processes.alive(self.record.pid, self.record.began)

    def on(self, event: Event) -> Offer | None:
        """Something happened: what is to be handed over, which is on disk as handed. Raises StateUnwritable."""
        self.heard_at = time.time()
        if event.kind is not Kind.END and not self.living:  # a late hook of a client that has ended
            self.gone()
            return None
        if event.kind is Kind.START:
            self.greeted = False
        self.record.alive = event.kind is not Kind.END
        offer = self.box.on(event, self.heard_at)
        if event.hands and not self.greeted and event.kind is not Kind.STOP:
            text = GREETING.format(nick=self.record.nick)
            if self.twin:
                text += " " + TWICE.format(nick=self.twin)
            offer = offer or Offer("")
            offer = replace(offer, text=f"{text}\n\n{offer.text}".rstrip())
        self.save(offer)
        return offer

    def wake(self, how: str, *, is_idle: bool) -> Offer | None:
        """What to wake it with, which is on disk as handed. Raises StateUnwritable."""
        offer = self.box.wake(how, time.time(), is_idle=is_idle)
        if offer is not None:
            self.save(offer)
        return offer

    def handed(self, offer: Offer, *, taken: bool) -> None:
        """Whether the client's way took what was offered."""
        if taken:
            self.box.took(offer.ids)
            self.greeted = True
        else:
            self.box.lost(offer.ids)
        self.save()
        self.news()

    def gone(self) -> None:
        """The client has ended."""
        self.record.alive = False
        self.box.gone()
        for asked in self.asked:
            asked.end(ENDED)
        if self.waiter is not None:
            self.waiter.end()
        self.save()
        self.news()

    def save(self, offer: Offer | None = None) -> None:
        """Save what has changed.

        Raises:
            StateUnwritable: then nothing of `offer` leaves, and it counts as waiting.
        """
        try:
            self.journal.save(self.record, self.box, sync=offer is not None)
        except StateUnwritable:
            if offer is not None:
                self.box.lost(offer.ids)
            raise


def rules_of(session: Session, settings: Settings, own: Callable[[], Iterable[str]]) -> Rules:
    """Who may wake a session, and who stays out.

    Args:
        own: uids of all sessions of its person.
    """

    def wakes(mail: Mail) -> bool:
        sender = mail["from"]
        if sender["uid"] == session.record.owner or sender["uid"] in own():
            return True
        known = mail["reply_to"] in session.sent or mail.get("about") in session.sent
        return known or _named(mail, settings.wake_from)

    return Rules(
        session.record.owner,
        wakes,
        lambda mail: _named(mail, settings.mute),
        DIALECTS[session.record.client].batches if session.record.client in DIALECTS else False,
    )


def _named(mail: Mail, words: Iterable[str]) -> bool:
    """Whether one of the words is for the sender: a nick, `workers` or `all`."""
    sender = mail["from"]
    nick = sender["nick"]
    return any(
        word == "all"
        or (word == "workers" and sender["kind"] == "worker")
        or word.removeprefix("@") == nick
        for word in words
    )


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
