"""The local HTTP API and the command over it, with a real sidecar."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from postroom_a2a.messages import text_of
from tests.sidecar.house import House

pytestmark = pytest.mark.anyio

WAITS = """
for line in lines():
    if line["type"] == "hello":
        open("api", "w").write(line["api"])
        say(type="post", text="up")
"""


@dataclass
class Inside:
    """A running worker, seen by a program inside its sandbox."""

    home: House
    api: str

    async def run(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """`postroom-agent` with these arguments: exit code, stdout, stderr."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postroom.agentcli.main", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "POSTROOM_API": self.api,
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                "http_proxy": "http://127.0.0.1:9",
            },
        )
        out, err = await process.communicate(stdin)
        return process.returncode or 0, out.decode().strip(), err.decode()

    async def raw(self, request: str, body: bytes = b"") -> bytes:
        """The answer to a request as it stands; `{host}` is the right Host."""
        host = self.api.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        text = request.replace("{host}", host).replace("\n", "\r\n")
        writer.write(text.encode("latin-1") + body)
        async with asyncio.timeout(10):
            answer = await reader.read(65536)
        writer.close()
        return answer


@pytest.fixture
async def inside(home: House) -> AsyncIterator[Inside]:
    async with home.sidecar(WAITS):
        await home.tap.until(home.posts)
        yield Inside(home, (home.folder / "api").read_text())


async def test_the_command_sends_and_prints_the_id(inside: Inside):
    code, out, _ = await inside.run("send", "@alice", "hello", "--expects-reply", "--key", "k")
    (sent,) = await inside.home.tap.until(inside.home.to_alice)

    assert (code, out) == (0, sent.id)
    assert sent.expects_reply
    assert await inside.run("send", "@alice", "hello", "--key", "k") == (0, sent.id, "")


async def test_options_of_the_command_may_stand_before_its_text(inside: Inside):
    code, out, err = await inside.run("send", "@alice", "--expects-reply", "--key", "k", "hello")
    (sent,) = await inside.home.tap.until(inside.home.to_alice)

    assert (code, out, err) == (0, sent.id, "")
    assert text_of(sent.message) == "hello"


async def test_the_text_may_come_from_standard_input(inside: Inside):
    await inside.run("post", stdin="zwei\nZeilen ü\n".encode())
    await inside.home.tap.until(lambda: len(inside.home.posts()) == 2)

    assert inside.home.posts()[1] == "zwei\nZeilen ü"


async def test_a_message_is_listed_until_it_is_answered_or_seen(inside: Inside):
    home = inside.home
    first, second = await home.write("one\x1b[2J"), await home.write("two")
    await home.tap.until(lambda: home.receipts(first))
    _, listed, _ = await inside.run("inbox")
    assert listed == f"{first} alice: one"

    code, out, _ = await inside.run("reply", first, "answer")
    (answer,) = await home.tap.until(home.to_alice)
    assert (code, out, answer.reply_to) == (0, answer.id, first)
    assert text_of(answer.message) == "answer"
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


@pytest.mark.parametrize(
    "words, code",
    [
        (("send", "@nobody", "x"), 4),
        (("send", "nobody", "x"), 2),
        (("seen", "unknown"), 4),
        (("reply", "unknown", "x"), 4),
        (("post", "x", "--project", "A"), 2),
        (("post", "x", "--project", "foreign"), 6),
        (("dance",), 2),
    ],
)
async def test_a_refusal_has_its_exit_code_and_says_why_on_standard_error(
    inside: Inside, words: tuple[str, ...], code: int
):
    found, out, err = await inside.run(*words)

    assert (found, out) == (code, "")
    assert "postroom-agent" in err
    assert "Traceback" not in err


async def test_outside_of_a_worker_the_command_says_so(home: House):
    code, _, err = await Inside(home, "").run("whoami")
    assert code == 3
    assert "inside a worker" in err

    code, _, _ = await Inside(home, "http://127.0.0.1:1").run("whoami")
    assert code == 10


@pytest.mark.requirement("http-host-checked")
@pytest.mark.parametrize(
    "head, status",
    [
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
    ],
)
async def test_only_well_formed_requests_of_programs_in_the_sandbox_are_answered(
    inside: Inside, head: str, status: int
):
    answer = await inside.raw(head)

    assert answer.split(b" ")[1] == str(status).encode()
    if status != 200:
        assert b"application/problem+json" in answer


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
