"""Two organisations on one server: an agent of the one tries every subject that there is toward the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from postroom.errors import InvalidInput
from postroom.identity.account_publisher import delete_accounts, push_accounts
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.permissions import agent_permissions, allows
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, STREAMS
from tests.identity.stage import (
    ALICE,
    BOB,
    CAROL,
    LOBBY,
    PATIENCE,
    Peer,
    Stage,
    heard,
    make_streams,
    mint,
    staged,
    stored,
    until_closed,
)
from tests.identity.walk import forms, rights

pytestmark = pytest.mark.anyio

ATTACKER = "d" * 32
NOBODY = "e" * 32
"""A uid that no organisation has."""

MARK = b"from the other organisation"


@dataclass
class Side:
    """One organisation: its people, and taps that hear everything in both of its accounts."""

    stage: Stage
    core: Peer
    agent: Peer
    edge_tap: list[Msg]
    core_tap: list[Msg]


@dataclass
class Street:
    """Two organisations, `default` with ALICE and BOB's mailboxes, and `acme` with the same uids' mailboxes."""

    stage: Stage
    default: Side
    acme: Side


async def _tapped(peer: Peer) -> list[Msg]:
    """Everything in an account from now on."""
    taken: list[Msg] = []

    async def take(message: Msg) -> None:
        taken.append(message)

    await peer.client.subscribe(">", cb=take)
    await peer.settle()
    return taken


async def _side(stage: Stage, org: str, uid: str) -> Side:
    seen = Stage(stage.trust.of(org), stage.server, stage._stack)
    core = await seen.core()
    await make_streams(core)
    everything = seen.trust._unscoped(seen.trust._org.edge)
    return Side(
        seen,
        core,
        await seen.agent(uid, LOBBY),
        await _tapped(await seen.connect(everything, "edge")),
        await _tapped(await seen.core()),
    )


@asynccontextmanager
async def _street(folder: Path) -> AsyncGenerator[Street]:
    Trust.load_or_create(folder / "keys").add_org("acme")
    async with staged(folder) as stage:
        yield Street(
            stage,
            await _side(stage, "default", ALICE),
            await _side(stage, "acme", BOB),
        )


# ── every subject ─────────────────────────────────────────────────────────────────────────────────────────────


def _beyond(uids: tuple[str, ...]) -> Iterator[str]:
    """What no agent has a right to: the servers' own subjects, with consumers' and streams' names."""
    yield from (
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.ACCOUNT.INFO",
        "$SYS.REQ.ACCOUNT.PING",
    )
    yield from ("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.CLAIMS.LIST")
    for stream in ("INBOX", "PRIORITY", "TASKS", "RECEIPTS", "EVENTS", "FEED", "AUDIT", "KV_cards"):
        yield f"$JS.API.STREAM.INFO.{stream}"
        yield f"$JS.API.STREAM.MSG.GET.{stream}"
        yield f"$JS.API.DIRECT.GET.{stream}"
        yield f"$JS.API.STREAM.PURGE.{stream}"
        for uid in uids:
            yield f"$JS.API.CONSUMER.INFO.{stream}.{uid}"
            yield f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{uid}"
            yield f"$JS.ACK.{stream}.{uid}.1.1.1.1.0"
    for uid in uids:
        yield f"$KV.cards.default.agents.{uid}"
        yield f"$KV.cards.acme.agents.{uid}"


def walk(*uids: str) -> list[str]:
    """All of them, each once."""
    return sorted({*forms(uids), *rights(uids), *_beyond(uids)})


def _told(message: Msg) -> str:
    return f"{message.subject} {message.reply} {message.headers} {message.data!r}"


def _foreign(taps: Side, uid: str) -> list[str]:
    """What came in from `uid`, which is of another organisation."""
    said = [_told(message) for message in (*taps.edge_tap, *taps.core_tap)]
    return [line for line in said if uid in line or MARK.decode() in line]


def test_the_walk_has_every_form_of_the_table():
    kinds = {_kind(subject) for subject in forms((ALICE, BOB, CONTROL_PLANE))}

    assert kinds - {""} == {
        *("inbox", "priority", "tasks", "receipts", "outbox", "status", "events", "rpc", "feed"),
        *("alerts", "discovery", "deadletter", "audit", "ctl", "reply"),
    }
    assert len(walk(ATTACKER, BOB, CONTROL_PLANE)) >= 200


