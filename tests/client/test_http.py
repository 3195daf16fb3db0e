from __future__ import annotations

import base64
import socket
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import errors
from postroom.client.calls import name_of
from postroom.client.http import Client
from postroom.client.locate import ServerAddress, locate
from postroom.client.transport import Transport
from postroom_a2a.retry import Again, RetryPolicy
from tests.client.conftest import Pauses
from tests.client.standin import BOB, TOKEN, Standin, listed, mail, post, problem, status, worker


def test_every_call_carries_the_token_and_a_loopback_host(standin: Standin, client: Client):
    standin.answer("GET /v1/status", status())
    assert client.status() == status()
    headers = standin.requests[0].headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["host"] == standin.url.removeprefix("http://")


@pytest.mark.parametrize("kind", sorted(errors.by_code(errors.PostroomError).values(), key=repr))
def test_what_the_server_raises_is_raised_here(
    standin: Standin, client: Client, kind: type[errors.PostroomError]
):
    error = kind("no", remedy="do this")
    standin.answer("GET /v1/workers/bob", errors.problem(error), errors.http_status(error))
    with pytest.raises(errors.PostroomError) as caught:
        client.worker("@bob")
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.remedy) == ("no", "do this")


def test_an_error_that_is_no_problem_document_is_still_an_error(standin: Standin, client: Client):
    standin.answer("GET /v1/agents", ["?"], 418)
    with pytest.raises(errors.CallerError):
        client.agents()


@pytest.mark.requirement("bus-ack-means-disk")
def test_a_send_is_repeated_with_the_same_key(standin: Standin, client: Client, pauses: Pauses):
    standin.answer("POST /v1/messages", cut=True)
    standin.answer("POST /v1/messages", problem("error", "boom"), 500)
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    assert client.send("@bob", "hi")["id"] == "m1"
    keys = [request.body["key"] for request in standin.calls("POST /v1/messages")]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len(pauses) == 2


def test_two_sends_have_two_keys(standin: Standin, client: Client):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    client.send("@bob", "hi")
    client.send("@bob", "hi")
    first, second = standin.calls("POST /v1/messages")
    assert first.body["key"] != second.body["key"]


@pytest.mark.parametrize("code", [400, 403, 404, 409, 413, 422, 429])
def test_a_4xx_is_never_repeated(standin: Standin, client: Client, code: int):
    standin.answer("POST /v1/messages", problem("caller-error", "no"), code)
    with pytest.raises(errors.PostroomError):
        client.send("@bob", "hi")
    assert len(standin.requests) == 1


def test_who_has_patience_waits_as_long_as_a_429_says_and_no_longer_than_its_deadline(
    standin: Standin, pauses: Pauses
):
    standin.answer(
        "POST /v1/messages", problem("refused", "too many"), 429, headers={"retry-after": "3"}
    )
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    here = ServerAddress(standin.url, 1, standin.token)
    transport = Transport(lambda: here, retry=RetryPolicy(patient=True), sleep=pauses)
    with Client(transport) as client, transport.within(60):
        assert client.send("@bob", "hi")["id"]
        first, second = standin.calls("POST /v1/messages")
        assert first.body["key"] == second.body["key"]
        assert [3 <= pause <= 3 + RetryPolicy().cap for pause in pauses] == [True]

        standin.answer(
            "GET /v1/status", problem("refused", "too many"), 429, headers={"retry-after": "90000"}
        )
        with pytest.raises(errors.PostroomError):
            client.status()
        assert len(standin.calls("GET /v1/status")) == 1


def test_a_call_with_another_effect_each_time_is_not_repeated(standin: Standin, client: Client):
    standin.answer("POST /v1/workers", problem("error", "boom"), 500)
    standin.answer("POST /v1/deadletters/d1/requeue", cut=True)
    with pytest.raises(errors.PostroomError):
        client.spawn("[worker]")
    with pytest.raises(errors.PeerError):
        client.requeue("d1")
    assert len(standin.requests) == 2


