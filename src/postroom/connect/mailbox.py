"""The mail of one session: what is handed over, which proof it has, what is given back. Pure: time is passed in.

A message is *waiting* until it is *handed* over: noted first, then its text leaves. It is *taken* when the client's way
took it; the post room is told `delivered`. It is *seen* when an event came that cannot come before a model request made
after the hand-over:

| handed over at | seen at a later | of |
| --- | --- | --- |
| start of the session | tool or end of turn | any turn |
| prompt, end of a batch of tools, end of a turn | tool or end of turn | the same turn |
| a wake | tool or end of turn | the turn whose prompt has the text |
| a tool of Postroom's | end of turn; a tool once the batch has ended | the same turn |

The answer to a request proves, too, if the request began after the hand-over. A tool proves only where the client
tells the end of a batch of tools: else it may have run beside the hand-over. A prompt proves nothing, since its turn
may be interrupted before any request. Events of subagents do not come here.

What is not proven when the session ends, starts anew (compaction, `/clear`) or begins another turn is given back: it is
handed over again, as a repetition under the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from postroom.protocol.frame import announced, framed
from postroom.protocol.receipts import State
from postroom.protocol.shapes import Mail

A_TURN = 3
"""Times that a turn goes on for new mail."""

AN_HOUR = 20
"""Times in an hour that new mail makes a session go on, or wakes it: two sessions may write to each other for ever."""

WOKEN = 30.0
"""Seconds after a wake in which its turn should have begun: until then there is no other wake."""


class Kind(StrEnum):
    """What happened in a session; each client has its own names."""

    START = "start"
    PROMPT = "prompt"
    BEFORE_TOOL = "before a tool"
    AFTER_TOOL = "after a tool"
    BATCH = "end of a batch"
    REQUEST = "before a request"
    RESPONSE = "after a request"
    STOP = "end of a turn"
    INTERRUPT = "interrupt"
    END = "end"
    WAKE = "wake"
    TOOL = "a tool of Postroom's"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        turn: the client's id of the turn; "" where it has none.
        tools: ids of the tools that ended with a batch, or of the one that begins.
        text: of a prompt; of the end of a turn what tells it from another one.
        hands: whether text can be given to the model now.
        how: in words, for receipts.
    """

    kind: Kind
    turn: str = ""
    tools: frozenset[str] = frozenset()
    text: str = ""
    hands: bool = False
    how: str = ""


@dataclass(slots=True)
class Letter:
    """A message on its way into the session.

    Attributes:
        again: it may have been shown before.
        held: it was handed over, and is neither proven nor given back.
        taken: the client's way took it.
        seen: there is proof.
        cut: only its beginning was handed over: nothing proves that it is seen.
        shown: there is proof for its beginning.
        how: the way of the last hand-over, in words.
        at: what happened at the hand-over.
        turn: the turn that can prove it; "" for any, None for one that is to come.
        tools: tools of the batch after which it was handed over.
        beside: tools that the model asked for before the hand-over may still begin.
        asked: a request was made since the hand-over.
        text: what tells the end of the turn at which it was handed over.
        missed: a turn began after it woke the session, and it was another one.
        told: what the post room knows of it.
    """

    mail: Mail
    again: bool = False
    held: bool = False
    taken: bool = False
    seen: bool = False
    cut: bool = False
    shown: bool = False
    how: str = ""
    at: Kind | None = None
    turn: str | None = ""
    tools: frozenset[str] = frozenset()
    beside: bool = False
    asked: bool = False
    text: str = ""
    missed: bool = False
    told: State = State.ACCEPTED

    @property
    def waiting(self) -> bool:
        """Whether it is to be handed over."""
        return not (self.held or self.seen)

    @property
    def owed(self) -> State | None:
        """What the post room is to be told, None for nothing."""
        if self.seen:
            return None if self.told is State.SEEN else State.SEEN
        return State.DELIVERED if self.taken and self.told is State.ACCEPTED else None

    def give_back(self) -> None:
        """It is to be handed over again, and says so."""
        self.held = self.shown = False
        self.again = True


@dataclass(frozen=True, slots=True)
class Offer:
    """A text to hand over, and the ids of the messages in it.

    Attributes:
        shown: for the person, who may not see the text.
    """

    text: str
    ids: tuple[str, ...] = ()
    shown: str = ""


@dataclass(slots=True)
class Rules:
    """Who may do what to a session.

    Attributes:
        owner: uid of its person.
        wakes: whether a message may make it go on, or wake it; None while nobody has found out.
        muted: whether a message stays out.
        batches: its client tells when a batch of tools has ended.
    """

    owner: str = ""
    wakes: Callable[[Mail], bool | None] = lambda _: True
    muted: Callable[[Mail], bool] = lambda _: False
    batches: bool = True


