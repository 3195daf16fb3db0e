"""What the post office finds to report about in one commit of the fold."""

from __future__ import annotations

import pytest

from postroom.mail.clerk import find
from postroom.projection.changes import Change
from postroom.protocol.receipts import State
from postroom.protocol.tasks import task_id
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.messages import MessageRow
from postroom.store.ports import TaskRow
from tests.mail.log import ALICE, BOB
from tests.stores import memory_store


def retired(store: Store) -> None:
    store.agents.add_agent(Agent(BOB, "default", "bob", "worker", 1.0), "bob", b"secret")
    store.agents.retire_agent(BOB, 2.0)


def request(store: Store) -> Change:
    row = MessageRow(1, "m", ALICE, BOB, "", "{}", 0.0, 0.0, 0.0, requests=True)
    store.messages.insert_message(row)
    return Change("mail", row.seq, row.id, row.sender, row.recipient, row=row)


@pytest.mark.requirement("mail-states-forward")
def test_the_request_of_a_task_that_was_taken_does_not_die_with_its_worker():
    """It ends with the task, which may have been taken in the same commit."""
    store = memory_store()
    retired(store)
    change = request(store)

    assert [(row.id, state) for row, state, _ in find(store, [change])] == [("m", State.DEAD)]

    task = TaskRow(task_id(BOB, ALICE, "m"), BOB, ALICE, "m", 1, "c", "", 0.0, 0.0, seq=1)
    store.tasks.insert_task(task)

    assert find(store, [change]) == []
    store.session.driver.close()