def test_a_server_that_did_not_act_is_asked_again_whatever_the_call(
    standin: Standin, client: Client
):
    starting = problem("environment", "the post room is starting")
    standin.answer("POST /v1/workers", starting, 503, headers={"retry-after": "1"})
    standin.answer("POST /v1/workers", worker(), 201)
    assert client.spawn("[worker]")["nick"] == "bob"


def test_attempts_end(standin: Standin, client: Client, pauses: Pauses):
    standin.answer("GET /v1/status", problem("server-failed", "down"), 503)
    with pytest.raises(errors.ServerFailed):
        client.status()
    assert len(standin.requests) == RetryPolicy().attempts
    assert len(pauses) == RetryPolicy().attempts - 1


def test_a_refused_connection_means_not_running(pauses: Pauses):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(Transport(lambda: ServerAddress(url, 1, "t"), sleep=pauses)) as client:
            with pytest.raises(errors.NotRunning) as caught:
                client.status()
            assert caught.value.remedy == "postroom up"


def test_a_post_room_that_moved_is_found_again(standin: Standin, tmp_path: Path, pauses: Pauses):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        standin.announce(tmp_path, url=f"http://127.0.0.1:{taken.getsockname()[1]}", token="old")
        pauses.then = lambda: standin.announce(tmp_path)
        standin.answer("GET /v1/status", status())
        with Client(Transport(lambda: locate(tmp_path), sleep=pauses)) as client:
            assert client.status() == status()


def test_a_new_token_is_read_once_and_a_wrong_one_ends_it(standin: Standin, client: Client):
    standin.answer("GET /v1/status", status())
    standin.token = "renewed"
    assert client.status() == status()
    refused = Transport(lambda: ServerAddress(standin.url, 1, "wrong"), sleep=lambda _: None)
    with Client(refused) as stranger, pytest.raises(errors.Unauthorized):
        stranger.status()


def test_no_answer_in_time_is_a_timeout_and_not_repeated(monkeypatch: pytest.MonkeyPatch):
    from postroom.client import rules

    monkeypatch.setattr(rules, "ANSWER_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Client(Transport(lambda: ServerAddress(url, 1, "t"))) as client,
            pytest.raises(errors.RequestTimeout),
        ):
            client.status()


def test_an_answer_that_is_not_json_is_a_violation():
    base = httpx2.MockTransport(lambda _: httpx2.Response(200, text="<html>"))
    here = Transport(lambda: ServerAddress("http://x", 1, "t"), base=base)
    with Client(here) as client, pytest.raises(errors.ProtocolViolation):
        client.status()


def test_waiting_is_cut_into_calls_and_ends_at_the_deadline(standin: Standin, pauses: Pauses):
    times = iter([0.0, 0.0, 25.0, 25.0, 50.0, 50.0, 60.0])
    here = Transport(lambda: ServerAddress(standin.url, 1, TOKEN), sleep=pauses)
    standin.answer("GET /v1/messages/m1", mail(1, "hi", timed_out=True))
    with Client(here, clock=lambda: next(times)) as client:
        assert client.wait("m1", "answered", 60.0)["timed_out"]
    asked = [(r.query["wait"], r.query["timeout"]) for r in standin.requests]
    assert asked == [("answered", "25.0"), ("answered", "25.0"), ("answered", "10.0")]


def test_waiting_ends_when_the_message_has_come_so_far(standin: Standin, client: Client):
    standin.answer("GET /v1/messages/m1", mail(1, "hi", timed_out=True))
    standin.answer("GET /v1/messages/m1", mail(1, "hi", state="seen"))
    assert client.wait("m1", "seen", 60.0)["state"] == "seen"
    assert len(standin.requests) == 2


