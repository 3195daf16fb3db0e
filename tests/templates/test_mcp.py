"""MCP servers of a template: a real one of a registry, inside the sandbox and behind the gateway."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.directory.cards import build_card, skills_of
from postroom.errors import InvalidTemplate
from postroom.protocol.template import parse_template
from tests.e2e.conftest import PostRoom, until
from tests.templates.machine import link, package
from tests.templates.npm import NODE, installed

HEAD = '[worker]\nname = "x"\n[workstation]\ncommand = ["x"]\nadapter = "claude"\n'

# Stands for Claude Code: reads the configuration that it is given, and speaks with each server as a client does.
CLIENT = r"""#!/usr/bin/env python3
import json, os, subprocess, sys, urllib.request

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
HELLO = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

def call(number, method, params):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"

DONE = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode() + b"\n"

def by_pipe(server):
    words, env = [server["command"], *server["args"]], {**os.environ, **server.get("env", {})}
    process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    def ask(data):
        process.stdin.write(data)
        process.stdin.flush()
        for line in process.stdout:
            said = json.loads(line)
            if "result" in said:
                return said["result"]
    name = ask(call(1, "initialize", HELLO))["serverInfo"]["name"]
    process.stdin.write(DONE)
    tools = [tool["name"] for tool in ask(call(2, "tools/list", {}))["tools"]]
    process.kill()
    return name, tools

def by_http(server):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    def ask(data):
        with DIRECT.open(urllib.request.Request(server["url"], data, headers), timeout=20) as answer:
            headers["mcp-session-id"] = answer.headers.get("mcp-session-id") or headers.get("mcp-session-id", "")
            for line in answer:
                if line.startswith(b"data:") and b'"result"' in line:
                    return json.loads(line[5:])["result"]
    name = ask(call(1, "initialize", HELLO))["serverInfo"]["name"]
    ask(DONE)
    return name, [tool["name"] for tool in ask(call(2, "tools/list", {}))["tools"]]

with open(sys.argv[sys.argv.index("--mcp-config") + 1]) as file:
    servers = json.load(file)["mcpServers"]
for line in sys.stdin:
    said = json.loads(line)
    if said["type"] != "user":
        continue
    found = {n: (by_http if s.get("url") else by_pipe)(s) for n, s in servers.items()}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": json.dumps(found)}
    init = {"type": "system", "subtype": "init", "session_id": "s", "tools": [], "model": "m"}
    for each in (init, {**result, "session_id": "s", "num_turns": 1, "usage": {}}):
        print(json.dumps(each), flush=True)
"""


@pytest.mark.requirement("mcp-servers-reach-agents")
def test_a_server_opens_its_host_and_uses_its_credential_and_is_a_skill():
    text = (
        HEAD
        + '[workstation.mcps.docs]\nurl = "https://mcp.example.com/v1?a=1"\ncredential = "docs"\n'
    )
    parsed = parse_template(text)
    assert parsed.egress == ("https://mcp.example.com/v1",)
    assert parsed.credentials == ("docs",)
    assert skills_of(build_card("0" * 32, "x", parsed, version="1")) == ["docs"]


@pytest.mark.parametrize(
    "server, said",
    [
        ("url = 'mcp.example.com'", "such as"),
        ("url = 'ftp://mcp.example.com'", "not supported"),
        ("url = 'https://me@mcp.example.com'", ""),
        ("command = ['x']\ncredential = 'y'", "is for a url"),
        ("command = ['x']\nurl = 'https://x.example'", "a command or a url"),
        (
            "command = ['x']\nenv = { A = '${POSTROOM_EGRESS}/https/x' }",
            "mcps.m.env.A leads outside",
        ),
        ("command = ['x']\nenv = { POSTROOM_API = 'x' }", "may not set POSTROOM_API"),
    ],
)
def test_a_server_that_cannot_be_reached_is_refused(server: str, said: str):
    with pytest.raises(InvalidTemplate) as caught:
        parse_template(f"{HEAD}[workstation.mcps.m]\n{server}\n")
    assert said in caught.value.message + caught.value.remedy


@pytest.fixture
def modules() -> Path:
    return installed("@modelcontextprotocol/server-everything", "2026.8.31")


@pytest.fixture
def remote(modules: Path) -> Iterator[int]:
    """The same server over HTTP, outside; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = modules / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    process = subprocess.Popen(
        [NODE, program, "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _listens(port))
        yield port
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_real_server_answers_inside_the_sandbox_and_through_the_gateway(
    modules: Path, remote: int
):
    program = modules / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.env["POSTROOM_EGRESS_ALLOW_PRIVATE"] = f"127.0.0.1:{remote}"
        prefix = Path(scratch) / ".npm-global"
        own = package(
            prefix / "lib" / "node_modules",
            "@anthropic-ai/claude-code",
            program="claude",
            content=CLIENT,
        )
        link(prefix / "bin" / "claude", own / "bin" / "claude")
        text = room.run("templates", "show", "claude-code")
        text = text.replace('"{program_mounts}"', f'"{{program_mounts}}", "{modules}", "{NODE}"')
        text += f"""
[workstation.mcps.inside]
command = ["{NODE}", "{program}"]
[workstation.mcps.outside]
url = "http://127.0.0.1:{remote}/mcp"
credential = "outside"
"""
        room.up()
        try:
            words = ("spawn", room.template(text, "mine"), "--set", "credential=")
            room.run(*words, status=2)
            assert "there is no credential 'outside'" in room.stderr
            host = f"http://127.0.0.1:{remote}"
            room.run("credential", "add", "outside", "--host", host, given="a secret\n")
            room.run(*words)
            said = json.loads(room.run("delegate", "@claude", "look", "--wait"))
            assert set(said) == {"inside", "outside"}
            for name, tools in said.values():
                assert name.endswith("everything")
                assert "echo" in tools
            (card,) = [a["card"] for a in room.json("agents")["agents"] if a["nick"] == "claude"]
            assert {"inside", "outside"} <= {skill["id"] for skill in card["skills"]}
        finally:
            room.call("down")
