"""The ACP driver against an agent of a few lines in the test: what agents differ in, and what goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom.protocol.template import McpServer
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.acp import NEW_SESSION, Acp
from postroom.sidecar.adapters.turns import (
    Answer,
    Asked,
    Event,
    Setup,
    TurnSaid,
    Withdrawn,
    Write,
)

OPTIONS = [
    {"optionId": "reject_once", "name": "Yes", "kind": "allow_always"},
    {"optionId": "b", "name": "Yes", "kind": "allow_once"},
    {"optionId": "allow_once", "name": "No", "kind": "reject_once"},
]
"""Ids and places that mislead who does not look at the kind."""

CALL = {
    "toolCallId": "c1",
    "title": "ls",
    "kind": "execute",
    "rawInput": {"command": "ls"},
    "status": "pending",
}


class Agent:
    """The other side: it takes what the driver writes, and says what the test lets it say."""

    def __init__(self, setup: Setup | None = None, **initialized: Any) -> None:
        self.driver = Acp(setup or Setup(("agent",), cwd="/w"))
        self.initialized = {"protocolVersion": 1, "agentCapabilities": {}, **initialized}
        self.heard: list[dict[str, Any]] = []
        self.said: list[TurnSaid] = []
        self.hear(self.driver.begin())

    def hear(self, data: bytes) -> None:
        self.heard += [json.loads(line) for line in data.splitlines()]

    def say(self, **message: Any) -> list[TurnSaid]:
        """Send one message; what the driver makes of it, and writes."""
        said = self.driver.feed(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        for item in said:
            if isinstance(item, Write):
                self.hear(item.data)
        self.said += said
        return said

    def result(self, method: str, **result: Any) -> list[TurnSaid]:
        """Answer the driver's last request of that method."""
        return self.say(id=self.request(method)["id"], result=result)

    def error(self, method: str, code: int, message: str) -> list[TurnSaid]:
        error = {"code": code, "message": message}
        return self.say(id=self.request(method)["id"], error=error)

    def request(self, method: str) -> dict[str, Any]:
        return [message for message in self.heard if message.get("method") == method][-1]

    def update(self, update: str, **fields: Any) -> list[TurnSaid]:
        params = {"sessionId": "s1", "update": {"sessionUpdate": update, **fields}}
        return self.say(method="session/update", params=params)

    def ask(self, ident: int | str = 1, call: dict[str, Any] = CALL) -> list[TurnSaid]:
        params = {"sessionId": "s1", "toolCall": call, "options": OPTIONS}
        return self.say(id=ident, method="session/request_permission", params=params)

    def answer(self, request: str, answer: Answer) -> dict[str, Any]:
        self.hear(self.driver.answer(request, answer))
        return self.heard[-1]

    def turn(self, prompt: str = "do it") -> Agent:
        self.hear(self.driver.turn(prompt))
        return self

    def opened(self, **session: Any) -> Agent:
        self.result("initialize", **self.initialized)
        self.result("session/new", sessionId="s1", **session)
        return self


def events(said: list[TurnSaid]) -> list[tuple[str, dict[str, Any]]]:
    return [(item.kind.value, dict(item.fields)) for item in said if isinstance(item, Event)]


def kinds(said: list[TurnSaid]) -> list[str]:
    return [item.kind.value if isinstance(item, Event) else type(item).__name__ for item in said]


def test_a_turn_that_comes_during_the_handshake_is_sent_when_the_session_is_open() -> None:
    agent = Agent().turn("first").opened()
    assert [message["method"] for message in agent.heard] == [
        "initialize",
        "session/new",
        "session/prompt",
    ]
    prompt = agent.request("session/prompt")["params"]
    assert prompt == {"sessionId": "s1", "prompt": [{"type": "text", "text": "first"}]}
    assert agent.heard[0]["params"]["clientCapabilities"]["fs"] == {
        "readTextFile": False,
        "writeTextFile": False,
    }
    agent.result("session/prompt", stopReason="end_turn")
    agent.turn("second")
    assert agent.request("session/prompt")["params"]["prompt"][0]["text"] == "second"


@pytest.mark.requirement("acp-permission-by-kind")
@pytest.mark.parametrize("allow, option", [(True, "b"), (False, "allow_once")])
def test_a_question_is_answered_by_the_kind_of_an_option(allow: bool, option: str) -> None:
    agent = Agent().turn().opened()
    agent.ask()
    answer = agent.answer("1", Answer(allow))
    assert answer == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"outcome": {"outcome": "selected", "optionId": option}},
    }
    assert agent.driver.answer("1", Answer(allow)) == b""  # once


