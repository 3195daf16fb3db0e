"""`/metrics` of a real post room: it agrees with what happened, and only who may reads it."""

from __future__ import annotations

import asyncio
import timeit
from collections.abc import AsyncGenerator

import pytest

from postroom.control.measuring import FRESH, Measuring
from postroom.observe.metrics import Metrics
from postroom.protocol.principal import Scope
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS
from tests.control.test_keys import followed, person
from tests.metrics.scraping import Measured, Scrape, measured_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("metrics-true")]


@pytest.fixture(scope="module")
async def measured(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Measured]:
    async with measured_room(tmp_path_factory.mktemp("room"), limit_streams=1) as measured:
        yield measured


async def test_a_task_and_its_message_are_counted_by_their_states(measured: Measured) -> None:
    room, before = measured.room, await measured.scrape()
    worker = await room.worker("ada")
    task = (await room.delegate("@ada"))["id"]
    waiting = await measured.scrape()
    await worker.take(task)
    await worker.say(task, TaskState.WORKING)
    working = await measured.scrape()
    await worker.say(task, TaskState.COMPLETED, "done")
    await room.folded("RECEIPTS")
    async with asyncio.timeout(SECONDS):
        after = await measured.scrape()
        while after.of_labels(
            "postroom_fold_behind_records"
        ):  # of the streams that nothing here waits for
            after = await measured.scrape()
    await room.parts.workers.remove(worker.uid)

    def open_in(scrape: Scrape, state: str) -> float:
        return scrape.of_labels("postroom_tasks_open", org="default", state=state)

    assert open_in(waiting, "submitted") == open_in(before, "submitted") + 1
    assert open_in(working, "working") == open_in(before, "working") + 1
    assert open_in(after, "working") == open_in(before, "working")

    def grown(name: str, **labels: str) -> float:
        return after.of_labels(name, **labels) - before.of_labels(name, **labels)

    assert grown("postroom_messages_total", state="accepted") == 1
    assert grown("postroom_task_changes_total", state="completed") == 1
    assert grown("postroom_receipts_total", state="answered") == 1
    assert grown("postroom_records_folded_total") >= 4
    assert grown("postroom_store_calls_total", kind="write") >= 4
    assert grown("postroom_store_seconds_total", kind="write") > 0
    assert after.of_labels("postroom_stream_records", stream="TASKS") > 0
    assert 0 <= after.of_labels("postroom_fold_lag_seconds") < SECONDS


async def test_counters_never_fall_and_each_name_is_one_metric(measured: Measured) -> None:
    before = await measured.scrape()
    await measured.room.api.get("/v1/agents")
    after = await measured.scrape()
    for name, kind in before.kinds.items():
        assert name.startswith(("postroom_", "process_"))
        assert name.endswith("_total") == (kind == "counter"), name
        if kind == "counter":
            for key, value in before.values.get(name, {}).items():
                assert after.values[name][key] >= value, name


async def test_requests_are_counted_by_route_and_never_by_what_a_caller_names(
    measured: Measured,
) -> None:
    api, before = measured.room.api, await measured.scrape()
    for at in range(20):
        await api.get(f"/v1/agents/nobody-{at}")
        await api.get(f"/v1/nothing/{at}")
        await api.get(f"/orgs/no{at}/v1/x")  # one route tells of organisations that are not there
    await api.request("GET", "/v1/workers/none/sdk-events")
    after = await measured.scrape()

    requests = "postroom_http_requests_total"

    def grown(name: str, route: str, **labels: str) -> float:
        more = {"route": route, **labels}
        return after.of_labels(name, **more) - before.of_labels(name, **more)

    assert grown(requests, "/v1/agents/{ref}", status="404") == 20
    assert grown(requests, "/v1/workers/{ref}/sdk-events") == 1
    assert grown(requests, "other") == 20
    assert grown("postroom_http_request_seconds_count", "/v1/agents/{ref}") == 20
    assert "nobody-3" not in (await api.get("/metrics")).text


async def test_refusals_and_open_streams_are_shown(measured: Measured) -> None:
    before = await measured.scrape()
    async with person(measured.room, "ann", *Scope) as ann:
        opened = asyncio.Semaphore(0)
        stream = asyncio.create_task(followed(ann.api, "/v1/events", opened))
        await opened.acquire()
        assert (await ann.api.get("/v1/events")).status_code == 429
        during = await measured.scrape()
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    assert during.of_labels("postroom_http_streams") == 1
    refused = "postroom_http_refused_total"
    assert (
        during.of_labels(refused, limit="streams") == before.of_labels(refused, limit="streams") + 1
    )
    assert during.of_labels("postroom_waiters") > before.of_labels("postroom_waiters")


async def test_who_asks_often_costs_one_reading(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = await measured.scrape()
    monkeypatch.setattr("postroom.control.measuring.FRESH", FRESH)
    room = measured.room
    now = 1000.0
    measuring = Measuring(room.parts.installation, lambda: [room.parts], lambda: now)
    first = Scrape.of(await measuring.text())
    before = room.parts.database.statistics().reads
    await asyncio.gather(*(measuring.text() for _ in range(10)))
    assert room.parts.database.statistics().reads == before
    now += FRESH
    await asyncio.gather(*(measuring.text() for _ in range(10)))
    assert 1 <= room.parts.database.statistics().reads - before <= 4
    failures = "postroom_scrape_failures_total"
    assert first.of_labels(failures) == begun.of_labels(failures)


async def test_what_cannot_be_read_is_left_out_and_the_rest_is_shown(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, before = measured.room, await measured.scrape()
    measuring = Measuring(room.parts.installation, lambda: [room.parts])

    async def away(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(room.parts.admin.jetstream, "api", away)
    found = Scrape.of(await measuring.text())
    failures = "postroom_scrape_failures_total"
    assert found.of_labels(failures, source="bus") == before.of_labels(failures, source="bus") + 1
    assert "postroom_stream_records" not in found.values
    assert "postroom_dead_letters" in found.values
    monkeypatch.setattr(room.parts.database, "read", away)
    found = Scrape.of(await Measuring(room.parts.installation, lambda: [room.parts]).text())
    assert "postroom_dead_letters" not in found.values
    assert "process_cpu_seconds_total" in found.values


async def test_metrics_are_for_the_operator_and_for_who_operates(measured: Measured) -> None:
    room = measured.room
    made = await room.api.post("/v1/keys", json={"name": "prometheus", "scopes": ["read"]})
    key = made.json()["key"]
    answer = await room.api.get("/metrics", headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200
    async with person(room, "ann", Scope.READ) as ann, person(room, "bob", Scope.OPERATE) as bob:
        assert await ann.status("/metrics") == 403
        assert await bob.status("/metrics") == 403  # `operate` alone reads nothing
    async with person(room, "eve", Scope.READ, Scope.OPERATE) as eve:
        assert await eve.status("/metrics") == 200
    refused = await room.api.get("/metrics", headers={"Authorization": "Bearer no"})
    assert refused.status_code == 401


def test_a_counter_costs_less_than_a_microsecond() -> None:
    metrics = Metrics()
    counter = metrics.counter("of_test_total", "Of a test.", "route", "status")
    summary = metrics.summary("of_test_seconds", "Of a test.", "route")
    rounds = 20_000

    def count() -> None:
        counter.add("/v1/messages", "200")
        summary.note("/v1/messages", value=0.1)

    best = min(timeit.repeat(count, number=rounds, repeat=20)) / rounds
    assert best < 2e-6  # of both
