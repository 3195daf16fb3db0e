"""The local HTTP API and the command over it, with a real sidecar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from postroom.protocol.envelope import Envelope
from postroom_a2a.messages import text_of
from tests.rig import Rig
from tests.sidecar.inside import Inside, Shell
from tests.sidecar.inside import inside as running
from tests.sidecar.worker_rig import WorkerRig, worker_rig_on

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def inside(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    """One worker for all tests here; each leaves its inbox empty."""
    async with (
        worker_rig_on(rig, tmp_path_factory.mktemp("worker")) as home,
        running(home) as found,
    ):
        yield found


async def letter(home: WorkerRig, text: str) -> Envelope:
    """The message with that text that came to alice."""

    def found() -> Envelope | None:
        return next((each for each in home.to_alice() if text_of(each.message) == text), None)

    return await home.tap.until(found)


async def test_the_command_sends_and_prints_the_id(inside: Inside):
    process = await inside.start("send", "@alice", "hello", "--expects-reply", "--key", "k")
    printed, _ = await process.communicate()
    code, out = process.returncode, printed.decode().strip()
    sent = await letter(inside.home, "hello")

    assert (code, out) == (0, sent.id)
    assert sent.expects_reply
    assert await inside.run("send", "@alice", "hello", "--key", "k") == (0, sent.id, "")


async def test_options_of_the_command_may_stand_before_its_text(inside: Inside):
    code, out, err = await inside.run("send", "@alice", "--expects-reply", "--key", "m", "mixed")
    sent = await letter(inside.home, "mixed")

    assert (code, out, err) == (0, sent.id, "")


async def test_the_text_may_come_from_standard_input(inside: Inside):
    await inside.run("post", stdin="zwei\nZeilen ü\n".encode())
    await inside.home.tap.until(lambda: "zwei\nZeilen ü" in inside.home.posts())


async def test_a_message_is_listed_until_it_is_answered_or_seen(inside: Inside):
    home = inside.home
    first, second = await home.write("one\x1b[2J"), await home.write("two")
    await home.tap.until(lambda: home.receipts(first))
    _, listed, _ = await inside.run("inbox")
    assert listed == f"{first} alice: one"

    code, out, _ = await inside.run("reply", first, "answer")
    answer = await letter(home, "answer")
    assert (code, out, answer.reply_to) == (0, answer.id, first)
    await home.tap.until(lambda: home.receipts(second))
    _, listed, _ = await inside.run("inbox", "--json")
    assert [json.loads(line)["id"] for line in listed.splitlines()] == [second]
    assert await inside.run("seen", second) == (0, second, "")
    await home.seen(first, second)
    assert await inside.run("inbox") == (0, "", "")


async def test_whoami_names_the_worker(inside: Inside):
    assert (await inside.run("whoami"))[1] == f"@reader {inside.home.worker}"
    _, out, _ = await inside.run("whoami", "--json")

    assert json.loads(out)["projects"] == ["main"]
    assert inside.home.credential.jwt not in out


async def test_a_refusal_has_its_exit_code_and_says_why_on_standard_error(inside: Inside):
    for words, code in (
        (("send", "@nobody", "x"), 4),
        (("send", "nobody", "x"), 2),
        (("seen", "unknown"), 4),
        (("reply", "unknown", "x"), 4),
        (("post", "x", "--project", "A"), 2),
        (("post", "x", "--project", "foreign"), 6),
        (("dance",), 2),
    ):
        found, out, err = await inside.run(*words)

        assert (found, out) == (code, ""), words
        assert "postroom-agent" in err


async def test_outside_of_a_worker_the_command_says_so():
    code, _, err = await Shell("").run("whoami")
    assert code == 3
    assert "inside a worker" in err

    code, _, _ = await Shell("http://127.0.0.1:1").run("whoami")
    assert code == 10


@pytest.mark.requirement("api-key-required")
async def test_only_well_formed_requests_of_programs_in_the_sandbox_are_answered(inside: Inside):
    for head, status in (
        ("GET /v1/whoami HTTP/1.1\nHost: {host}\nConnection: close\n\n", 200),
        ("GET /v1/whoami HTTP/1.1\nHost: evil.example\n\n", 403),
        ("GET /v1/whoami HTTP/1.1\nHost: {host}\nOrigin: http://{host}\n\n", 403),
        ("GET /v1/whoami HTTP/1.1\n\n", 422),
        ("GET /v2 HTTP/1.1\nHost: {host}\n\n", 404),
        ("DELETE /v1/inbox HTTP/1.1\nHost: {host}\n\n", 404),
        ("POST /v1/send HTTP/1.1\nHost: {host}\nContent-Length: 2\n\n{}", 422),
        (
            "POST /v1/send HTTP/1.1\nHost: {host}\nContent-Type: application/json\nContent-Length: 2\n\n[]",
            422,
        ),
        (
            "POST /v1/send HTTP/1.1\nHost: {host}\nContent-Type: application/json\nContent-Length: 1\n\n{",
            422,
        ),
        ("nonsense\n\n", 422),
        ("GET / HTTP/1.1\nHost: {host}\nX: " + "x" * 200_000 + "\n\n", 422),
    ):
        answer = await inside.raw(head)

        assert answer.split(b" ")[1] == str(status).encode(), head[:80]
        assert status == 200 or b"application/problem+json" in answer


async def test_a_body_over_the_limit_is_refused_and_the_api_lives_on(inside: Inside):
    head = "POST /v1/send HTTP/1.1\nHost: {host}\nContent-Length: 1100000\n\n"
    answer = await inside.raw(head, b"x" * 1_100_000)

    assert answer.split(b" ")[1] == b"413"
    assert (await inside.run("whoami"))[0] == 0


async def test_two_requests_share_a_connection(inside: Inside):
    first = "GET /v1/inbox HTTP/1.1\nHost: {host}\n\n"
    second = "GET /v1/inbox HTTP/1.1\nHost: {host}\nConnection: close\n\n"
    host = inside.api.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write((first + second).replace("{host}", host).replace("\n", "\r\n").encode())
    async with asyncio.timeout(10):
        answers = await reader.read(-1)
    writer.close()

    assert answers.count(b"HTTP/1.1 200") == 2
