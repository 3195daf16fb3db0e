"""Agents, keys, memberships and workers, as stored; and that the questions of the watches use their indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.keys import ApiKey
from postroom.store.messages import MessageRow
from postroom.store.workers import RUNNING, STOPPED, WorkerRecord
from tests.stores import scans

BOB = Agent("b" * 32, "default", "bob", "worker", 1.0)
WORKER = WorkerRecord(
    uid=BOB.uid,
    project="main",
    template='[worker]\nname = "bob"\n',
    sandbox="bubblewrap",
    level="enforced",
    desired=RUNNING,
    token_sha256="ab" * 32,
    created_at=1.0,
    files={"reader.py": "cHJpbnQoKQ=="},
    overrides={"folder": "/x"},
    rules=[{"pattern": "Edit", "uid": "a" * 32, "nick": "ann", "kind": "human", "at": 1.5}],
)


@pytest.fixture
def store(empty_store: Store) -> Store:
    made = empty_store
    made.agents.add_agent(BOB, "bob", b"secret")
    return made


def test_a_worker_is_read_as_it_was_stored(store: Store):
    store.workers.add_worker(WORKER)
    assert store.workers.worker_by_uid(BOB.uid) == WORKER
    assert store.workers.all_workers(desired=RUNNING) == [WORKER]
    assert store.workers.worker_by_token(WORKER.token_sha256) == BOB.uid
    assert store.workers.worker_by_token("") == ""


def test_what_a_worker_should_do_and_its_token_can_change(store: Store):
    store.workers.add_worker(WORKER)
    assert store.workers.set_desired(BOB.uid, STOPPED)
    assert store.workers.set_token(BOB.uid, "cd" * 32)
    assert store.workers.all_workers() == [replace(WORKER, desired=STOPPED, token_sha256="cd" * 32)]
    assert store.workers.all_workers(desired=RUNNING) == []
    assert store.workers.set_exceeded(BOB.uid, "time limit of 1 s exceeded")
    ended = store.workers.worker_by_uid(BOB.uid)
    assert ended is not None
    assert ended.exceeded == "time limit of 1 s exceeded"
    assert store.workers.set_begun(BOB.uid, 7.0)
    begun = store.workers.worker_by_uid(BOB.uid)
    assert begun is not None
    assert (begun.begun_at, begun.exceeded) == (7.0, "")


def test_a_new_template_leaves_what_people_have_added(store: Store):
    store.workers.add_worker(WORKER)
    store.workers.set_template(replace(WORKER, template="", rules=[]))
    kept = store.workers.worker_by_uid(BOB.uid)
    assert kept is not None
    assert (kept.template, kept.rules) == ("", WORKER.rules)
    assert store.workers.set_rules(BOB.uid, [])
    assert [worker.rules for worker in store.workers.all_workers()] == [[]]
    assert not store.workers.set_rules("f" * 32, WORKER.rules)
    store.workers.remove_worker(BOB.uid)
    assert store.workers.worker_by_uid(BOB.uid) is None


@pytest.mark.requirement("api-key-required")
def test_a_key_is_its_owners_until_it_is_revoked_or_the_owner_retires(store: Store):
    for name in ("1", "2"):
        store.keys.add(ApiKey(f"k{name}", BOB.uid, "", "read send", 1.0), f"hash{name}")
    found = store.keys.bearer("hash1")
    assert found is not None
    assert (found.uid, found.nick, found.scopes) == (BOB.uid, BOB.nick, "read send")
    assert (found.revoked_at, found.retired_at) == (None, None)
    assert store.keys.bearer("other") is None
    assert store.keys.count(BOB.uid, 1.0) == 2

    assert store.keys.revoke("k1", 2.0)

    assert not store.keys.revoke("k1", 3.0)
    revoked = store.keys.bearer("hash1")
    assert revoked is not None
    assert revoked.revoked_at == 2.0
    assert [key.id for key in store.keys.listed(BOB.uid)] == ["k2"]
    assert [key.id for key in store.keys.listed(ended=True)] == ["k1", "k2"]
    store.keys.used({"k2": 4.0})
    assert [key.used_at for key in store.keys.listed()] == [4.0]
    store.agents.retire_agent(BOB.uid, 5.0)
    retired = store.keys.bearer("hash2")
    assert retired is not None
    assert retired.retired_at == 5.0
    assert store.keys.revoke_all(BOB.uid, 6.0) == ["k2"]
    assert store.keys.count(BOB.uid, 6.0) == 0
    store.keys.add(ApiKey("k3", BOB.uid, "", "read", 2.0), "hash3")
    store.keys.forget_ended(BOB.uid, 7.0, keep=1)
    assert [key.id for key in store.keys.listed(ended=True)] == ["k1", "k3"]


def test_members_are_found_both_ways(store: Store):
    store.agents.set_memberships(BOB.uid, ["b", "a", "a"])
    assert store.agents.projects_of(BOB.uid) == ("a", "b")
    assert store.agents.members_of("a") == (BOB.uid,)
    store.agents.set_memberships(BOB.uid, [])
    assert store.agents.members_of("a") == ()


QUESTION = MessageRow(1, "m", "a", "b", "", "{}", 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.pending.expired(1.0),
        lambda store: store.pending.next_expiry(1.0),
        lambda store: store.pending.untaken(1.0),
        lambda store: store.pending.next_untaken(1.0),
        lambda store: store.pending.count_untaken("a"),
        lambda store: store.messages.inbox("a", unread=True, limit=5),
        lambda store: store.messages.unread_past("a", 0, 1.0, 5),
        lambda store: store.messages.unread_counts(["a"]),
        lambda store: store.messages.chat("a", "b", limit=5),
        lambda store: store.messages.first_answers([QUESTION]),
        lambda store: store.messages.requeues(["m"]),
        lambda store: store.records.attempts_of(["m"]),
        lambda store: store.records.project_posts("main", limit=5),
        lambda store: store.records.take_early_receipts("a", "m"),
    ],
)
def test_a_question_that_is_asked_all_the_time_reads_no_table_from_end_to_end(
    store: Store, ask: Callable[[Store], object]
):
    assert scans(store, ask) == []


def test_a_card_takes_the_place_of_the_one_before(store: Store):
    for card in ('{"version": "1"}', '{"version": "2"}'):
        store.cards.set_card(BOB.uid, card, 1.0)
    assert store.cards.all_cards() == {BOB.uid: '{"version": "2"}'}
    store.cards.remove_card(BOB.uid)
    assert store.cards.all_cards() == {}


def test_what_agents_called_last_is_noted(store: Store):
    store.agents.seen({BOB.uid: 7.0, "f" * 32: 8.0})
    found = store.agents.agent_by_uid(BOB.uid)
    assert found is not None
    assert found.seen_at == 7.0
    assert store.agents.outside() == []
