"""The streams and consumers of the design, as data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.protocol import subjects
from postroom.protocol.permissions import allows, matches
from postroom.protocol.streams import (
    AGENT_CONSUMER_STREAMS,
    BY_NAME,
    MAX_DELIVER,
    REDELIVERY_DELAYS,
    STREAMS,
    StreamSpec,
    agent_consumer,
    redelivery_delay,
    stream_of,
)

A, B = "a" * 32, "b" * 32

STORED = {
    subjects.inbox(A, B): "INBOX",
    subjects.priority(A, B): "PRIORITY",
    subjects.task(A, "t", "working"): "TASKS",
    subjects.receipts(A, B): "RECEIPTS",
    subjects.outbox(A): "OUTBOX",
    subjects.status(A): "PRESENCE",
    subjects.events(A): "EVENTS",
    subjects.feed("main", A): "FEED",
    subjects.alerts(A): "ALERTS",
    subjects.deadletter(subjects.inbox(A, B)): "DEADLETTER",
    subjects.audit(A): "AUDIT",
    subjects.audit(""): "AUDIT",
}
LIVE = [
    subjects.rpc(A, B),
    subjects.discovery(A),
    subjects.ctl(A, "agents", "list"),
    subjects.reply(A, B, "token"),
]


@pytest.mark.parametrize("subject, stream", STORED.items())
def test_a_stored_subject_has_one_stream_that_covers_it(subject: str, stream: str):
    assert stream_of(subject) == stream
    assert [spec.name for spec in STREAMS if allows(spec.subjects, subject)] == [stream]


@pytest.mark.parametrize("subject", LIVE)
def test_a_live_subject_is_stored_nowhere(subject: str):
    assert stream_of(subject) == ""
    assert not [spec for spec in STREAMS if allows(spec.subjects, subject)]


def test_a_subject_out_of_the_table_has_no_stream():
    with pytest.raises(InvalidInput):
        stream_of("$JS.API.INFO")


@pytest.mark.requirement("mail-floods-contained")
@pytest.mark.parametrize("spec", STREAMS, ids=lambda spec: spec.name)
def test_every_stream_is_bounded(spec: StreamSpec):
    assert spec.max_bytes > 0
    assert spec.max_consumers > 0
    assert spec.duplicate_window > 0
    assert not spec.max_age or spec.duplicate_window <= spec.max_age


@pytest.mark.requirement("mail-floods-contained")
@pytest.mark.parametrize("name", ["INBOX", "PRIORITY", "TASKS", "RECEIPTS", "EVENTS", "DEADLETTER"])
def test_what_was_accepted_is_never_dropped_for_age_or_space(name: str):
    assert BY_NAME[name].discard_new
    assert BY_NAME[name].max_age == 0
    assert not BY_NAME[name].max_per_subject or BY_NAME[name].max_per_subject_refuses


@pytest.mark.parametrize("stream", AGENT_CONSUMER_STREAMS)
def test_an_agents_consumer_is_named_by_its_uid_and_filtered(stream: str):
    spec = agent_consumer(stream, A, ("main",))

    assert (spec.stream, spec.durable) == (stream, A)
    assert spec.filter_subjects
    stored = [subject for subject, name in STORED.items() if name == stream]
    assert all(matches(spec.filter_subjects[0], s) or "feed" in s for s in stored)
    assert not allows(spec.filter_subjects, subjects.inbox(B, A))


def test_an_agent_without_projects_receives_no_feed():
    spec = agent_consumer("FEED", A)

    assert spec.filter_subjects == ("project.-.feed.*",)
    assert spec.start_new


@given(st.integers(min_value=-5, max_value=1000))
def test_the_delay_before_a_redelivery_stays_within_its_table(attempt: int):
    assert redelivery_delay(attempt) in REDELIVERY_DELAYS
    assert redelivery_delay(attempt) <= redelivery_delay(attempt + 1)


def test_each_delivery_but_the_last_has_a_delay_after_it():
    assert len(REDELIVERY_DELAYS) == MAX_DELIVER - 1
