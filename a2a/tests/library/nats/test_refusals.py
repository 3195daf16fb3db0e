"""The error codes of JetStream, from a server that answers what it is told to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from library.nats.streams import jetstream
from postroom_a2a.errors import (
    Forbidden,
    LostUpdate,
    MessageTooLarge,
    PostroomError,
    Refused,
    RequestTimeout,
    StreamFull,
)
from postroom_a2a.nats import refusals

pytestmark = pytest.mark.anyio

DEFINITE = {
    10054: MessageTooLarge,
    10071: LostUpdate,
    10164: LostUpdate,
    10077: StreamFull,
    10002: Refused,
    10023: Refused,
    10109: Refused,
    10111: Refused,
    10166: Refused,
}
UNCERTAIN = [10041, 10051, 10118, 10158, 10201, 10999, 99_999]
"""Errors of a group that changes its leader, of a stream that goes away, of copies, and codes of later servers."""


def error_of(code: int, status: int = 500) -> dict[str, Any]:
    return {"code": status, "err_code": code, "description": "said so"}


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("code, kind", DEFINITE.items())
def test_a_code_that_is_known_to_mean_it_refuses(code: int, kind: type[PostroomError]) -> None:
    assert type(refusals.of_publish(error_of(code), "log.one", first=True)) is kind


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("code", UNCERTAIN)
def test_any_other_code_leaves_it_open_whether_it_is_stored(code: int) -> None:
    error = refusals.of_publish(error_of(code), "log.one", first=True)
    assert type(error) is RequestTimeout
    assert "perhaps stored" in error.message
    assert "same" in error.remedy


@pytest.mark.parametrize("status, kind", [(403, Forbidden), (429, Refused), (500, RequestTimeout)])
def test_an_error_without_a_code_refuses_only_where_a_gateway_is_meant(
    status: int, kind: type[PostroomError]
) -> None:
    error = {"code": status, "err_code": 0}
    assert type(refusals.of_publish(error, "log.one", first=True)) is kind
    assert type(refusals.of_publish(error, "log.one", first=False)) is RequestTimeout


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("code", [10002, 10023, 10109])
def test_the_refusal_of_a_copy_says_nothing_of_the_message_before_it(code: int) -> None:
    assert type(refusals.of_publish(error_of(code), "log.one", first=False)) is RequestTimeout


def test_a_call_of_the_api_has_the_text_of_the_server() -> None:
    error = refusals.of_call(error_of(10052), "stream create LOG")
    assert type(error) is Refused
    assert error.message == "stream create LOG: said so"


@pytest.mark.requirement("bus-ack-means-disk")
async def test_a_temporary_answer_is_asked_again_and_another_unknown_one_is_not_believed(
    tmp_path: Path,
) -> None:
    async with jetstream(tmp_path) as (js, peer):
        answers = [error_of(10158, 409), error_of(10201, 400), error_of(10_777)]
        came = asyncio.Queue()

        async def answer(frame: Any) -> None:
            came.put_nowait(frame.data)
            await frame.respond(json.dumps({"error": answers[came.qsize() - 1]}).encode())

        await peer.subscribe("log.one", cb=answer)
        await peer.flush()
        with pytest.raises(RequestTimeout, match="perhaps stored"):
            await js.publish("log.one", b"text")
        assert came.qsize() == 3


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("answered", [False, True], ids=["silence", "temporary"])
async def test_a_copy_that_finds_no_place_to_wait_says_nothing_of_the_message_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    monkeypatch.setattr("postroom_a2a.nats.jetstream.ASK_AGAIN", 0.2)
    async with jetstream(tmp_path) as (js, peer):

        async def answer(frame: Any) -> None:
            monkeypatch.setattr("postroom_a2a.nats.mailbox.MAX_WAITING", 0)
            if answered:
                await frame.respond(json.dumps({"error": error_of(10158, 409)}).encode())

        await peer.subscribe("log.one", cb=answer)
        await peer.flush()
        with pytest.raises(RequestTimeout) as caught:
            await js.publish("log.one", b"text", headers={"Nats-Msg-Id": "m1"}, timeout=1.0)
        assert "same" in caught.value.remedy
        with pytest.raises(Refused):  # nothing of it was sent
            await js.publish("log.one", b"text", headers={"Nats-Msg-Id": "m2"}, timeout=1.0)
