"""Invites, and agents that have joined, as stored: on each database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.store.agents import Agent
from postroom.store.blobs import EVERYBODY, BlobRow
from postroom.store.database import Store
from postroom.store.grants import GrantRow
from postroom.store.invites import KEPT, InviteRow

BOT = Agent("b" * 32, "default", "bot", "external", 1.0)
STRANGER = Agent("c" * 32, "default", "stranger-7f3a", "external", 1.0)
ANN = Agent("d" * 32, "default", "ann", "human", 1.0)
INVITE = InviteRow("f" * 16, "ab" * 32, "external", "read send", 2, 0, ANN.uid, 10.0, 100.0)


@pytest.fixture
def store(empty_store: Store) -> Store:
    for agent in (BOT, STRANGER, ANN):
        empty_store.agents.add_agent(agent, agent.nick, b"secret")
    empty_store.invites.joined(STRANGER.uid, "open", "a@b.example", closed=True)
    return empty_store


def test_an_invite_is_read_as_it_was_stored_and_counts_its_uses_and_tries(store: Store) -> None:
    store.invites.add(INVITE)
    store.invites.tried(INVITE.id, 1)
    store.invites.tried("absent", 1)

    assert store.invites.get(INVITE.id) == replace(INVITE, tries=1)
    assert [store.invites.use(INVITE.id, 20, 50.0) for _ in range(3)] == [True, True, False]
    assert store.invites.listed() == [replace(INVITE, tries=1, uses=0)]


def test_one_that_is_over_tried_too_often_or_revoked_has_no_use(store: Store) -> None:
    store.invites.add(INVITE)
    assert not store.invites.use(INVITE.id, 20, 100.0)
    assert not store.invites.use(INVITE.id, 0, 50.0)
    assert store.invites.end(INVITE.id, 60.0)
    assert not store.invites.end(INVITE.id, 70.0)
    assert not store.invites.use(INVITE.id, 20, 50.0)


def test_what_was_over_long_before_is_forgotten_with_the_next(store: Store) -> None:
    store.invites.add(INVITE)
    later = replace(INVITE, id="e" * 16, made_at=101.0 + KEPT, expires_at=200.0 + KEPT)
    store.invites.add(later)

    assert store.invites.listed() == [later]


def test_who_has_joined_is_known_until_it_is_removed(store: Store) -> None:
    found = store.grants.reached(STRANGER.uid)
    assert found is not None
    assert (found.joined, found.grants_only) == ("open", True)
    assert store.invites.count("default", "open") == 1
    assert store.invites.email(STRANGER.uid) == "a@b.example"

    store.agents.retire_agent(STRANGER.uid, 2.0)

    assert store.invites.count("default", "open") == 0
    assert store.invites.email(STRANGER.uid) == ""


def test_a_grant_ties_both_sides_and_that_of_an_owner_all_agents_of_theirs(store: Store) -> None:
    def tied(*sides: str) -> set[str]:
        return {row[0] for row in store.grants.ties(sides)}

    assert tied(STRANGER.uid) == set()
    store.grants.give_to(BOT.uid, ANN.uid, 1.0)
    store.grants.put(GrantRow("g1", ANN.uid, STRANGER.uid, "message", "", 1.0))

    assert tied(STRANGER.uid) == {ANN.uid, BOT.uid}
    assert tied(ANN.uid) == {STRANGER.uid}


def test_what_everybody_may_read_a_stranger_does_not(store: Store) -> None:
    blob = BlobRow("ab" * 32, 3, "text/plain", 1.0, 1.0)
    store.blobs.store_blob(blob, EVERYBODY)

    assert store.blobs.readable(blob.sha256, BOT.uid) is not None
    assert store.blobs.readable(blob.sha256, STRANGER.uid) is None
    assert store.blobs.sizes([blob.sha256], STRANGER.uid) == {}
    store.blobs.pass_on([blob.sha256], BOT.uid, STRANGER.uid)
    assert store.blobs.readable(blob.sha256, STRANGER.uid) is not None
