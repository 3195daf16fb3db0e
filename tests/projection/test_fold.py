"""The order of streams in the running fold, and what follows from them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from postroom.bus.memory import MemoryAdmin, MemoryBroker
from postroom.bus.port import Message
from postroom.errors import BusDisconnected, PostroomError
from postroom.projection import fold as module
from postroom.projection import following
from postroom.projection.changes import WORKERS, Change, ChangeListener
from postroom.projection.fold import Fold, Order, consumer
from postroom.projection.following import After
from postroom.projection.rules import Early, Rules, together
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert
from postroom.store.database import Store
from tests.mail.desk import BACKENDS, SECONDS, Desk, running, running_desk

pytestmark = pytest.mark.anyio

ANN, BOB = "a" * 32, "b" * 32
TASK = "c" * 32


def noting(order: list[str]) -> Rules:
    def note(_: Store, record: Message) -> list[Change]:
        order.append(record.payload.decode())
        return []

    return {"INBOX": (note,), "TASKS": (note,)}


def new_fold(
    desk: Desk,
    rules: Rules,
    after: Sequence[After] = (),
    order: dict[str, Order] | None = None,
) -> Fold:
    order = order or {"TASKS": Order(("INBOX",))}
    return Fold(desk.admin, desk.database, desk.changes, rules, after, order)


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


class HeldBack(MemoryAdmin):
    """Follows INBOX only once it is let go; `begun` counts how often a stream was read."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.held = asyncio.Event()
        self.begun: Counter[str] = Counter()

    async def follow(self, stream: str, *, after: int = 0) -> AsyncGenerator[Message | None]:
        self.begun[stream] += 1
        if stream == "INBOX":
            await self.held.wait()
        async for record in super().follow(stream, after=after):
            yield record


def holding(desk: Desk) -> HeldBack:
    assert isinstance(desk.admin, MemoryAdmin)
    desk.admin = admin = HeldBack(desk.admin._broker)
    return admin


async def test_a_stream_that_waits_too_long_for_another_says_so_and_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "ORDER_WAIT", 0.001)
    seen: list[str] = []
    told = asyncio.Event()

    def warning(_: str, error: Exception) -> None:
        if "TASKS waits for INBOX" in str(error):
            told.set()

    monkeypatch.setattr(module.log, "warning", warning)
    async with running_desk(tmp_path, fold=False) as desk:
        admin = holding(desk)
        fold = new_fold(desk, noting(seen))
        await store(desk, "i1", "t1")
        async with running(fold.run()):
            await asyncio.wait_for(told.wait(), SECONDS)
            assert seen == []
            assert "TASKS waits for INBOX" in fold.statistics.fault
            admin.held.set()
            await fold.ready(SECONDS)
            assert fold.statistics.fault == ""
    assert seen == ["i1", "t1"]


async def test_a_record_that_builds_on_nothing_waits_for_no_other_stream(tmp_path: Path):
    seen: list[str] = []
    async with running_desk(tmp_path, fold=False) as desk:
        admin = holding(desk)
        order = {"TASKS": Order(("INBOX",), builds=lambda record: record.payload != b"t1")}
        fold = new_fold(desk, noting(seen), order=order)
        await store(desk, "i1", "t1")
        async with running(fold.run()):
            await fold.reached("TASKS", 1, SECONDS)
            assert seen == ["t1"]
            admin.held.set()
            await fold.ready(SECONDS)
    assert seen == ["t1", "i1"]


@pytest.mark.requirement("mail-rebuild-equal")
async def test_a_record_that_a_rule_finds_early_waits_and_one_that_builds_on_nothing_does_not_count(
    tmp_path: Path,
):
    seen: list[str] = []

    def late(_: Store, record: Message) -> list[Change]:
        text = record.payload.decode()
        if text.replace("t", "i") not in seen:
            raise Early
        seen.append(text)
        return [Change("worker", 0)]

    async with running_desk(tmp_path, fold=False) as desk:
        admin = holding(desk)
        order = {"TASKS": Order(("INBOX",), builds=lambda _: False)}
        rules = {"INBOX": noting(seen)["INBOX"], "TASKS": (late,)}
        fold = new_fold(desk, rules, order=order)
        await store(desk, "i1", "t1", "t7", "i2", "t2")
        async with running(fold.run()):
            await admin_asked(fold)
            assert seen == []
            admin.held.set()
            await fold.ready(SECONDS)
    assert seen == ["i1", "i2", "t1", "t2"]
    assert (
        fold.statistics.ignored == 3
    )  # the two of INBOX, which change nothing here, and the stray one


