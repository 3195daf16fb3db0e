"""An attacker that does nothing that is forbidden, only too much of it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from postroom.gateway import limits
from postroom.gateway.limits import CUT_OFF, FLOOD, VIOLATION
from postroom.gateway.nats import policy
from postroom.gateway.port import DoorDeadlines, Rates
from postroom.identity.minting import AGENT_SUBSCRIPTIONS
from postroom.protocol import subjects
from postroom.protocol.streams import stream_of
from tests.attack.cases import MARK
from tests.attack.site import Target, open_target
from tests.attack.test_subjects import pub, say
from tests.gateway.nats.rig import Raw
from tests.rig import new_uid

pytestmark = pytest.mark.anyio


async def _served(target: Target) -> None:
    """Others have what they ask for, all the same."""
    async with asyncio.timeout(10):
        assert await target.other.ask("list") == {"tasks": []}
        await target.other.bus.publish(subjects.inbox(target.victim.uid, target.other.uid), b"x")


@pytest.mark.requirement("attack-flood-slowed")
async def test_who_sends_at_full_rate_is_slowed_down_told_of_and_never_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "FLOOD_AFTER", 0.0)
    async with open_target(tmp_path, rates=Rates(messages=500), violations=1) as target:
        raw = await target.house.enter(target.me)
        inbox = f"_I.{target.me.uid}.{target.me.uid}.x"
        await raw.send(f"SUB {inbox} 1\r\n".encode())
        await raw.pinged()
        for _ in range(12):
            await raw.send(pub(inbox) * 500)
            for _ in range(500):
                assert (await raw.line()).startswith(b"MSG ")
                assert await raw.line() == MARK
        await target.house.until(lambda: bool(target.audit.denied))
        await _served(target)

        assert {record.reason for record in target.audit.denied} == {policy.FLOOD}
        assert [kind for kind, _ in target.house.alerts] == [FLOOD]
        assert target.house.gateway.statistics().violations == 0
        assert [line for line in await raw.pinged() if line != b"PING"] == []


@pytest.mark.requirement("attack-flood-slowed")
@pytest.mark.parametrize("kind", ["receipts", "inbox", "alerts", "tasks"])
async def test_a_flood_of_records_is_held_back_while_what_others_store_is_folded(
    tmp_path: Path, kind: str
):
    async with open_target(tmp_path, rates=Rates(records=50)) as target:
        own, sent = target.me.uid, 1500
        subject = {
            "receipts": subjects.receipts(target.other.uid, own),
            "inbox": subjects.inbox(
                new_uid(), own
            ),  # each is answered by a receipt of the post office
            "alerts": subjects.alerts(own),
            "tasks": f"worker.{own}.tasks.{'1' * 32}.working",
        }[kind]
        fold, stream = target.room.parts.fold, stream_of(subject)
        raw = await target.house.enter(target.me)
        before = await target.room.rig.admin.last_sequence(stream)
        await raw.send(pub(subject, body=b"{}") * sent)
        async with asyncio.timeout(20):  # half a minute of flood is still to come
            await target.house.until(lambda: bool(target.audit.of("PUB")))
            mail = await target.other.bus.publish(
                subjects.inbox(target.victim.uid, target.other.uid), b"x"
            )
            receipt = await target.other.bus.publish(
                subjects.receipts(target.victim.uid, target.other.uid), b"{}"
            )
            assert mail is not None
            assert receipt is not None
            await fold.reached("INBOX", mail.sequence, 20)
            await fold.reached("RECEIPTS", receipt.sequence, 20)
            stored = await target.room.rig.admin.last_sequence(stream) - before

        assert 0 < stored < sent
        assert target.house.gateway.statistics().violations == 0
        raw.close()


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_flood_of_questions_is_answered_a_few_at_a_time_and_others_are_served(
    target: Target,
):
    raw = await target.house.enter(target.me)
    own, questions = target.me.uid, 400
    await raw.send(f"SUB _I.{own}.> 1\r\n".encode())
    asked = subjects.ctl(own, "tasks", "list")
    await raw.send(b"".join(pub(asked, f"_I.{own}.ctl.{n}", b"{}") for n in range(questions)))
    await _served(target)

    answered = 0
    while answered < questions:
        answered += (await raw.line()).startswith((b"MSG ", b"HMSG "))
    raw.close()


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_flood_of_connections_is_refused_beyond_the_bound_and_others_get_in(tmp_path: Path):
    most = 16
    async with open_target(tmp_path, rates=Rates(connections=most)) as target:
        entered = [await target.house.enter(target.me) for _ in range(most)]
        target.audit.written = b""
        for protocol in ("nats", "http", "egress") * 20:
            knock = f"POSTROOM/1 {protocol} {target.me.token}\n".encode()
            assert await target.strike(knock) == b""
        await target.house.until(lambda: len(target.audit.denied) == 60)

        assert {record.reason for record in target.audit.denied} == {f"over {most} connections"}
        assert [await raw.pinged() for raw in entered] == [[]] * most
        await target.house.enter(target.theirs)
        await _served(target)


@pytest.mark.requirement("attack-flood-slowed")
async def test_connections_that_say_nothing_are_ended_and_others_get_in_meanwhile(tmp_path: Path):
    deadlines = DoorDeadlines(preface=0.5, dial=10.0, flush=2.0)
    async with open_target(tmp_path, deadlines=deadlines) as target:
        async with AsyncExitStack() as opened:
            silent = []
            for number in range(60):
                reader, writer = await asyncio.open_unix_connection(target.me.socket)
                opened.callback(writer.close)
                writer.write(b"POSTROOM/1 nats x"[: number % 17])  # begun, and never ended
                silent.append(reader)
            await target.house.enter(target.theirs)

            assert [await reader.read() for reader in silent] == [b""] * 60
        reasons = [record.reason for record in target.audit.denied]
        assert reasons == ["no preface in time"] * 60


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_flood_of_subscriptions_is_refused_beyond_the_bound(target: Target):
    raw = await target.house.enter(target.me)
    target.audit.written = b""
    own, over = target.me.uid, 300
    frames = [f"SUB _I.{own}.x{n} {n}\r\n".encode() for n in range(AGENT_SUBSCRIPTIONS + over)]
    answers = await _lines(raw, frames)

    assert sum(b"maximum subscriptions exceeded" in line for line in answers) == over
    assert len(target.audit.denied) == over
    raw.close()


async def _lines(raw: Raw, frames: list[bytes]) -> list[bytes]:
    await raw.send(b"".join(frames))
    return [line for line in await raw.pinged() if line != b"PING"]


@pytest.mark.requirement("attack-flood-slowed")
async def test_who_tries_what_is_forbidden_is_cut_off_and_cannot_come_back(tmp_path: Path):
    async with open_target(tmp_path, violations=20) as target:
        raw = await target.house.enter(target.me)
        await say(raw, [pub(f"worker.{target.victim.uid}.inbox.{target.victim.uid}")] * 19)
        assert [line for line in await raw.pinged() if line != b"PING"] == []

        await raw.send(pub("$JS.API.INFO"))
        await raw.rest()

        for protocol in ("nats", "http", "egress"):
            knock = f"POSTROOM/1 {protocol} {target.me.token}\n".encode()
            assert await target.strike(knock) == b""
        await target.house.until(lambda: len(target.house.alerts) == 2)
        assert [kind for kind, _ in target.house.alerts] == [VIOLATION, CUT_OFF]
        await target.house.enter(target.theirs)
