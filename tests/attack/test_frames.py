"""What an attacker says at its own door instead of proper frames: each ends its connection, and is recorded."""

from __future__ import annotations

import pytest

from postroom.gateway.nats.stream import TOO_LARGE, TOO_LONG, UNKNOWN
from tests.attack import cases
from tests.attack.cases import MARK
from tests.attack.site import Target
from tests.attack.test_subjects import pub
from tests.rig import new_uid

pytestmark = pytest.mark.anyio


ENDED = tuple(f"-ERR '{why}'".encode() for why in (UNKNOWN, TOO_LARGE, TOO_LONG))


async def denied(target: Target, said: bytes) -> tuple[bytes, list[str]]:
    """What a connection that says this, and ends, is answered; and why it was refused, as the audit has it."""
    target.audit.written = b""
    door = target.house.gateway._doors[target.me.uid]
    answer = await target.strike(said)
    await target.house.until(lambda: not door.tasks)
    return answer, [record.reason for record in target.audit.denied]


@pytest.mark.requirement("gateway-nats-no-smuggling")
async def test_every_broken_frame_ends_the_connection_and_nothing_behind_it_is_read(target: Target):
    own, victim = target.me.uid, target.victim.uid
    before, failed = await target.state(), []
    behind = pub(f"worker.{victim}.inbox.{own}")  # which it may say, were it still listened to
    for frame in cases.frames(own, victim):
        target.audit.written = b""
        raw = await target.house.enter(target.me)
        await raw.send(frame + behind)
        raw.writer.write_eof()
        answer = await raw.rest()
        await target.house.until(lambda: not target.house.gateway._doors[own].tasks)
        reasons = [record.reason for record in target.audit.denied]
        if not answer.startswith(ENDED) or len(reasons) != 1:
            failed.append((frame, answer, reasons))

    assert failed == []
    assert await target.heard() == []
    assert await target.state() == before


@pytest.mark.requirement("gateway-nats-no-smuggling")
async def test_who_does_not_begin_with_a_credential_of_its_own_is_refused(target: Target):
    failed = []
    for line in cases.FIRST_LINES:
        knock = f"POSTROOM/1 nats {target.me.token}\n".encode()
        answer, reasons = await denied(target, knock + line + pub("a"))
        if b"-ERR '" not in answer or len(reasons) != 1:
            failed.append((line, answer, reasons))

    assert failed == []
    assert await target.heard() == []


@pytest.mark.requirement("gateway-nats-proof")
async def test_who_shows_no_token_of_its_own_at_the_door_is_told_nothing(target: Target):
    named = {
        b"{t}": target.me.token,
        b"{o}": target.theirs.token,
        b"{n}": "x" * 43,
        b"{u}": target.me.uid,
    }
    failed, told = [], {}
    for line in cases.PREFACES:
        said = line
        for name, value in named.items():
            said = said.replace(name, value.encode())
        answer, reasons = await denied(target, said + MARK)
        told[line] = (answer, reasons)
        if answer or len(reasons) != 1:
            failed.append((line, answer, reasons))

    assert failed == []
    # The token of another worker is refused as one that nobody has.
    for protocol in (b"nats", b"http", b"egress"):
        assert told[b"POSTROOM/1 %b {o}\n" % protocol] == told[b"POSTROOM/1 %b {n}\n" % protocol]


@pytest.mark.requirement("gateway-nats-proof")
async def test_its_credential_and_its_token_are_worth_nothing_at_another_door(target: Target):
    target.audit.written = b""
    raw = await target.house.knock(target.theirs, target.me.credential)
    await raw.send(raw.connect_line())
    assert await raw.rest() == b"-ERR 'Authorization Violation'\r\n"
    [record] = target.audit.denied
    assert (record.worker, record.reason) == (
        target.victim.uid,
        "the credential is not this worker's",
    )
    assert new_uid() not in record.reason