def test_each_route_is_called_as_the_contract_says(standin: Standin, client: Client):
    standin.answer("GET /readyz", {"ready": True})
    standin.answer("GET /livez", "ok\n")
    standin.answer("GET /v1/agents", {"agents": [listed(BOB)]})
    standin.answer("GET /v1/workers", {"workers": [worker()]})
    standin.answer("POST /v1/workers", worker(), 201)
    standin.answer("POST /v1/workers/bob/stop", worker())
    standin.answer("POST /v1/workers/bob/restart", worker())
    standin.answer("POST /v1/workers/bob/sdk-events", {"stored": [1], "next": 0}, 202)
    standin.answer("GET /v1/messages/m1", mail(1, "x"))
    standin.answer("POST /v1/messages/m1/seen", mail(1, "x"))
    standin.answer("GET /v1/inbox", {"messages": [mail(3, "x")]})
    standin.answer("GET /v1/chats/bob/messages", {"messages": [mail(4, "x")]})
    standin.answer("GET /v1/projects/main/posts", {"posts": [post(5, "x")]})
    standin.answer("POST /v1/projects/main/posts", post(1, "x"), 201)
    standin.answer("GET /v1/deadletters", {"deadletters": []})
    standin.answer("POST /v1/deadletters/d1/requeue", {"id": "m2"}, 201)
    standin.answer("DELETE /v1/deadletters/d1", None, 204)
    standin.answer("POST /v1/shutdown", {"ending": True}, 202)
    assert client.ready()
    assert client.alive() == "ok\n"
    assert client.agents() == [listed(BOB)]
    assert client.workers() == [worker()]
    client.spawn(
        "T", files={"a.py": b"\xff"}, name="n", project="p", overrides={"k": "v"}, sandbox="s"
    )
    assert standin.requests[-1].body == {
        "template": "T",
        "files": {"a.py": base64.b64encode(b"\xff").decode()},
        "set": {"k": "v"},
        "name": "n",
        "project": "p",
        "sandbox": "s",
    }
    client.stop("@bob")
    client.restart("bob")
    client.sdk_events("bob", [{"type": "text"}])
    assert client.message("m1")["id"] == "m1"
    client.mark_seen("m1")
    assert client.inbox(limit=7) == [mail(3, "x")]
    assert standin.requests[-1].query == {"unread": "1", "limit": "7"}
    client.inbox(unread=False)
    assert "unread" not in standin.requests[-1].query
    assert client.chat("@bob", limit=3, before=9) == [mail(4, "x")]
    assert standin.requests[-1].query == {"limit": "3", "before": "9"}
    assert client.posts("#main", limit=2) == [post(5, "x")]
    assert client.post("main", "x", key="k")["id"] == "p1"
    assert standin.requests[-1].body == {"text": "x", "key": "k"}
    assert client.deadletters() == []
    assert client.requeue("d1") == "m2"
    client.drop("d1")
    client.shutdown()


def test_what_is_empty_or_zero_and_given_is_sent_where_it_means_something(
    standin: Standin, client: Client
):
    refused = problem("invalid-input", "no")
    standin.answer("POST /v1/messages", refused, 422)
    standin.answer("POST /v1/workers/bob/control", refused, 422)
    with pytest.raises(errors.PostroomError):
        client.send("@bob", "hi", expires_in=0, expects_reply=False, key="k")
    sent = {"to": "@bob", "text": "hi", "expires_in": 0, "expects_reply": False, "key": "k"}
    assert standin.requests[-1].body == sent
    with pytest.raises(errors.PostroomError):
        client.control("@bob", "abcd", "edited", input={}, pin="")
    said = {"type": "control_response", "id": "abcd", "decision": "edited", "channel": "api"}
    assert standin.requests[-1].body == said | {"input": {}}
    with pytest.raises(errors.InvalidInput, match="not the id of an approval"):
        client.control("@bob", "../x", "allowed")
    assert len(standin.requests) == 2


@given(st.text(max_size=80))
def test_no_name_can_change_the_path_of_a_call(ref: str):
    try:
        name = name_of(ref)
    except errors.InvalidName:
        return
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")


