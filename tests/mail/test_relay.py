"""Messages between two organisations: each has its own bus, log and database, and they share one installation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import delete, update

from postroom.directory.agents import Directory, Takers
from postroom.directory.grants import Decisions
from postroom.errors import InvalidInput, NotLetIn, StreamFull, TooManyRequests, UnknownRecipient
from postroom.mail import outbox, projection
from postroom.mail import relay as module
from postroom.mail.inbox import Inboxes
from postroom.mail.limits import PairBounds, PairLimits
from postroom.mail.office import PostOffice
from postroom.mail.relay import Relay
from postroom.mail.views import Mail
from postroom.projection.changes import ALERTS
from postroom.projection.fold import Fold
from postroom.projection.rules import together
from postroom.protocol.receipts import State
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.grants import GrantRow
from postroom.store.messages import MessageRow
from postroom.store.migrate import migrate
from postroom.store.schema import agents, grants, messages
from postroom.store.signing import Signer
from postroom.store.sqlite import SQLitePlace
from tests.mail.desk import SECONDS, Desk, memory_bus, running

pytestmark = pytest.mark.anyio


@dataclass
class House(Desk):
    """The post office of one organisation of an installation."""

    org: str = ""
    relays: dict[str, Relay] = field(default_factory=dict)
    decisions: Decisions = field(default_factory=Decisions)
    limits: PairLimits = field(default_factory=PairLimits)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directory = Directory(self.database, org=self.org)
        self.office = PostOffice(
            self.submitter,
            self.database,
            self.changes,
            org=self.org,
            takers=Takers(),
            decisions=self.decisions,
            limits=self.limits,
        )
        self.inboxes = Inboxes(self.bus, self.database, self.changes, self.office, self.callers)
        self.restart()

    def restart(self) -> None:
        """The parts that a start makes anew."""
        self.relay = Relay(
            self.org,
            self.bus,
            self.admin,
            self.database,
            self.clerk,
            self.alerts.raise_alert,
            self.relays,
            self.decisions,
            limits=self.limits,
        )
        rules = together(projection.RULES, outbox.RULES)
        after = (self.clerk.after, self.relay.after)
        self.fold = Fold(
            self.admin, self.database, self.changes, rules, after, tell=self.alerts.tell
        )

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Fold and carry."""
        async with running(self.fold.run()), running(self.relay.run()):
            await self.fold.ready(SECONDS)
            self.relay.open()
            yield
            self.relay.close()

    async def agent(self, nick: str, kind: str = "external") -> Agent:
        return await self.directory.register(nick, kind)

    async def lets_in(self, granter: Agent, grantee: Agent, **more: Any) -> None:
        row = GrantRow(uuid4().hex, granter.uid, grantee.uid, "message", granter.uid, 1.0, **more)
        await self.database.write(lambda store: store.grants.put(row))

    async def reads(self, reader: Agent) -> list[Mail]:
        """What is in the inbox of `reader`, once there is something."""
        return await self.inboxes.past(reader.uid, 0, wait=SECONDS)

    async def standing(self, most: int = 1) -> list[str]:
        """The alerts that stand, once there are `most` of them."""

        async def read() -> list[str]:
            return [view.row.text for view in await self.alerts.standing()]

        return await self.changes.until(ALERTS, read, lambda found: len(found) == most, SECONDS)

    async def sees(self, mail: Mail) -> None:
        await self.inboxes.acknowledge(mail.recipient.uid, [mail.id], State.SEEN)


@dataclass
class Two:
    """Alice of the organisation home, and Bob of acme."""

    home: House
    acme: House
    alice: Agent
    bob: Agent


@asynccontextmanager
async def two(*, opened: bool = True, **bounds: int) -> AsyncGenerator[Two]:
    limits = PairLimits(PairBounds(**bounds))
    installation, relays, decisions = uuid4().hex, {}, Decisions()
    async with AsyncExitStack() as stack:
        houses = []
        for org in ("home", "acme"):
            core, admin, connect = await stack.enter_async_context(memory_bus())
            place = SQLitePlace(None, org=org, installation=installation)
            signer = Signer(org, [org.encode()])
            database = await stack.enter_async_context(Database(place, signer))
            await migrate(database)
            shared: dict[str, Any] = {"relays": relays, "decisions": decisions, "limits": limits}
            houses.append(House(core, admin, database, connect, org=org, **shared))
        home, acme = houses
        await stack.enter_async_context(home.open())
        if opened:
            await stack.enter_async_context(acme.open())
        yield Two(home, acme, await home.agent("alice"), await acme.agent("bob"))


