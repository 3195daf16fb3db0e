"""Requests to the outside: who gets where, with what, and what is written down."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from typing import Any

import h11
import pytest

from postroom.gateway.credentials import QUIET, REFUSED, BoundCredential, Refusals
from postroom.gateway.http.exchange import Timeouts
from postroom.protocol.alerts import Alert
from tests.gateway.http.rig import (
    HOST,
    SECRET,
    TOKEN,
    Call,
    Outside,
    Site,
    Way,
)

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("egress-refused-told")
async def test_a_request_by_base_url_reaches_the_host_over_tls_and_its_answer_comes_back(
    site: Site,
):
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/v1/messages?beta=true", "POST", b'{"a":1}')

    [call] = site.outside.calls
    assert (reply.status, reply.body) == (200, b"ok")
    assert (call.target, call.body) == ("/v1/messages?beta=true", b'{"a":1}')
    assert call.headers["host"] == site.rule


async def test_a_connection_serves_one_request_after_another(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        replies = [await near.ask(f"{site.base}/{n}") for n in range(3)]

    assert [reply.status for reply in replies] == [200, 200, 200]
    assert [call.target for call in site.outside.calls] == ["/0", "/1", "/2"]


@pytest.mark.requirement("failing-last-word")
async def test_a_refused_credential_is_one_alert_until_it_is_accepted_again(site: Site):
    site.way.allow(site.rule, credentials=("key",))
    site.way.keep(site.rule, path="/v1", header="x-api-key: {secret}")
    answers = iter([200, 401, 401, 403, 429, 500, 200, 200])

    async def status(call: Call) -> None:
        await call.read_body()
        await call.say(b"HTTP/1.1 %d Said\r\nContent-Length: 2\r\n\r\nno" % next(answers))

    site.outside.answer = status
    async with site.way.open() as enter:
        near = await enter()
        for _ in range(8):
            await near.ask(f"{site.base}/v1/messages")

    host = site.rule
    command = (
        f"postroom credential add key --host {host} --path /v1 "
        "--header 'x-api-key: {secret}' --replace"
    )
    text = f"{host} refuses the credential 'key' (401): {command}"
    over = Alert(
        REFUSED, "", about="key"
    )  # also the first one: one from before a restart may stand
    assert site.way.alerts == [over, Alert(REFUSED, text, about="key"), over]
    assert SECRET not in text


@pytest.mark.requirement("failing-last-word")
async def test_a_worker_that_has_some_requests_refused_and_others_not_raises_one_alert_a_minute(
    site: Site,
):
    now, told = [0.0], []

    async def raised(_org: str, alert: Alert) -> None:
        told.append(bool(alert.text))

    refusals = Refusals(raised, lambda: now[0])
    key = BoundCredential.bind("key", "default", "api.example.com", secret="one")
    for status in [403, 200] * 10:
        await refusals.answered([key], status)
    assert told == [True, False]
    now[0] += QUIET
    await refusals.answered([key], 403)
    assert told == [True, False, True]
    other = BoundCredential.bind("key", "default", "api.example.com", secret="two")
    await refusals.answered([other], 401)  # the new one is refused, too
    assert told == [True, False, True, True]


@pytest.mark.requirement("egress-refused-told")
async def test_a_host_that_no_rule_names_is_refused_with_the_rule_that_is_missing(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask("/https/other.example.test/x?q=1")

    assert reply.status == 403
    assert '"https://other.example.test"' in reply.problem["remedy"]
    assert "[overrides] egress" in reply.problem["remedy"]
    [record] = site.way.sink.records
    assert (record.verdict, record.url) == ("denied", "/https/other.example.test/x")
    assert "may not reach" in record.reason
    assert site.way.asked == []
    assert site.way.offences == []


@pytest.mark.requirement("egress-refused-told")
@pytest.mark.parametrize(
    "target",
    [
        "/v2/x",
        "/v1x",
        "/v1/../v2",
        "/v1/%2e%2e/v2",
        "/v1//../v2",
        "/v1/..;/v2",
        "/v1/%252e%252e/v2",
        "/v1\\..\\v2",
        "/v1/..%2fv2",
        "/V1/x",
    ],
)
async def test_a_rule_with_a_path_lets_nothing_else_through(site: Site, target: str):
    site.way.allow(f"https://{site.rule}/v1")
    async with site.way.open() as enter:
        near = await enter()
        allowed = await near.ask(f"{site.base}/v1/x")
        refused = await near.ask(f"{site.base}{target}")

    assert (allowed.status, refused.status) == (200, 403)
    assert len(site.outside.calls) == 1


@pytest.mark.requirement("egress-key-outside")
async def test_the_credential_of_the_host_takes_the_place_of_what_the_sandbox_sends(site: Site):
    site.way.keep(site.rule, header="X-Api-Key: {secret}")
    site.way.allow(site.rule, credentials=("key",))
    async with site.way.open() as enter:
        near = await enter()
        await near.ask(f"{site.base}/v1", x_api_key="dummy", authorization="Bearer other")

    [call] = site.outside.calls
    assert [v for n, v in call.request.headers if n == b"x-api-key"] == [SECRET.encode()]
    assert call.headers["authorization"] == "Bearer other"


@pytest.mark.requirement("egress-key-outside")
@pytest.mark.parametrize(
    "named, host, more",
    [
        ((), "", {}),
        (("other",), "", {}),
        (("key",), "elsewhere.example.test", {}),
        (("key",), HOST, {}),  # another port
        (("key",), "", {"path": "/v2"}),
        (("key",), "", {"workers": ("b" * 32,)}),
    ],
)
async def test_a_credential_goes_nowhere_but_where_it_is_bound(
    site: Site, named: tuple[str, ...], host: str, more: dict[str, Any]
):
    site.way.keep(host or site.rule, **more)
    site.way.allow(site.rule, credentials=named)
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/v1/x", authorization="Bearer own")

    [call] = site.outside.calls
    assert reply.status == 200
    assert call.headers["authorization"] == "Bearer own"


@pytest.mark.requirement("egress-key-outside")
async def test_a_path_that_can_be_read_in_two_ways_gets_no_credential(site: Site):
    site.way.keep(site.rule, path="/v1")
    site.way.allow(site.rule, credentials=("key",))
    async with site.way.open() as enter:
        near = await enter()
        await near.ask(f"{site.base}/v1/%2e%2e/v2")

    [call] = site.outside.calls
    assert "authorization" not in call.headers


async def test_a_change_of_credentials_counts_for_the_next_request(site: Site):
    site.way.allow(site.rule, credentials=("key",))
    async with site.way.open() as enter:
        near = await enter()
        await near.ask(f"{site.base}/")
        site.way.keep(site.rule)
        await near.ask(f"{site.base}/")
        site.way.keep(site.rule, secret="new")
        await near.ask(f"{site.base}/")
        site.way.credentials.remove("default", "key")
        await near.ask(f"{site.base}/")

    sent = [call.headers.get("authorization") for call in site.outside.calls]
    assert sent == [None, f"Bearer {SECRET}", "Bearer new", None]


@pytest.mark.requirement("egress-key-outside")
async def test_a_secret_is_in_no_record_no_log_no_repr_and_no_answer_of_ours(
    site: Site, caplog: pytest.LogCaptureFixture
):
    async def fail(call: Call) -> None:
        await call.say(b"nonsense\r\n\r\n")

    caplog.set_level(logging.DEBUG)
    site.way.keep(site.rule)
    site.way.allow(site.rule, credentials=("key",))
    site.outside.answer = fail
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/v1?key=query-secret")

    [call] = site.outside.calls
    assert call.headers["authorization"] == f"Bearer {SECRET}"
    assert reply.status == 502
    written = site.way.sink.text + caplog.text + reply.body.decode()
    written += repr(site.way.credentials.of("default"))
    assert SECRET not in written
    assert "query-secret" not in site.way.sink.text
    kept = site.way.folder / "keys" / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.requirement("audit-recorded-first")
async def test_a_request_is_in_the_log_with_its_cause_before_it_leaves_and_again_when_answered(
    site: Site,
):
    seen: list[int] = []

    async def count(call: Call) -> None:
        seen.append(len(site.way.sink.records))
        await call.say(b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello")

    site.outside.answer = count
    site.way.cause.delivered("m1", "7")
    site.way.cause.task_changed("t1", "working")
    async with site.way.open() as enter:
        near = await enter()
        await near.ask(f"{site.base}/v1/messages?q=1", "POST", b"12345")
        await site.way.until(lambda: len(site.way.sink.records) == 2)

    asked, answered = site.way.sink.records
    assert seen == [1]
    assert (asked.direction, asked.verb, asked.verdict) == ("out", "POST", "allowed")
    assert asked.url == f"https://{site.rule}/v1/messages"
    assert asked.size > 5
    assert (answered.direction, answered.status, answered.size) == ("in", 201, 5)
    for record in (asked, answered):
        assert (record.cause_task, record.cause_message) == ("t1", "m1")
        assert record.cause_exact is True


@pytest.mark.requirement("audit-recorded-first")
async def test_what_cannot_be_written_down_does_not_leave(site: Site):
    site.way.sink.full = True
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/")

    assert reply.status == 503
    assert site.outside.connections == 0
    assert site.way.asked == []


@pytest.mark.requirement("egress-address-guarded")
@pytest.mark.parametrize(
    "place",
    [
        "169.254.169.254",
        "127.0.0.1:22",
        "[::ffff:10.0.0.1]",
        "[fd00:ec2::254]",
        "[64:ff9b::7f00:1]",
    ],
)
async def test_an_address_that_is_not_public_is_an_offence_even_if_a_rule_names_it(
    way: Way, place: str
):
    way.allow(f"http://{place}")
    async with way.open() as enter:
        near = await enter()
        reply = await near.ask(f"/http/{place}/latest/meta-data")

    assert reply.status == 403
    assert reply.problem["code"] == "address-refused"
    [record] = way.sink.records
    assert record.verdict == "denied"
    assert len(way.offences) == 1


@pytest.mark.requirement("egress-address-guarded")
async def test_a_name_that_leads_to_a_private_address_is_not_connected_to(site: Site):
    site.way.names["inside.example.test"] = ["127.0.0.1"]
    site.way.allow(f"inside.example.test:{site.outside.port}")
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"/https/inside.example.test:{site.outside.port}/")

    assert reply.status == 403
    assert site.outside.connections == 0
    assert [verdict for (verdict,) in site.way.said("verdict")] == ["allowed", "denied"]
    assert len(site.way.offences) == 1


async def test_a_certificate_for_another_name_is_not_accepted(site: Site):
    site.way.name("wrong.example.test", site.outside.port)
    site.way.allow(f"wrong.example.test:{site.outside.port}")
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"/https/wrong.example.test:{site.outside.port}/")

    assert reply.status == 502
    assert "not valid for" in reply.problem["detail"]
    assert site.outside.calls == []


@pytest.mark.requirement("egress-refused-told")
async def test_an_answer_comes_piece_by_piece_as_it_is_said(site: Site):
    goes_on = asyncio.Event()

    async def stream(call: Call) -> None:
        await call.read_body()
        await call.say(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"d\r\ndata: first\n\n\r\n"
        )
        await goes_on.wait()
        await call.say(b"e\r\ndata: second\n\n\r\n0\r\n\r\n")

    site.outside.answer = stream
    async with site.way.open() as enter:
        near = await enter()
        await near.send(f"GET {site.base}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        near.http.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        near.http.send(h11.EndOfMessage())
        head = await near.event()
        first = await near.event()
        goes_on.set()
        second = await near.event()

    assert head.status_code == 200
    assert (first.data, second.data) == (b"data: first\n\n", b"data: second\n\n")


@pytest.mark.requirement("egress-refused-told")
async def test_large_bodies_pass_both_ways_and_a_slow_reader_holds_the_writer_back(site: Site):
    size = 8 * 1024 * 1024
    offered = 0

    async def flood(call: Call) -> None:
        nonlocal offered
        body = await call.read_body()
        await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), 65536):
            await call.say(body[at : at + 65536])
            offered += 65536

    site.outside.answer = flood
    async with site.way.open() as enter:
        near = await enter()
        body = bytes(range(256)) * (size // 256)
        asked = asyncio.ensure_future(near.ask(f"{site.base}/", "PUT", body))
        reply = await asked

    assert reply.body == body
    assert offered == size


async def test_an_upload_that_waits_for_100_is_told_to_go_on(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        await near.send(
            f"POST {site.base}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            "Content-Length: 4\r\n\r\n".encode()
        )
        assert await near.reader.readline() == b"HTTP/1.1 100 \r\n"
        await near.send(b"body")
        rest = await near.reader.readuntil(b"ok")

    [call] = site.outside.calls
    assert b"HTTP/1.1 200 OK" in rest
    assert call.body == b"body"
    assert "expect" not in call.headers


@pytest.mark.requirement("egress-address-guarded")
async def test_what_speaks_for_a_proxy_or_shows_the_workers_token_is_not_passed_on(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        await near.ask(
            f"{site.base}/",
            proxy_authorization="Basic x",
            x_forwarded_for="10.0.0.1",
            forwarded="for=10.0.0.1",
            via="1.1 me",
            x_real_ip="10.0.0.1",
            connection="x-private",
            x_private="1",
            te="trailers",
            authorization=f"Bearer {TOKEN}",
            x_api_key=TOKEN,
            x_kept="yes",
        )

    [call] = site.outside.calls
    assert set(call.headers) == {"host", "x-kept", "connection"}
    assert call.headers["connection"] == "close"


@pytest.mark.requirement("egress-address-guarded")
@pytest.mark.parametrize(
    "smuggled",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "Transfer-Encoding: chunked, identity\r\n\r\nhello",
        "Transfer-Encoding: xchunked\r\n\r\nhello",
        "Content-Length: +5\r\n\r\nhello",
        "X: a\r\n\tb\r\nBad Name: x\r\n\r\n",
    ],
)
async def test_framing_that_two_readers_could_see_differently_is_not_passed_on(
    site: Site, smuggled: str
):
    async with site.way.open() as enter:
        near = await enter()
        await near.send(f"POST {site.base}/x HTTP/1.1\r\nHost: x\r\n{smuggled}".encode())
        near.writer.write_eof()
        await near.rest()

    assert {call.target for call in site.outside.calls} <= {"/x"}
    for call in site.outside.calls:
        framing = {"content-length", "transfer-encoding"} & set(call.headers)
        assert len(framing) <= 1


@pytest.mark.parametrize(
    "request_", [("TRACE", {}), ("GET", {"upgrade": "websocket", "connection": "upgrade"})]
)
async def test_trace_and_websocket_are_refused(site: Site, request_: tuple[str, dict[str, Any]]):
    method, headers = request_
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/", method, **headers)

    assert reply.status == 403
    assert site.outside.connections == 0


@pytest.mark.requirement("egress-key-outside")
async def test_a_redirect_is_handed_on_and_not_followed(site: Site):
    async def redirect(call: Call) -> None:
        await call.say(
            b"HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n"
        )

    site.way.keep(site.rule)
    site.way.allow(site.rule, "evil.example", credentials=("key",))
    site.outside.answer = redirect
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/")

    assert (reply.status, reply.headers["location"]) == (302, "https://evil.example/")
    assert site.way.asked == [HOST]


async def test_plain_http_is_served_as_by_a_proxy(way: Way):
    async with Outside().open() as outside:
        way.name("plain.example.test", outside.port)
        way.allow(f"http://plain.example.test:{outside.port}")
        async with way.open() as enter:
            near = await enter()
            reply = await near.ask(f"http://plain.example.test:{outside.port}/file?x=1")
            refused = await near.ask("http://user:pw@plain.example.test/")

    [call] = outside.calls
    assert (reply.status, call.target) == (200, "/file?x=1")
    assert refused.status == 422
    assert "pw" not in way.sink.text


async def test_a_worker_that_goes_away_ends_the_request_at_the_upstream(site: Site):
    async def slow(call: Call) -> None:
        await call.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await call.reader.read(-1)

    site.outside.answer = slow
    async with site.way.open() as enter:
        near = await enter()
        await near.send(f"GET {site.base}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await near.reader.readuntil(b"x\r\n")
        near.writer.close()
        async with asyncio.timeout(20):
            await site.outside.ended.wait()
        await site.way.until(lambda: len(site.way.sink.records) == 2)

    assert "did not wait" in site.way.sink.records[-1].reason


async def test_an_answer_that_is_cut_off_is_not_passed_on_as_whole(site: Site):
    async def cut(call: Call) -> None:
        await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    site.outside.answer = cut
    async with site.way.open() as enter:
        near = await enter()
        with pytest.raises(h11.RemoteProtocolError):
            await near.ask(f"{site.base}/")


async def test_an_upstream_that_says_nothing_is_given_up(site: Site):
    async def silent(call: Call) -> None:
        await call.reader.read(-1)

    site.way.timeouts = Timeouts(answer=0.2)
    site.outside.answer = silent
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask(f"{site.base}/")

    assert reply.status == 504


async def test_a_head_that_does_not_end_is_refused(site: Site):
    site.way.timeouts = Timeouts(head=0.2)
    async with site.way.open() as enter:
        near = await enter()
        await near.send(b"GET / HTTP/1.1\r\n")
        answer = await near.rest()
        flood = await enter()
        await flood.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
        too_long = await flood.rest()

    assert answer.startswith(b"HTTP/1.1 504")
    assert too_long.startswith(b"HTTP/1.1 400")
    assert site.outside.connections == 0


async def test_a_request_that_names_no_host_is_told_how(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        reply = await near.ask("/v1/messages")

    assert reply.status == 422
    assert "POSTROOM_EGRESS" in json.loads(reply.body)["remedy"]


async def test_how_much_was_sent_in_chunks_is_written_down(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        head = f"POST {site.base}/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await near.send(head.encode() + b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n")
        await near.reply()
        await site.way.until(lambda: len(site.way.sink.records) == 2)

    _, answered = site.way.sink.records
    assert answered.reason == "a body of 1000 bytes was sent"
