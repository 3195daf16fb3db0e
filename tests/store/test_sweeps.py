"""What is asked over everything at a start reads what is open, and not what has ended in a year."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from postroom.store.database import Store
from postroom.store.session import Driver, Session
from tests.stores import memory_store, scans


@pytest.mark.parametrize(
    "sweep",
    [
        lambda store: store.pending.unaddressable(),
        lambda store: store.pending.answered(),
        lambda store: store.pending.open_requests(0),
    ],
    ids=["unaddressable", "answered", "requests"],
)
def test_a_sweep_goes_by_the_index_of_open_messages(sweep: Callable[[Store], object]):
    store = memory_store()
    sweep(store)
    lines = [line for line in scans(store, sweep) if "messages" in line]
    assert lines
    assert all("INDEX ix_messages_" in line for line in lines)


def test_messages_to_acknowledge_are_found_by_their_ids_and_not_among_all_of_an_inbox():
    store, asked = memory_store(), []
    driver = store.session.driver

    class Recording:
        def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
            asked.append(driver.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
            return driver.execute(sql, values)

    Store(Session(store.session.dialect, cast("Driver", Recording()))).messages.named_to("a", ["m"])
    ((first, *_),) = asked
    assert "INDEX ix_messages_id " in first[3]
