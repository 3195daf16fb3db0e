"""A worker in its sandbox asks a model outside, as an agent's command line does; the key stays at the gateway."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PostRoom, until
from tests.e2e.outside import ModelServer, model_server

SECRET = "sk-e2e-4f1d9c"

# What an agent's command line does, and a search for the key in everything that it can read.
PROGRAM = """
import glob, json, os, socket, sys, urllib.error, urllib.request
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def ask():
    body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {"x-api-key": "dummy", "content-type": "application/json"},
    )
    said, text = [], ""
    with DIRECT.open(request, timeout=30) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                text += event.get("delta", {}).get("text", "")
    return text

def refused(url):
    try:
        DIRECT.open(url, timeout=30)
    except urllib.error.HTTPError as error:
        return [error.code, json.loads(error.read())["detail"]]

def tunnelled(url):
    try:
        urllib.request.urlopen(url, timeout=30)
    except OSError as error:
        return str(error)

def found(what):
    hits = []
    places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
    for root in ("/workspace", "/opt/agent", "/tmp", "/run", "/home"):
        places += [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    for place in places:
        try:
            with open(place, "rb") as file:
                if what in file.read():
                    hits.append(place)
        except OSError:
            pass
    return hits + [name for name, value in os.environ.items() if what.decode() in value]

def looked_up(name):
    try:
        return str(socket.getaddrinfo(name, 443))
    except OSError:
        return "unknown"

for line in sys.stdin:
    out = os.environ["POSTROOM_EGRESS"]
    print(json.dumps({
        "said": ask(),
        "other": refused(out + "/https/other.example/"),
        "metadata": refused(out + "/http/169.254.169.254/latest/meta-data"),
        "tunnelled": tunnelled("https://other.example/"),
        "key": found(b"sk-" + b"e2e-"),
        "lookup": looked_up("model.example"),
        "proxy": os.environ.get("HTTPS_PROXY") == out,
    }), flush=True)
"""

TEMPLATE = """
[worker]
name = "scout"

[workstation]
command = ["python3", "/opt/agent/agent.py"]
adapter = "text"
files = ["agent.py"]
env = {{ ANTHROPIC_BASE_URL = "${{POSTROOM_EGRESS}}/https/localhost:{port}", ANTHROPIC_API_KEY = "dummy" }}

[overrides]
egress = ["localhost:{port}"]
credentials = ["anthropic"]
"""


@pytest.fixture(scope="module")
def outside() -> Iterator[ModelServer]:
    with tempfile.TemporaryDirectory(prefix="outside-") as folder, model_server(Path(folder)) as it:
        yield it


@pytest.fixture(scope="module")
def room(outside: ModelServer) -> Iterator[PostRoom]:
    """A post room whose operator has opened the model server, with a worker that may use the key."""
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.env |= {
            "POSTROOM_EGRESS_ALLOW_PRIVATE": f"localhost:{outside.port}",
            "POSTROOM_EGRESS_CA": str(outside.ca_file),
        }
        room.up()
        try:
            host, header = f"localhost:{outside.port}", "x-api-key: {secret}"
            words = ("credential", "add", "anthropic", "--host", host, "--header", header)
            room.run(*words, given=SECRET + "\n")
            room.run(
                "spawn", room.template(TEMPLATE.format(port=outside.port), "scout", agent=PROGRAM)
            )
            yield room
        finally:
            room.run("down")


@pytest.fixture(scope="module")
def report(room: PostRoom) -> dict[str, Any]:
    """What the worker says of its try, which it makes as a task."""
    said = room.run("delegate", "@scout", "try", "--wait", "--timeout", "35", "--json")
    task = json.loads(said.splitlines()[-1])
    [artifact] = task["artifacts"]
    return json.loads(artifact["text"]) | {"task": task["id"]}


def audit(room: PostRoom) -> list[dict[str, Any]]:
    path = room.state / "logs" / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.requirement("egress-key-outside")
def test_a_worker_uses_a_key_that_is_nowhere_in_its_sandbox(
    report: dict[str, Any], outside: ModelServer
):
    path, headers, body = outside.requests[0]

    assert report["said"] == "Hello from the model"
    assert (path, body["stream"]) == ("/v1/messages", True)
    assert headers["x-api-key"] == SECRET
    assert report["key"] == []


@pytest.mark.requirement("egress-refused-told")
def test_names_are_answered_nowhere_inside(report: dict[str, Any]):
    assert report["lookup"] == "unknown"
    assert report["proxy"] is True


@pytest.mark.requirement("egress-refused-told")
def test_what_the_template_does_not_name_is_refused_and_the_program_is_told_why(
    report: dict[str, Any],
):
    status, detail = report["other"]

    assert (status, "may not reach https://other.example" in detail) == (403, True)
    assert report["metadata"][0] == 403
    assert "403 Forbidden" in report["tunnelled"]


@pytest.mark.requirement("audit-recorded-first")
def test_the_audit_log_has_what_the_worker_asked_for(
    room: PostRoom, report: dict[str, Any], outside: ModelServer
):
    url = f"https://localhost:{outside.port}/v1/messages"
    until(
        lambda: [line for line in audit(room) if line.get("status") == 200 and line["url"] == url]
    )
    lines = [line for line in audit(room) if line.get("protocol") in {"egress", "tunnel"}]
    told = [(line.get("verb"), line.get("url"), line["verdict"]) for line in lines if "url" in line]

    assert told.count(("POST", url, "allowed")) == 2
    assert ("GET", "/https/other.example/", "denied") in told
    assert ("CONNECT", "other.example:443", "denied") in told
    causes = {(line["cause_task"], line["cause_exact"]) for line in lines if line.get("cause_task")}
    assert causes == {(report["task"], True)}
    assert SECRET not in (room.state / "logs" / "audit.jsonl").read_text()


@pytest.mark.requirement("egress-key-outside")
def test_a_secret_is_shown_by_no_command_and_printed_to_no_log(room: PostRoom, report: dict):
    listed = room.run("credential", "list") + room.run("credential", "list", "--json")
    logs = [p.read_text(errors="replace") for p in (room.state / "logs").iterdir() if p.is_file()]
    logs.append(room.run("logs", "scout"))

    assert "x-api-key: {secret}" in listed
    assert SECRET not in listed + "".join(logs)
    for name in ("accounts.db", "projection.db"):
        assert SECRET.encode() not in (room.state / name).read_bytes()
    assert report


def test_credentials_are_added_replaced_and_removed(room: PostRoom):
    words = ("credential", "add", "spare", "--host", "api.example.com", "--path", "/v1")
    room.run(*words, given="one")
    room.run(*words, given="two", status=5)
    room.env["SPARE_KEY"] = "two"
    added = json.loads(
        room.run(*words, "--worker", "@scout", "--from-env", "SPARE_KEY", "--replace", "--json")
    )
    room.run(*words[:3], "--host", "*.example.com", given="x", status=2)
    room.run(*words[:2], "empty", *words[3:], given="", status=2)
    room.run(*words[:2], "other", *words[3:], "--worker", "@nobody", given="x", status=4)
    room.run("credential", "remove", "spare")
    room.run("credential", "remove", "spare", status=4)

    assert added["url"] == "https://api.example.com/v1"
    assert [worker["nick"] for worker in added["workers"]] == ["scout"]
    assert [kept["name"] for kept in room.json("credential", "list")["credentials"]] == [
        "anthropic"
    ]
