"""The mail of a session, against a model of its client that may do or break anything between two steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postroom.connect.mailbox import A_TURN, AN_HOUR, WOKEN, Event, Kind, Mailbox, Offer, Rules
from postroom.protocol.frame import AGAIN
from postroom.protocol.receipts import State
from postroom.protocol.shapes import Mail

FRIEND, STRANGER = "a" * 32, "b" * 32


def mail_to_session(seq: int, sender: str = FRIEND, text: str = "hi") -> Mail:
    """A message with that sequence, whose id is `m<seq>.`."""
    party = {"uid": sender, "nick": "api", "kind": "external"}
    mail: dict[str, Any] = {
        "id": f"m{seq}.", "seq": seq, "from": party, "to": party, "text": text, "parts": [{"text": text}],
        "subject": "", "thread": None, "state": "accepted", "reason": "", "expects_reply": False,
        "reply_to": None, "sent_at": "2026-01-31T12:00:00.000Z", "updated_at": "", "answer": None,
        "requeue_of": None, "attempts": 0, "task": None, "redelivered": False, "expires_at": None,
    }  # fmt: skip
    return mail  # ty: ignore[invalid-explicit-return]


RULES = Rules(wakes=lambda mail: mail["from"]["uid"] == FRIEND)


def copied(box: Mailbox) -> Mailbox:
    """As it is read from the journal."""
    letters = {name: replace(letter) for name, letter in box.letters.items()}
    return replace(box, letters=letters, pushes=list(box.pushes), changed=set())


class Client(RuleBasedStateMachine):
    """A client in the manner of Claude Code: turns with ids, batches of parallel tools, a context, requests."""

    def __init__(self) -> None:
        super().__init__()
        self.box = Mailbox("app", RULES)
        self.saved = copied(self.box)
        self.now = 1000.0
        self.seq = 0
        self.turns = 0
        self.turn = ""
        self.alive = False
        self.idle = True
        self.context: list[str] = []  # what the next request has
        self.queued: list[str] = []  # wakes that begin a turn of their own
        self.batch: list[str] = []  # tools asked for and not begun
        self.running: list[str] = []
        self.tools = 0
        self.said = ""
        self.requested: set[str] = set()  # ids of which a request had the text
        self.unflagged: dict[str, int] = {}
        self.first: list[str] = []  # ids in the order of their first hand-over
        self.senders: dict[str, str] = {}
        self.went_on: dict[str, int] = {}
        self.pushed: list[float] = []

    # ── the way between client and mailbox ──

    def tell(
        self, kind: Kind, *, hands: bool = False, tools: tuple[str, ...] = (), text: str = ""
    ) -> Offer | None:
        event = Event(kind, self.turn, frozenset(tools), text, hands=hands, how=kind.value)
        offer = self.box.on(event, self.now)
        self.save(offer)
        return offer

    def save(self, offer: Offer | None) -> None:
        """Noted before the text leaves."""
        self.saved = copied(self.box)
        for each in offer.ids if offer else ():
            if each not in self.first:
                self.first.append(each)

    def deliver(self, offer: Offer | None, fate: str) -> str:
        """What of the text the client has got; the hook may be killed before or after it wrote."""
        if offer is None:
            return ""
        for each in offer.text.split("\n\n"):
            if "message m" in each and AGAIN not in each:
                name = each.partition("message ")[2].split(",")[0]
                self.unflagged[name] = self.unflagged.get(name, 0) + 1
        if fate == "taken":
            self.box.took(offer.ids)
        elif fate == "run killed":
            self.restart_run()
        else:
            self.box.lost(offer.ids)
        self.saved = copied(self.box)
        return "" if fate == "nothing written" else offer.text

    def restart_run(self) -> None:
        self.box = copied(self.saved)
        self.box.lost(
            [each.mail["id"] for each in self.box.letters.values() if each.held and not each.taken]
        )
        self.saved = copied(self.box)

    def request(self) -> None:
        """A model request; the answer has tools, or ends the turn."""
        shown = "\n".join(self.context)
        self.requested |= {each for each in self.box.letters if f"message {each}," in shown}

    def hand(self, kind: Kind, fate: str, **more: Any) -> bool:
        text = self.deliver(self.tell(kind, hands=True, **more), fate)
        if text:
            self.context.append(text)
        return bool(text)

    fates = st.sampled_from(["taken", "taken", "taken", "nothing written", "written", "run killed"])

    # ── what happens ──

    @initialize(fate=fates)
    def begin(self, fate: str) -> None:
        self.alive = True
        self.hand(Kind.START, fate)

    @rule(sender=st.sampled_from([FRIEND, STRANGER]), long=st.sampled_from([1, 1, 1, 3000]))
    def mail_comes(self, sender: str, long: int) -> None:
        self.seq += 1
        self.senders[f"m{self.seq}."] = sender
        assert self.box.add(mail_to_session(self.seq, sender, "x" * long))
        self.saved = copied(self.box)

    @rule(seconds=st.sampled_from([1.0, WOKEN, 400.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.alive and self.idle)
    @rule(fate=fates)
    def person_prompts(self, fate: str) -> None:
        self._begin_turn("go on please", fate)

    @precondition(lambda self: self.alive and self.idle and self.queued)
    @rule(fate=fates)
    def wake_begins_a_turn(self, fate: str) -> None:
        text = self.queued.pop(0)
        self.context.append(text)
        self._begin_turn(f"<task-notification>{text}", fate)

    def _begin_turn(self, prompt: str, fate: str) -> None:
        self.turns += 1
        self.turn = f"t{self.turns}"
        self.idle = False
        self.hand(Kind.PROMPT, fate, text=prompt)

    @precondition(lambda self: self.alive and not self.idle and not self.batch and not self.running)
    @rule(count=st.integers(1, 3))
    def model_asks_for_tools(self, count: int) -> None:
        self.request()
        self.batch = [f"tool{self.tools + n}" for n in range(count)]
        self.tools += count

    @precondition(lambda self: self.batch)
    @rule()
    def tool_begins(self) -> None:
        tool = self.batch.pop(0)
        self.tell(Kind.BEFORE_TOOL, tools=(tool,))
        self.running.append(tool)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def own_tool_answers(self, data: st.DataObject) -> None:
        """A tool of Postroom's gives messages, beside other tools."""
        names = sorted(self.box.letters)
        ids = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        again = {each for each in ids if self.box.letters[each].again}
        self.box.read(ids)
        for each in ids:
            if each not in again:
                self.unflagged[each] = self.unflagged.get(each, 0) + 1
            if each not in self.first:
                self.first.append(each)
                self.senders.pop(each)  # what is asked for by name has no place in the order
        self.box.took(ids)
        self.saved = copied(self.box)
        self.context += [f"message {each}," for each in ids]

    @precondition(lambda self: self.running)
    @rule(fate=fates)
    def tool_ends(self, fate: str) -> None:
        tool = self.running.pop(0)
        self.tell(Kind.AFTER_TOOL, tools=(tool,))
        if not self.running and not self.batch:
            self.hand(Kind.BATCH, fate, tools=(tool,))

    @precondition(lambda self: self.alive and not self.idle and not self.batch and not self.running)
    @rule(fate=fates, twice=st.booleans())
    def model_ends_its_turn(self, fate: str, *, twice: bool) -> None:
        self.request()
        self.said = f"{self.tools} {len(self.context)}"
        before = len(self.box.pushes)
        went_on = self.hand(Kind.STOP, fate, text=self.said)
        if len(self.box.pushes) > before:
            self._count(self.turn)
        if twice:  # another home of the client runs the same hook again
            went_on |= self.hand(Kind.STOP, fate, text=self.said)
        self.idle = not went_on
        if went_on:
            self.context.append("stop feedback")

    @precondition(lambda self: self.alive and not self.batch and not self.running)
    @rule(times=st.integers(1, 25), wakes=st.booleans())
    def friend_writes_for_ever(self, times: int, *, wakes: bool) -> None:
        """Each time that the session has ended its turn there is something new."""
        for _ in range(times):
            self.mail_comes(FRIEND, 1)
            if not self.idle:
                self.model_ends_its_turn("taken", twice=False)
            elif wakes:
                self.mail_wakes("taken", late=False, known=True)
                if self.queued:
                    self.wake_begins_a_turn("taken")

    def _count(self, turn: str) -> None:
        self.went_on[turn] = self.went_on.get(turn, 0) + 1
        self.pushed.append(self.now)

    @precondition(lambda self: self.alive and not self.idle)
    @rule(takes_back=st.booleans(), told=st.booleans())
    def person_interrupts(self, *, takes_back: bool, told: bool) -> None:
        """Esc: nothing fires in Claude Code; what was added last may be gone."""
        self.idle, self.batch, self.running = True, [], []
        if takes_back and self.context:
            self.context.pop()
        if told:
            self.tell(Kind.INTERRUPT)

    @precondition(lambda self: self.alive)
    @rule(fate=fates, late=st.booleans(), known=st.booleans())
    def mail_wakes(self, fate: str, *, late: bool, known: bool) -> None:
        if not (self.idle or late):
            return
        offer = self.box.wake("wake", self.now, is_idle=known and self.idle)
        self.save(offer)
        if offer:
            self.pushed.append(self.now)
            if text := self.deliver(offer, fate):
                self.queued.append(text)

    @precondition(lambda self: self.alive and not self.batch and not self.running)
    @rule(fate=fates)
    def context_is_compacted(self, fate: str) -> None:
        self.context.clear()
        self.hand(Kind.START, fate)

    @precondition(lambda self: self.alive)
    @rule(fate=fates)
    def client_is_killed_and_resumed(self, fate: str) -> None:
        self.box.gone()
        self.idle, self.batch, self.running, self.queued = True, [], [], []
        self.context.clear()
        self.hand(Kind.START, fate)

    @rule()
    def run_is_killed(self) -> None:
        self.restart_run()

    @rule()
    def post_room_is_told(self) -> None:
        for letter in self.box.owed:
            assert letter.owed is not None
            self.box.told([letter.mail["id"]], letter.owed)
        self.saved = copied(self.box)

    # ── what holds ──

    @invariant()
    def seen_is_what_a_request_had(self) -> None:
        for name, letter in self.box.letters.items():
            assert not letter.seen or name in self.requested

    @invariant()
    def unflagged_at_most_once(self) -> None:
        assert all(count <= 1 for count in self.unflagged.values())

    @invariant()
    def in_order_per_sender(self) -> None:
        for sender in (FRIEND, STRANGER):
            seqs = [int(each[1:-1]) for each in self.first if self.senders.get(each) == sender]
            assert seqs == sorted(seqs)

    @invariant()
    def it_goes_on_only_so_often(self) -> None:
        assert all(count <= A_TURN for count in self.went_on.values())
        assert sum(1 for at in self.pushed if self.now - at < 3600.0) <= AN_HOUR

    def teardown(self) -> None:
        """Left alone, a client that works has seen everything: nothing is lost."""
        if not self.alive:
            return
        self.idle, self.batch, self.running = True, [], []
        for _ in range(len(self.box.letters) + 1):
            self._begin_turn("hello", "taken")
            self.request()
            self.tell(Kind.STOP, text=f"end {self.turns}")
            self.seen_is_what_a_request_had()
        assert {each.mail["id"] for each in self.box.letters.values() if not each.seen} == set()
        states = {State.SEEN, None}
        assert {each.owed for each in self.box.letters.values()} <= states


