"""The registry of cards, over the two accounts of a real server: who writes it, and for how long a card is in it."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.directory.cards import address, skills_of
from postroom.directory.registry import SHORTEST_INTERVAL
from postroom.errors import Forbidden
from postroom.protocol import subjects
from postroom.protocol.intervals import CARD_LIFETIME, CARD_REFRESH
from postroom.protocol.presence import WorkerState
from postroom.protocol.streams import CARDS_BUCKET, card_key
from postroom.settings import DEFAULT_ORG
from postroom_a2a.nats.kv import Bucket
from tests.control.taskroom import Hand, TaskRoom, card, room_on, task_room
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("registry")) as room:
        yield room


@pytest.fixture
def room(shared: TaskRoom) -> TaskRoom:
    """The room of the module, with its clock set right and nothing written yet."""
    shared.later = 0.0
    shared.written.clear()
    return shared


async def join(room: TaskRoom, nick: str, *skills: str) -> Hand:
    """A worker with a nick of its own, whose card is in the registry."""
    hand = await room.worker(f"{nick}{next(NUMBERS)}", *skills)
    await hand.online()
    return hand


def shown(hand: Hand, *skills: str, nick: str = "", uid: str = "") -> dict[str, Any]:
    return card(uid or hand.uid, nick or hand.agent.nick, *skills)


async def written(room: TaskRoom, hand: Hand, times: int) -> None:
    """Wait until the card of a worker was written so many times."""
    await room.until(lambda: [uid for uid, found in room.written if found].count(hand.uid) == times)


async def removed(room: TaskRoom, hand: Hand) -> None:
    await room.until(lambda: (hand.uid, None) in room.written)


async def refusals(room: TaskRoom, *hands: Hand) -> dict[str, str]:
    """The alerts that stand about these workers."""
    nicks = {hand.agent.nick for hand in hands}
    return {nick: text for nick, text in await room.alerts() if nick in nicks}


@pytest.mark.requirement("a2a-http-card")
async def test_a_live_workers_card_is_signed_in_the_bucket_until_it_stops(room: TaskRoom):
    reader = await join(room, "reader", "read-source")

    assert await room.bucket(reader.uid) == shown(reader, "read-source")
    assert room.parts.states.there(reader.uid)

    await reader.be(WorkerState.STOPPED)
    await removed(room, reader)

    assert await room.bucket(reader.uid) is None
    assert not room.parts.states.there(reader.uid)


@pytest.mark.requirement("a2a-http-card")
async def test_the_card_of_a_worker_that_was_killed_is_removed(room: TaskRoom):
    reader = await join(room, "reader")

    reader.end()
    await removed(room, reader)

    assert await room.bucket(reader.uid) is None


@pytest.mark.requirement("a2a-http-card")
async def test_the_card_of_a_silent_worker_is_removed(room: TaskRoom):
    reader = await join(room, "reader")

    room.later = 31.0
    room.parts.registry.wake()
    await removed(room, reader)

    assert await room.bucket(reader.uid) is None


@pytest.mark.requirement("a2a-http-card")
async def test_the_server_forgets_a_card_that_is_not_written_anew(room: TaskRoom):
    reader = await join(room, "reader")
    info = await room.rig.core.request("$JS.API.STREAM.INFO.KV_cards", b"")
    assert json.loads(info.payload)["config"]["max_age"] == CARD_LIFETIME * 1e9

    room.later = CARD_REFRESH
    await room.parts.registry.sweep()
    await written(room, reader, 2)
    await room.parts.registry.sweep()

    assert [uid for uid, found in room.written if found].count(reader.uid) == 2


@pytest.mark.requirement("a2a-http-card")
async def test_what_another_life_left_in_the_bucket_is_removed_at_the_start(tmp_path: Path):
    async with task_room(tmp_path) as first:
        stale = new_uid()
        bucket = Bucket(first.rig.admin.jetstream, CARDS_BUCKET)
        await bucket.put(card_key(DEFAULT_ORG, stale), b"{}")
        async with room_on(tmp_path / "second", first.rig) as second:
            await join(second, "reader")

            assert await bucket.get(card_key(DEFAULT_ORG, stale)) is None


@pytest.mark.requirement("a2a-http-card")
async def test_a_workers_credential_reaches_no_key_of_the_bucket(room: TaskRoom):
    reader = await join(room, "reader")
    own = f"$KV.{CARDS_BUCKET}.{card_key(DEFAULT_ORG, reader.uid)}"

    for headers in ({}, {"KV-Operation": "DEL"}, {"Nats-Rollup": "all"}):
        with pytest.raises(Forbidden):
            await reader.bus.jetstream.publish(own, b"{}", headers=headers)
    for subject in (
        "$JS.API.STREAM.MSG.GET.KV_cards",
        f"$JS.API.DIRECT.GET.KV_cards.{own}",
        "$JS.API.STREAM.PURGE.KV_cards",
        "$JS.API.STREAM.DELETE.KV_cards",
    ):
        with pytest.raises(Forbidden):
            await reader.bus.request(subject, b"{}", timeout=5)

    assert await room.bucket(reader.uid) == shown(reader)


@pytest.mark.requirement("a2a-http-card")
async def test_an_announced_card_replaces_the_old_one(room: TaskRoom):
    reader = await join(room, "reader", "read")

    room.later = SHORTEST_INTERVAL
    await reader.announce(shown(reader, "read", "write"))
    await written(room, reader, 2)

    assert await room.bucket(reader.uid) == shown(reader, "read", "write")
    assert await refusals(room, reader) == {}


@pytest.mark.requirement("a2a-http-card")
async def test_a_worker_that_changes_its_card_in_a_loop_is_written_once_a_second(room: TaskRoom):
    reader, other = await join(room, "reader"), await join(room, "other")
    room.later = SHORTEST_INTERVAL

    for number in range(50):
        await reader.announce(shown(reader, f"skill-{number}"))
    await reader.announce(shown(reader, "last"))

    def taken() -> bool:
        run = room.parts.workers.run_of(reader.uid)
        return run is not None and skills_of(run.card) == ["last"]

    while not taken():
        await other.announce(shown(other, "still"))
        await room.rig.core.connection.flush()
    room.later += SHORTEST_INTERVAL
    await other.announce(shown(other, "new"))
    await room.until(
        lambda: ["new"] in [skills_of(f) for uid, f in room.written if f and uid == other.uid]
    )
    await room.parts.registry.sweep()

    assert [uid for uid, _ in room.written].count(reader.uid) == 3
    assert await room.bucket(reader.uid) == shown(reader, "last")


@pytest.mark.requirement("a2a-http-card")
async def test_a_claim_of_anothers_name_or_url_is_refused_with_one_alert(room: TaskRoom):
    lead, reader = await join(room, "lead"), await join(room, "reader")

    await reader.announce(shown(reader, nick=lead.agent.nick))
    await reader.announce(shown(reader, uid=lead.uid))
    await lead.announce(shown(lead, uid=reader.uid))
    while len(found := await refusals(room, lead, reader)) < 2:
        await room.rig.core.connection.flush()

    said = "announced a card that was refused: the card claims the"
    assert found == {
        reader.agent.nick: f"{said} name '{lead.agent.nick}'",
        lead.agent.nick: f"{said} URL '{address(reader.uid)}'",
    }
    await reader.announce(shown(reader))
    while reader.agent.nick in await refusals(room, reader):
        await room.rig.core.connection.flush()
    await room.parts.registry.sweep()
    assert await room.bucket(reader.uid) == shown(reader)
    assert await room.bucket(lead.uid) == shown(lead)


@pytest.mark.requirement("identity-sender-proved")
async def test_an_announcement_with_anothers_reply_subject_counts_for_nothing(room: TaskRoom):
    reader = await join(room, "reader")
    payload = json.dumps(shown(reader, "forged")).encode()

    room.later = SHORTEST_INTERVAL
    # Without the reply subject of its sender; then a good one, by which the first was judged.
    await reader.bus._link.send(subjects.discovery(reader.uid), payload, reply="", headers={})
    await reader.announce(shown(reader, "good"))
    await written(room, reader, 2)

    assert await room.bucket(reader.uid) == shown(reader, "good")


async def test_a_worker_that_does_not_run_announces_in_vain(room: TaskRoom):
    gone, reader = await join(room, "gone"), await join(room, "reader")
    gone.end()
    await removed(room, gone)

    room.later = SHORTEST_INTERVAL
    await gone.announce(shown(gone, "late"))
    await reader.announce(shown(reader, "later"))
    await written(room, reader, 2)

    assert await room.bucket(gone.uid) is None
    assert await refusals(room, gone, reader) == {}
