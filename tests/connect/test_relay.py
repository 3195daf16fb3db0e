"""The MCP server of a session in a terminal: lines to `/mcp` with the session's own key, receipts by `run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.frame import AGAIN
from tests.connect.conftest import DEADLINE, KEY, Connected, Terminal, of_processes, until
from tests.connect.test_run import arrived, opened

CPU = 0.08
MEMORY = 20 * 1024


class Server:
    """The MCP server that a client has begun."""

    def __init__(self, client: Terminal) -> None:
        self.process = subprocess.Popen(
            client.command("mcp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=client.env
        )
        self._number = 0

    def ask(self, method: str, **params: Any) -> None:
        """Send a request."""
        assert self.process.stdin
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def call(self, tool: str, use: str = "", **arguments: Any) -> str:
        """The texts of a tool's result."""
        meta = {"_meta": {"claudecode/toolUseId": use}} if use else {}
        self.ask("tools/call", name=tool, arguments=arguments, **meta)
        result = self.answer()["result"]
        assert not result.get("isError"), result
        return "\n".join(each["text"] for each in result["content"])


@contextmanager
def server(client: Terminal, version: str = "2025-11-25") -> Generator[Server]:
    """A server after its handshake."""
    made = Server(client)
    try:
        info = {"name": "test", "version": "1"}
        made.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=info)
        said = made.answer()["result"]
        assert said["serverInfo"]["name"] == "postroom"
        assert made.process.stdin
        made.process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def test_a_session_speaks_as_itself(mine: Connected):
    app, nick = opened(mine)
    with server(app) as tools:
        tools.ask("tools/list")
        names = {each["name"] for each in tools.answer()["result"]["tools"]}
        assert {"a2a_whoami", "a2a_check_inbox", "a2a_reply"} <= names
        assert nick in tools.call("a2a_whoami")
        tools.call("a2a_send_message", to=mine.person, text="from a terminal", expects_reply=False)
    assert f"@{mine.inbox()['from a terminal']}" == nick


def test_a_server_that_began_before_its_session_has_an_address_offers_its_tools(mine: Connected):
    app = mine.client(folder="early")
    with server(app) as tools:
        tools.ask("tools/list")
        assert tools.answer()["result"]["tools"]
        app.start()
        assert "@early" in tools.call("a2a_whoami")


