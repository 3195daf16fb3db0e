"""What an agent may and may not do on the bus, as a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.permissions import (
    NAME_TEMPLATE,
    PROJECT_TEMPLATE,
    agent_permissions,
    allows,
    control_plane_edge_permissions,
    core_exports,
    matches,
)
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, STREAMS

OWN, OTHER = "a" * 32, "b" * 32
RIGHTS = agent_permissions(OWN, ("main",))


@pytest.mark.parametrize(
    "subject",
    [
        subjects.inbox(OTHER, OWN),
        subjects.inbox(OWN, OWN),
        subjects.rpc(OTHER, OWN),
        subjects.outbox(OWN),
        subjects.status(OWN),
        subjects.task(OWN, "t1", "working"),
        subjects.receipts(OTHER, OWN),
        subjects.feed("main", OWN),
        subjects.alerts(OWN),
        subjects.discovery(OWN),
        subjects.ctl(OWN, "agents", "resolve"),
        subjects.reply(OTHER, OWN, "token"),
        f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{OWN}",
        f"$JS.ACK.INBOX.{OWN}.1.2.3.4.0",
    ],
)
def test_an_agent_may_publish(subject: str):
    assert allows(RIGHTS.publish, subject)


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize(
    "subject",
    [
        subjects.inbox(OTHER, OTHER),
        subjects.inbox(OWN, OTHER),
        subjects.inbox(OTHER, CONTROL_PLANE),
        subjects.priority(OTHER, OTHER),
        subjects.priority(OTHER, OWN),
        subjects.rpc(OTHER, OTHER),
        subjects.outbox(OTHER),
        subjects.status(OTHER),
        subjects.events(OWN),
        subjects.events(OTHER),
        subjects.task(OTHER, "t1", "completed"),
        subjects.receipts(OTHER, OTHER),
        subjects.receipts(OWN, OTHER),
        subjects.feed("main", OTHER),
        subjects.feed("other", OWN),
        subjects.alerts(OTHER),
        subjects.discovery(OTHER),
        subjects.deadletter(subjects.inbox(OTHER, OWN)),
        subjects.ctl(OTHER, "agents", "resolve"),
        subjects.reply(OTHER, "js", "token"),
        subjects.reply(OTHER, "ctl", "token"),
        subjects.reply(OTHER, OTHER, "token"),
        f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{OTHER}",
        f"$JS.ACK.INBOX.{OTHER}.1.2.3.4.0",
        "$JS.API.STREAM.INFO.INBOX",
        "$JS.API.STREAM.MSG.GET.INBOX",
        "$JS.API.STREAM.PURGE.INBOX",
        f"$JS.API.CONSUMER.RESET.INBOX.{OWN}",
        f"$JS.API.CONSUMER.DURABLE.CREATE.INBOX.{OWN}",
        f"$JS.API.CONSUMER.INFO.INBOX.{OWN}",
        f"$JS.API.CONSUMER.MSG.NEXT.TASKS.{OWN}",
        f"$KV.cards.{OWN}",
        f"$KV.presence.{OWN}",
        "$SYS.REQ.CLAIMS.UPDATE",
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.INBOX.x",
        "_INBOX.x",
    ],
)
def test_an_agent_may_not_publish(subject: str):
    assert not allows(RIGHTS.publish, subject)


@pytest.mark.parametrize(
    "subject",
    [subjects.reply(OWN, OTHER, "token"), subjects.rpc(OWN, OTHER), subjects.discovery(OTHER)],
)
def test_an_agent_may_subscribe(subject: str):
    assert allows(RIGHTS.subscribe, subject)


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize(
    "subject",
    [
        subjects.inbox(OWN, OTHER),
        subjects.inbox(OTHER, OWN),
        subjects.reply(OTHER, OWN, "token"),
        subjects.rpc(OTHER, OWN),
        subjects.feed("main", OTHER),
        subjects.alerts(OTHER),
        "$JS.EVENT.ADVISORY.API",
    ],
)
def test_an_agent_may_not_subscribe(subject: str):
    assert not allows(RIGHTS.subscribe, subject)


def test_an_agent_without_projects_may_post_nowhere():
    assert not [each for each in agent_permissions(OWN, ()).publish if each.startswith("project.")]


@pytest.mark.requirement("identity-inbox-private")
def test_every_right_of_the_template_carries_the_agents_name():
    rights = agent_permissions()

    shared = {"system.discovery.>"}
    for pattern in (*rights.publish, *rights.subscribe):
        assert NAME_TEMPLATE in pattern or pattern in shared
    assert any(PROJECT_TEMPLATE in pattern for pattern in rights.publish)


def test_the_control_plane_may_not_write_inboxes_or_read_agents_answers_in_edge():
    rights = control_plane_edge_permissions()

    assert not allows(rights.publish, subjects.inbox(OTHER, CONTROL_PLANE))
    assert not allows(rights.publish, subjects.rpc(OTHER, OWN))
    assert not allows(rights.subscribe, subjects.reply(OWN, OTHER, "token"))
    assert allows(rights.publish, subjects.feed("main", CONTROL_PLANE))


@pytest.mark.parametrize(
    "subject",
    [
        subjects.rpc(OTHER, OWN),
        subjects.reply(OTHER, OWN, "token"),
        subjects.events(OWN),
        subjects.deadletter(subjects.inbox(OTHER, OWN)),
        "$JS.API.STREAM.INFO.INBOX",
        f"$JS.API.CONSUMER.MSG.NEXT.TASKS.{OWN}",
        "$KV.cards.x",
        "$O.x.C.y",
    ],
)
def test_core_does_not_offer(subject: str):
    assert not allows(tuple(each.subject for each in core_exports()), subject)


def test_core_offers_every_stored_subject_that_an_agent_may_publish():
    exports = tuple(each.subject for each in core_exports())
    of_agents = {stream.name: stream.subjects for stream in STREAMS}
    for name in ("EVENTS", "PRIORITY", "DEADLETTER", "ADVISORIES", "AUDIT"):
        del of_agents[name]

    for patterns in of_agents.values():
        for pattern in patterns:
            assert pattern in exports
    for stream in AGENT_CONSUMER_STREAMS:
        assert allows(exports, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{OWN}")
        assert allows(exports, f"$JS.ACK.{stream}.{OWN}.1.2.3.4.0")


def test_only_requests_to_the_control_plane_tell_who_connected():
    assert [each.subject for each in core_exports() if each.share] == ["ctl.*.>"]


@pytest.mark.parametrize(
    "pattern, subject, expected",
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*.b", "a.b", True),
        ("a.*.c", "a.b.d", False),
    ],
)
def test_wildcards_match_as_on_the_server(pattern: str, subject: str, expected: bool):
    assert matches(pattern, subject) is expected


@given(st.lists(st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True), min_size=1, max_size=6))
def test_a_subject_matches_itself_with_any_token_replaced_by_a_wildcard(tokens: list[str]):
    subject = ".".join(tokens)

    for index in range(len(tokens)):
        starred = [*tokens[:index], "*", *tokens[index + 1 :]]
        assert matches(".".join(starred), subject)
        assert matches(".".join([*tokens[:index], ">"]), subject)
        assert not matches(subject, ".".join([*tokens, "more"]))