TestClient = pytest.mark.requirement("session-mail-proven")(Client.TestCase)
TestClient.settings = settings(
    max_examples=60,  # a busy machine takes seconds for a hundred
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # of a busy machine
)


# ── single rules ──


def box_with(*mails: Mail, rules: Rules = RULES) -> Mailbox:
    box = Mailbox("app", rules)
    for mail in mails:
        box.add(mail)
    return box


def happens(
    box: Mailbox, kind: Kind, turn: str = "t1", *, hands: bool = False, **more: Any
) -> Offer | None:
    """The event; what it hands over is taken."""
    offer = box.on(Event(kind, turn, hands=hands, how=kind.value, **more), 1000.0)
    box.took(offer.ids if offer else ())
    return offer


def test_a_tool_that_ran_beside_the_hand_over_proves_nothing() -> None:
    box = box_with(mail_to_session(1))
    happens(box, Kind.PROMPT)
    happens(box, Kind.BEFORE_TOOL, tools=frozenset({"a"}))
    box.read(["m1."])
    box.took(["m1."])

    happens(box, Kind.BEFORE_TOOL, tools=frozenset({"b"}))
    assert not box.letters["m1."].seen

    happens(box, Kind.BATCH, tools=frozenset({"a", "b"}))
    happens(box, Kind.BEFORE_TOOL, tools=frozenset({"c"}))
    assert box.letters["m1."].seen


