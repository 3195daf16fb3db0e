"""The reader of all live views: each record once and in order, however they come and however the reader comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.projection import tail as module
from postroom.projection.changes import MAIL, Change, Changes, Signal
from postroom.projection.tail import Quiet, TailPage, TailSource, tail

SECONDS = 5.0


@dataclass(frozen=True)
class Way:
    """How a source reads: records of a page, changes that wait, whether a change brings its record."""

    page: int
    limit: int
    brings: bool


class Log(TailSource[int, int]):
    """Records that are their own sequences, with gaps."""

    def __init__(self, changes: Changes, stored: list[int], way: Way) -> None:
        super().__init__(changes, MAIL)
        self.limit = way.limit
        self._stored = stored
        self._way = way

    async def read(self, after: int) -> TailPage[int, int]:
        found = [seq for seq in self._stored if seq > after][: self._way.page]
        await asyncio.sleep(0)  # more may come after the read, and before it is given
        return TailPage(found, found[-1] if found else after, len(found) >= self._way.page)

    async def heard(self, change: Change | Quiet, after: int) -> TailPage[int, int] | None:
        if not isinstance(change, Change) or change.seq <= after:
            return TailPage((), after)
        return TailPage([change.seq], change.seq) if self._way.brings else None


async def readings(way: Way, bursts: Sequence[int], visits: Sequence[int], turns: int) -> None:
    """What is stored in `bursts` is read in visits, each of at most so many records."""
    changes = Changes()
    stored: list[int] = []
    came: list[int] = []
    total = sum(bursts)

    async def write() -> None:
        for burst in bursts:
            for _ in range(burst):
                stored.append((stored[-1] if stored else 0) + 1 + len(stored) % 3)
                changes.publish([Change("mail", stored[-1])])
            for _ in range(turns):
                await asyncio.sleep(0)

    async def visit(most: int) -> None:
        after = came[-1] if came else 0
        async with aclosing(tail(Log(changes, stored, way), after)) as records:
            async for record in records:
                if record is Signal.QUIET:
                    continue
                came.append(record)
                if len(came) == total or (most := most - 1) == 0:
                    return

    writing = asyncio.create_task(write())
    async with asyncio.timeout(SECONDS):
        for most in visits:
            if len(came) < total:
                await visit(most)
        while len(came) < total:
            await visit(total)
        await writing
    assert came == stored
    assert changes.listening == 0


WAYS = st.builds(
    Way, page=st.integers(1, 5), limit=st.sampled_from([1, 2, 64]), brings=st.booleans()
)


@pytest.mark.requirement("client-stream-resumes")
@given(
    way=WAYS,
    bursts=st.lists(st.integers(0, 9), max_size=12),
    visits=st.lists(st.integers(1, 7), max_size=12),
    turns=st.integers(0, 4),
)
def test_each_record_comes_once_and_in_order(
    way: Way, bursts: list[int], visits: list[int], turns: int
):
    asyncio.run(readings(way, bursts, visits, turns))


@pytest.mark.anyio
async def test_changes_that_bring_a_reader_nothing_do_not_keep_it_from_hearing_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "STREAM_BEAT", 0.05)
    changes = Changes()
    old = Log(changes, [], Way(page=5, limit=64, brings=True))

    async def others() -> None:
        while True:
            changes.publish([Change("mail", 0)])
            await asyncio.sleep(0.01)

    busy = asyncio.create_task(others())
    async with asyncio.timeout(SECONDS), aclosing(tail(old, 0)) as records:
        assert await anext(records) is Signal.QUIET
    busy.cancel()