async def admin_asked(fold: Fold) -> None:
    """Return when TASKS waits for INBOX."""
    async with asyncio.timeout(SECONDS):
        while fold._streams["TASKS"].awaited is None:  # noqa: ASYNC110 (nothing outside shows it)
            await asyncio.sleep(0)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_all_streams_brought_meanwhile_is_folded_in_one_transaction(
    tmp_path: Path, backend: str
):
    seen: list[str] = []
    order = {"TASKS": Order(("INBOX",), builds=lambda _: False)}
    async with running_desk(tmp_path, backend, fold=False) as desk:
        fold = new_fold(desk, noting(seen), order=order)
        async with running(fold.run()):
            await fold.ready(SECONDS)
            seen.clear()
            before = fold.statistics.transactions
            taken, release = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def busy(_: Store) -> None:
                loop.call_soon_threadsafe(taken.set)
                release.wait(SECONDS)

            blocker = asyncio.create_task(desk.database.write(busy))
            await taken.wait()
            try:
                await store(desk, "i1")
                await brought(fold, "INBOX", 1)
                await store(desk, *(f"{kind}{n}" for n in range(2, 9) for kind in "ti"))
                await brought(fold, "INBOX", 8)
                await brought(fold, "TASKS", 7)
            finally:
                release.set()
            await blocker
            await fold.reached("TASKS", 7, SECONDS)
    assert fold.statistics.transactions - before <= 2
    # The first is tried twice: the event loop does not wait for the lock.
    assert list(dict.fromkeys(seen))[1:] == [f"{kind}{n}" for kind in "it" for n in range(2, 9)]


async def brought(fold: Fold, stream: str, sequence: int) -> None:
    async with asyncio.timeout(SECONDS):
        while fold._streams[stream].brought < sequence:  # noqa: ASYNC110 (nothing outside shows it)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_consumers_of_an_earlier_version_are_deleted(tmp_path: Path, backend: str):
    async with running_desk(tmp_path, backend, fold=False) as desk:
        await desk.admin.ensure_consumer(consumer("INBOX"))
        fold = new_fold(desk, noting([]))
        async with running(fold.run()):
            await fold.ready(SECONDS)
            with pytest.raises(PostroomError):
                await desk.admin.pending("INBOX", consumer("INBOX").durable)


def part(name: str, done: list[str], all_done: asyncio.Event) -> After:
    def find(_: Store, changes: Sequence[Change]) -> list[int]:
        return [change.seq for change in changes if change.kind == "alert"]

    async def settle(seqs: Sequence[int]) -> None:
        done.append(f"{name} {list(seqs)}")
        if name == "tasks":
            all_done.set()

    async def sweep() -> None:
        done.append(f"{name} sweep")

    return After(find, settle, sweep)


def telling(_: Store, record: Message) -> list[Change]:
    return [Change("alert" if record.payload == b"i2" else "worker", record.sequence)]


async def test_the_parts_of_the_house_follow_in_their_order_and_hear_what_concerns_them(
    tmp_path: Path,
):
    done: list[str] = []
    all_done = asyncio.Event()
    parts = [part(name, done, all_done) for name in ("mail", "tasks")]
    async with running_desk(tmp_path, fold=False) as desk:
        fold = new_fold(desk, {"INBOX": (telling,)}, parts, {})
        await store(desk, "i2")
        async with running(fold.run()):
            await fold.ready(SECONDS)
            await store(desk, "i1", "i2")
            await asyncio.wait_for(all_done.wait(), SECONDS)
    assert done == ["mail sweep", "tasks sweep", "mail [3]", "tasks [3]"]


async def test_what_finds_no_room_behind_a_lasting_fault_is_swept_up_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(following, "MOST", 2)
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
    swept: list[int] = []
    tried, healed, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def settle(_: Sequence[int]) -> None:
        tried.set()
        if not healed.is_set():
            raise BusDisconnected("away")

    async def sweep() -> None:
        swept.append(1)
        if healed.is_set():
            again.set()

    stuck = After(lambda _, changes: [change.seq for change in changes], settle, sweep)
    async with running_desk(tmp_path, fold=False) as desk:
        fold = new_fold(desk, {"INBOX": (telling,)}, [stuck], {})
        async with running(fold.run()):
            await fold.ready(SECONDS)
            await store(desk, "i1")
            await asyncio.wait_for(tried.wait(), SECONDS)
            await store(desk, *(f"i{n}" for n in range(2, 9)))
            await fold.reached("INBOX", 8, SECONDS)  # the fold goes on
            healed.set()
            await asyncio.wait_for(again.wait(), SECONDS)
    assert len(swept) == 2