@dataclass(slots=True)
class Mailbox:
    """The mail of one session, in the order of the log.

    Attributes:
        turn: the client's id of the present turn, or of the last one; one of our own where it has none.
        turns: how many of our own.
        busy: a turn is on.
        in_batch: tools have begun and their batch has not ended.
        went_on: times that the present turn went on for mail.
        nudged: it was woken without the mail, which is to be handed over in the turn that begins.
        pushes: instants of the wakes and of what made a turn go on, of the last hour.
        changed: ids of letters that are to be saved.
    """

    nick: str
    rules: Rules = field(default_factory=Rules)
    letters: dict[str, Letter] = field(default_factory=dict)
    turn: str = ""
    turns: int = 0
    busy: bool = False
    in_batch: bool = False
    went_on: int = 0
    nudged: bool = False
    pushes: list[float] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)

    # ── what comes from the post room ───────────────────────────────────────────────────────────────────

    def add(self, mail: Mail) -> bool:
        """A message has come; whether it is new."""
        if mail["id"] in self.letters:
            return False
        told = State.DELIVERED if mail["state"] == State.DELIVERED else State.ACCEPTED
        last = next(reversed(self.letters.values()), None)
        self.letters[mail["id"]] = Letter(mail, again=mail["redelivered"], told=told)
        if last is not None and last.mail["seq"] > mail["seq"]:
            self.letters = dict(sorted(self.letters.items(), key=lambda item: item[1].mail["seq"]))
        self.changed.add(mail["id"])
        return True

    def over(self, message_id: str) -> bool:
        """A message needs nothing here: read elsewhere, answered, dead; whether it was known."""
        self.changed.add(message_id)
        return self.letters.pop(message_id, None) is not None

    def told(self, ids: Iterable[str], state: State) -> None:
        """The post room knows; what is seen is over."""
        for letter in self._of(ids):
            letter.told = state
            if state is State.SEEN:
                self.over(letter.mail["id"])

    @property
    def owed(self) -> list[Letter]:
        """Letters of which the post room is to be told more."""
        return [letter for letter in self.letters.values() if letter.owed is not None]

    @property
    def waiting(self) -> list[Letter]:
        """Letters that are to be handed over, in order."""
        return [
            each
            for each in self.letters.values()
            if each.waiting and not self.rules.muted(each.mail)
        ]

    @property
    def woken(self) -> list[Letter]:
        """Letters with which the session was woken, and whose turn has not begun."""
        return [each for each in self.letters.values() if each.held and each.turn is None]

    # ── what comes from the client ──────────────────────────────────────────────────────────────────────

    def on(self, event: Event, now: float) -> Offer | None:
        """Something happened: proofs are noted; what is to be handed over now, which is noted as handed."""
        if event.kind is Kind.PROMPT and not event.turn:
            self.turns += 1
            event = replace(event, turn=f"#{self.turns}")
        elif not event.turn:
            event = replace(event, turn=self.turn)
        woken = self.woken
        self._prove(event)
        self._follow(event)
        if not event.hands:
            return None
        begun = [each.mail for each in woken if each.turn is not None]
        if event.kind is Kind.STOP:
            if not (self._lets(now) and self.went_on < A_TURN):
                return None
            offer = self._hand(event, self.waiting)
            if offer:
                self.busy = True
                self.went_on += 1
                self.pushes.append(now)
            return offer
        offer = self._hand(event, self.waiting)
        if begun:
            # The client has shown that it was woken, and not by what.
            shown = announced(begun) + (f"\n{offer.shown}" if offer else "")
            return replace(offer or Offer(""), shown=shown)
        return offer

    def wake(self, how: str, now: float, *, is_idle: bool = False) -> Offer | None:
        """What to wake the session with now, which is noted as handed.

        Args:
            is_idle: the client itself says so, whatever the events were.
        """
        if is_idle:
            self.busy = False
        if not self.may_wake(now):
            return None
        self._give_back_if(lambda letter: letter.turn is None)
        self.went_on = 0
        self.pushes.append(now)
        return self._hand(Event(Kind.WAKE, how=how), self.waiting)

    def nudge(self, now: float, *, is_idle: bool = False) -> bool:
        """Whether to wake the session with a text that has no mail in it; then this is noted."""
        if is_idle:
            self.busy = False
        if not self.may_wake(now):
            return False
        self.went_on = 0
        self.nudged = True
        self.pushes.append(now)
        return True

    def may_wake(self, now: float) -> bool:
        """Whether it is idle and has mail that wakes; a wake that began no turn is tried again."""
        woken = self.woken
        tried = bool(woken or self.nudged) and bool(self.pushes)
        if self.busy or (tried and now - self.pushes[-1] < WOKEN):
            return False
        return self._lets(now, woken)

    def read(self, ids: Iterable[str], cut: Collection[str] = ()) -> bool:
        """A tool of Postroom's gives the session these messages; whether anything is to be saved before it does.

        Args:
            cut: ids of those of which it has a part.
        """
        found = [each for each in self._of(ids) if not each.seen]
        fresh = [
            each for each in found if each.waiting or (each.cut and each.mail["id"] not in cut)
        ]
        event = Event(Kind.TOOL, self.turn, how="tool")
        for letter in fresh:
            self._note(letter, event, cut=letter.mail["id"] in cut)
        return bool(fresh)

    def took(self, ids: Iterable[str]) -> None:
        """The client's way took them."""
        for letter in self._of(ids):
            if letter.held and not letter.taken:
                letter.taken = True
                self.changed.add(letter.mail["id"])

    def lost(self, ids: Iterable[str]) -> None:
        """Nobody knows whether the client's way took them."""
        for letter in self._of(ids):
            if letter.held and not letter.seen:
                self._give_back(letter)

    def gone(self) -> None:
        """The client has ended: what is not proven is given back."""
        self.busy = self.in_batch = False
        self._give_back_if(lambda _: True)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    def _of(self, ids: Iterable[str]) -> list[Letter]:
        return [self.letters[each] for each in ids if each in self.letters]

    def _lets(self, now: float, woken: Iterable[Letter] = ()) -> bool:
        """Whether new mail may make it go on now."""
        self.pushes = [each for each in self.pushes if now - each < 3600.0]
        if len(self.pushes) >= AN_HOUR:
            return False
        return any(self.rules.wakes(letter.mail) for letter in (*woken, *self.waiting))

    def _hand(self, event: Event, letters: list[Letter]) -> Offer | None:
        if not letters:
            return None
        frame = framed(
            [each.mail for each in letters],
            to=self.nick,
            owner=self.rules.owner,
            again=[each.mail["id"] for each in letters if each.again],
        )
        handed = letters[: len(letters) - frame.left]
        for letter in handed:
            self._note(letter, event, cut=letter.mail["id"] in frame.cut)
        mails = [each.mail for each in handed]
        return Offer(frame.text, tuple(mail["id"] for mail in mails), announced(mails))

    def _note(self, letter: Letter, event: Event, *, cut: bool) -> None:
        letter.again = letter.held = True
        letter.taken = False
        letter.cut, letter.how, letter.at = cut, event.how, event.kind
        letter.turn = {Kind.START: "", Kind.WAKE: None}.get(event.kind, event.turn)
        letter.tools, letter.text = event.tools, event.text
        letter.beside = event.kind is Kind.TOOL or self.in_batch
        letter.asked = letter.shown = letter.missed = False
        self.changed.add(letter.mail["id"])

    def _prove(self, event: Event) -> None:
        for letter in self.letters.values():
            if not (letter.held and letter.taken) or letter.seen:
                continue
            if letter.turn is None and event.kind is Kind.PROMPT:
                if f"message {letter.mail['id']}" in event.text:
                    letter.turn = event.turn
                elif letter.missed:
                    self._give_back(letter)
                letter.missed = True
                self.changed.add(letter.mail["id"])
            elif self._proves(event, letter):
                letter.seen, letter.shown = not letter.cut, True
                self.changed.add(letter.mail["id"])
            elif event.kind in (Kind.BATCH, Kind.REQUEST):
                letter.beside = False
                letter.asked = letter.asked or event.kind is Kind.REQUEST
                self.changed.add(letter.mail["id"])

    def _proves(self, event: Event, letter: Letter) -> bool:
        """Whether the event cannot come before a request made after the hand-over of a letter."""
        if letter.turn is None or letter.turn not in ("", event.turn):
            return False
        if event.kind is Kind.STOP:
            # The same end of a turn, told twice by two hooks, is no later one.
            return letter.at is not Kind.STOP or event.text != letter.text
        if event.kind is Kind.BEFORE_TOOL:
            return self.rules.batches and not letter.beside and not event.tools & letter.tools
        return event.kind is Kind.RESPONSE and letter.asked

    def _follow(self, event: Event) -> None:
        """Keep in mind where the session is, and give back what cannot be proven by now."""
        match event.kind:
            case Kind.START:
                self.busy = self.in_batch = False
                self._give_back_if(lambda _: True)
            case Kind.PROMPT:
                self.busy, self.nudged = True, False
                if event.turn != self.turn:
                    self.went_on = 0
                    # A wake that came too late is a turn of its own, after this one.
                    self._give_back_if(
                        lambda each: each.turn not in ("", None, event.turn) and not each.shown
                    )
            case Kind.BEFORE_TOOL:
                self.busy = self.in_batch = True
            case Kind.BATCH | Kind.REQUEST:
                self.busy, self.in_batch = True, False
            case Kind.STOP:
                self.busy = self.in_batch = False
            case Kind.INTERRUPT:
                self.busy = self.in_batch = False
                self._give_back_if(lambda each: each.turn == event.turn and not each.shown)
            case Kind.AFTER_TOOL | Kind.RESPONSE:
                self.busy = True
            case Kind.END:
                self.gone()
        self.turn = event.turn

    def _give_back_if(self, which: Callable[[Letter], bool]) -> None:
        """Give back what is not proven."""
        for letter in self.letters.values():
            if letter.held and not letter.seen and which(letter):
                self._give_back(letter)

    def _give_back(self, letter: Letter) -> None:
        letter.give_back()
        self.changed.add(letter.mail["id"])
