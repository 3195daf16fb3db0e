"""An attacker at its own door that speaks HTTP: the control plane's API, and the way out."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.control.api import OPERATIONS
from postroom.control.ops.table import SOCKET
from postroom.http.outbound import OutboundPolicy
from postroom.protocol import subjects
from postroom.protocol.audit import DENIED
from tests.attack import places
from tests.attack.cases import MARK
from tests.attack.site import Target, open_target, spoken
from tests.gateway.http.test_tunnel import hello_for
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

NOTHING = hashlib.sha256(b"that nobody has").hexdigest()

OPEN = {
    ("POST", "/v1/blobs"),
    ("PUT", "/v1/blobs/{sha256}"),
    ("GET", "/v1/blobs/{sha256}"),
    ("HEAD", "/v1/blobs/{sha256}"),
    ("POST", "/v1/workers/{uid}/sdk-events"),
    ("GET", "/.well-known/jwks.json"),
    ("POST", "/v1/join"),
    # About itself alone; for what it may not do by itself its owner is asked.
    *((method, "/v1/grants") for method in ("GET", "POST")),
    *((method, "/v1/grants/requests") for method in ("GET", "POST")),
    *((method, "/v1/grants/only") for method in ("GET", "PUT")),
    ("POST", "/v1/grants/requests/{asked}"),
    ("DELETE", "/v1/grants/{grant}"),
    ("POST", "/v1/webhooks"),
}
"""Routes that a worker may call; all others are the operator's."""


async def ask(
    target: Target,
    method: str,
    path: str,
    *headers: str,
    body: bytes = b"{}",
    protocol: str = "http",
    half: bool = False,
) -> tuple[int, bytes]:
    """Status and body of one request on a connection of its own, as written here."""
    given = {header.partition(":")[0].lower() for header in headers}
    lines = [f"{method} {path} HTTP/1.1", *headers]
    lines += [] if "host" in given else ["Host: postroom"]
    lines += [] if "authorization" in given else [f"Authorization: Bearer {target.me.token}"]
    if "transfer-encoding" not in given and "content-length" not in given:
        lines += [f"Content-Length: {len(body)}"]
    head = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")
    knock = f"POSTROOM/1 {protocol} {target.me.token}\n".encode()
    answer = await target.strike(knock + head + body, half=half)
    head, _, said = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else 0
    return status, said


def lines(target: Target, protocols: tuple[str, ...] = ("http",)) -> list[Any]:
    """The audit's records of requests that the attacker has made."""
    verbs = {"open", "close"}
    return [
        r
        for r in target.audit.records
        if r.protocol in protocols and r.worker == target.me.uid and r.verb not in verbs
    ]


def routes() -> Iterator[tuple[str, str]]:
    """Method and path of each route of the API."""
    shown = (each for each in OPERATIONS if not each.hidden and each.method != SOCKET)
    yield from ((each.method, each.path) for each in shown)


@pytest.mark.requirement("api-key-required")
async def test_every_route_of_the_operator_is_closed_to_a_worker(target: Target):
    before, failed, told = await target.state(), [], {}
    wanted = [each for each in routes() if each not in OPEN]
    for uid in (target.victim.uid, new_uid()):
        told[uid] = []
        for method, path in wanted:
            target.audit.written = b""
            named = re.sub(r"{\w+(:\w+)?}", uid, path)
            status, body = await ask(target, method, named)
            told[uid].append((method, path, status, spoken(body, uid)))
            if status not in {401, 403, 404, 405} or not lines(target):
                failed.append((method, path, status, body))

    assert failed == []
    assert len(wanted) > 30
    first, second = told.values()
    assert first == second
    assert await target.state() == before


