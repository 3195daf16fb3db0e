"""The subject table: built and read back, and what a receiver takes as real."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE, NAME, NO_PROJECT
from postroom.protocol.subjects import Subject

A, B, C = "a" * 32, "b" * 32, "c" * 32

uids = st.from_regex(r"[0-9a-f]{32}", fullmatch=True) | st.just(CONTROL_PLANE)
projects = st.from_regex(NAME, fullmatch=True)
tokens = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)


@given(recipient=uids, sender=uids)
def test_a_subject_to_an_agent_names_sender_and_recipient(recipient: str, sender: str):
    built = {
        "inbox": subjects.inbox(recipient, sender),
        "priority": subjects.priority(recipient, sender),
        "rpc": subjects.rpc(recipient, sender),
        "receipts": subjects.receipts(recipient, sender),
    }

    for kind, subject in built.items():
        assert subjects.parse(subject) == Subject(kind, sender, recipient=recipient)


@given(uid=uids, task=tokens, state=tokens)
def test_a_subject_of_an_agent_names_it_as_the_sender(uid: str, task: str, state: str):
    assert subjects.parse(subjects.outbox(uid)) == Subject("outbox", uid)
    assert subjects.parse(subjects.status(uid)) == Subject("status", uid)
    assert subjects.parse(subjects.events(uid)) == Subject("events", uid)
    assert subjects.parse(subjects.alerts(uid)) == Subject("alerts", uid)
    assert subjects.parse(subjects.discovery(uid)) == Subject("discovery", uid)
    changed = subjects.parse(subjects.task(uid, task, state))
    assert changed == Subject("tasks", uid, rest=(task, state))


@given(project=projects, sender=uids)
def test_a_feed_names_project_and_sender(project: str, sender: str):
    said = subjects.parse(subjects.feed(project, sender))

    assert said == Subject("feed", sender, project=project)


@given(own=uids, verb=st.lists(tokens, min_size=1, max_size=4))
def test_a_request_to_the_control_plane_names_the_asker(own: str, verb: list[str]):
    said = subjects.parse(subjects.ctl(own, *verb))

    assert said == Subject("ctl", own, recipient=CONTROL_PLANE, rest=tuple(verb))


@given(asker=uids, answerer=uids | st.sampled_from(["js", "ctl", "all"]), token=tokens)
def test_a_reply_names_its_answerer_as_the_sender(asker: str, answerer: str, token: str):
    said = subjects.parse(subjects.reply(asker, answerer, token))

    assert said == Subject("reply", answerer, recipient=asker, rest=(token,))


@given(recipient=uids, sender=uids)
def test_a_dead_letter_keeps_the_original_subject_and_claims_no_sender(recipient: str, sender: str):
    original = subjects.inbox(recipient, sender)

    said = subjects.parse(subjects.deadletter(original))

    assert ".".join(said.rest) == original
    assert said.sender == ""


@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "worker",
        f"worker.{A}.inbox",
        f"worker.{A}.inbox.*",
        f"worker.*.inbox.{A}",
        f"worker.{A}.inbox.>",
        f"worker.{A}.inbox.{B}.more",
        f"worker.{A.upper()}.inbox.{B}",
        f"worker.{A[:-1]}.inbox.{B}",
        f"worker.{A}.outbox.{B}",
        f"worker.{A}.tasks.t1",
        f"worker.{A}.tasks..working",
        f"worker.{A}.unknown.{B}",
        f"project.{NO_PROJECT}.feed.{A}",
        f"project.Main.feed.{A}",
        f"project.*.feed.{A}",
        "system.alerts.nobody",
        "system.deadletter",
        f"ctl.{A}",
        f"ctl.{A}.agents.",
        f"_I.{A}.js",
        "$JS.API.INFO",
    ],
)
def test_what_is_not_in_the_table_has_no_meaning_and_no_sender(subject: str):
    with pytest.raises(InvalidInput):
        subjects.parse(subject)
    assert subjects.sender_of(subject) == ""


@given(st.text(max_size=80))
def test_any_text_is_a_subject_or_refused(text: str):
    try:
        said = subjects.parse(text)
    except InvalidInput:
        assert subjects.sender_of(text) == ""
    else:
        assert subjects.sender_of(text) == said.sender


def test_an_agent_without_projects_gets_a_filter_that_matches_nothing():
    assert subjects.feed_filters(()) == ["project.-.feed.*"]
    assert subjects.feed_filters(("x", "y")) == ["project.x.feed.*", "project.y.feed.*"]


ACK = "$JS.ACK.{stream}.{own}.1.2.3.4.0"


@pytest.mark.parametrize(
    "stream, subject",
    [
        ("INBOX", subjects.inbox(A, B)),
        ("PRIORITY", subjects.priority(A, B)),
        ("RECEIPTS", subjects.receipts(A, B)),
        ("FEED", subjects.feed("main", B)),
    ],
)
def test_a_delivery_of_ones_own_consumer_is_accepted(stream: str, subject: str):
    reply = ACK.format(stream=stream, own=A)

    assert subjects.accepts_delivery(stream, A, ("main",), subject, reply)


@pytest.mark.requirement("identity-sender-proved")
@pytest.mark.parametrize(
    "stream, subject, reply",
    [
        ("INBOX", subjects.inbox(A, B), ""),
        ("INBOX", subjects.inbox(A, B), ACK.format(stream="INBOX", own=B)),
        ("INBOX", subjects.inbox(A, B), ACK.format(stream="PRIORITY", own=A)),
        ("INBOX", subjects.inbox(A, B), f"$JS.ACK.INBOX.{A}x.1.2.3.4.0"),
        ("INBOX", subjects.inbox(B, A), ACK.format(stream="INBOX", own=A)),
        ("INBOX", subjects.priority(A, B), ACK.format(stream="INBOX", own=A)),
        ("INBOX", subjects.outbox(A), ACK.format(stream="INBOX", own=A)),
        ("INBOX", subjects.reply(A, "js", "x"), ACK.format(stream="INBOX", own=A)),
        ("INBOX", subjects.feed("main", B), ACK.format(stream="INBOX", own=A)),
        ("FEED", subjects.feed("other", B), ACK.format(stream="FEED", own=A)),
        ("FEED", subjects.inbox(A, B), ACK.format(stream="FEED", own=A)),
        ("INBOX", "", ACK.format(stream="INBOX", own=A)),
    ],
)
def test_a_frame_that_is_no_delivery_to_oneself_is_not_accepted(
    stream: str, subject: str, reply: str
):
    assert not subjects.accepts_delivery(stream, A, ("main",), subject, reply)


def test_a_request_that_wants_its_answer_is_accepted():
    assert subjects.accepts_rpc(A, subjects.rpc(A, B), subjects.reply(B, A, "token"))


@pytest.mark.requirement("identity-sender-proved")
@pytest.mark.parametrize(
    "subject, reply",
    [
        (subjects.rpc(A, B), ""),
        (subjects.rpc(A, B), subjects.inbox(C, A)),
        (subjects.rpc(A, B), subjects.reply(C, A, "token")),
        (subjects.rpc(A, B), subjects.reply(B, C, "token")),
        (subjects.rpc(A, B), f"_I.{B}.{A}"),
        (subjects.rpc(A, B), f"_I.{B}.{A}.token.more"),
        (subjects.rpc(C, B), subjects.reply(B, A, "token")),
        (subjects.inbox(A, B), subjects.reply(B, A, "token")),
        ("nonsense", subjects.reply(B, A, "token")),
    ],
)
def test_a_request_that_wants_its_answer_elsewhere_is_not_accepted(subject: str, reply: str):
    assert not subjects.accepts_rpc(A, subject, reply)


@pytest.mark.requirement("identity-sender-proved")
@pytest.mark.parametrize(
    "subject, reply, accepted",
    [
        (subjects.discovery(A), subjects.reply(A, "all", "token"), True),
        (subjects.discovery(A), "", False),
        (subjects.discovery(A), subjects.reply(B, "all", "token"), False),
        (subjects.discovery(A), subjects.reply(A, "js", "token"), False),
        (subjects.alerts(A), subjects.reply(A, "all", "token"), False),
        ("nonsense", subjects.reply(A, "all", "token"), False),
    ],
)
def test_an_announcement_counts_only_with_its_senders_reply(
    subject: str, reply: str, accepted: bool
):
    assert subjects.accepts_announcement(subject, reply) is accepted