@pytest.mark.requirement("acp-permission-by-kind")
def test_an_edited_input_is_a_denial_that_is_said() -> None:
    agent = Agent().turn().opened()
    agent.ask()
    asked = agent.driver.open_request("1")
    assert asked is not None
    assert asked.fixed
    answer = agent.answer("1", Answer(allow=True, input={"command": "ls -l"}))
    assert answer["result"]["outcome"]["optionId"] == "allow_once"  # of kind reject_once
    (error,) = [e for e in events(agent.update("plan", entries=[])) if e[0] == "error"]
    assert "no edited input" in error[1]["text"]


def test_an_agent_without_an_option_for_a_denial_is_told_that_nobody_decided() -> None:
    agent = Agent().turn().opened()
    params = {"toolCall": CALL, "options": OPTIONS[:2]}
    agent.say(id=1, method="session/request_permission", params=params)
    assert agent.answer("1", Answer(allow=False))["result"] == {"outcome": {"outcome": "cancelled"}}


def test_ids_of_both_sides_are_apart_and_a_text_is_another_id_than_a_number() -> None:
    agent = Agent().turn().opened()
    ours = agent.request("session/prompt")["id"]
    agent.ask(ours)
    agent.ask(str(ours))
    assert [item.request for item in agent.said if isinstance(item, Asked)] == ["3", '"3"']
    assert agent.answer('"3"', Answer(allow=True))["id"] == "3"
    assert kinds(agent.result("session/prompt", stopReason="end_turn"))[-1] == "result"


def test_a_call_of_which_only_the_question_was_heard_is_told_once() -> None:
    agent = Agent().turn().opened()
    call = {"toolCallId": "c1", "title": "echo hi", "kind": "execute", "status": "pending"}
    said = agent.ask(call=call)
    assert kinds(said) == ["tool_call", "Asked"]
    assert events(said)[0][1]["input"] == {"command": "echo hi"}
    agent.answer("1", Answer(allow=True))
    said = agent.update("tool_call_update", toolCallId="c1", status="completed")
    assert kinds(said) == ["tool_result"]


def test_a_denied_call_that_is_never_heard_of_again_ends_when_the_agent_speaks() -> None:
    agent = Agent().turn().opened()
    agent.update("agent_message_chunk", content={"type": "text", "text": "I list."})
    agent.ask()
    agent.answer("1", Answer(allow=False))
    said = agent.update("agent_message_chunk", content={"type": "text", "text": "Then not."})
    assert events(said) == [
        ("tool_result", {"call": "c1", "status": "denied", "output": ""}),
        ("text", {"text": "Then not."}),
    ]
    late = agent.update("tool_call_update", toolCallId="c1", status="failed")
    assert kinds(late) == ["raw"]


def test_a_call_is_told_when_its_input_is_known() -> None:
    agent = Agent().turn().opened()
    begun = {"toolCallId": "c1", "title": "bash", "kind": "execute", "status": "pending"}
    assert not agent.update("tool_call", **begun, rawInput={"cwd": "/w"})
    said = agent.update("tool_call_update", toolCallId="c1", rawInput={"command": "ls"})
    assert events(said)[0][1]["input"] == {"command": "ls"}
    assert not agent.update("tool_call_update", toolCallId="c1", status="in_progress")


def test_an_edit_is_shown_as_a_diff() -> None:
    agent = Agent().turn().opened()
    diff = {"type": "diff", "path": "a.py", "oldText": "a\nb\nc\n", "newText": "a\nB\nc\n"}
    call = {"toolCallId": "c1", "title": "edit", "kind": "edit", "content": [diff]}
    (asked,) = [item for item in agent.ask(call=call) if isinstance(item, Asked)]
    assert asked.input == {"path": "a.py", "diff": "--- a.py\n+++ a.py\n@@ line 2 @@\n-b\n+B"}


