"""What agents and the control plane say to one another on edge without anything being stored."""

from __future__ import annotations

import pytest

from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from tests.identity.stage import ALICE, BOB, Peer, Stage, heard

pytestmark = pytest.mark.anyio


async def test_an_rpc_request_reaches_the_other_agent_and_its_answer_comes_back(
    stage: Stage, core: Peer, alice: Peer
):
    bob = await stage.agent(BOB)
    requests = await bob.subscribe(f"worker.{BOB}.rpc.>")
    answers = await alice.subscribe(f"_I.{ALICE}.>")
    tap = await core.subscribe("worker.>")

    await alice.publish(subjects.rpc(BOB, ALICE), b"?", subjects.reply(ALICE, BOB, "token"))
    request = await heard(requests)
    await bob.publish(request.reply, b"!")

    answer = await heard(answers)
    assert (answer.subject, answer.data) == (subjects.reply(ALICE, BOB, "token"), b"!")
    await core.settle()
    assert tap.empty()  # a tap would hide that nobody answers


async def test_an_rpc_request_to_nobody_is_answered_with_no_responders(alice: Peer):
    answers = await alice.subscribe(f"_I.{ALICE}.>")

    await alice.publish(subjects.rpc(BOB, ALICE), b"?", subjects.reply(ALICE, BOB, "token"))

    assert ((await heard(answers)).headers or {})["Status"] == "503"


async def test_an_announcement_reaches_both_the_control_plane_and_the_agents(
    stage: Stage, core: Peer, alice: Peer
):
    bob = await stage.agent(BOB)
    in_core = await core.subscribe("system.discovery.*")
    in_edge = await bob.subscribe("system.discovery.>")

    await alice.publish(subjects.discovery(ALICE), b"card", subjects.reply(ALICE, "all", "token"))

    assert (await heard(in_core)).data == b"card"
    assert (await heard(in_edge)).data == b"card"


async def test_the_control_plane_calls_an_agent_on_edge_under_its_reserved_uid(stage: Stage):
    control = await stage.connect(stage.trust.edge_credential(), CONTROL_PLANE)
    bob = await stage.agent(BOB)
    requests = await bob.subscribe(f"worker.{BOB}.rpc.>")

    await control.publish(subjects.rpc(BOB, CONTROL_PLANE), b"?")

    assert (await heard(requests)).subject == subjects.rpc(BOB, CONTROL_PLANE)


@pytest.mark.parametrize(
    "subject", [subjects.inbox(BOB, CONTROL_PLANE), subjects.rpc(BOB, ALICE), "$JS.API.INFO"]
)
async def test_the_control_planes_edge_user_may_not_publish_beyond_its_scope(
    stage: Stage, subject: str
):
    control = await stage.connect(stage.trust.edge_credential(), CONTROL_PLANE)

    await control.publish(subject)

    assert control.refused == [f'nats: permissions violation for publish to "{subject.lower()}"']
