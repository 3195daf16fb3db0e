"""The order of streams in the running fold, and what follows from them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from postroom.bus.port import Message
from postroom.projection import fold as module
from postroom.projection.changes import Change
from postroom.projection.fold import After, Fold, Order, all_after
from postroom.projection.rules import Rules, together
from postroom.protocol import subjects
from postroom.store.database import Store
from tests.mail.desk import BACKENDS, SECONDS, Desk, running, running_desk

pytestmark = pytest.mark.anyio

ANN, BOB = "a" * 32, "b" * 32
TASK = "c" * 32


def noting(order: list[str]) -> Rules:
    def note(_: Store, record: Message) -> list[Change]:
        order.append(record.payload.decode())
        return []

    return {"TASKS": (note,), "INBOX": (note,)}


def new_fold(
    desk: Desk,
    rules: Rules,
    after: dict[str, list[After]] | None = None,
    order: dict[str, Order] | None = None,
) -> Fold:
    order = order or {"TASKS": Order(("INBOX",))}
    return Fold(desk.bus, desk.admin, desk.database, desk.changes, rules, after or {}, order)


async def store(desk: Desk, *texts: str) -> None:
    for text in texts:
        subject = (
            subjects.inbox(BOB, ANN)
            if text.startswith("i")
            else subjects.task(BOB, TASK, "working")
        )
        await desk.bus.publish(subject, text.encode())


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_was_stored_before_a_record_in_a_stream_before_it_is_folded_before_it(
    tmp_path: Path, backend: str
):
    seen: list[str] = []
    async with running_desk(tmp_path, backend, fold=False) as desk:
        await store(desk, "i1", "t1", "i2", "t2")
        fold = new_fold(desk, noting(seen))
        async with running(fold.run()):
            await fold.ready(SECONDS)
            assert seen == ["i1", "i2", "t1", "t2"]
            for n in range(3, 9):
                await store(desk, f"i{n}", f"t{n}")
            await fold.reached("TASKS", 8, SECONDS)
    assert sorted(seen) == sorted(f"{stream}{n}" for stream in "it" for n in range(1, 9))
    assert all(seen.index(f"i{n}") < seen.index(f"t{n}") for n in range(1, 9))


async def test_a_record_that_was_deleted_before_it_was_folded_holds_up_nothing(tmp_path: Path):
    seen: list[str] = []
    async with running_desk(tmp_path, fold=False) as desk:
        await store(desk, "i1", "i2", "t1")
        await desk.admin.delete("INBOX", 2)
        fold = new_fold(desk, noting(seen))
        async with running(fold.run()):
            await fold.ready(SECONDS)
    assert seen == ["i1", "t1"]


async def test_a_stream_that_waits_too_long_for_another_says_so_and_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "ORDER_WAIT", 0.001)
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
    monkeypatch.setattr(module, "LAST_RETRY", 0.01)
    seen: list[str] = []
    told, held = asyncio.Event(), asyncio.Event()

    def warning(_: str, error: Exception) -> None:
        if "TASKS waits for INBOX" in str(error):
            told.set()

    monkeypatch.setattr(module.log, "warning", warning)
    async with running_desk(tmp_path, fold=False) as desk:
        fold = new_fold(desk, noting(seen))
        catch_up = fold.stream("INBOX")._catch_up

        async def late() -> None:
            await held.wait()
            await catch_up()

        monkeypatch.setattr(fold.stream("INBOX"), "_catch_up", late)
        await store(desk, "i1", "t1")
        async with running(fold.run()):
            await asyncio.wait_for(told.wait(), SECONDS)
            assert seen == []
            held.set()
            await fold.ready(SECONDS)
    assert seen == ["i1", "t1"]


async def test_a_record_that_builds_on_nothing_waits_for_no_other_stream(tmp_path: Path):
    seen: list[str] = []
    async with running_desk(tmp_path, fold=False) as desk:
        order = {"TASKS": Order(("INBOX",), builds=lambda record: record.payload != b"t1")}
        fold = new_fold(desk, noting(seen), order=order)
        held, caught_up = asyncio.Event(), fold.stream("INBOX")._catch_up

        async def late() -> None:
            await held.wait()
            await caught_up()

        fold.stream("INBOX")._catch_up = late
        await store(desk, "i1", "t1")
        async with running(fold.run()):
            await asyncio.wait_for(fold.reached("TASKS", 1, SECONDS), SECONDS)
            assert seen == ["t1"]
            held.set()
            await fold.ready(SECONDS)
    assert seen == ["t1", "i1"]


async def test_the_parts_of_the_house_follow_in_their_order(tmp_path: Path):
    done: list[str] = []
    all_done = asyncio.Event()

    def part(name: str) -> dict[str, list[After]]:
        async def settle(seqs: Sequence[int]) -> None:
            done.append(f"{name} {list(seqs)}")
            if name == "tasks":
                all_done.set()

        async def sweep() -> None:
            done.append(f"{name} sweep")

        return {"INBOX": [After(settle, sweep)]}

    async with running_desk(tmp_path, fold=False) as desk:
        fold = new_fold(desk, noting([]), all_after(part("mail"), part("tasks")))
        async with running(fold.run()):
            await fold.ready(SECONDS)
            await store(desk, "i1")
            await asyncio.wait_for(all_done.wait(), SECONDS)
    assert done == ["mail sweep", "tasks sweep", "mail [1]", "tasks [1]"]


async def test_a_part_is_told_only_of_what_concerns_it(tmp_path: Path):
    told: list[int] = []
    heard = asyncio.Event()

    async def settle(seqs: Sequence[int]) -> None:
        told.extend(seqs)
        heard.set()

    after = After(settle, concerns=lambda record: record.payload == b"i2")
    async with running_desk(tmp_path, fold=False) as desk:
        fold = new_fold(desk, noting([]), {"INBOX": [after]})
        async with running(fold.run()):
            await fold.ready(SECONDS)
            await store(desk, "i1", "i2")
            await asyncio.wait_for(heard.wait(), SECONDS)
    assert told == [2]


def test_rules_of_two_parts_keep_their_order():
    one, two = noting([]), noting([])
    joined = together({"A": one["INBOX"]}, {"B": two["INBOX"], "A": two["TASKS"]})
    assert joined == {"A": (*one["INBOX"], *two["TASKS"]), "B": (*two["INBOX"],)}
    assert list(joined) == ["A", "B"]