@pytest.mark.requirement("api-key-required")
async def test_no_path_and_no_header_makes_a_worker_somebody_else(target: Target):
    named = {"v": target.victim.uid, "o": target.me.uid, "t": target.task}
    named |= {"theirs": target.theirs.token, "mine": target.me.token}
    before, failed = await target.state(), []
    run = target.room.parts.workers.run_of(target.victim.uid)
    assert run is not None
    run.interactive = True
    events = f"/v1/workers/{target.victim.uid}/sdk-events"
    body = json.dumps({"events": [{"type": MARK.decode()}]}).encode()

    asked: list[tuple[str, str, tuple[str, ...]]]
    asked = [(method, p, ()) for p in places.PATHS for method in ("GET", "POST", "DELETE")]
    asked += [("POST", events, (claim,)) for claim in places.CLAIMS]
    for method, path, headers in asked:
        target.audit.written = b""
        said = [each.format(**named) for each in headers]
        status, answer = await ask(target, method, path.format(**named), *said, body=body)
        if not 300 <= status < 500 or not lines(target):
            failed.append((method, path, headers, status, answer))

    assert failed == []
    assert await target.heard() == []
    assert await target.state() == before


FRAMING = (
    "Transfer-Encoding: chunked|Content-Length: 5|0\r\n\r\nGET /v1/workers HTTP/1.1\r\n\r\n",
    "Content-Length: 5|Content-Length: 6|12345",
    "Content-Length: +5||12345",
    "Content-Length: 5, 6||12345",
    "Content-Length: -1||",
    "Content-Length: 0x5||12345",
    "Transfer-Encoding: xchunked||0\r\n\r\n",
    "Transfer-Encoding: chunked, identity||0\r\n\r\n",
    "Transfer-Encoding: chunked||ffffffffffffffffff\r\nx",
    "Transfer-Encoding: chunked||5;\nx\r\n",
    "Transfer-Encoding : chunked||0\r\n\r\n",
    " X: y||",
    "X\0: y||",
    "X: \0||",
    "X||",
    "Content-Length: " + "9" * 30 + "||",
    "Content-Length: " + "9" * 5000 + "||",
    "Host: a|Host: b|",
    "X: " + "y" * 70_000 + "||",
)


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("protocol", ["http", "egress"])
async def test_no_framing_hides_a_request_in_another(target: Target, protocol: str):
    path = "/v1/blobs" if protocol == "http" else "/http/n0.evil.test/"
    failed = []
    for framing in FRAMING:
        first, second, body = framing.split("|", 2)
        target.audit.written = b""
        headers = [first, *([second] if second else [])]
        status, answer = await ask(
            target, "POST", path, *headers, body=body.encode(), protocol=protocol, half=True
        )
        urls = [r.url for r in lines(target, ("http", "egress")) if r.direction == "out"]
        if not 400 <= status < 503 or len(urls) > 1 or any("workers" in url for url in urls):
            failed.append((framing, status, answer, urls))
    assert failed == []


@pytest.mark.requirement("org-no-subject-crosses")
async def test_a_blob_of_somebody_else_is_answered_as_one_that_is_not_there(target: Target):
    content = b"private picture"
    stored = await target.room.api.post("/v1/blobs", content=content)
    assert stored.status_code == 201
    other = target.theirs
    knock = f"POSTROOM/1 http {other.token}\n".encode()
    reader, writer = await asyncio.open_unix_connection(other.socket)
    body = b"of the victim"
    head = f"POST /v1/blobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {other.token}\r\n"
    writer.write(knock + head.encode() + b"Content-Length: 13\r\nConnection: close\r\n\r\n" + body)
    assert b" 201 " in await reader.readline()
    writer.close()

    there = hashlib.sha256(body).hexdigest()
    for method, headers in itertools.product(("GET", "HEAD"), ((), ("Range: bytes=0-1",))):
        theirs = await ask(target, method, f"/v1/blobs/{there}", *headers, body=b"")
        nobody = await ask(target, method, f"/v1/blobs/{NOTHING}", *headers, body=b"")
        assert theirs[0] == nobody[0] == 404
        assert spoken(theirs[1], there) == spoken(nobody[1], NOTHING)