@given(st.integers(1, 10_000), st.floats(0.0, 1.0))
def test_a_delay_is_never_over_the_cap(failures: int, share: float):
    policy = RetryPolicy(uniform=lambda low, high: low + share * (high - low))
    assert 0.0 <= policy.delay(failures) <= policy.cap


def test_delays_double_up_to_the_cap():
    policy = RetryPolicy(base=0.1, cap=1.0, uniform=lambda _low, high: high)
    assert [round(policy.delay(n), 3) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(
    "code, retry_after, again",
    [
        (503, True, Again.ALWAYS),
        (503, False, Again.IF_REPEATABLE),
        (500, True, Again.IF_REPEATABLE),
        (401, False, Again.IF_MOVED),
        (404, True, Again.NEVER),
        (429, True, Again.NEVER),
    ],
)
def test_the_rule_of_repetition(code: int, retry_after: bool, again: Again):
    assert Again.after(code, retry_after=retry_after) is again


# ── what is not known ────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("bus-ack-means-disk")
def test_a_connection_that_breaks_and_is_then_refused_leaves_the_outcome_open_and_names_the_key(
    standin: Standin, client: Client, pauses: Pauses
):
    standin.answer("POST /v1/tasks", cut=True)
    pauses.then = standin.stop_listening
    with pytest.raises(errors.Uncertain) as caught:
        client.delegate("go", to="@bob", key="k7")
    assert errors.exit_code(caught.value) == 9
    assert "no post room answers" in caught.value.message
    assert "--key k7" in caught.value.remedy


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("first", [errors.RequestTimeout, errors.BusDisconnected])
def test_what_the_bus_did_not_confirm_stays_open_when_the_post_room_ends(
    standin: Standin, client: Client, pauses: Pauses, first: type[errors.PostroomError]
):
    headers = {"connection": "close", "retry-after": "1"}
    told = first("the bus is silent")
    standin.answer(
        "POST /v1/messages", errors.problem(told), errors.http_status(told), headers=headers
    )
    pauses.then = standin.stop_listening
    with pytest.raises(errors.Uncertain):
        client.send("@bob", "hi")


def test_what_never_reached_a_post_room_is_certain(standin: Standin, client: Client):
    standin.stop_listening()
    with pytest.raises(errors.NotRunning):
        client.send("@bob", "hi")


def test_a_read_that_was_cut_off_has_no_outcome(standin: Standin, client: Client, pauses: Pauses):
    standin.answer("GET /v1/status", cut=True)
    pauses.then = standin.stop_listening
    with pytest.raises(errors.NotRunning):
        client.status()


def test_no_attempt_begins_behind_the_end_of_the_time(
    standin: Standin, client: Client, pauses: Pauses
):
    standin.answer("POST /v1/messages", problem("bus-disconnected", "the bus is away"), 503)
    with client.transport.within(0.0), pytest.raises(errors.BusDisconnected) as caught:
        client.send("@bob", "hi", key="k8")
    assert (len(standin.requests), pauses) == (1, [])
    assert "--key k8" in caught.value.remedy


def test_a_silent_post_room_is_not_waited_for_behind_the_end_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
):
    from postroom.client import rules

    monkeypatch.setattr(rules, "GRACE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Client(Transport(lambda: ServerAddress(url, 1, "t"))) as client,
            client.transport.within(0.05),
            pytest.raises(errors.RequestTimeout) as caught,
        ):
            client.delegate("go", to="@bob", key="k9")
    assert "--key k9" in caught.value.remedy


def test_the_audit_log_may_take_long_to_search():
    seconds = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seconds.append(request.extensions["timeout"]["read"])
        return httpx2.Response(200, text="")

    transport = Transport(
        lambda: ServerAddress("http://x", 1, "t"), base=httpx2.MockTransport(answer)
    )
    assert list(Client(transport).audit()) == []
    assert list(Client(transport).audit(follow=True)) == []
    assert seconds == [300.0, 45.0]