@pytest.mark.requirement("acp-permission-by-kind")
def test_an_interrupt_cancels_every_open_question() -> None:
    agent = Agent().turn().opened()
    agent.ask(7)
    agent.ask("x", {**CALL, "toolCallId": "c2"})
    agent.hear(agent.driver.interrupt())
    cancel, *answers = agent.heard[-3:]
    assert (cancel["method"], cancel["params"]) == ("session/cancel", {"sessionId": "s1"})
    assert [(a["id"], a["result"]["outcome"]) for a in answers] == [
        (7, {"outcome": "cancelled"}),
        ("x", {"outcome": "cancelled"}),
    ]
    assert agent.driver.interrupt() == b""
    # A call that ends by it, whatever the agent says, and one that was asked before the agent heard of it.
    agent.update("tool_call_update", toolCallId="c1", status="completed")
    agent.ask(8, {**CALL, "toolCallId": "c3"})
    assert [item for item in agent.said if isinstance(item, Withdrawn)] == [
        Withdrawn("7"),
        Withdrawn('"x"'),
    ]
    assert agent.heard[-1]["result"]["outcome"] == {"outcome": "cancelled"}
    said = agent.result("session/prompt", stopReason="cancelled")
    results = [e[1]["status"] for e in events(agent.said) if e[0] == "tool_result"]
    assert results == ["interrupted"] * 3
    assert events(said)[-1] == ("result", {"status": "interrupted", "text": ""})


def test_a_turn_that_is_interrupted_before_the_session_is_open_is_not_sent() -> None:
    agent = Agent().turn()
    assert agent.driver.interrupt() == b""
    agent.opened()
    assert [e for e in events(agent.said) if e[0] == "result"] == [
        ("result", {"status": "interrupted", "text": ""})
    ]
    assert "session/prompt" not in [message.get("method") for message in agent.heard]


@pytest.mark.parametrize(
    "reason, status",
    [("end_turn", "completed"), ("refusal", "failed"), ("max_tokens", "failed"), ("new", "failed")],
)
def test_the_reason_of_the_end_is_the_result(reason: str, status: str) -> None:
    agent = Agent().turn().opened()
    (result,) = events(agent.result("session/prompt", stopReason=reason))
    assert result[1]["status"] == status
    assert status == "completed" or reason in result[1]["reason"]


@pytest.mark.parametrize("output, total", [(12, 135), (15, 135), (15, 0)])
def test_output_tokens_have_those_of_reasoning_among_them(output: int, total: int) -> None:
    """OpenCode counts them beside the output, Codex among it."""
    agent = Agent().turn().opened()
    usage = {"inputTokens": 100, "cachedReadTokens": 20, "thoughtTokens": 3}
    usage |= {"outputTokens": output, "totalTokens": total}
    (used, _) = events(agent.result("session/prompt", stopReason="end_turn", usage=usage))
    assert (used[1]["input_tokens"], used[1]["output_tokens"]) == (120, 15)


def test_an_agent_that_ends_its_turn_after_a_denial_was_interrupted_by_itself() -> None:
    agent = Agent().turn().opened()
    (result,) = events(agent.result("session/prompt", stopReason="cancelled"))
    assert result[1]["status"] == "interrupted"
    assert "itself" in result[1]["reason"]


def test_an_error_of_the_model_fails_the_turn_and_the_next_one_goes_on() -> None:
    agent = Agent().turn().opened()
    error = {"code": -32603, "message": "Internal error", "data": {"details": "status 401"}}
    said = agent.say(id=agent.request("session/prompt")["id"], error=error)
    assert kinds(said) == ["error", "result"]
    assert events(said)[1][1]["reason"] == "Internal error: status 401"
    agent.turn("again")
    assert agent.request("session/prompt")["params"]["prompt"][0]["text"] == "again"


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "elicitation/create"])
def test_what_this_client_does_not_serve_is_refused_at_once(method: str) -> None:
    agent = Agent().turn().opened()
    assert "raw" in kinds(agent.say(id=5, method=method, params={}))
    assert (agent.heard[-1]["id"], agent.heard[-1]["error"]["code"]) == (5, -32601)


def test_a_question_that_the_agent_takes_back() -> None:
    agent = Agent().turn().opened()
    agent.ask(4)
    said = agent.say(method="$/cancel_request", params={"requestId": 4})
    assert said[0] == Withdrawn("4")
    assert agent.heard[-1]["error"]["code"] == -32800
    assert agent.driver.answer("4", Answer(allow=True)) == b""


LOADS = {"agentCapabilities": {"loadSession": True}}