@pytest.mark.requirement("org-no-subject-crosses")
async def test_a_task_of_others_is_answered_as_one_that_is_not_there(target: Target):
    raw = await target.house.enter(target.me)
    own = target.me.uid
    await raw.send(f"SUB _I.{own}.> 1\r\n".encode())
    before = await target.state()
    told: dict[str, list[bytes]] = {}
    questions = [
        (verb, more)
        for verb in ("get", "changes", "cancel", "answer", "open", "list", "choose", "never")
        for more in ({}, {"text": "x", "reason": "x", "fresh": True, "run": "x", "skill": "x"})
    ]
    target.audit.written = b""
    for task in (target.task, new_uid()):
        told[task] = []
        for verb, more in questions:
            body = json.dumps(
                {"id": task, "task": task, "other": target.victim.uid, **more}
            ).encode()
            subject, reply = subjects.ctl(own, "tasks", verb), f"_I.{own}.ctl.{new_uid()}"
            await raw.send(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")
            while not (line := await raw.line()).startswith((b"MSG", b"HMSG")):
                assert not line.startswith(b"-ERR"), line
            fields = line.split(b" ")
            answer = (await raw.reader.readexactly(int(fields[-1]) + 2))[:-2]
            answer = answer[int(fields[-2]) :] if fields[0] == b"HMSG" else answer
            told[task].append(spoken(answer, task))
    first, second = told.values()

    assert first == second
    assert all(b"secret work" not in answer for answer in first)
    records = [r for r in target.audit.records if r.subject.startswith(f"ctl.{own}.tasks.")]
    assert len(records) == 2 * len(questions)
    assert await target.state() == before
    raw.close()


# The way out.


@pytest.fixture(scope="module")
async def outward(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[tuple[Target, int, list[bytes]]]:
    """A worker whose template lets it reach `*.evil.test`, whose names lead to all that is private; and a listener."""
    met: list[bytes] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(await reader.read(1))
        writer.close()

    async def resolve(host: str, _port: int) -> list[str]:
        number = host.partition(".")[0].removeprefix("n")
        if not number.isdigit():
            raise OSError(-2, "Name or service not known")
        return [places.ADDRESSES[int(number)]]

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    folder: Path = tmp_path_factory.mktemp("outward")
    policy = OutboundPolicy((), resolve)
    port = server.sockets[0].getsockname()[1]
    rules = [f"{scheme}://*.evil.test:{port}" for scheme in ("http", "https")]
    rules += ["http://*.evil.test", "https://*.evil.test", f"http://127.0.0.1:{port}"]
    rules += [f"http://[::1]:{port}", "http://169.254.169.254", f"https://127.0.0.1:{port}"]
    async with open_target(folder, policy=policy, egress=tuple(rules)) as target:
        yield target, server.sockets[0].getsockname()[1], met
    server.close()


@pytest.mark.requirement("egress-address-guarded")
async def test_nothing_private_and_nothing_without_a_rule_is_reached(
    outward: tuple[Target, int, list[bytes]],
):
    target, port, met = outward
    failed, count = [], 0
    for method, place in places.requests(port):
        count += 1
        target.audit.written = b""
        status, answer = await ask(target, method, place, body=b"", protocol="egress")
        said = lines(target, ("egress", "tunnel"))
        denied = [r for r in said if r.verdict == DENIED]
        if not 400 <= status < 500 or not denied:
            failed.append((method, place, status, answer[:200], [r.encode() for r in said]))

    assert failed == []
    assert met == []
    assert count == len(list(places.requests(0)))


@pytest.mark.requirement("egress-address-guarded")
async def test_a_tunnel_carries_no_tls_for_another_host(tmp_path: Path):
    met: list[bytes] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(await reader.read(1))
        writer.close()

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    policy = OutboundPolicy(OutboundPolicy.parse([f"n0.evil.test:{port}"]).private, resolve)
    names = (
        "n1.evil.test",
        "evil.test",
        "xn0.evil.test",
        "n0.evil.test.example",
        "localhost",
        None,
    )
    inside = [hello_for(name) for name in names]
    inside += [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"SSH-2.0-x\r\n",
    ]
    async with open_target(tmp_path, policy=policy, egress=(f"n0.evil.test:{port}",)) as target:
        for first in inside:
            target.audit.written = b""
            knock = f"POSTROOM/1 egress {target.me.token}\n"
            head = f"CONNECT n0.evil.test:{port} HTTP/1.1\r\nHost: n0.evil.test:{port}\r\n\r\n"
            await target.strike((knock + head).encode() + first, half=True)
            await target.house.until(lambda: not target.house.gateway._doors[target.me.uid].tasks)
            denied = [r for r in lines(target, ("tunnel",)) if r.verdict == DENIED]
            assert len(denied) == 1, first
    server.close()
    assert [each for each in met if each] == []
