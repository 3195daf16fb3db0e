"""Sessions as rows, on every database."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from postroom.errors import Conflict
from postroom.protocol.receipts import State
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.messages import MessageRow
from postroom.store.ports import Place
from postroom.store.sessions import SessionRow

ANA = Agent("a" * 32, "default", "ana", "human", 1.0)
APP = Agent("b" * 32, "default", "app", "external", 1.0)
WEB = Agent("c" * 32, "default", "web", "external", 1.0)
ROW = SessionRow(APP.uid, ANA.uid, "claude", "one", "/srv", "", "2", "idle", 1.0, 2.0)


@pytest.fixture
def run(place: Place) -> Any:
    connection = place.connect(writes=True)

    def in_one(work: Callable[[Store], Any]) -> Any:
        return connection.run(lambda session: work(Store(session)))

    for agent in (ANA, APP, WEB):
        in_one(lambda store, agent=agent: store.agents.add_agent(agent, agent.nick, b"x"))
    in_one(lambda store: store.sessions.add(ROW))
    yield in_one
    if not place.shared:
        connection.close()


def test_a_session_is_found_by_what_its_client_calls_it_until_its_agent_is_retired(run: Any):
    def known(store: Store) -> Any:
        return store.sessions.known_as(ANA.uid, "claude", "one")

    assert run(known) == ROW
    assert run(lambda store: store.sessions.known_as(WEB.uid, "claude", "one")) is None
    assert run(lambda store: store.sessions.owned(ANA.uid)) == [APP.uid]
    moved = dataclasses.replace(ROW, key="two", state="busy", state_at=3.0)
    assert run(lambda store: store.sessions.change(moved))
    assert run(known) is None
    assert run(lambda store: (store.sessions.get(APP.uid), store.sessions.all())) == (
        moved,
        [moved],
    )
    assert run(lambda store: store.agents.retire_agent(APP.uid, 4.0))
    assert run(lambda store: store.sessions.count(ANA.uid)) == 0
    assert not run(lambda store: store.sessions.change(moved))


def test_two_sessions_of_one_client_never_have_one_key(run: Any):
    twin = dataclasses.replace(ROW, uid=WEB.uid)
    with pytest.raises(Conflict):
        run(lambda store: store.sessions.add(twin))
    run(lambda store: store.sessions.add(dataclasses.replace(twin, client="codex")))


def test_the_unread_messages_of_several_readers_come_together_in_their_order(run: Any):
    def message(seq: int, to: Agent, **more: Any) -> MessageRow:
        at: Any = dict.fromkeys(("sent_at", "stored_at", "updated_at"), float(seq))
        return MessageRow(seq, f"m{seq}", ANA.uid, to.uid, "hi", "{}", **at, **more)

    rows = [
        message(1, APP),
        message(2, WEB),
        message(3, ANA),
        message(4, APP, state=State.SEEN.value, final=True),
        message(5, WEB, expires_at=9.0),
        message(6, APP),
    ]
    for row in rows:
        assert run(lambda store, row=row: store.messages.insert_message(row))

    def found(after: int, limit: int = 9) -> list[int]:
        read = [APP.uid, WEB.uid]
        return run(
            lambda store: [
                row.seq for row in store.messages.unread_past_of(read, after, 10.0, limit)
            ]
        )

    assert found(0) == [1, 2, 6]
    assert found(1, 1) == [2]
    assert run(lambda store: store.messages.unread_past_of([], 0, 10.0, 9)) == []
