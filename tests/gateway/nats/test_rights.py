"""The gateway's own check of subjects says what the server says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.gateway.nats.rights import KEPT, Rights
from postroom.protocol.permissions import agent_permissions, allows

OWN, OTHER = "a" * 32, "b" * 32
RIGHTS = Rights(OWN, ("main",))
GRANTED = agent_permissions(OWN, ("main",))

tokens = st.sampled_from(
    [
        OWN,
        OTHER,
        "worker",
        "inbox",
        "rpc",
        "tasks",
        "_I",
        "$JS",
        "ACK",
        "API",
        "CONSUMER",
        "MSG",
        "NEXT",
        "INBOX",
        "ctl",
        "project",
        "main",
        "feed",
        "system",
        "alerts",
        "discovery",
        "status",
        "outbox",
        "x",
        "receipts",
        "priority",
    ]
)
literal = st.lists(tokens, min_size=1, max_size=7).map(".".join)


@given(literal)
def test_a_literal_subject_may_be_published_exactly_where_the_permissions_say(subject: str):
    assert (RIGHTS.publish(subject.encode()) is not None) == allows(GRANTED.publish, subject)


@pytest.mark.parametrize("pattern", GRANTED.publish)
def test_every_permission_is_granted(pattern: str):
    subject = pattern.replace("*", OTHER).replace(">", "x.y")
    assert RIGHTS.publish(subject.encode()) is not None


@pytest.mark.requirement("attack-publish-refused")
@pytest.mark.parametrize(
    "subject",
    [
        f"worker.{OTHER}.inbox.{OTHER}",
        f"worker.*.inbox.{OWN}",
        f"worker.>.inbox.{OWN}",
        f"worker..inbox.{OWN}",
        f"worker.{OTHER}.inbox.{OWN}\n",
        f"worker.{OTHER}\t.inbox.{OWN}",
        f"worker.{OTHER}.inbox.{OWN}.",
        f"worker.{OTHER}.inbox.{OWN}.more",
        f"worker.{OTHER}.priority.{OWN}",
        f"_I.{OWN}.{OTHER}.x",
        f"$JS.ACK.INBOX.{OTHER}.1.1.1.1.1",
        f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{OTHER}",
        "$JS.API.INFO",
        "$SYS.REQ.SERVER.PING",
        "$KV.cards.x",
        f"ctl.{OTHER}.agents.list",
        "project.other.feed." + OWN,
        "é" * 3,
        "",
    ],
)
def test_no_other_subject_may_be_published(subject: str):
    assert RIGHTS.publish(subject.encode()) is None


@pytest.mark.requirement("attack-publish-refused")
@pytest.mark.parametrize(
    "subject, allowed",
    [
        (f"_I.{OWN}.>", True),
        (f"_I.{OWN}.*.*", True),
        (f"_I.{OWN}.js.p.x", True),
        (f"worker.{OWN}.rpc.>", True),
        (f"worker.{OWN}.rpc.*", True),
        ("system.discovery.>", True),
        ("system.discovery.*", True),
        (">", False),
        ("*", False),
        ("_I.>", False),
        ("_I.*.>", False),
        (f"_I.{OTHER}.>", False),
        (f"_I.{OWN}", False),
        (f"_I.{OWN}.>.x", False),
        (f"_I.*.{OWN}.>", False),
        (f"worker.{OTHER}.rpc.>", False),
        (f"worker.{OWN}.inbox.>", False),
        ("system.>", False),
        (f"_I.{OWN}.a\nb", False),
        ("$SYS.>", False),
    ],
)
def test_a_subscription_may_not_reach_beyond_its_own(subject: str, allowed: bool):
    assert RIGHTS.subscribe(subject.encode(), b"") is allowed


def test_a_queue_group_is_one_bounded_word():
    subject = f"worker.{OWN}.rpc.>".encode()

    assert RIGHTS.subscribe(subject, b"workers")
    assert not RIGHTS.subscribe(subject, b"q" * 65)
    assert not RIGHTS.subscribe(subject, b"q\tx")


@pytest.mark.parametrize(
    "reply, allowed",
    [
        (f"_I.{OWN}.js.x", True),
        (f"_I.{OTHER}.{OWN}.x", False),
        (f"worker.{OTHER}.inbox.{OTHER}", False),
        ("x", False),
    ],
)
def test_an_answer_may_be_asked_for_in_the_own_inbox_only(reply: str, allowed: bool):
    assert RIGHTS.answered_at(reply.encode()) is allowed


def test_what_a_stream_stores_is_known():
    def stored(subject: str) -> bool:
        right = RIGHTS.publish(subject.encode())
        return right is not None and right.stored

    assert stored(f"worker.{OTHER}.inbox.{OWN}")
    assert stored(f"worker.{OWN}.tasks.t1.working")
    assert stored(f"worker.{OWN}.tasks.a.b.c.d")
    assert not stored(f"worker.{OTHER}.rpc.{OWN}")
    assert not stored(f"_I.{OTHER}.{OWN}.x")


def test_a_record_of_a_task_names_task_and_state():
    right = RIGHTS.publish(f"worker.{OWN}.tasks.t1.working".encode())

    assert right is not None
    assert (right.task, right.state, right.extra) == ("t1", "working", b',"task":"t1"')


def test_the_memory_of_subjects_is_bounded():
    rights = Rights(OWN, ())
    for number in range(KEPT * 2):
        rights.publish(b"worker.%d.inbox.%b" % (number, OWN.encode()))

    assert len(rights._known) <= KEPT
