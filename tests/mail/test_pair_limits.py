"""How much one agent may send to another that is reached by grants alone; what was sent before is never refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import update

from postroom.errors import MessageTooLarge, TooManyRequests
from postroom.mail.limits import SHARE, PairBounds, PairLimits
from postroom.mail.office import PostOffice
from postroom.protocol.receipts import State
from postroom.store.grants import GrantRow
from postroom.store.pending import PendingStore
from postroom.store.schema import agents
from tests.mail.desk import SECONDS, Desk, running_desk

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("post-pair-limits")]

ANN, BOB, EVE = "a" * 32, "b" * 32, "e" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limited(desk: Desk, clock: Clock, **bounds: int) -> PostOffice:
    limits = PairLimits(PairBounds(**bounds), clock)
    return PostOffice(desk.submitter, desk.database, desk.changes, limits=limits)


async def by_grants_alone(desk: Desk, uid: str, *let_in: str) -> None:
    change = update(agents).where(agents.c.uid == uid).values(grants_only=True)
    await desk.database.write(lambda store: store.session.run(change))
    for grantee in let_in:
        grant = GrantRow(grantee, uid, grantee, "message", uid, 1.0)
        await desk.database.write(lambda store, grant=grant: store.grants.put(grant))


def test_each_pair_has_its_own_rate_and_learns_when_to_come_again() -> None:
    clock, noted = Clock(), list[str]()
    limits = PairLimits(PairBounds(messages=20, size=100), clock, noted.append)
    for _ in range(20):
        limits.take(ANN, BOB, 1)
    with pytest.raises(TooManyRequests) as refused:
        limits.take(ANN, BOB, 1)
    assert refused.value.seconds == pytest.approx(3.0)
    assert "wait 3 s" in refused.value.remedy
    assert "one message with all" in refused.value.remedy
    limits.take(ANN, EVE, 1)
    limits.take(EVE, BOB, 1)
    limits.take(BOB, ANN, 1)
    clock.now += 3.0
    limits.take(ANN, BOB, 1)
    with pytest.raises(TooManyRequests):
        limits.take(ANN, BOB, 1)
    with pytest.raises(MessageTooLarge, match="101 bytes"):
        limits.take(BOB, EVE, 101)
    assert noted == ["pair", "pair", "pair-size"]


async def test_only_recipients_by_grants_alone_are_limited_and_a_repeated_send_is_answered(
    tmp_path: Path,
) -> None:
    async with running_desk(tmp_path) as desk:
        maria, bob, eve = await desk.person(), await desk.worker("bob"), await desk.worker("eve")
        await by_grants_alone(desk, bob.uid, maria.uid, eve.uid)
        office = limited(desk, Clock(), messages=2, size=300)
        for _ in range(4):
            await office.send(maria.uid, eve.uid, "open" * 100)

        first = await office.send(maria.uid, bob.uid, "one", key="one")
        await office.send(maria.uid, bob.uid, "two")
        with pytest.raises(TooManyRequests):
            await office.send(maria.uid, bob.uid, "three")
        with pytest.raises(TooManyRequests):
            await office.send(maria.uid, bob.uid, "three", key="three")
        for _ in range(3):
            assert (await office.send(maria.uid, bob.uid, "one", key="one")).id == first.id
        with pytest.raises(MessageTooLarge):
            await office.send(eve.uid, bob.uid, "large" * 100)
        await office.send(eve.uid, bob.uid, "mine")
        told = [mail.text for mail in await desk.all_mail() if mail.recipient.uid == bob.uid]
        assert told == ["one", "two", "mine"]


async def test_a_recipient_has_to_see_something_when_too_much_waits(tmp_path: Path) -> None:
    async with running_desk(tmp_path) as desk:
        maria, bob, eve = await desk.person(), await desk.worker("bob"), await desk.worker("eve")
        await by_grants_alone(desk, bob.uid, maria.uid, eve.uid)
        office = limited(desk, Clock(), waiting=3)
        sent = [await office.send(maria.uid, bob.uid, "w", key=f"{n}") for n in range(3)]
        for sender, key in ((maria, ""), (eve, "k")):
            with pytest.raises(TooManyRequests, match="3 messages wait") as refused:
                await office.send(sender.uid, bob.uid, "more", key=key)
            assert refused.value.seconds == 60.0
        assert (await office.send(maria.uid, bob.uid, "w", key="0")).id == sent[0].id

        await bob.receipt(sent[1], State.SEEN)
        await office.wait(sent[1].id, State.SEEN, SECONDS)
        await office.send(eve.uid, bob.uid, "now")


async def test_a_full_recipient_is_looked_at_seldom_while_it_has_room_and_each_time_when_it_has_little(
    tmp_path: Path,
) -> None:
    async with running_desk(tmp_path) as desk:
        maria, bob = await desk.person(), await desk.worker("bob")
        await by_grants_alone(desk, bob.uid, maria.uid)
        looked = []
        counted = PendingStore.waiting

        def count(self: PendingStore, recipient: str, most: int) -> int:
            looked.append(counted(self, recipient, most))
            return looked[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PendingStore, "waiting", count)
            office = limited(desk, Clock(), waiting=48)
            sent = 0
            with suppress(TooManyRequests):
                while True:
                    await office.send(maria.uid, bob.uid, f"message {sent}")
                    sent += 1
        assert 48 <= sent <= 48 + 48 // SHARE
        assert len(looked) < sent
        assert looked[-1] == 48