def test_a_client_without_batches_proves_by_the_end_of_its_turn() -> None:
    box = box_with(mail_to_session(1), rules=Rules(batches=False))
    happens(box, Kind.PROMPT)
    happens(box, Kind.AFTER_TOOL, hands=True)
    happens(box, Kind.BEFORE_TOOL)
    assert not box.letters["m1."].seen

    happens(box, Kind.STOP)
    assert box.letters["m1."].seen


def test_the_end_of_another_turn_proves_nothing() -> None:
    box = box_with(mail_to_session(1))
    happens(box, Kind.PROMPT, hands=True)

    happens(box, Kind.STOP, "t2")

    assert not box.letters["m1."].seen


def test_what_the_next_turn_finds_unproven_is_said_again_under_the_same_id() -> None:
    box = box_with(mail_to_session(1))
    first = happens(box, Kind.PROMPT, hands=True)
    again = happens(box, Kind.PROMPT, "t2", hands=True)

    assert first
    assert again
    assert AGAIN not in first.text
    assert AGAIN in again.text
    assert first.ids == again.ids == ("m1.",)


def test_a_wake_is_proven_by_the_turn_that_has_its_text() -> None:
    box = box_with(mail_to_session(1))
    happens(box, Kind.START, "")
    offer = box.wake("asyncRewake", 1000.0)
    assert offer
    box.took(offer.ids)

    happens(box, Kind.PROMPT, "t1", text="the person was faster")
    happens(box, Kind.STOP, "t1", text="1")
    assert not box.letters["m1."].seen

    happens(box, Kind.PROMPT, "t2", text=f"<task-notification>{offer.text}")
    happens(box, Kind.STOP, "t2", text="2")
    assert box.letters["m1."].seen


