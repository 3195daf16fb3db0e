"""Records of EVENTS, and the rows that folding them gives: on both databases, without a bus."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.bus.port import Message
from postroom.events.fold import MOST_COST, MOST_TOKENS, RULES
from postroom.projection.changes import APPROVALS, of_worker_events
from postroom.projection.rules import Folded, fold
from postroom.protocol import subjects
from postroom.protocol.event_bounds import CUT, encoded
from postroom.protocol.events import MAX_NUMBER, EventBatch, event_id
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.limits import MAX_EVENT_BYTES
from postroom.store.database import Store
from postroom.store.events import Usage
from tests.store.conftest import empty_store, postgres_tables
from tests.stores import memory_store, scans

__all__ = ["empty_store", "postgres_tables"]

ALICE, BOB = "a" * 32, "b" * 32

pytestmark = pytest.mark.requirement("events-folded-once")


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def record(seq: int, payload: bytes | EventBatch, worker: str = ALICE) -> Message:
    body = payload.encode() if isinstance(payload, EventBatch) else payload
    return Message("", CONTROL_PLANE, subjects.events(worker), body, {}, 1000.0 + seq, seq)


def folded(store: Store, *records: Message) -> Folded:
    return fold(store, RULES, "EVENTS", records)


def said(store: Store, worker: str = ALICE) -> list[str]:
    return [json.loads(row.event)["text"] for row in store.events.past(worker, 0, 100)]


def test_events_are_kept_in_the_order_of_the_log_each_under_its_records_sequence(
    empty_store: Store,
):
    store = empty_store
    folded(
        store,
        record(1, EventBatch((text("a"), text("b")), "run", 1)),
        record(2, EventBatch((text("x"),), "run", 1), BOB),
        record(3, EventBatch((text("c"),), "run", 3)),
    )
    rows = store.events.past(ALICE, 0, 100)
    assert said(store) == ["a", "b", "c"]
    assert [row.id for row in rows] == [event_id(1, 0), event_id(1, 1), event_id(3, 0)]
    assert [row.number for row in rows] == [1, 2, 3]
    assert [row.at for row in rows] == [1001.0, 1001.0, 1003.0]
    assert said(store, BOB) == ["x"]
    assert [row.id for row in store.events.past(ALICE, rows[0].id, 1)] == [rows[1].id]
    assert [row.id for row in store.events.newest(ALICE, 2)] == [rows[1].id, rows[2].id]
    assert store.events.last_id(ALICE) == rows[2].id
    assert store.events.last_id(CONTROL_PLANE) == 0


def test_the_same_number_of_a_run_counts_once_however_the_reports_are_cut(empty_store: Store):
    store = empty_store
    folded(store, record(1, EventBatch((text("a"), text("b")), "run", 1)))
    again = folded(store, record(2, EventBatch((text("b again"), text("c"), text("d")), "run", 2)))
    nothing = folded(store, record(3, EventBatch((text("c again"),), "run", 3)))
    other = folded(store, record(4, EventBatch((text("e"),), "another run", 1)))
    assert said(store) == ["a", "b", "c", "d", "e"]
    assert [row.number for row in again.changes[0].row] == [3, 4]
    assert (nothing.changes, nothing.ignored) == ((), 1)
    assert len(other.changes) == 1


def test_events_of_the_control_plane_have_no_run_and_each_counts(empty_store: Store):
    store = empty_store
    folded(store, record(1, EventBatch((text("a"),))), record(2, EventBatch((text("a"),))))
    folded(store, record(3, EventBatch((text("b"),), "run", 1)))
    assert said(store) == ["a", "a", "b"]


def test_waiters_hear_of_a_record_once_and_of_an_approval_that_is_asked_or_settled(
    empty_store: Store,
):
    request = "a1" * 16
    ask = {"type": "control_request", "request": request, "tool": "Bash"}
    answer = {
        "type": "control_response",
        "request": request,
        "decision": "denied",
        "channel": "api",
    }
    plain = folded(empty_store, record(1, EventBatch((text("a"), text("b")), "r", 1))).changes
    asked = folded(empty_store, record(2, EventBatch((text("c"), ask), "r", 3))).changes
    settled = folded(empty_store, record(3, EventBatch((answer,)))).changes
    late = folded(empty_store, record(4, EventBatch((answer,)))).changes

    assert [change.topics for change in plain] == [(of_worker_events(ALICE),)]
    assert [row.kind for row in plain[0].row] == ["text", "text"]
    assert (plain[0].seq, plain[0].sender) == (event_id(1, 1), ALICE)
    ((asking,), (settling,), (ignored,)) = asked, settled, late
    assert asking.topics == settling.topics == (of_worker_events(ALICE), APPROVALS)
    assert ignored.topics == (of_worker_events(ALICE),)
    assert (asking.seq, asking.id, asking.sender) == (event_id(2, 1), request, ALICE)
    assert [row.kind for row in asking.row] == ["text", "control_request"]


def test_usage_is_summed_by_worker_and_by_the_workers_own_task(empty_store: Store):
    def used(tokens: int, task: str = "") -> dict[str, Any]:
        return {"type": "usage", "input_tokens": tokens, "output_tokens": 1, "cost": 0.5} | (
            {"task": task} if task else {}
        )

    store = empty_store
    folded(
        store,
        record(1, EventBatch((used(10, "t1"), used(20, "t2"), used(30)), "r", 1)),
        record(2, EventBatch((used(1000, "t1"),), "r", 1), BOB),
    )
    assert store.events.usage_of_worker(ALICE) == Usage(60, 3, 1.5)
    assert store.events.usage_of_task(ALICE, "t1") == Usage(10, 1, 0.5)
    assert store.events.usage_of_task(ALICE, "t9") == Usage()
    assert store.events.usage_of_workers() == {ALICE: Usage(60, 3, 1.5), BOB: Usage(1000, 1, 0.5)}


def test_no_worker_can_make_the_sum_of_tokens_overflow():
    # SQLite fails where a sum leaves 64 bits, and with it the status of all workers.
    a_thousand_a_second_for_months = 100 * 86_400 * 1000
    assert MOST_TOKENS * a_thousand_a_second_for_months < 2**63


def test_sums_of_what_was_used_are_plain_numbers_in_json(empty_store: Store):
    used = {"type": "usage", "input_tokens": 7, "output_tokens": 2, "cost": 0.25}
    folded(empty_store, record(1, EventBatch((used, used), "r", 1)))
    (summed,) = empty_store.events.usage_of_workers().values()
    for usage in (summed, empty_store.events.usage_of_worker(ALICE)):
        assert (
            json.dumps(usage.as_json()) == '{"input_tokens": 14, "output_tokens": 4, "cost": 0.5}'
        )


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"type":"wall","report":null}',
        b'{"v":1,"events":[1]}',
        b'{"v":1,"events":[],"run":"r","first":1}',
        b'{"v":1,"events":[{}],"run":"r"}',
        b'{"v":1,"events":[{}],"first":3}',
        b'{"v":1,"events":[{}],"run":"r","first":%d}' % (MAX_NUMBER + 1),
        b'{"v":1,"events":[{}],"run":"r","first":1%s}' % (b"0" * 40),
        b'{"v":1,"events":[{"a":' + b"[" * 100 + b"]" * 100 + b"}]}",
    ],
)
def test_a_malformed_record_is_passed_over(payload: bytes):
    store = memory_store()
    done = folded(store, record(1, payload), record(2, EventBatch((text("a"),))))
    assert (done.ignored, said(store), store.cursor("EVENTS")) == (1, ["a"], 2)


HOSTILE = [
    {"type": "usage", "input_tokens": 10**30, "output_tokens": -5, "cost": 1e300},
    {"type": "usage", "input_tokens": True, "output_tokens": 1.5, "cost": "12"},
    {"type": "usage", "input_tokens": 3, "output_tokens": 4, "cost": -1, "task": {"a": 1}},
    {"type": ["text"], "task": "x" * 10_000, "message": None},
    {"type": "control_request", "request": 5},
    {"type": "rm -rf", "text": "a\0b", "task": "t\0"},
    {},
]


def test_an_event_with_fields_of_another_form_is_kept_and_they_count_for_nothing(
    empty_store: Store,
):
    folded(empty_store, record(1, EventBatch(tuple(HOSTILE), "r", 1)))
    rows = empty_store.events.past(ALICE, 0, 100)
    kinds = ["usage", "usage", "usage", "raw", "control_request", "raw", "raw"]
    assert [row.kind for row in rows] == kinds
    assert [json.loads(row.event) for row in rows] == HOSTILE
    used = Usage(MOST_TOKENS + 3, 4, MOST_COST)
    assert empty_store.events.usage_of_worker(ALICE) == used
    assert {row.request for row in rows} == {""}


def test_what_is_asked_often_uses_an_index(empty_store: Store):
    def ask(store: Store) -> None:
        store.events.known(ALICE, "r", 1, 10)
        store.events.past(ALICE, 0, 10)
        store.events.newest(ALICE, 10)
        store.events.last_id(ALICE)
        store.events.of_task(ALICE, "t", 0, 10)
        store.events.usage_of_worker(ALICE)
        store.events.usage_of_task(ALICE, "t")

    assert scans(empty_store, ask) == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=6))
def test_any_event_fits_and_what_is_small_stays_as_it_is(event: dict[str, Any]):
    made = encoded(event)
    assert len(made) <= MAX_EVENT_BYTES
    assert json.loads(made) == json.loads(json.dumps(event).encode().decode())


@pytest.mark.parametrize(
    "more",
    [
        {"text": "ä" * 200_000},
        {"input": {"lines": ["x" * 100] * 5000}},
        {"input": {"k" * 100_000: 1}},
        {"input": {str(at): at for at in range(50_000)}},
        {"text": 5, "input": json.loads("[" * 500 + "]" * 500)},
    ],
)
def test_what_is_too_large_is_cut_says_so_and_keeps_what_others_refer_to(more: dict[str, Any]):
    made = encoded({"type": "control_request", "request": "a1", "expires_at": "1970", **more})
    kept = json.loads(made)
    assert len(made) <= MAX_EVENT_BYTES
    assert kept[CUT] is True
    assert (kept["type"], kept["request"], kept["expires_at"]) == ("control_request", "a1", "1970")
    EventBatch.decode(b'{"v":1,"events":[%b]}' % made)