@pytest.mark.requirement("across-both-halves")
async def test_a_message_to_who_has_let_its_sender_in_is_in_both_organisations_under_one_id() -> (
    None
):
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)

        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello Bob")

        assert sent.recipient.nick == "bob.acme"
        (came,) = await they.acme.reads(they.bob)
        assert (came.id, came.text, came.thread) == (sent.id, "hello Bob", sent.thread)
        assert (came.sender.nick, came.sender.uid) == ("alice.home", they.alice.uid)
        assert came.recipient.nick == "bob"


async def test_what_becomes_of_a_message_is_known_where_it_was_sent_from() -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)
        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
        (came,) = await they.acme.reads(they.bob)

        handed = "the hook of a client"
        await they.acme.inboxes.acknowledge(they.bob.uid, [came.id], State.DELIVERED, handed)
        told = await they.home.office.wait(sent.id, State.DELIVERED, SECONDS)
        await they.acme.sees(came)
        seen = await they.home.office.wait(sent.id, State.SEEN, SECONDS)

        assert (told.state, told.how) == (State.DELIVERED, handed)
        assert (seen.state, seen.final) == (State.SEEN, False)


async def test_a_reply_needs_no_grant_and_answers_the_message_in_both_organisations() -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)
        sent = await they.home.office.send(they.alice.uid, they.bob.uid, "a question")
        (came,) = await they.acme.reads(they.bob)
        with pytest.raises(NotLetIn):
            await they.acme.office.send(they.bob.uid, "@alice.home", "by the way")

        reply = await they.acme.office.send(
            they.bob.uid, "@alice.home", "an answer", reply_to=came.id, expects_reply=False
        )

        answered = await they.home.office.wait(sent.id, State.ANSWERED, SECONDS)
        assert answered.answer is not None
        assert (answered.answer.id, answered.answer.text) == (reply.id, "an answer")
        assert answered.answer.sender.nick == "bob.acme"
        there = await they.acme.office.wait(sent.id, State.ANSWERED, SECONDS)
        assert there.answer is not None
        (inbox,) = await they.home.reads(they.alice)
        await they.home.sees(inbox)
        assert (await they.acme.office.wait(reply.id, State.SEEN, SECONDS)).final
        assert reply.thread == sent.thread


@pytest.mark.requirement("across-ambiguous")
async def test_who_is_not_let_in_is_told_the_same_as_for_nobody() -> None:
    async with two() as they:
        said = []
        for ref in ("@bob.acme", "@nobody.acme", "@bob.nowhere", they.bob.uid, "f" * 32):
            with pytest.raises(NotLetIn) as refused:
                await they.home.office.send(they.alice.uid, ref, "hello")
            said.append(refused.value.message.replace(ref, "?"))

        assert len(set(said)) == 1
        with pytest.raises(UnknownRecipient):
            await they.home.office.send(they.alice.uid, "@nobody", "hello")
        assert not await they.home.all_mail()
        assert not await they.acme.all_mail()


async def test_only_a_message_of_the_recipient_to_the_sender_is_answered_without_a_grant() -> None:
    async with two() as they:
        carol = await they.acme.agent("carol")
        await they.acme.lets_in(they.bob, they.alice)
        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "a question")
        (came,) = await they.acme.reads(they.bob)

        with pytest.raises(NotLetIn):
            await they.acme.office.send(carol.uid, "@alice.home", "mine", reply_to=came.id)
        with pytest.raises(InvalidInput):
            await they.home.office.send(they.alice.uid, "@bob.acme", "mine", reply_to=sent.id)


@pytest.mark.requirement("across-workers")
async def test_a_worker_that_is_not_let_in_has_its_message_dead_as_to_nobody() -> None:
    async with two() as they:
        worker = await they.home.worker("builder")
        allowed = await they.acme.agent("carol")
        await they.acme.lets_in(allowed, worker.agent)

        refused, nobody = [await worker.send(uid) for uid in (they.bob.uid, "f" * 32)]
        taken = await worker.send(allowed.uid, "for Carol")

        for envelope in (refused, nobody):
            dead = await they.home.mail(envelope.id, State.DEAD)
            assert (dead.state, dead.reason) == (State.DEAD, "no such recipient")
        (came,) = await they.acme.reads(allowed)
        assert (came.id, came.sender.nick) == (taken.id, "builder.home")
        assert [mail.id for mail in await they.acme.all_mail()] == [taken.id]


@pytest.mark.requirement("across-waits")
async def test_a_message_waits_for_an_organisation_that_is_not_open() -> None:
    async with two(opened=False) as they:
        await they.acme.lets_in(they.bob, they.alice)
        sent = [
            await they.home.office.send(they.alice.uid, "@bob.acme", f"number {n}")
            for n in range(5)
        ]

        async with they.acme.open():
            came: list[Mail] = []
            while len(came) < len(sent):
                after = came[-1].seq if came else 0
                came += await they.acme.inboxes.past(they.bob.uid, after, wait=SECONDS)

        assert [mail.id for mail in came] == [mail.id for mail in sent]