def test_a_wake_that_began_no_turn_is_tried_again_and_says_so() -> None:
    box = box_with(mail_to_session(1))
    first = box.wake("asyncRewake", 1000.0)
    assert first
    box.took(first.ids)
    assert box.wake("asyncRewake", 1000.0 + WOKEN - 1) is None

    again = box.wake("asyncRewake", 1000.0 + WOKEN)

    assert again
    assert AGAIN in again.text


def test_mail_of_others_waits_for_the_next_activity() -> None:
    box = box_with(mail_to_session(1, STRANGER))
    happens(box, Kind.START, "")
    assert box.wake("asyncRewake", 1000.0) is None
    happens(box, Kind.PROMPT)
    assert happens(box, Kind.STOP, hands=True) is None

    assert happens(box, Kind.PROMPT, "t2", hands=True)


def test_a_busy_session_is_not_woken_unless_its_client_says_that_it_is_idle() -> None:
    box = box_with(mail_to_session(1))
    happens(box, Kind.PROMPT)

    assert box.wake("asyncRewake", 1000.0) is None
    assert box.wake("asyncRewake", 1000.0, is_idle=True)


def test_muted_mail_stays_out() -> None:
    box = box_with(mail_to_session(1), rules=Rules(muted=lambda _: True))

    assert happens(box, Kind.PROMPT, hands=True) is None
    assert box.wake("asyncRewake", 2000.0, is_idle=True) is None


def test_of_a_long_message_only_the_whole_is_seen() -> None:
    box = box_with(mail_to_session(1, text="x" * 20000))
    happens(box, Kind.PROMPT, hands=True)
    happens(box, Kind.BEFORE_TOOL, tools=frozenset({"a"}))
    happens(box, Kind.STOP)
    assert [each.owed for each in box.owed] == [State.DELIVERED]
    assert happens(box, Kind.PROMPT, "t2", hands=True) is None, "its beginning is in the context"

    box.read(["m1."])
    box.took(["m1."])
    happens(box, Kind.STOP, "t2")

    assert [each.owed for each in box.owed] == [State.SEEN]


@pytest.mark.parametrize("kind", [Kind.START, Kind.END])
def test_a_session_that_starts_anew_or_ends_gives_back_what_is_not_proven(kind: Kind) -> None:
    box = box_with(mail_to_session(1))
    happens(box, Kind.PROMPT, hands=True)

    happens(box, kind, "")

    assert [each.mail["id"] for each in box.waiting] == ["m1."]
    assert box.waiting[0].again
    assert box.waiting[0].owed is State.DELIVERED, "it was taken once"
