"""What real agents printed (tests/sidecar/adapters/recordings), read by the adapters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, TurnSaid, Write
from tests.sidecar.adapters.driving import fields, words

RECORDINGS = Path(__file__).parent / "recordings"

COMMAND = "echo hi > q1.txt; cat q1.txt"


def spoken(agent: str) -> tuple[list[TurnSaid], list[dict[str, Any]], list[dict[str, Any]]]:
    """One recorded turn over ACP, with the question allowed: what was said, and what both clients wrote."""
    adapter = turn_adapter("acp")(Setup((agent,), cwd="/home/agent/work"))
    lines = (RECORDINGS / f"{agent}-acp.jsonl").read_text().splitlines()
    recorded = [record["message"] for line in lines if (record := json.loads(line))["dir"] == "in"]
    written = adapter.begin() + adapter.turn(recorded[-2]["params"]["prompt"][0]["text"])
    said = []
    for line in lines:
        record = json.loads(line)
        if record["dir"] == "in":
            continue
        for item in adapter.feed(json.dumps(record["message"]).encode() + b"\n"):
            said.append(item)
            if isinstance(item, Write):
                written += item.data
            elif isinstance(item, Asked):
                written += adapter.answer(item.request, Answer(allow=True))
    return said, [json.loads(line) for line in written.splitlines()], recorded


@pytest.mark.requirement("agents-real")
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode"])
def test_the_driver_writes_what_the_recorded_client_wrote(agent: str) -> None:
    _, written, recorded = spoken(agent)
    assert [message.get("method") for message in written] == [
        message.get("method") for message in recorded
    ]
    assert [message["id"] for message in written] == [message["id"] for message in recorded]
    assert written[-1] == recorded[-1]  # the answer to the question: by kind, this agent's option
    assert written[-2]["params"] == recorded[-2]["params"]


@pytest.mark.requirement("agents-real")
@pytest.mark.parametrize(
    "agent, tool, result",
    [
        ("claude", "Bash", {"status": "ok", "output": "hi"}),
        ("codex", "execute", {"status": "ok", "output": "hi\n", "exit_code": 0}),
        ("gemini", "execute", {"status": "ok", "output": ""}),  # it says no output
        ("opencode", "execute", {"status": "ok", "output": "hi\n", "exit_code": 0}),
    ],
)
def test_each_agent_s_turn_becomes_the_same_events(
    agent: str, tool: str, result: dict[str, Any]
) -> None:
    said, _, _ = spoken(agent)
    (call,) = fields(said, EventKind.TOOL_CALL)
    command = COMMAND.replace("q1", "z1") if agent == "codex" else COMMAND
    assert (call["tool"], call["title"], call["input"]["command"]) == (tool, command, command)
    (asked,) = [item for item in said if isinstance(item, Asked)]
    assert (asked.call, asked.tool, asked.input["command"]) == (call["call"], tool, command)
    assert fields(said, EventKind.TOOL_RESULT) == [{"call": call["call"], **result}]
    assert words(said).endswith("Step 1: using a tool.All done. The fake model says hello.")
    (used,) = fields(said, EventKind.USAGE)
    assert used["output_tokens"] in (15, 30)  # OpenCode tells of the last step alone
    assert fields(said, EventKind.RESULT) == [
        {"status": "completed", "text": "All done. The fake model says hello."}
    ]
    (started,) = fields(said, EventKind.STARTED)
    assert started["session"]
    assert started["version"]
    assert not started["resumed"]


def run(name: str, recording: str, end: End) -> list[TurnSaid]:
    """One recorded run of a program that is started for each turn."""
    adapter = turn_adapter(name)(Setup((name,)))
    adapter.command("say hello")
    return adapter.feed((RECORDINGS / recording).read_bytes()) + adapter.finish(end)


def test_gemini_that_fails_by_a_code_of_its_own_says_why() -> None:
    said = run("gemini", "gemini-model-401.jsonl", End(145))
    (result,) = fields(said, EventKind.RESULT)
    assert result["status"] == "failed"
    assert "401" in result["reason"]
    assert not fields(said, EventKind.TEXT)  # the prompt's echo is no word of the agent


def test_gemini_s_tool_and_usage() -> None:
    said = run("gemini", "gemini-shell-fail.jsonl", End(0))
    (call,) = fields(said, EventKind.TOOL_CALL)
    assert call["tool"] == "run_shell_command"
    (result,) = fields(said, EventKind.TOOL_RESULT)
    assert result == {"call": call["call"], "status": "ok", "output": "to-stdout\nto-stderr"}
    assert fields(said, EventKind.USAGE) == [
        {"input_tokens": 240, "output_tokens": 30, "cached_tokens": 40}
    ]
    assert fields(said, EventKind.RESULT)[0]["status"] == "completed"


def test_opencode_ends_with_the_last_step_and_a_good_exit() -> None:
    said = run("opencode", "opencode-shell-fail.jsonl", End(0))
    (result,) = fields(said, EventKind.TOOL_RESULT)
    assert (result["status"], result["exit_code"]) == ("error", 3)
    steps = fields(said, EventKind.USAGE)
    assert sum(step["input_tokens"] + step["output_tokens"] for step in steps) == 270
    assert fields(said, EventKind.RESULT) == [
        {"status": "completed", "text": "All done. The fake model says hello."}
    ]
    assert said[-1] == Event(EventKind.RESULT, fields(said, EventKind.RESULT)[0])


@pytest.mark.parametrize("end", [End(1), End(-9, signal=9)])
def test_opencode_that_ends_badly_has_failed_whatever_it_said_last(end: End) -> None:
    (result,) = fields(run("opencode", "opencode-hello.jsonl", end), EventKind.RESULT)
    assert result["status"] == "failed"


def test_opencode_that_ends_between_two_steps_has_failed() -> None:
    adapter = turn_adapter("opencode")(Setup(("opencode",)))
    adapter.turn("go on")
    step = {"type": "step_finish", "part": {"reason": "tool-calls", "tokens": {"input": 1}}}
    said = adapter.feed(json.dumps(step).encode() + b"\n") + adapter.finish(End(0))
    assert fields(said, EventKind.RESULT)[0]["status"] == "failed"


GOOSE = [
    {
        "type": "message",
        "message": {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "I "}]},
    },
    {
        "type": "message",
        "message": {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "run"}]},
    },
    {
        "type": "message",
        "message": {
            "id": "m2",
            "role": "assistant",
            "content": [
                {
                    "type": "toolRequest",
                    "id": "c1",
                    "toolCall": {
                        "status": "success",
                        "value": {"name": "developer__shell", "arguments": {"command": "ls"}},
                    },
                }
            ],
        },
    },
    {
        "type": "message",
        "message": {
            "id": "m3",
            "role": "user",
            "content": [
                {
                    "type": "toolResponse",
                    "id": "c1",
                    "toolResult": {
                        "status": "success",
                        "value": {"content": [{"type": "text", "text": "a.txt"}]},
                    },
                }
            ],
        },
    },
    {"type": "complete", "total_tokens": 30, "input_tokens": 20, "output_tokens": 10},
]
"""Not recorded: as Goose's format is described."""