@pytest.mark.requirement("postgres-outage-survived")
@pytest.mark.parametrize("quiet", [False, True])
async def test_what_a_crash_of_the_database_undid_is_folded_again(
    tmp_path: Path, quiet: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "WATCH", 0.01 if quiet else 3600.0)
    seen: list[str] = []
    expected = ["i1", "i2", "t1", "t2", "i2", *([] if quiet else ["i3"]), "t1", "t2"]
    all_seen = threading.Event()

    def listen(_store: Store, _record: Message) -> list[Change]:
        if len(seen) == len(expected):
            all_seen.set()
        return []

    rules = together(noting(seen), {"INBOX": (listen,), "TASKS": (listen,)})
    async with running_desk(tmp_path, "memory", fold=False) as desk:
        monkeypatch.setattr(desk.database.place, "forgets", True)
        fold = new_fold(desk, rules)
        async with running(fold.run()):
            await fold.ready(SECONDS)
            await store(desk, "i1", "t1", "i2", "t2")
            await fold.reached("INBOX", 2, SECONDS)
            await fold.reached("TASKS", 2, SECONDS)

            def undo(store: Store) -> None:
                store.set_cursor("INBOX", 1)
                store.set_cursor("TASKS", 0)

            await desk.database.write(undo)
            if not quiet:
                await store(desk, "i3")
            assert await asyncio.to_thread(all_seen.wait, SECONDS)
    assert sorted(seen) == sorted(expected)


def test_rules_of_two_parts_keep_their_order():
    one, two = noting([]), noting([])
    joined = together({"A": one["INBOX"]}, {"B": two["INBOX"], "A": two["TASKS"]})
    assert joined == {"A": (*one["INBOX"], *two["TASKS"]), "B": (*two["INBOX"],)}
    assert list(joined) == ["A", "B"]


async def test_who_waits_goes_on_before_what_follows_from_the_fold_is_done(tmp_path: Path):
    order: list[str] = []
    followed = asyncio.Event()

    async def settle(_: Sequence[object]) -> None:
        order.append("follows")
        followed.set()

    async def wait(listener: ChangeListener) -> None:
        await listener.next(SECONDS)
        order.append("told")

    after = After(lambda _, changes: [change.seq for change in changes], settle)
    async with running_desk(tmp_path, fold=False) as desk:
        fold = new_fold(desk, {"INBOX": (telling,)}, [after], {})
        async with running(fold.run()):
            await fold.ready(SECONDS)
            with desk.changes.listen(WORKERS) as listener:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(wait(listener))
                    await store(desk, "i1")
                await asyncio.wait_for(followed.wait(), SECONDS)
    assert order == ["told", "follows"]


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("at", ["settle", "sweep"])
async def test_what_follows_and_cannot_be_done_ends_nothing_and_is_told(tmp_path: Path, at: str):
    done: list[str] = []
    told: list[Alert] = []

    async def settle(found: Sequence[str]) -> None:
        if at == "settle" and "i2" in found:
            raise KeyError("unforeseen")
        done.extend(found)

    async def sweep() -> None:
        if at == "sweep":
            raise KeyError("unforeseen")

    async def tell(alert: Alert) -> None:
        told.append(alert)

    def change(_: Store, record: Message) -> list[Change]:
        return [Change("worker", record.sequence, id=record.payload.decode())]

    def find(_: Store, changes: Sequence[Change]) -> list[str]:
        return [each.id for each in changes]

    async with running_desk(tmp_path, fold=False) as desk:
        after = (After(find, settle, sweep),)
        fold = Fold(desk.admin, desk.database, desk.changes, {"INBOX": (change,)}, after, tell=tell)
        async with running(fold.run()):
            await fold.ready(SECONDS)
            await store(desk, "i1", "i2", "i3")
            await fold.reached("INBOX", 3, SECONDS)
            await fold.settled(SECONDS)
            assert done == (["i1", "i3"] if at == "settle" else ["i1", "i2", "i3"])
        (alert,) = told
        assert (alert.kind, alert.about) == ("record-passed-over", "what follows/KeyError")
