"""An attacker behind its own door, with a client of its own: every subject that is not its."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

import pytest

from postroom.bus.port import Message
from postroom.identity.jwt import Credential
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from tests.attack import cases
from tests.attack.cases import MARK
from tests.attack.site import Target, spoken
from tests.gateway.nats.rig import Raw
from tests.identity.stage import LOBBY
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

BATCH = 500


def pub(subject: str, reply: str = "", body: bytes = MARK) -> bytes:
    """A publish."""
    return f"PUB {subject} {reply + ' ' if reply else ''}{len(body)}\r\n".encode() + body + b"\r\n"


def hpub(subject: str, block: bytes, body: bytes = MARK) -> bytes:
    """A publish with headers."""
    size = len(block) + len(body)
    return f"HPUB {subject} {len(block)} {size}\r\n".encode() + block + body + b"\r\n"


async def say(raw: Raw, frames: Sequence[bytes]) -> list[bytes]:
    """What each frame is answered: one line for each, or none at all."""
    answers: list[bytes] = []
    for at in range(0, len(frames), BATCH):
        batch = frames[at : at + BATCH]
        await raw.send(b"".join(batch))
        said = [line for line in await raw.pinged() if line != b"PING"]
        if len(said) != len(batch):  # find out which it was
            said = []
            for frame in batch:
                await raw.send(frame)
                lines = [line for line in await raw.pinged() if line != b"PING"]
                said.append(b"\n".join(lines))
        answers += said
    return answers


async def refused(target: Target, frames: Sequence[bytes], what: Iterable[object]) -> list[bytes]:
    """Say all `frames`; each must be answered by a refusal, recorded as denied, and change nothing. The answers."""
    before = await target.state()
    raw = await target.house.enter(target.me)
    target.audit.written = b""
    answers = await say(raw, frames)
    denied = [r for r in target.audit.denied if r.worker == target.me.uid]

    failed = [
        (each, answer)
        for each, answer in zip(what, answers, strict=True)
        if not answer.startswith(b"-ERR 'Permissions Violation for ") or b"\n" in answer
    ]
    assert failed == []
    assert len(denied) == len(frames)
    assert all(record.reason for record in denied)
    assert await target.heard() == []
    assert await target.state() == before
    raw.close()
    return answers


async def as_of_nobody(
    target: Target,
    frames: Callable[[str], Sequence[bytes]],
    what: Callable[[str], Iterable[object]],
) -> None:
    """All that is said of the victim is refused, in the words in which it is of somebody who does not exist."""
    nobody = new_uid()
    told = {
        uid: sorted(spoken(a, uid) for a in await refused(target, frames(uid), what(uid)))
        for uid in (target.victim.uid, nobody)
    }
    assert told[target.victim.uid] == told[nobody]


@pytest.mark.requirement("attack-publish-refused")
async def test_every_publish_outside_its_rights_is_refused(target: Target):
    own = target.me.uid

    def frames(uid: str) -> list[bytes]:
        return [pub(subject, f"_I.{own}.x") for subject in cases.publishes(own, uid)]

    await as_of_nobody(target, frames, lambda uid: cases.publishes(own, uid))


@pytest.mark.requirement("attack-publish-refused")
async def test_each_refused_publish_stands_in_the_audit_with_its_subject(target: Target):
    wanted = cases.publishes(target.me.uid, target.victim.uid)

    await refused(target, [pub(subject) for subject in wanted], wanted)

    assert [record.subject for record in target.audit.denied] == wanted


@pytest.mark.requirement("attack-publish-refused")
async def test_nobody_elses_delivery_is_acknowledged_refused_or_held(target: Target):
    own = target.me.uid

    def frames(uid: str) -> list[bytes]:
        return [pub(subject, body=said) for subject, said in cases.acknowledgements(own, uid)]

    await as_of_nobody(target, frames, lambda uid: cases.acknowledgements(own, uid))


@pytest.mark.requirement("identity-sender-proved")
async def test_no_answer_is_asked_for_anywhere_but_in_the_own_inbox(target: Target):
    own = target.me.uid

    def frames(uid: str) -> list[bytes]:
        return [pub(subject, reply) for subject, reply in cases.replies(own, uid)]

    await as_of_nobody(target, frames, lambda uid: cases.replies(own, uid))


@pytest.mark.requirement("attack-publish-refused")
async def test_every_subscription_outside_its_rights_is_refused_and_hears_nothing(target: Target):
    own = target.me.uid

    def frames(uid: str) -> list[bytes]:
        return [
            f"SUB {subject} {queue + ' ' if queue else ''}{number}\r\n".encode()
            for number, (subject, queue) in enumerate(cases.subscriptions(own, uid))
        ]

    await as_of_nobody(target, frames, lambda uid: cases.subscriptions(own, uid))


@pytest.mark.requirement("attack-publish-refused")
async def test_whatever_it_may_listen_to_it_hears_nothing_that_is_between_others(target: Target):
    """After the whole list was tried, and with every right used, the traffic of others stays theirs."""
    listener = await target.house.enter(target.me)
    own, victim, other = target.me.uid, target.victim, target.other
    tried = cases.subscriptions(own, victim.uid)
    mine = [f"_I.{own}.>", f"worker.{own}.rpc.>", f"_I.{own}.*.*"]
    lines = [f"SUB {s} {n}\r\n" for n, (s, _) in enumerate([*tried, *((m, "") for m in mine)])]
    await say(listener, [line.encode() for line in lines])
    assert [line for line in await listener.pinged() if line != b"PING"] == []

    await victim.bus.publish(subjects.rpc(other.uid, victim.uid), b"between us")
    await victim.ask("list")
    await target.room.rig.edge.publish(subjects.feed(LOBBY, CONTROL_PLANE), b"between us")
    await target.room.rig.core.publish(subjects.events(victim.uid), b"between us")
    await victim.bus._link.settle(time.monotonic() + 10)

    assert [line for line in await listener.pinged() if line != b"PING"] == []
    listener.close()


@pytest.mark.requirement("attack-publish-refused")
async def test_no_header_gives_an_order_to_the_server_or_to_who_reads(target: Target):
    own = target.me.uid

    def frames(uid: str) -> list[bytes]:
        carriers = itertools.cycle(cases.carriers(own, uid))
        blocks = cases.headers(own, uid)
        return [hpub(subject, block) for subject, block in zip(carriers, blocks, strict=False)]

    await as_of_nobody(target, frames, lambda uid: cases.headers(own, uid))


@pytest.mark.requirement("attack-publish-refused")
async def test_an_expectation_names_no_record_but_those_of_an_own_task(target: Target):
    own, task = target.me.uid, "1" * 32
    name = "Nats-Expected-Last-Subject-Sequence"
    filters = [f"worker.{own}.tasks.{task}.>", f"worker.{target.victim.uid}.tasks.{target.task}.>"]
    block = "NATS/1.0\r\n{}: 0\r\n{}-Subject: {}\r\n\r\n"
    mine, theirs = [block.format(name, name, each).encode() for each in filters]
    raw = await target.house.enter(target.me)

    [answer] = await say(raw, [hpub(f"worker.{own}.tasks.{task}.working", theirs)])
    assert answer.startswith(b"-ERR 'Permissions Violation")
    await raw.send(hpub(f"worker.{own}.tasks.{task}.working", mine, b"{}"))
    assert await raw.pinged() in ([], [b"PING"])
    raw.close()


# Without the gateway.


async def outsider(target: Target) -> Raw:
    """An agent whose credential needs no gateway, at the server itself."""
    trust = target.room.rig.trust
    credential: Credential = trust.mint_agent(
        target.me.uid, (LOBBY,), lifetime=60, now=time.time(), proxied=False
    )
    return await (await target.house.direct(credential)).connect()


@pytest.mark.requirement("attack-publish-refused")
async def test_the_server_refuses_every_publish_without_the_gateway_too(target: Target):
    own, nobody = target.me.uid, new_uid()
    before = await target.state()
    told = {}
    for uid in (target.victim.uid, nobody):
        raw = await outsider(target)
        wanted = cases.plain_publishes(own, uid)
        answers = await say(raw, [pub(subject, f"_I.{own}.x") for subject in wanted])
        failed = [
            (subject, answer)
            for subject, answer in zip(wanted, answers, strict=True)
            if not answer.startswith(b"-ERR 'Permissions Violation for Publish to ")
        ]
        assert failed == []
        told[uid] = sorted(spoken(answer, uid) for answer in answers)
        raw.close()

    assert told[target.victim.uid] == told[nobody]
    assert await target.heard() == []
    assert await target.state() == before


@pytest.mark.requirement("identity-sender-proved")
async def test_an_answer_sent_to_anothers_subject_without_the_gateway_is_neither_stored_nor_believed(
    target: Target,
):
    """The server carries it, since no right is about replies. What stops it is where it comes out, and who reads."""
    own, victim, other = target.me.uid, target.victim.uid, target.other.uid
    believed: list[str] = []

    async def respond(message: Message) -> bytes:
        believed.append(message.subject)
        return b"{}"

    async def take(message: Message) -> None:
        believed.append(message.subject)

    before = await target.state()
    answered = (
        (subjects.outbox(own), b"{}"),  # by JetStream
        (subjects.ctl(own, "agents", "list"), b"{}"),  # by the control plane
        (f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{own}", b'{"batch":1,"no_wait":true}'),
    )
    places = [reply for _, reply in cases.replies(own, victim)]
    async with AsyncExitStack() as stack:
        for listening in (
            await target.victim.bus.serve(subjects.rpc(victim, "*"), respond),
            await target.victim.bus.subscribe("system.discovery.*", take),
        ):
            stack.push_async_callback(listening.close)
        raw = await outsider(target)
        await say(raw, [pub(s, reply, body) for reply in places for s, body in answered])
        raw.close()
        # What comes after them is served, so they were all read.
        await target.other.bus.request(subjects.rpc(victim, other), b"{}")

    after = await target.state()
    carried = b"\n".join(await target.taps[-1].raw.pinged())  # in the agents' account
    assert f"MSG {subjects.inbox(victim, victim)} ".encode() in carried
    assert believed == [subjects.rpc(victim, other)]
    after["OUTBOX"][0].pop(subjects.outbox(own))
    assert after == before


@pytest.mark.requirement("attack-publish-refused")
async def test_the_server_refuses_every_subscription_without_the_gateway_too(target: Target):
    own = target.me.uid
    wanted = [
        (subject, queue)
        for subject, queue in cases.subscriptions(own, target.victim.uid)
        if "" not in subject.split(".") and ">" not in subject[:-1] and "**" not in subject
    ]
    failed = []
    for at in range(0, len(wanted), BATCH):
        raw = await outsider(target)  # the server counts refused ones, too
        batch = wanted[at : at + BATCH]
        lines = [
            f"SUB {s} {q + ' ' if q else ''}{n}\r\n".encode() for n, (s, q) in enumerate(batch)
        ]
        answers = await say(raw, lines)
        failed += [
            (each, answer)
            for each, answer in zip(batch, answers, strict=True)
            if not answer.startswith(b"-ERR 'Permissions Violation for Subscription to ")
        ]
        raw.close()
    assert failed == []
