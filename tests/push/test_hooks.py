"""Webhooks over each database: what is stored is told, whatever ends, by a schedule; and their secrets at rest."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from postroom.errors import NotFound, Refused
from postroom.projection.changes import Change
from postroom.protocol.events import event_id
from postroom.protocol.limits import MAX_WEBHOOKS
from postroom.protocol.principal import KEY, OPERATOR_KEY, USUAL_SCOPES, Principal, Scope
from postroom.protocol.receipts import State
from postroom.protocol.webhooks import HookEvent
from postroom.push import hooks
from postroom.push.pusher import NOT_THEIRS
from postroom.push.receivers import SECRET_LOST
from postroom.push.webhooks import LOST, HookView, WebhookService
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.events import EventRow
from postroom.store.keys import ApiKey
from postroom.store.messages import MessageRow
from postroom.store.ports import Place
from postroom.store.pushes import ConfigRow
from postroom.store.schema import agents, push_configs, webhooks
from postroom.store.sqlite import SQLitePlace
from postroom_a2a.service import PushConfig
from tests.push.receivers import HANG, OK, RESET, Receiver, answering, receiver
from tests.push.rig import PAUSES, SECONDS, Tasks, tasks_in
from tests.rig import new_uid
from tests.store.conftest import make_tables

pytestmark = pytest.mark.anyio

EVERYTHING = list(HookEvent)


@dataclass
class Office:
    """An organisation where a test stores what the fold does."""

    tasks: Tasks
    seq: int = 0

    @property
    def service(self) -> WebhookService:
        tasks = self.tasks
        return WebhookService(tasks.database, tasks.pusher, tasks._alert, tasks.clock)

    def me(self, agent: Agent, key: str = "") -> Principal:
        scopes = USUAL_SCOPES | ({Scope.OPERATE} if key == OPERATOR_KEY else set())
        return Principal(agent.uid, agent.org, agent.nick, agent.kind, scopes, KEY, key)

    async def add(self, url: str, *events: HookEvent, key: str = "") -> HookView:
        """A webhook of Anna's."""
        anna = self.tasks.anna
        return await self.service.add(self.me(anna, key), anna.uid, url, list(events) or EVERYTHING)

    async def mail(
        self, text: str, *, tell: bool = True, receipt: int = 0, **more: Any
    ) -> MessageRow:
        """A message of Bert's to Anna."""
        self.seq += 1
        now = self.tasks.clock()
        values: dict[str, Any] = {
            "seq": self.seq,
            "id": new_uid(),
            "sender": self.tasks.bert.uid,
            "recipient": self.tasks.anna.uid,
            "text": text,
            "message": "{}",
            "sent_at": now,
            "stored_at": now,
            "updated_at": now,
            "receipt": receipt,
        }
        row = MessageRow(**(values | more))

        def fold(store: Store) -> None:
            store.messages.insert_message(row)
            store.set_cursor("INBOX", self.seq)

        await self.tasks.database.fold(fold)
        if tell:
            self._tell("mail", row)
        return row

    async def receipt(self, row: MessageRow, state: State, seq: int) -> None:
        """A receipt, at that sequence of RECEIPTS."""
        now = self.tasks.clock()

        def fold(store: Store) -> None:
            store.messages.set_state(row.seq, state, final=False, reason="", at=now, receipt=seq)
            store.set_cursor("RECEIPTS", seq)

        await self.tasks.database.fold(fold)
        self._tell("receipt", row)

    def _tell(self, kind: str, row: MessageRow) -> None:
        self.tasks.changes.publish(
            [Change(kind, row.seq, row.id, row.sender, row.recipient, row=row)]
        )

    async def approval(self, request: str, number: int, *, answer: bool = False) -> None:
        """The worker asks, or somebody answers, in that record of EVENTS."""
        event = event_id(number, 0)
        kind = "control_response" if answer else "control_request"
        said = (
            {"decision": "allowed", "channel": "api"} if answer else {"tool": "Bash", "title": "ls"}
        )
        worker, now = self.tasks.worker.uid, self.tasks.clock()
        row = EventRow(
            event, worker, "", event, kind, "", "", request, 0, 0, 0.0, json.dumps(said), now
        )

        def fold(store: Store) -> None:
            store.events.insert([row])
            store.set_cursor("EVENTS", number)
            if answer:
                store.approvals.settle(event, worker, request, reported=False)
            else:
                store.approvals.ask(event, worker, request, None)

        await self.tasks.database.fold(fold)
        self.tasks.changes.publish([Change("event", event, request, worker)])

    async def deliveries(self, hook: HookView) -> list[Any]:
        """What was told, as the API shows it."""
        found = await self.service.deliveries(hook.row.id, self.me(self.tasks.anna), 100)
        return [view.as_json() for view in found]

    async def until(self, hook: HookView, *states: str) -> list[Any]:
        """Wait until the deliveries are in those states, in any order."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = await self.deliveries(hook)
                if sorted(each["state"] for each in found) == sorted(states):
                    return found
                await asyncio.sleep(0.01)

    async def tried(self, hook: HookView, attempts: int) -> None:
        """Wait until so many attempts of one delivery are written down."""
        async with asyncio.timeout(SECONDS):
            while True:
                if attempts in [each["attempts"] for each in await self.deliveries(hook)]:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def office(place: Place) -> AsyncGenerator[Office]:
    async with Database(place) as database, tasks_in(database) as tasks:
        yield Office(tasks)


@pytest.fixture
async def on_sqlite(tmp_path: Path) -> AsyncGenerator[Office]:
    """For what is the same on each database."""
    place = SQLitePlace(tmp_path / "projection.db")
    make_tables(place)
    async with Database(place) as database, tasks_in(database) as tasks:
        yield Office(tasks)


def at(*hooks: Receiver) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{hook.port}" for hook in hooks)


def told(hook: Receiver) -> list[tuple[str, Any]]:
    """Event and what tells it from others of the kind, sorted: the streams do not wait for each other."""
    key = {"message.received": "preview", "receipt": "state", "task": "what", "approval": "state"}
    said = [got.said for got in hook.got]
    return sorted((each["event"], each["payload"][key[each["event"]]]) for each in said)


@pytest.mark.requirement("webhooks-tell")
async def test_every_kind_of_event_is_told_once_to_whom_it_concerns_from_now_on(office: Office):
    tasks = office.tasks
    async with receiver() as hook, tasks.pushing(*at(hook)):
        await office.mail("before")
        await office.add(hook.url, key=OPERATOR_KEY)
        one = await office.mail("one")
        await office.mail("to another", recipient=tasks.bert.uid)
        sent = await office.mail("sent", sender=tasks.anna.uid, recipient=tasks.bert.uid)
        await office.receipt(sent, State.DELIVERED, 5)
        await hook.when(lambda: ("receipt", "delivered") in told(hook))
        await office.receipt(sent, State.SEEN, 7)
        await office.receipt(one, State.SEEN, 8)  # Bert's to hear of
        task = await tasks.task()
        await tasks.say(task, "working", "made", "completed")
        await office.approval("a" * 32, 1)
        await hook.when(lambda: ("approval", "pending") in told(hook))
        await office.approval("a" * 32, 2, answer=True)
        await hook.until(8)
        assert told(hook) == [
            ("approval", "allowed"),
            ("approval", "pending"),
            ("message.received", "one"),
            ("receipt", "delivered"),
            ("receipt", "seen"),
            ("task", "artifact"),
            ("task", "completed"),
            ("task", "working"),
        ]
        assert len({got.id for got in hook.got}) == 8


@pytest.mark.requirement("webhooks-guarded")
async def test_an_approval_is_told_to_who_owns_the_agent_and_to_who_operates_and_to_nobody_else(
    office: Office,
):
    tasks = office.tasks
    async with receiver() as hers, receiver() as his, tasks.pushing(*at(hers, his)):
        me = office.me(tasks.bert)
        bert = await office.service.add(me, tasks.bert.uid, his.url, [HookEvent.APPROVAL])
        await office.add(hers.url, HookEvent.APPROVAL)
        await office.approval("a" * 32, 1)  # the worker is nobody's
        async with asyncio.timeout(SECONDS):
            while not await tasks.database.read(lambda store: store.webhooks.cursor("EVENTS") > 1):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        owned = update(agents).where(agents.c.uid == tasks.worker.uid).values(owner=tasks.anna.uid)
        await tasks.database.write(lambda store: store.session.run(owned))
        await office.approval("b" * 32, 2)
        await hers.until(1)
        assert hers.got[0].said["payload"]["approval_id"] == "b" * 32
        assert hers.got[0].said["payload"]["preview"] == "ls"
        assert (his.got, await office.service.deliveries(bert.row.id, me, 10)) == ([], [])


@pytest.mark.requirement("webhooks-guarded")
async def test_who_owns_an_agent_no_more_is_told_nothing_more_of_it(office: Office):
    tasks = office.tasks
    key = ApiKey("k1", tasks.bert.uid, "", "read send", 0.0)

    def owned_by(uid: str) -> Callable[[Store], int]:
        owned = update(agents).where(agents.c.uid == tasks.anna.uid).values(owner=uid)
        return lambda store: store.session.run(owned)

    await tasks.database.write(lambda store: store.keys.add(key, "0" * 64))
    await tasks.database.write(owned_by(tasks.bert.uid))
    async with receiver() as hook, tasks.pushing(*at(hook)):
        me = office.me(tasks.bert, "k1")
        made = await office.service.add(me, tasks.anna.uid, hook.url, [HookEvent.MESSAGE])
        await office.mail("hers, and his to hear of")
        await hook.until(1)
        await tasks.database.write(owned_by(""))
        await office.mail("hers alone")
        found = await office.until(made, "delivered", "given-up")
        assert NOT_THEIRS in [each["reason"] for each in found]
        (shown,) = await office.service.listed(office.me(tasks.anna))
        assert (shown.row.disabled, len(hook.got)) == (NOT_THEIRS, 1)


async def test_a_message_that_is_dead_when_it_comes_is_told_to_nobody(office: Office):
    async with receiver() as hook, office.tasks.pushing(*at(hook)):
        made = await office.add(hook.url, HookEvent.MESSAGE)
        await office.mail("malformed", state=State.DEAD.value, final=True)
        await office.mail("well")
        await office.until(made, "delivered")
        assert told(hook) == [("message.received", "well")]


@pytest.mark.requirement("webhooks-tell")
async def test_what_was_stored_just_before_the_end_of_the_process_is_told_after_it_once(
    office: Office,
):
    async with receiver() as hook:
        async with office.tasks.pushing(*at(hook)):
            made = await office.add(hook.url, HookEvent.MESSAGE, HookEvent.RECEIPT)
            await office.mail("first")
            await hook.until(1)
            await office.until(made, "delivered")
        await office.mail("second", tell=False)  # committed, and nobody was told
        # Its receipt was folded before it, and others since.
        early = {"sender": office.tasks.anna.uid, "recipient": office.tasks.bert.uid}
        await office.mail("third", tell=False, receipt=3, state=State.SEEN.value, **early)
        await office.tasks.database.fold(lambda store: store.webhooks.move("RECEIPTS", 9))
        async with office.tasks.pushing(*at(hook)):
            await hook.until(3)
            await office.until(made, *3 * ["delivered"])
        async with office.tasks.pushing(*at(hook)):
            await office.mail("last")
            await hook.until(4)  # nothing of before came again
        assert told(hook) == [
            ("message.received", "first"),
            ("message.received", "last"),
            ("message.received", "second"),
            ("receipt", "seen"),
        ]


@pytest.mark.requirement("webhooks-tell")
@pytest.mark.parametrize(
    "failing",
    [
        answering(500),
        answering(429, retry_after="45"),
        answering(408),
        answering(302, location="http://127.0.0.1:1/"),
        HANG,
        RESET,
        b"no http\r\n\r\n",
    ],
    ids=["500", "429", "408", "302", "slow", "reset", "no-http"],
)
async def test_a_delivery_that_fails_comes_again_under_its_id_and_those_behind_it_wait(
    on_sqlite: Office, failing: bytes
):
    office = on_sqlite
    office.tasks.deadline = 0.3
    async with receiver(failing, OK) as hook, office.tasks.pushing(*at(hook)):
        made = await office.add(hook.url, HookEvent.MESSAGE)
        await office.mail("one")
        await office.mail("two")
        await hook.until(1)
        first, *_ = await office.until(made, "pending", "pending")
        await office.tried(made, 1)
        office.tasks.later(PAUSES[0] + 1)
        await hook.until(3)
        assert [got.said["payload"]["preview"] for got in hook.got] == ["one", "one", "two"]
        assert hook.got[0].id == hook.got[1].id != hook.got[2].id
        # A receiver refuses an old timestamp, so it is that of the attempt.
        stamps = [got.headers["x-a2a-timestamp"] for got in hook.got]
        assert stamps[0] < stamps[1]
        assert first["webhook"] == made.row.id


@pytest.mark.requirement("webhooks-tell")
async def test_one_that_is_away_for_the_whole_schedule_gets_nothing_of_what_waits_and_an_alert(
    office: Office,
):
    async with receiver(answering(503)) as hook, office.tasks.pushing(*at(hook)):
        made = await office.add(hook.url, HookEvent.MESSAGE)
        await office.mail("one")
        await office.mail("two")
        for number, pause in enumerate(PAUSES, 1):
            await hook.until(number)
            await office.tried(made, number)
            office.tasks.later(pause + 1)
        await office.until(made, "given-up", "given-up")
        (alert,) = await office.tasks.alerted(1)
        assert alert.about == made.row.id
        assert f"postroom webhooks deliveries {made.row.id}" in alert.text
        hook.answers = [answering(404), OK]
        await office.mail("refused")  # any other status of 400 to 499 ends that one alone, at once
        await office.mail("taken")
        await office.until(made, *3 * ["given-up"], "delivered")
        assert len(hook.got) == len(PAUSES) + 3


async def test_webhooks_have_a_limit_and_old_deliveries_are_forgotten(office: Office):
    async with receiver() as hook, office.tasks.pushing(*at(hook)) as pusher:
        as_usual = {"key": OPERATOR_KEY}
        made = [
            await office.add(hook.url, HookEvent.MESSAGE, **as_usual) for _ in range(MAX_WEBHOOKS)
        ]
        with pytest.raises(Refused):
            await office.add(hook.url, **as_usual)
        for each in made[1:]:
            await office.service.remove(each.row.id, office.me(office.tasks.anna))
        with pytest.raises(NotFound):
            await office.deliveries(made[1])
        await office.mail("one")
        await office.until(made[0], "delivered")
        await pusher.forget()
        assert len(await office.deliveries(made[0])) == 1
        office.tasks.later(8 * 86400.0)
        await pusher.forget()
        assert await office.deliveries(made[0]) == []


# ── secrets at rest ─────────────────────────────────────────────────────────────────────────────────────────


def in_rows(store: Store) -> str:
    """All that the tables of receivers hold."""
    return str([store.session.rows(table.select()) for table in (push_configs, webhooks)])


@pytest.mark.requirement("secrets-sealed")
async def test_no_secret_of_a_receiver_stands_in_the_database(office: Office):
    tasks = office.tasks
    async with receiver() as hook, tasks.pushing(*at(hook)):
        made = await office.add(hook.url, HookEvent.MESSAGE)
        task = await tasks.task()
        await tasks.push_to(
            hook.url, task, token="said-once", scheme="Bearer", credentials="so-secret"
        )
        kept = await tasks.database.read(in_rows)
        for secret in (made.secret, "said-once", "so-secret"):
            assert secret not in kept
            assert secret not in repr(made.row)
        await tasks.say(task, "completed")
        await hook.until(1)
        assert hook.got[0].headers["authorization"] == "Bearer so-secret"
        assert oct(tasks.sealing.stat().st_mode & 0o777) == "0o600"


@pytest.mark.requirement("secrets-sealed")
async def test_what_an_earlier_version_has_stored_is_sealed_at_the_start_and_works(office: Office):
    tasks = office.tasks
    async with receiver() as hook:
        async with tasks.pushing(*at(hook)):
            task = await tasks.task()
            await tasks.push_to(hook.url, task, token="x")

        def as_before(store: Store) -> ConfigRow:
            (config,) = store.pushes.of_task(task)
            row = replace(
                config, token="in-clear", scheme="Bearer", credentials="too", sealed=False
            )
            store.pushes.put(row)
            return row

        await tasks.database.write(as_before)
        async with tasks.pushing(*at(hook)):
            await office.service.open()
            assert "in-clear" not in await tasks.database.read(in_rows)
            await office.service.open()  # once
            await tasks.say(task, "completed")
            await hook.until(1)
            headers = hook.got[0].headers
            assert headers["x-a2a-notification-token"] == "in-clear"
            assert headers["authorization"] == "Bearer too"


@pytest.mark.requirement("secrets-sealed")
@pytest.mark.parametrize("how", ["missing", "damaged", "another"])
async def test_where_the_key_is_lost_nothing_is_sent_unsigned_and_people_hear_what_to_make_anew(
    on_sqlite: Office, how: str
):
    office, tasks = on_sqlite, on_sqlite.tasks
    async with receiver() as hook:
        async with tasks.pushing(*at(hook)):
            made = await office.add(hook.url, HookEvent.MESSAGE)
            task = await tasks.task()
            await tasks.push_to(hook.url, task, token="said-once")
        if how == "missing":
            tasks.sealing.unlink()
        else:
            tasks.sealing.write_bytes(b"short" if how == "damaged" else bytes(32))
        async with tasks.pushing(*at(hook)):
            await office.service.open()
            (alert,) = await tasks.alerted(1)
            assert alert.kind == LOST
            assert f"postroom webhooks rotate {made.row.id}" in alert.text
            assert "1 push notification configs anew" in alert.text
            (shown,) = await office.service.listed(office.me(tasks.anna))
            assert (shown.as_json()["state"], SECRET_LOST in shown.fault) == ("lost", True)
            with pytest.raises(Refused, match="lost"):
                await office.service.test(made.row.id, office.me(tasks.anna))
            await office.mail("one")
            await tasks.say(task, "completed")
            await office.until(made, "given-up")
            assert {row.state for row in await tasks.until(task, "given-up")} == {"given-up"}
            assert hook.got == []

            turned = await office.service.rotate(made.row.id, office.me(tasks.anna))
            assert turned.row.former_until is None
            await office.mail("two")
            await hook.until(1)
            hook.got[0].verify(turned.secret)
            new = PushConfig(task, hook.url, "", token="again")
            await tasks.configs().create(new, "", after=0)


async def test_a_secret_that_is_moved_to_another_webhook_does_not_open_there(office: Office):
    async with receiver() as hook, office.tasks.pushing(*at(hook)):
        one = await office.add(hook.url, HookEvent.MESSAGE)
        other = await office.add(hook.url, HookEvent.RECEIPT)
        moved = replace(other.row, secret=one.row.secret)
        await office.tasks.database.write(lambda store: store.webhooks.put(moved))
        shown = await office.service.listed(office.me(office.tasks.anna))
        assert sorted(view.as_json()["state"] for view in shown) == ["active", "lost"]
        assert time.time() > one.row.made_at - SECONDS


async def test_what_comes_while_a_new_webhook_is_looked_at_is_told(
    on_sqlite: Office, monkeypatch: pytest.MonkeyPatch
):
    office, loop = on_sqlite, asyncio.get_running_loop()
    took = hooks.take

    def take(store: Store, now: float) -> hooks.Taken:
        found = took(store, now)
        if loop.is_running() and found.concerns and not waited:  # the first look at it has ended
            waited.append(True)
            asyncio.run_coroutine_threadsafe(office.mail("meanwhile"), loop)
        return found

    waited: list[bool] = []
    async with receiver() as hook, office.tasks.pushing(*at(hook)):
        monkeypatch.setattr(hooks, "take", take)
        await office.add(hook.url, HookEvent.MESSAGE)
        await hook.until(1)
        assert told(hook) == [("message.received", "meanwhile")]