def _kind(subject: str) -> str:
    """What `subjects.parse` takes it for, "" for nothing (a verb of two tokens is none)."""
    try:
        return subjects.parse(subject).kind
    except InvalidInput:
        return ""


@pytest.mark.requirement("org-no-subject-crosses")
@pytest.mark.parametrize("way", ["out of the default one", "into the default one"])
async def test_nothing_that_an_agent_publishes_arrives_or_is_stored_in_another_organisation(
    tmp_path: Path, way: str
):
    async with _street(tmp_path) as street:
        here, there, victim = street.default, street.acme, BOB
        if way.startswith("into"):
            here, there, victim = street.acme, street.default, ALICE
        before = await stored(there.core)
        attacker = await here.stage.agent(ATTACKER, LOBBY)
        answers = await attacker.subscribe(f"_I.{ATTACKER}.>")

        for number, subject in enumerate(walk(ATTACKER, victim, CONTROL_PLANE)):
            replies = ("", f"_I.{ATTACKER}.js.{number}", f"_I.{victim}.{ATTACKER}.{number}")
            for reply in replies:
                await attacker.client.publish(subject, MARK, reply)
        await attacker.settle()
        # What goes through a stream is on its way when the attacker's own server round trip is over.
        for side in (here, there):
            await side.core.settle()
            await side.agent.settle()

        assert _foreign(there, ATTACKER) == []
        assert {s: n for s, n in (await stored(there.core)).items() if ATTACKER in s} == {}
        assert set(await stored(there.core)) == set(before)
        assert [s for s in await stored(here.core) if ATTACKER in s]  # it could publish, after all
        assert not answers.empty()


@pytest.mark.requirement("org-no-subject-crosses")
@pytest.mark.parametrize("way", ["out of the default one", "into the default one"])
async def test_nothing_that_another_organisation_says_is_heard_by_an_agent(
    tmp_path: Path, way: str
):
    async with _street(tmp_path) as street:
        here, there, victim = street.default, street.acme, BOB
        if way.startswith("into"):
            here, there, victim = street.acme, street.default, ALICE
        listener = await here.stage.agent(ATTACKER, LOBBY)
        taken: list[Msg] = []

        async def take(message: Msg) -> None:
            taken.append(message)

        wide = (">", "*.>", "worker.>", "project.>", "system.>", "ctl.>", "_I.>", "$JS.>", "$SYS.>")
        for subject in (*walk(ATTACKER, victim, CONTROL_PLANE), *wide):
            await listener.client.subscribe(subject, cb=take)
            await listener.client.subscribe(subject, queue="q", cb=take)
        for pattern in agent_permissions(ATTACKER, (LOBBY,)).subscribe:
            await listener.client.subscribe(pattern, cb=take)
        await listener.settle()

        speakers = [
            there.agent,
            there.core,
            await there.stage.connect(there.stage.trust.edge_credential(), CONTROL_PLANE),
            await there.stage.connect(
                there.stage.trust._unscoped(there.stage.trust._org.edge), "edge"
            ),
        ]
        for speaker in speakers:
            for subject in walk(ATTACKER, victim, CONTROL_PLANE):
                if not subject.startswith("$"):  # these two may delete their own streams
                    await speaker.client.publish(subject, MARK)
            await speaker.settle()
        await listener.settle()

        assert [_told(message) for message in taken if MARK in message.data] == []
        assert _foreign(there, ATTACKER)  # they did speak