@pytest.mark.requirement("across-kills")
async def test_a_restart_of_either_organisation_repeats_nothing_and_loses_nothing() -> None:
    async with two(opened=False) as they:
        await they.acme.lets_in(they.bob, they.alice)
        async with they.acme.open():
            sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
            (came,) = await they.acme.reads(they.bob)
        they.acme.restart()

        async with they.acme.open():
            await they.acme.sees(came)
            seen = await they.home.office.wait(sent.id, State.SEEN, SECONDS)

            assert seen.state is State.SEEN
            assert [mail.id for mail in await they.acme.all_mail()] == [sent.id]


async def test_a_message_expires_where_it_is() -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)
        kept = await they.home.office.send(they.alice.uid, "@bob.acme", "soon", expires_in=0.001)

        dead = await they.home.office.wait(kept.id, State.DEAD, SECONDS)

        assert (dead.state, dead.reason) == (State.DEAD, "expired")


@pytest.mark.requirement("post-pair-limits")
async def test_what_a_worker_sends_over_the_limits_is_dead_with_what_it_can_do() -> None:
    async with two(messages=2, size=500) as they:
        worker = await they.home.worker("builder")
        await they.acme.lets_in(they.bob, worker.agent)

        large = await worker.send(they.bob.uid, "x" * 600)
        sent = [await worker.send(they.bob.uid, f"n{number}") for number in range(3)]

        dead = [await they.home.mail(one.id, State.DEAD) for one in (large, sent[2])]
        assert dead[0].reason.startswith("refused: the message has")
        assert dead[1].reason.startswith("refused: more than 2 messages a minute")
        assert "instead of many" in dead[1].reason
        assert [mail.text for mail in await they.acme.reads(they.bob)][:2] == ["n0", "n1"]


@pytest.mark.requirement("post-pair-limits")
async def test_what_finds_an_inbox_full_comes_when_there_is_room() -> None:
    async with two(waiting=2) as they:
        await they.acme.lets_in(they.bob, they.alice)
        worker = await they.home.worker("builder")
        await they.acme.lets_in(they.bob, worker.agent)
        for text in ("one", "two"):
            await they.home.office.send(they.alice.uid, "@bob.acme", text)
        with pytest.raises(TooManyRequests):
            await they.home.office.send(they.alice.uid, "@bob.acme", "refused")
        first, _ = await they.acme.inboxes.past(they.bob.uid, 1, wait=SECONDS) and (
            await they.acme.reads(they.bob)
        )

        late = await worker.send(they.bob.uid, "late")
        await they.home.folded()
        await they.acme.sees(first)

        (came,) = await they.acme.inboxes.past(they.bob.uid, 2, wait=SECONDS)
        assert (came.id, came.text) == (late.id, "late")


@pytest.mark.requirement("post-message-genuine")
async def test_a_message_that_was_changed_in_the_database_goes_nowhere() -> None:
    async with two(opened=False) as they:
        await they.acme.lets_in(they.bob, they.alice)
        good, bad = [
            await they.home.office.send(they.alice.uid, they.bob.uid, text) for text in ("a", "b")
        ]
        change = update(messages).where(messages.c.id == bad.id).values(message="{}", text="pay")
        await they.home.database.write(lambda store: store.session.run(change))

        async with they.acme.open():
            assert [mail.id for mail in await they.acme.reads(they.bob)] == [good.id]
            dead = await they.home.mail(bad.id, State.DEAD)
            assert dead.reason == "malformed: it is not as it was stored"


@pytest.mark.requirement("across-waits")
async def test_a_full_inbox_holds_up_its_own_messages_alone_and_people_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "LAST_RETRY", 0.2)
    async with two() as they:
        carol = await they.acme.agent("carol")
        for agent in (they.bob, carol):
            await they.acme.lets_in(agent, they.alice)
        full, store = asyncio.Event(), they.acme.relay.store

        async def refuse(row: MessageRow) -> None:
            if row.recipient == they.bob.uid and not full.is_set():
                raise StreamFull("full")
            await store(row)

        monkeypatch.setattr(they.acme.relay, "store", refuse)
        sent = [await they.home.office.send(they.alice.uid, "@bob.acme", f"n{n}") for n in range(3)]
        await they.home.office.send(they.alice.uid, "@carol.acme", "for Carol")

        assert [mail.text for mail in await they.acme.reads(carol)] == ["for Carol"]
        (alert,) = await they.home.standing()
        assert alert == "mail to @bob.acme waits, and is sent on by itself: its inbox is full"
        full.set()
        came: list[Mail] = []
        while len(came) < len(sent):
            after = came[-1].seq if came else 0
            came += await they.acme.inboxes.past(they.bob.uid, after, wait=SECONDS)
        assert [mail.id for mail in came] == [mail.id for mail in sent]
        assert await they.home.standing(0) == []


