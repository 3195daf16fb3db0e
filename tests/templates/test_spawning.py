"""`postroom spawn` of a template with [program] and [keys]: a real post room, sandbox, gateway and a model outside."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom
from tests.e2e.outside import ModelServer, model_server
from tests.templates.machine import executable, link, package

SECRET = "sk-spawned-77ab12"

# An agent's command line as npm installs it. It asks its model, and looks for the key in all that it can read.
PROGRAM = """#!/usr/bin/env python3
import glob, json, os, sys, urllib.request
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
sys.stdin.read()
request = urllib.request.Request(os.environ["BASE_URL"] + "/v1/messages", b"{}", {"x-api-key": os.environ["KEY"]})
with DIRECT.open(request, timeout=30) as answer:
    answer.read()
places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
for root in ("/workspace", "/opt", "/tmp", "/run", "/home", "/var/lib/postroom"):
    places += [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
hits = []
for place in places:
    try:
        with open(place, "rb") as file:
            if b"sk-" + b"spawned" in file.read():
                hits.append(place)
    except OSError:
        pass
import pathlib
own = pathlib.Path(__file__).resolve().parents[1]
print(json.dumps({
    "hits": hits,
    "key": os.environ["KEY"],
    "version": json.loads((own / "package.json").read_text())["version"],
    "beside": sorted(os.listdir(own.parent)),
}))
"""

TEMPLATE = """
[worker]
name = "scout"

[workstation]
command = ["{program}"]
adapter = "text"
env = { PATH = "{program_path}${PATH}", KEY = "{api_key}", BASE_URL = "${POSTROOM_EGRESS}/https/{host}" }

[compute]
read_only = ["{program_mounts}"]

[program]
name = "scout-agent"
install = "npm install -g scout-agent"

[keys.scout]
url = "https://{host}"
header = "x-api-key: {secret}"
variable = "SCOUT_API_KEY"
obtain = "an API key: https://scout.example"
set = { api_key = "kept-outside" }

[overrides]
program = ""
program_path = ""
program_mounts = ""
credential = ""
api_key = ""
host = "api.scout.example"
egress = ["{host}"]
credentials = ["{credential}"]
"""


@pytest.fixture(scope="module")
def outside() -> Iterator[ModelServer]:
    with tempfile.TemporaryDirectory(prefix="outside-") as folder, model_server(Path(folder)) as it:
        yield it


@pytest.fixture(scope="module")
def room(outside: ModelServer) -> Iterator[PostRoom]:
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.env |= {
            "POSTROOM_EGRESS_ALLOW_PRIVATE": f"localhost:{outside.port}",
            "POSTROOM_EGRESS_CA": str(outside.ca_file),
        }
        room.up()
        try:
            yield room
        finally:
            room.call("down")


def install(room: PostRoom, version: str) -> Path:
    """Install the program below the home of the person, as `npm install -g` does."""
    modules = room.scratch / ".npm-global" / "lib" / version / "node_modules"
    own = package(modules, "scout-agent", version=version, program="scout", content=PROGRAM)
    package(modules, "something-else")
    command = room.scratch / ".npm-global" / "bin" / "scout-agent"
    command.unlink(missing_ok=True)
    return link(command, own / "bin" / "scout")


@pytest.mark.requirement("egress-key-outside")
@pytest.mark.requirement("template-programs-found")
def test_a_coding_agent_is_spawned_with_a_key_that_never_enters_its_sandbox(
    room: PostRoom, outside: ModelServer
):
    file = room.template(TEMPLATE, "scout")
    words = ("spawn", file, "--set", f"host=localhost:{outside.port}")

    room.run(*words, status=4)  # the program is nowhere
    assert "npm install -g scout-agent" in room.stderr

    install(room, "1.0.0")
    room.run(*words, status=2)  # no key is kept, and none is set
    assert "https://scout.example" in room.stderr
    assert "postroom credential add scout" in room.stderr

    room.env["SCOUT_API_KEY"] = SECRET
    room.run(*words, status=2)  # nobody can be asked
    assert "--store-key" in room.stderr
    assert "--from-env SCOUT_API_KEY" in room.stderr
    assert room.json("credential", "list")["credentials"] == []

    said = room.run(*words, "--store-key") + room.stderr
    assert SECRET not in said
    del room.env["SCOUT_API_KEY"]
    (kept,) = room.json("credential", "list")["credentials"]
    assert (kept["name"], kept["header"]) == ("scout", "x-api-key: {secret}")

    answer = json.loads(room.run("send", "@scout", "look", "--wait", "answered"))
    assert answer == {
        "hits": [],
        "key": "kept-outside",
        "version": "1.0.0",
        "beside": ["scout-agent"],  # nothing else of what is installed
    }
    assert outside.requests[-1][1]["x-api-key"] == SECRET

    logs = "".join(f.read_text(errors="replace") for f in room.state.rglob("*.log"))
    assert SECRET not in logs

    spawned = room.json(*words)  # with the key that is kept
    assert spawned["nick"] == "scout-2"
    room.run(*words, "--name", "scout", status=5)

    shutil.rmtree(room.scratch / ".npm-global" / "lib" / "1.0.0")  # as an update does
    install(room, "1.1.0")
    for flag in ((), ("--same",)):
        room.run("restart", "scout", *flag)
        answer = json.loads(room.run("send", "@scout", "again", "--wait", "answered"))
        assert (answer["version"], answer["hits"]) == ("1.1.0", [])


def test_a_key_of_the_environment_is_not_asked_for_where_another_is_named(
    room: PostRoom, outside: ModelServer
):
    install(room, "1.1.0")
    file = room.template(TEMPLATE.replace('"scout"', '"other"'), "other")
    host = f"localhost:{outside.port}"
    room.run(
        "credential", "add", "mine", "--host", host, "--header", "x-api-key: {secret}", given="k\n"
    )
    room.run("spawn", file, "--set", f"host={host}", "--set", "credential=mine")
    answer = json.loads(room.run("send", "@other", "look", "--wait", "answered"))
    assert answer["key"] == "kept-outside"
    assert outside.requests[-1][1]["x-api-key"] == "k"

    words = ("--set", f"host={host}", "--set", "credential=mine", "--name", "tasked")
    spawned = room.json("spawn", file, *words, "--task", "look at it")
    assert (spawned["nick"], spawned["given"]["text"]) == ("tasked", "look at it")
    assert "kept-outside" in room.run("task", "watch", spawned["given"]["id"])


def test_a_word_is_a_template_that_postroom_brings_or_a_file(room: PostRoom):
    room.run("spawn", "claude-cod", status=4)
    assert "did you mean claude-code?" in room.stderr
    room.run("spawn", "goose", status=4)
    assert "not installed" in room.stderr
    assert "block/goose" in room.stderr
    executable(room.scratch / "bin" / "goose")
    room.run("spawn", "goose", status=2)
    assert "OPENROUTER" not in room.stderr
    assert "https://openrouter.ai/keys" in room.stderr