@pytest.mark.requirement("org-no-subject-crosses")
async def test_the_server_answers_about_an_agent_of_another_organisation_as_about_nobody(
    tmp_path: Path,
):
    async with _street(tmp_path) as street:
        attacker = await street.default.stage.agent(ATTACKER, LOBBY)
        answers = await attacker.subscribe(f"_I.{ATTACKER}.>")

        own = f"_I.{ATTACKER}.js"
        asked: dict[str, str] = {}
        refusals: dict[str, list[str]] = {}
        answered: dict[str, list[Msg]] = {}
        for uid in (BOB, NOBODY):
            for subject in walk(ATTACKER, uid):
                if subject.startswith("$JS.API.CONSUMER.MSG.NEXT") and ATTACKER in subject:
                    continue  # its own mailbox, which there is none of here
                reply = f"{own}.{uid}-{len(asked)}"
                asked[reply], answered[reply] = subject, []
                refused = len(attacker.refused)
                await attacker.publish(subject, b"{}", reply)
                refusals[reply] = attacker.refused[refused:]

        def told(uid: str) -> list[str]:
            """What each subject with `uid` in it is answered, without the uid and the numbers of records."""
            return sorted(
                f"{subject} {refusals[reply]} {[_numberless(a) for a in answered[reply]]}".replace(
                    uid, "UID"
                )
                for reply, subject in asked.items()
                if reply.startswith(f"{own}.{uid}")
            )

        mine = agent_permissions(ATTACKER, (LOBBY,)).publish
        captured = [subject for spec in STREAMS for subject in spec.subjects]
        expected = [s for s in asked.values() if allows(mine, s) and allows(tuple(captured), s)]
        acknowledged = 0
        async with asyncio.timeout(PATIENCE):
            while acknowledged < len(expected):  # a stream answers when it has stored
                answer = await answers.get()
                acknowledged += b'"seq"' in answer.data
                answered.get(answer.subject, []).append(answer)
        await attacker.settle()
        while not answers.empty():
            answer = answers.get_nowait()
            answered.get(answer.subject, []).append(answer)

        assert acknowledged > 10
        assert told(BOB) == told(NOBODY)


def _numberless(answer: Msg) -> str:
    """An answer without the sequence of a record."""
    return re.sub(rb'"seq": ?\d+', b"", answer.data).decode() + str(answer.headers)


@pytest.mark.requirement("org-no-subject-crosses")
async def test_one_uid_in_two_organisations_is_two_agents_with_two_mailboxes(tmp_path: Path):
    """Uids are not given twice; if one were, its credential would still open its own organisation only."""
    async with _street(tmp_path) as street:
        twin = await street.acme.stage.agent(ALICE, LOBBY)
        theirs = await twin.subscribe(f"worker.{ALICE}.rpc.>")
        mine = await street.default.agent.subscribe(f"worker.{ALICE}.rpc.>")
        peer = await street.default.stage.agent(CAROL, LOBBY)

        await peer.publish(subjects.rpc(ALICE, CAROL), MARK)
        await peer.publish(subjects.inbox(ALICE, CAROL), MARK)

        assert (await heard(mine)).data == MARK
        await twin.settle()
        assert theirs.empty()
        assert subjects.inbox(ALICE, CAROL) in await stored(street.default.core)
        assert subjects.inbox(ALICE, CAROL) not in await stored(street.acme.core)


# ── made and removed at run time ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("org-create-whole")
async def test_an_organisation_that_is_made_while_the_server_runs_works_at_once(stage: Stage):
    system = await stage.system()
    acme = Stage(stage.trust.add_org("acme"), stage.server, stage._stack)

    await push_accounts(system, acme.trust)
    core = await acme.core()
    await make_streams(core)
    bob = await acme.agent(BOB)
    await bob.publish(subjects.inbox(ALICE, BOB))

    assert await stored(core) == {subjects.inbox(ALICE, BOB): 1}


@pytest.mark.requirement("org-create-whole")
async def test_the_connections_of_a_removed_organisation_are_cut_and_its_credentials_are_void(
    stage: Stage, alice: Peer
):
    system = await stage.system()
    acme = Stage(stage.trust.add_org("acme"), stage.server, stage._stack)
    await push_accounts(system, acme.trust)
    core = await acme.core()
    bob = await acme.agent(BOB)
    credential = mint(acme.trust, CAROL)

    stage.trust.remove_org("acme")
    assert len(stage.trust.gone) == 2
    await delete_accounts(system, stage.trust)

    for peer in (core, bob):
        await until_closed(peer)
    with pytest.raises(Exception, match=r"(?i)authorization|authentication"):
        await acme.connect(credential, CAROL)
    assert stage.trust.gone == ()
    await alice.publish(subjects.inbox(BOB, ALICE))  # the other organisation goes on
    assert not alice.closed.is_set()


def test_the_stream_consumers_of_the_walk_are_those_of_agents():
    assert all(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{BOB}" in walk(BOB)
        for stream in AGENT_CONSUMER_STREAMS
    )
