"""The registry of cards, over the two accounts of a real server: who writes it, and for how long a card is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.directory.cards import address, skills_of
from postroom.directory.registry import SHORTEST_INTERVAL
from postroom.errors import Forbidden
from postroom.protocol import subjects
from postroom.protocol.presence import WorkerState
from postroom.protocol.streams import CARD_LIFETIME, CARD_REFRESH, CARDS_BUCKET, card_key
from postroom_a2a.nats.kv import Bucket
from tests.control.cardroom import ORG, card, card_room
from tests.rig import new_uid

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("cards-live-registered")
async def test_a_live_workers_card_is_signed_in_the_bucket_until_it_stops(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader", "read-source")

        assert await room.bucket(reader.uid) == card(reader.uid, "reader", "read-source")
        assert room.states.online(reader.uid)

        await room.say(reader, WorkerState.STOPPED)
        await room.until(lambda: room.written[-1] == (reader.uid, None))

        assert await room.bucket(reader.uid) is None
        assert not room.states.online(reader.uid)


@pytest.mark.requirement("cards-live-registered")
async def test_the_card_of_a_worker_that_was_killed_is_removed(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader")

        room.end(reader.uid)
        await room.until(lambda: room.written[-1] == (reader.uid, None))

        assert await room.bucket(reader.uid) is None


@pytest.mark.requirement("cards-live-registered")
async def test_the_card_of_a_silent_worker_is_removed(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader")

        room.later = 31.0
        room.registry.wake()
        await room.until(lambda: room.written[-1] == (reader.uid, None))

        assert await room.bucket(reader.uid) is None


@pytest.mark.requirement("cards-live-registered")
async def test_the_server_forgets_a_card_that_is_not_written_anew(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader")
        info = await room.rig.core.request("$JS.API.STREAM.INFO.KV_cards", b"")
        assert json.loads(info.payload)["config"]["max_age"] == CARD_LIFETIME * 1e9

        room.later = CARD_REFRESH
        await room.registry.sweep()
        await room.until(lambda: len(room.written) == 2)
        await room.registry.sweep()

        assert [uid for uid, found in room.written if found] == [reader.uid] * 2


@pytest.mark.requirement("cards-live-registered")
async def test_what_another_life_left_in_the_bucket_is_removed_at_the_start(tmp_path: Path):
    async with card_room(tmp_path) as first:
        stale = new_uid()
        bucket = Bucket(first.rig.admin.jetstream, CARDS_BUCKET)
        await bucket.put(card_key(ORG, stale), b"{}")
        async with card_room(tmp_path, first.rig) as second:
            await second.join("reader")

            assert await bucket.get(card_key(ORG, stale)) is None


@pytest.mark.requirement("cards-claims-refused")
async def test_a_workers_credential_reaches_no_key_of_the_bucket(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader")
        own = f"$KV.{CARDS_BUCKET}.{card_key(ORG, reader.uid)}"

        for headers in ({}, {"KV-Operation": "DEL"}, {"Nats-Rollup": "all"}):
            with pytest.raises(Forbidden):
                await reader.jetstream.publish(own, b"{}", headers=headers)
        for subject in (
            "$JS.API.STREAM.MSG.GET.KV_cards",
            f"$JS.API.DIRECT.GET.KV_cards.{own}",
            "$JS.API.STREAM.PURGE.KV_cards",
            "$JS.API.STREAM.DELETE.KV_cards",
        ):
            with pytest.raises(Forbidden):
                await reader.request(subject, b"{}", timeout=5)

        assert await room.bucket(reader.uid) == card(reader.uid, "reader")


@pytest.mark.requirement("cards-live-registered")
async def test_an_announced_card_replaces_the_old_one(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader", "read")

        room.later = SHORTEST_INTERVAL
        await room.announce(reader, card(reader.uid, "reader", "read", "write"))
        await room.until(lambda: len(room.written) == 2)

        assert await room.bucket(reader.uid) == card(reader.uid, "reader", "read", "write")
        assert room.alerts == []


@pytest.mark.requirement("cards-claims-refused")
async def test_a_worker_that_changes_its_card_in_a_loop_is_written_once_a_second(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader, other = await room.join("reader"), await room.join("other")
        room.later = SHORTEST_INTERVAL

        for number in range(50):
            await room.announce(reader, card(reader.uid, "reader", f"skill-{number}"))
        await room.announce(reader, card(reader.uid, "reader", "last"))
        await room.until(lambda: skills_of(room.workers.all[reader.uid].card) == ["last"])
        room.later += SHORTEST_INTERVAL
        await room.announce(other, card(other.uid, "other", "new"))
        await room.until(lambda: [uid for uid, _ in room.written].count(other.uid) == 2)

        assert [uid for uid, _ in room.written].count(reader.uid) == 3
        assert await room.bucket(reader.uid) == card(reader.uid, "reader", "last")


@pytest.mark.requirement("cards-claims-refused")
async def test_a_claim_of_anothers_name_or_url_is_refused_with_one_alert(tmp_path: Path):
    async with card_room(tmp_path) as room:
        lead, reader = await room.join("lead"), await room.join("reader")

        await room.announce(reader, card(reader.uid, "lead"))
        await room.announce(reader, card(lead.uid, "reader"))
        await room.announce(lead, card(reader.uid, "lead"))
        await room.until(lambda: len(room.alerts) == 2)

        said = "announced a card that was refused: the card claims the"
        assert room.alerts == [
            (reader.uid, f"{said} name 'lead'"),
            (lead.uid, f"{said} URL '{address(reader.uid)}'"),
        ]
        await room.announce(reader, card(reader.uid, "reader"))
        await room.until(lambda: room.alerts[2:] == [(reader.uid, "")])
        await room.registry.sweep()
        assert await room.bucket(reader.uid) == card(reader.uid, "reader")
        assert await room.bucket(lead.uid) == card(lead.uid, "lead")


@pytest.mark.requirement("identity-replies-not-forged")
async def test_an_announcement_with_anothers_reply_subject_counts_for_nothing(tmp_path: Path):
    async with card_room(tmp_path) as room:
        reader = await room.join("reader")
        forged = card(reader.uid, "reader", "forged")
        payload = json.dumps(forged).encode()

        room.later = SHORTEST_INTERVAL
        # Without the reply subject of its sender; then a good one, by which the first was judged.
        await reader._link.send(subjects.discovery(reader.uid), payload, reply="", headers={})
        await room.announce(reader, card(reader.uid, "reader", "good"))
        await room.until(lambda: len(room.written) == 2)

        assert await room.bucket(reader.uid) == card(reader.uid, "reader", "good")


async def test_a_worker_that_does_not_run_announces_in_vain(tmp_path: Path):
    async with card_room(tmp_path) as room:
        gone, reader = await room.join("gone"), await room.join("reader")
        room.end(gone.uid)
        await room.until(lambda: room.written[-1] == (gone.uid, None))

        room.later = SHORTEST_INTERVAL
        await room.announce(gone, card(gone.uid, "gone", "late"))
        await room.announce(reader, card(reader.uid, "reader", "later"))
        await room.until(lambda: room.written[-1][0] == reader.uid)

        assert await room.bucket(gone.uid) is None
        assert room.alerts == []