@pytest.mark.requirement("coding-session-survives-sigkill")
def test_a_session_is_loaded_without_telling_its_past_again() -> None:
    agent = Agent(Setup(("agent",), session="s1"), **LOADS).turn()
    agent.result("initialize", **agent.initialized)
    assert agent.request("session/load")["params"]["sessionId"] == "s1"
    old = agent.update("agent_message_chunk", content={"type": "text", "text": "of yesterday"})
    old += agent.update("usage_update", cost={"amount": 2.0, "currency": "USD"})
    assert not old
    said = agent.result("session/load")
    assert events(said)[0][1]["resumed"] is True
    assert agent.request("session/prompt")["params"]["prompt"][0]["text"] == "do it"
    agent.update("usage_update", cost={"amount": 2.5, "currency": "USD"})
    used = events(agent.result("session/prompt", stopReason="end_turn"))[0]
    assert used == ("usage", {"input_tokens": 0, "output_tokens": 0, "cost": 0.5})


@pytest.mark.requirement("coding-session-survives-sigkill")
@pytest.mark.parametrize("answer", ["result", "error"])
def test_a_past_that_is_told_after_the_answer_is_no_part_of_the_turn(answer: str) -> None:
    """Gemini CLI does so: the prompt waits until the agent has answered one more request."""
    agent = Agent(Setup(("agent",), session="s1"), **LOADS).turn()
    agent.result("initialize", **agent.initialized)
    modes = {"currentModeId": "default", "availableModes": [{"id": "default"}]}
    agent.result("session/load", modes=modes)
    assert not agent.update("agent_message_chunk", content={"type": "text", "text": "of yesterday"})
    assert agent.heard[-1]["params"] == {"sessionId": "s1", "modeId": "default"}
    if answer == "result":
        agent.result("session/set_mode")
    else:
        agent.error("session/set_mode", -32601, "no")
    assert agent.heard[-1]["method"] == "session/prompt"
    assert agent.update("agent_message_chunk", content={"type": "text", "text": "of today"})


@pytest.mark.requirement("coding-session-survives-sigkill")
@pytest.mark.parametrize("can", [True, False])
def test_a_session_that_cannot_be_loaded_is_replaced_and_the_agent_told(can: bool) -> None:
    setup = Setup(("agent",), session="old", instructions="Colleagues: @ann.")
    agent = Agent(setup, agentCapabilities={"loadSession": can}).turn()
    agent.result("initialize", **agent.initialized)
    if can:
        assert kinds(agent.error("session/load", -32602, "not found"))[0] == "error"
    said = agent.result("session/new", sessionId="new")
    assert events(said)[0][1]["resumed"] is False
    assert agent.driver.session == "new"
    text = agent.request("session/prompt")["params"]["prompt"][0]["text"]
    assert text == f"{NEW_SESSION}\n\nColleagues: @ann.\n\ndo it"


METHODS = [
    {"id": "oauth-personal", "name": "Log in"},
    {"id": "key", "name": "API key", "_meta": {"api-key": {"provider": "google"}}},
]


def test_an_agent_that_wants_a_login_gets_the_one_by_key() -> None:
    agent = Agent(authMethods=METHODS).turn()
    agent.result("initialize", **agent.initialized)
    agent.error("session/new", -32000, "Authentication required")
    assert agent.request("authenticate")["params"] == {"methodId": "key"}
    agent.result("authenticate")
    agent.result("session/new", sessionId="s1")
    assert agent.heard[-1]["method"] == "session/prompt"


def test_a_login_that_needs_a_person_fails_the_turn_and_is_tried_again_at_the_next() -> None:
    agent = Agent(authMethods=METHODS[:1]).turn()
    agent.result("initialize", **agent.initialized)
    said = agent.error("session/new", -32000, "Authentication required")
    assert kinds(said) == ["error", "result"]
    assert "Authentication required" in events(said)[1][1]["reason"]
    agent.turn("again")  # somebody has logged in
    agent.result("session/new", sessionId="s1")
    assert agent.request("session/prompt")["params"]["prompt"][0]["text"] == "again"


def test_an_agent_of_another_version_fails_the_turn() -> None:
    agent = Agent(protocolVersion=2).turn()
    said = agent.result("initialize", **agent.initialized)
    assert "version 2" in events(said)[-1][1]["reason"]


