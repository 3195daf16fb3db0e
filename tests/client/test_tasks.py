"""Tasks as the client gives, reads and follows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom import errors
from postroom.client.calls import task_ref
from postroom.client.http import Client
from postroom.client.locate import ServerAddress
from postroom.client.stream import RECONNECT, EventStream, Losses
from postroom.client.transport import Transport
from tests.client.conftest import Pauses
from tests.client.standin import DEADLINE, TASK, TOKEN, Standin, change, frame, problem, task


def updates(*events: dict[str, object]) -> bytes:
    return b"".join(frame("update", event["seq"], event) for event in events)


def soon(stream: EventStream) -> EventStream:
    """The same without pauses between its connections."""
    stream._link._losses = Losses(replace(RECONNECT, base=0.0))
    return stream


def test_each_route_of_tasks_is_called_as_the_contract_says(standin: Standin, client: Client):
    standin.answer("POST /v1/tasks", task(), 201)
    standin.answer("GET /v1/tasks", {"tasks": [task()]})
    standin.answer("GET /v1/tasks/ab12cd34", task())
    standin.answer("GET /v1/tasks/ab12cd34/events", {"events": [change(7, "working")]})
    standin.answer("POST /v1/tasks/ab12cd34/cancel", task(state="canceled", final=True))
    standin.answer("POST /v1/tasks/ab12cd34/answer", task())
    standin.answer("GET /v1/workers/bob/agent-card.json", {"name": "bob"})

    assert client.delegate("go", to="@bob", skill="s", key="k", thread="c")["id"] == TASK
    body = {"text": "go", "key": "k", "to": "@bob", "skill": "s", "thread": "c"}
    assert standin.requests[-1].body == body
    assert client.tasks(limit=3) == [task()]
    assert standin.requests[-1].query == {"limit": "3"}
    client.tasks(open_only=True, state="working", worker="@bob", requester="@alice", before=9)
    assert standin.requests[-1].query == {
        "open": "1",
        "limit": "100",
        "state": "working",
        "worker": "@bob",
        "requester": "@alice",
        "before": "9",
    }
    assert client.task("ab12cd34") == task()
    assert client.task_events("ab12cd34", after=3, limit=2) == [change(7, "working")]
    assert standin.requests[-1].query == {"after": "3", "limit": "2"}
    assert client.cancel_task("ab12cd34", reason="no more", timeout=3.0)["final"]
    assert standin.requests[-1].body == {"timeout": 3.0, "reason": "no more"}
    client.answer_task("ab12cd34", "yes")
    assert standin.requests[-1].body == {"text": "yes"}
    assert client.served_card("@bob") == {"name": "bob"}


@pytest.mark.requirement("task-request-runs-once")
def test_a_task_is_asked_for_again_with_the_same_key(
    standin: Standin, client: Client, pauses: Pauses
):
    standin.answer("POST /v1/tasks", cut=True)
    standin.answer("POST /v1/tasks", problem("error", "boom"), 500)
    standin.answer("POST /v1/tasks", task(), 201)
    assert client.delegate("go", to="@bob")["id"] == TASK
    client.delegate("go", to="@bob")
    *first, second = [request.body["key"] for request in standin.calls("POST /v1/tasks")]
    assert len(first) == 3
    assert len(set(first)) == 1
    assert second != first[0]
    assert len(pauses) == 2


@pytest.mark.requirement("task-request-runs-once")
def test_an_answer_is_never_given_twice(standin: Standin, client: Client):
    standin.answer("POST /v1/tasks/ab12cd34/answer", cut=True)
    with pytest.raises(errors.PeerError):
        client.answer_task("ab12cd34", "yes")
    assert len(standin.requests) == 1


def test_a_cancel_that_got_lost_is_asked_for_again(standin: Standin, client: Client):
    standin.answer("POST /v1/tasks/ab12cd34/cancel", cut=True)
    standin.answer("POST /v1/tasks/ab12cd34/cancel", task(state="canceled", final=True))
    assert client.cancel_task("ab12cd34")["state"] == "canceled"


def test_waiting_for_a_task_is_cut_into_calls_and_ends_at_the_deadline(
    standin: Standin, pauses: Pauses
):
    times = iter([0.0, 0.0, 25.0, 25.0, 30.0, 30.0])
    standin.answer("GET /v1/tasks/ab12cd34", task(timed_out=True))
    here = Transport(lambda: ServerAddress(standin.url, 1, TOKEN), sleep=pauses)
    with Client(here, clock=lambda: next(times)) as client:
        assert client.await_task("ab12cd34", "settled", 30.0)["timed_out"]
    asked = [(r.query["wait"], r.query["timeout"]) for r in standin.requests]
    assert asked == [("settled", "25.0"), ("settled", "5.0")]


@pytest.mark.parametrize("ref", ["", "ab1", "AB12CD34", "../../shutdown", "a" * 33, "ab12cd34\n"])
def test_what_is_no_id_of_a_task_never_stands_in_a_path(ref: str):
    with pytest.raises(errors.InvalidInput):
        task_ref(ref)


@pytest.mark.requirement("client-stream-resumes")
def test_a_task_is_followed_to_its_end_across_a_lost_connection(standin: Standin, client: Client):
    first, second = standin.stream(), standin.stream()
    first.put(updates(change(7, "submitted"), change(9, "working")))
    first.put(None)
    second.put(updates(change(9, "working"), change(12, "completed", "done")))
    seen = [event.data["seq"] for event in soon(client.follow_task("ab12cd34"))]
    assert seen == [7, 9, 12]
    asked = [standin.stream_requests.get(timeout=DEADLINE) for _ in range(2)]
    assert {request.path for request in asked} == {"/v1/tasks/ab12cd34/stream"}
    assert [request.query for request in asked] == [{"after": "0"}, {"after": "9"}]


def test_nothing_is_asked_for_behind_the_end_of_a_task(standin: Standin, client: Client):
    standin.stream().put(updates(change(12, "failed", "no")) + frame("update", 13, {"seq": 13}))
    assert [event.id for event in client.follow_task("ab12cd34", after=9)] == ["12"]
    assert len(standin.requests) == 1