@pytest.mark.requirement("across-kills")
async def test_news_that_come_while_a_message_is_looked_at_are_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)
        relay = they.home.relay
        bring, before, after = relay._bring, asyncio.Event(), asyncio.Event()

        async def slow(uid: str, rows: Sequence[MessageRow]) -> None:
            await bring(uid, rows)
            before.set()
            await after.wait()

        monkeypatch.setattr(relay, "_bring", slow)
        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
        await before.wait()
        (came,) = await they.acme.reads(they.bob)
        await they.acme.sees(came)
        await they.acme.folded()
        after.set()

        assert (await they.home.office.wait(sent.id, State.SEEN, SECONDS)).state is State.SEEN


async def test_an_id_that_somebody_there_has_used_first_holds_no_message_back() -> None:
    async with two(opened=False) as they:
        await they.acme.lets_in(they.bob, they.alice)
        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
        worker = await they.acme.worker("squatter")
        await worker.store(they.bob.uid, b"first", sent.id)

        async with they.acme.open():
            async with asyncio.timeout(SECONDS):
                while not (found := [m for m in await they.acme.all_mail() if m.id == sent.id]):
                    await they.acme.inboxes.past(they.bob.uid, 1, wait=SECONDS)

        assert [(mail.sender.uid, mail.text) for mail in found] == [(they.alice.uid, "hello")]


@pytest.mark.requirement("across-waits")
async def test_what_was_on_its_way_to_a_removed_organisation_is_dead() -> None:
    async with two(opened=False) as they:
        await they.acme.lets_in(they.bob, they.alice)
        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
        await they.acme.database.write(forget_all)

        await they.home.clerk.sweep()

        dead = await they.home.office.wait(sent.id, State.DEAD, SECONDS)
        assert (dead.state, dead.reason) == (State.DEAD, "recipient retired")


def forget_all(store: Store) -> None:
    store.session.run(delete(grants))
    store.session.run(delete(agents))


@pytest.mark.requirement("across-ambiguous")
async def test_whom_one_lets_in_one_is_not_told_of_before_it_writes() -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice, called="alice.home")

        for ref in ("@alice.home", they.alice.uid, "@nobody.home"):
            with pytest.raises(UnknownRecipient):
                await they.acme.directory.known(ref)
        assert await they.home.directory.known("@bob.acme") == they.bob
        await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
        await they.acme.reads(they.bob)

        assert await they.acme.directory.known("@alice.home") == they.alice
        with pytest.raises(UnknownRecipient):
            await they.acme.directory.resolve("@alice.home")


@pytest.mark.requirement("across-revoking")
async def test_a_thousand_sends_against_a_revoke_leave_nothing_behind_it() -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)
        numbers, taken, begun = iter(range(1000)), [], asyncio.Event()

        async def send() -> None:
            for number in numbers:
                said = f"n{number}"
                with suppress(NotLetIn):
                    taken.append(
                        await they.home.office.send(
                            they.alice.uid, "@bob.acme", said, expects_reply=False, folded=False
                        )
                    )
                if number == 200:
                    begun.set()

        async with asyncio.TaskGroup() as senders:
            for _ in range(16):
                senders.create_task(send())
            await begun.wait()
            (row,) = await they.acme.database.read(lambda store: store.grants.of())
            await they.acme.database.write(lambda store: store.grants.revoke(row.id, time.time()))
            await they.home.decisions.settled()
            last = await they.home.admin.last_sequence("INBOX")

        assert 200 < len(taken) < 1000
        assert len(taken) == last == await they.home.admin.last_sequence("INBOX")
        async with asyncio.timeout(SECONDS):  # what was taken before is carried
            while await they.acme.admin.last_sequence("INBOX") < last:
                await they.acme.inboxes.past(
                    they.bob.uid, await they.acme.admin.last_sequence("INBOX"), wait=1.0
                )


@pytest.mark.requirement("across-kills")
async def test_what_changes_there_while_a_start_compares_is_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two() as they:
        await they.acme.lets_in(they.bob, they.alice)
        sent = await they.home.office.send(they.alice.uid, "@bob.acme", "hello")
        (came,) = await they.acme.reads(they.bob)
        they.acme.relay._guests.clear()  # as after a start
        point, compared = they.acme.database.point, asyncio.Event()

        async def slow(find: Any) -> Any:
            found = await point(find)
            if isinstance(found, list) and not compared.is_set():  # what the relay asks for
                compared.set()
                await they.acme.sees(came)
                await they.acme.folded()
            return found

        monkeypatch.setattr(they.acme.database, "point", slow)

        await they.home.relay.look_at("acme")

        await compared.wait()
        assert (await they.home.office.wait(sent.id, State.SEEN, SECONDS)).state is State.SEEN