def test_goose_as_its_format_is_described() -> None:
    adapter = turn_adapter("goose")(Setup(("goose",)))
    adapter.command("go")
    said = adapter.feed(b"".join(json.dumps(line).encode() + b"\n" for line in GOOSE))
    assert [(item["text"], item.get("delta")) for item in fields(said, EventKind.TEXT)] == [
        ("I ", None),
        ("run", True),
    ]
    assert fields(said, EventKind.TOOL_CALL)[0]["input"] == {"command": "ls"}
    assert fields(said, EventKind.TOOL_RESULT) == [
        {"call": "c1", "status": "ok", "output": "a.txt"}
    ]
    assert fields(said, EventKind.USAGE) == [{"input_tokens": 20, "output_tokens": 10}]
    assert fields(said, EventKind.RESULT) == [{"status": "completed", "text": "I run"}]


def test_goose_s_error_comes_before_its_end() -> None:
    adapter = turn_adapter("goose")(Setup(("goose",)))
    adapter.turn("go")
    said = adapter.feed(b'{"type":"error","error":"no model"}\n{"type":"complete"}\n')
    assert fields(said, EventKind.RESULT) == [
        {"status": "failed", "reason": "no model", "text": ""}
    ]


@pytest.mark.parametrize("name", ["gemini", "goose", "opencode"])
def test_a_prompt_of_any_length_and_beginning_comes_by_standard_input(name: str) -> None:
    adapter = turn_adapter(name)(Setup((name,), instructions="You have colleagues."))
    prompt = "--yolo " + "x" * 200_000
    assert not any("x" * 10 in word for word in adapter.command(prompt))
    assert adapter.turn(prompt) == prompt.encode()  # its instructions are in a file
    assert "You have colleagues.\n" in adapter.files().values()