@pytest.mark.requirement("mcp-servers-reach-agents")
def test_mcp_servers_come_with_the_session() -> None:
    setup = Setup(
        ("agent",),
        mcps=(
            McpServer("notes", ("notes-mcp", "--db", "n"), env={"A": "1"}),
            McpServer("web", url="http://127.0.0.1:9/mcp"),
        ),
    )
    agent = Agent(setup, agentCapabilities={"mcpCapabilities": {"http": True}})
    agent.result("initialize", **agent.initialized)
    env = [{"name": "A", "value": "1"}]
    assert agent.request("session/new")["params"]["mcpServers"] == [
        {"name": "notes", "command": "notes-mcp", "args": ["--db", "n"], "env": env},
        {"type": "http", "name": "web", "url": "http://127.0.0.1:9/mcp", "headers": []},
    ]
    deaf = Agent(setup)
    deaf.result("initialize", **deaf.initialized)
    assert len(deaf.request("session/new")["params"]["mcpServers"]) == 1
    assert "web" in events(deaf.result("session/new", sessionId="s1"))[0][1]["text"]


@pytest.mark.parametrize(
    "modes, autonomous, chosen",
    [
        (["read-only", "workspace-write", "agent"], False, ["workspace-write"]),
        (["default", "yolo"], True, ["yolo"]),
        (["default", "yolo"], False, []),
    ],
)
def test_the_mode_is_one_that_asks_or_one_that_does_not(
    modes: list[str], autonomous: bool, chosen: list[str]
) -> None:
    agent = Agent(Setup(("agent",), autonomous=autonomous)).turn()
    offered = {"currentModeId": modes[0], "availableModes": [{"id": mode} for mode in modes]}
    agent.opened(modes=offered)
    asked = [m["params"]["modeId"] for m in agent.heard if m.get("method") == "session/set_mode"]
    assert asked == chosen


def test_a_program_that_dies_in_a_turn_leaves_nothing_open() -> None:
    agent = Agent().turn().opened()
    agent.ask()
    said = agent.driver.finish(End(1, stderr="out of memory"))
    assert kinds(said) == ["Withdrawn", "tool_result", "result"]
    assert events(said)[1][1]["reason"] == "exit code 1: out of memory"


def test_text_goes_on_within_a_message_only() -> None:
    agent = Agent().turn().opened()
    said = []
    for ident, text in (("m1", "a"), ("m1", "b"), ("m2", "c")):
        content = {"type": "text", "text": text}
        said += agent.update("agent_message_chunk", messageId=ident, content=content)
    said += agent.update("agent_thought_chunk", content={"type": "text", "text": "hm"})
    assert events(said) == [
        ("text", {"text": "a"}),
        ("text", {"text": "b", "delta": True}),
        ("text", {"text": "c"}),
        ("thinking", {"text": "hm"}),
    ]


@pytest.mark.parametrize(
    "command, started, instructions",
    [
        (("/opt/bin/gemini",), ("/opt/bin/gemini", "--acp"), ".gemini/GEMINI.md"),
        (("gemini", "--acp", "-d"), ("gemini", "--acp", "-d"), ".gemini/GEMINI.md"),
        (("node", "/x/gemini.js"), ("node", "/x/gemini.js", "--acp"), ".gemini/GEMINI.md"),
        (("opencode",), ("opencode", "acp"), ".config/opencode/AGENTS.md"),
        (("goose",), ("goose", "acp"), ".config/goose/.goosehints"),
        (("qwen",), ("qwen", "--acp"), ".qwen/QWEN.md"),
        (("other-acp",), ("other-acp",), ""),
    ],
)
def test_each_program_is_started_and_instructed_in_its_way(
    command: tuple[str, ...], started: tuple[str, ...], instructions: str
) -> None:
    driver = Acp(Setup(command, instructions="Colleagues: ann."))
    assert driver.command() == started
    files = driver.files()
    assert (files.get(instructions) == "Colleagues: ann.\n") is bool(instructions)
    for path, text in files.items():
        if path.endswith((".json", ".yaml")):
            json.loads(text)


def test_gemini_takes_no_nick_for_a_file() -> None:
    setup = Setup(("gemini",), instructions="Ask @ann, or `postroom-agent send @bob hi`: @eve.")
    assert Acp(setup).files()[".gemini/GEMINI.md"] == (
        "Ask `@ann`, or `postroom-agent send @bob hi`: `@eve`.\n"
    )
