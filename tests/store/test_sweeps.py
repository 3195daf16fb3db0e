"""What is asked over everything at a start reads what is open, and not what has ended in a year."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom.store.store import Store
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