@pytest.mark.requirement("session-mail-proven")
def test_mail_read_by_a_tool_is_seen_after_the_batch_and_not_beside_it(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    with server(app) as tools:
        app.at("PreToolUse", tool_use_id="a")
        assert "| which shape?" in tools.call("a2a_check_inbox", "a")
        until(lambda: mine.state(sent) == "delivered")
        app.at("PreToolUse", tool_use_id="b")
        tools.call("a2a_whoami", "b")
        assert (
            app.at("PostToolBatch", tool_calls=[{"tool_use_id": "a"}, {"tool_use_id": "b"}]) == ""
        )
        assert mine.state(sent) == "delivered"
        app.at("PreToolUse", tool_use_id="c")
        until(lambda: mine.state(sent) == "seen")


@pytest.mark.requirement("session-mail-proven")
def test_what_a_subagent_reads_is_not_read_by_its_session(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    with server(app) as tools:
        app.at("PreToolUse", tool_use_id="sub", agent_id="explorer")
        assert "| which shape?" in tools.call("a2a_check_inbox", "sub")
    assert mine.state(sent) == "accepted"

    assert "| which shape?" in app.prompt("t2")


def test_what_a_hook_has_shown_says_so_when_a_tool_shows_it_again(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    assert AGAIN not in app.prompt("t2")
    with server(app) as tools:
        assert AGAIN in tools.call("a2a_read_message", message=sent)


@pytest.mark.requirement("session-woken-rightly")
def test_an_answer_to_what_it_asked_wakes_it(mine: Connected):
    app, nick = opened(mine)
    emil = mine.stranger("emil")
    with server(app) as tools:
        tools.call("a2a_send_message", to="@emil", text="which shape did you choose?")
    with mine.room.client() as client:
        asked = next(
            m for m in client.search(other="emil") if m["text"].startswith("which shape did")
        )
    waiter = app.wait()
    app.stop()
    emil(nick, "a question of my own")
    until(lambda: mine.sessions()[nick[1:]]["waiting"])
    app.at("PreToolUse", agent_id="time passes")
    assert waiter.poll() is None

    emil(nick, "the round one", asked["id"])

    assert waiter.wait(DEADLINE) == 2
    assert waiter.stderr
    assert b"| the round one" in waiter.stderr.read()


def test_after_clear_a_server_speaks_for_the_session_of_its_process(mine: Connected):
    app, nick = opened(mine)
    app.env["CLAUDE_CODE_SESSION_ID"] = app.session
    with server(app) as tools:
        app.at("SessionEnd", reason="clear")
        app.session += "-cleared"
        app.start("clear")
        assert nick in tools.call("a2a_whoami")


def test_a_call_under_way_when_run_is_killed_says_that_it_may_have_been_done(mine: Connected):
    app, nick = opened(mine)
    with server(app) as tools:
        asks = {"to": mine.person, "text": "are you there?"}
        tools.ask("tools/call", name="a2a_ask", arguments=asks)
        until(lambda: "are you there?" in mine.inbox())
        mine.kill_run()
        result = tools.answer()["result"]
        assert result["isError"]
        assert "may have been done" in result["content"][0]["text"]

        assert nick in tools.call("a2a_whoami"), "it is begun again"


def test_a_post_room_that_is_away_is_an_error_of_the_tool(tmp_path: Path):
    from tests.connect.conftest import connected
    from tests.e2e.conftest import PostRoom

    with connected(PostRoom(tmp_path / "nowhere", tmp_path), tmp_path) as made:
        app = made.client()
        tools = Server(app)
        tools.ask("tools/call", name="a2a_whoami", arguments={})
        result = tools.answer()["result"]
        tools.process.kill()
        tools.process.communicate()
        assert result["isError"]
        assert "this session has no address yet" in result["content"][0]["text"]


@pytest.mark.requirement("session-hook-harmless")
def test_no_key_is_in_what_a_server_says_or_can_be_seen_of_it(mine: Connected):
    """Neither the person's nor the session's: in environment, command line and answers, whatever is asked."""
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    heard: list[dict[str, Any]] = []
    with server(app) as tools:
        tools.ask("tools/list")
        heard.append(tools.answer())
        given = {
            "message": sent,
            "to": mine.person,
            "text": "hello",
            "task": mine.room.json("delegate", nick, "choose")["id"],
            "state": "working",
        }
        for tool in heard[0]["result"]["tools"]:
            schema = tool["inputSchema"]
            arguments = {name: given[name] for name in schema.get("required", ())}
            more = {"wait": 0} if "wait" in schema["properties"] else {}
            tools.ask("tools/call", name=tool["name"], arguments=arguments | more)
            heard.append(tools.answer())
        seen = of_processes(tools.process.pid, mine.status()["pid"])
    everything = seen + json.dumps(heard).encode()

    assert len(heard) == 13
    assert sum(not each["result"].get("isError") for each in heard) >= 8
    assert b"CLAUDE_PID" in everything
    assert not KEY.search(everything)


def test_it_starts_light(mine: Connected):
    app, _ = opened(mine)
    with server(app) as tools:
        tools.call("a2a_whoami")
        pid = tools.process.pid
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
        memory = int(status.partition("VmRSS:")[2].split()[0])
        cpu = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        maps = Path(f"/proc/{pid}/maps").read_text()

    assert cpu <= CPU
    assert memory <= MEMORY
    assert "site-packages" not in maps


@pytest.mark.parametrize(
    "line", [b"[]", b"nothing", b'{"id": 1}', b"[" * 100_000, b'{"method": 5, "id": 2}']
)
def test_what_is_no_request_changes_nothing(mine: Connected, line: bytes):
    app, nick = opened(mine)
    with server(app) as tools:
        assert tools.process.stdin
        tools.process.stdin.write(line + b"\n")
        assert nick in tools.call("a2a_whoami")


def test_a_killed_client_leaves_no_server(mine: Connected):
    app, _ = opened(mine)
    with server(app) as tools:
        os.kill(tools.process.pid, signal.SIGKILL)
        tools.process.wait(DEADLINE)
    assert mine.status()["sessions"]
