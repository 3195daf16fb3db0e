"""How many short lines a second each adapter reads: 20,000 at least."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.report import Sheet
from postroom.protocol.template import LINE_ADAPTERS
from postroom.sidecar.adapters import End, make_adapter
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.adapters.turns import Setup, TurnAdapter

ROUNDS, LINES = 7, 20_000
QUICK_ROUNDS, QUICK_LINES = 1, 2_000

PIECE = 1 << 16
"""Bytes at a time: what a pipe holds."""


def _acp(update: dict[str, Any]) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"sessionId": "ses_e00229f10ffetLwYARedlG6QWK", "update": update},
    }


def _acp_call(number: int) -> list[dict[str, Any]]:
    call = {"toolCallId": f"call_{number}", "title": "ls -l", "kind": "execute"}
    return [
        _acp(
            {
                "sessionUpdate": "tool_call",
                **call,
                "status": "pending",
                "rawInput": {"command": "ls -l"},
            }
        ),
        _acp(
            {
                "sessionUpdate": "tool_call_update",
                **call,
                "status": "completed",
                "rawOutput": {"output": "a.txt\n", "metadata": {"exit": 0}},
            }
        ),
    ]


def _claude_call(number: int) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "ls"}}
    done = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "a.txt"}
    return [
        {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [call]}},
        {"type": "user", "message": {"role": "user", "content": [done]}},
    ]


def _codex_item(number: int, *, exec_json: bool) -> list[dict[str, Any]]:
    kind = "command_execution" if exec_json else "commandExecution"
    item = {"id": f"item_{number}", "type": kind, "command": "ls", "status": "in_progress"}
    out, code = (
        ("aggregated_output", "exit_code") if exec_json else ("aggregatedOutput", "exitCode")
    )
    done = {**item, "status": "completed", out: "a.txt\n", code: 0}
    if exec_json:
        return [{"type": "item.started", "item": item}, {"type": "item.completed", "item": done}]
    return [
        {"method": "item/started", "params": {"threadId": "t", "turnId": "u", "item": item}},
        {"method": "item/completed", "params": {"threadId": "t", "turnId": "u", "item": done}},
    ]


def _goose(number: int, role: str, content: dict[str, Any]) -> dict[str, Any]:
    message = {"id": f"msg_{number}", "role": role, "created": 1, "content": [content]}
    return {"type": "message", "message": message}


def _goose_call(number: int) -> list[dict[str, Any]]:
    call = {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}}
    done = {"status": "success", "value": {"content": [{"type": "text", "text": "a.txt"}]}}
    return [
        _goose(number, "assistant", {"type": "toolRequest", "id": f"c{number}", "toolCall": call}),
        _goose(number, "user", {"type": "toolResponse", "id": f"c{number}", "toolResult": done}),
    ]


def _opencode_call(number: int) -> list[dict[str, Any]]:
    state = {
        "status": "completed",
        "input": {"command": "ls"},
        "output": "a.txt\n",
        "metadata": {"exit": 0},
        "title": "ls",
    }
    part = {"type": "tool", "tool": "bash", "callID": f"call_{number}", "state": state}
    tokens = {"total": 135, "input": 100, "output": 15, "reasoning": 0, "cache": {"read": 20}}
    end = {"type": "step-finish", "reason": "tool-calls", "tokens": tokens, "cost": 0}
    return [
        {"type": "tool_use", "timestamp": 1, "sessionID": "ses_1", "part": part},
        {"type": "step_finish", "timestamp": 1, "sessionID": "ses_1", "part": end},
    ]


WORD = "word "

SAID: dict[str, dict[str, Any]] = {
    "acp": _acp(
        {
            "sessionUpdate": "agent_message_chunk",
            "messageId": "msg_1",
            "content": {"type": "text", "text": WORD},
        }
    ),
    "claude": {
        "type": "assistant",
        "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": WORD}]},
        "session_id": "s",
    },
    "codex": {
        "method": "item/agentMessage/delta",
        "params": {"threadId": "t", "turnId": "u", "itemId": "i", "delta": WORD},
    },
    "codex-exec": {
        "type": "item.completed",
        "item": {"id": "i", "type": "agent_message", "text": WORD},
    },
    "gemini": {"type": "message", "role": "assistant", "content": WORD, "delta": True},
    "goose": _goose(1, "assistant", {"type": "text", "text": WORD}),
    "jsonl": {"type": "post", "text": WORD},
    "opencode": {"type": "text", "sessionID": "ses_1", "part": {"type": "text", "text": WORD}},
    "text": {"text": WORD},
}
"""A line with a word of the answer, as each agent prints it; to `text` all lines are the same."""

CALLS = {
    "acp": _acp_call,
    "claude": _claude_call,
    "codex": lambda number: _codex_item(number, exec_json=False),
    "codex-exec": lambda number: _codex_item(number, exec_json=True),
    "gemini": lambda number: [
        {
            "type": "tool_use",
            "tool_name": "run_shell_command",
            "tool_id": f"c{number}",
            "parameters": {"command": "ls"},
        },
        {"type": "tool_result", "tool_id": f"c{number}", "status": "success", "output": "a.txt"},
    ],
    "goose": _goose_call,
    "jsonl": lambda number: [
        {"type": "update", "text": "ls"},
        {"type": "artifact", "text": "a.txt", "id": f"c{number}", "append": True},
    ],
    "opencode": _opencode_call,
    "text": lambda number: [{"text": "ls"}, {"text": f"a{number}.txt"}],
}
"""The lines of a tool call and its end."""


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure each adapter in turn, round by round, so that a busy moment meets all of them."""
    rounds, count = (QUICK_ROUNDS, QUICK_LINES) if quick else (ROUNDS, LINES)
    printed = {name: b"".join(_lines(name, count)) for name in SAID}
    rates: dict[str, list[float]] = {name: [] for name in SAID}
    for _ in range(rounds):
        for name, data in printed.items():
            rates[name].append(count / _seconds(name, data))
    for name, values in rates.items():
        sheet.add(f"lines read by {name}", values, "/s")
    size = round(sum(map(len, printed.values())) / count / len(printed))
    sheet.note(f"Of ten lines eight are a word of the answer, two a tool call; {size} bytes each.")
    sheet.note("CPU time of one thread. The target is 20,000 lines a second for each.")


def _lines(name: str, count: int) -> Iterator[bytes]:
    for number in range(count // 10):
        for record in [*[SAID[name]] * 8, *CALLS[name](number)]:
            yield json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _seconds(name: str, data: bytes) -> float:
    adapter = make_adapter(name) if name in LINE_ADAPTERS else _in_turn(name)
    begin = time.process_time()
    said = 0
    for at in range(0, len(data), PIECE):
        said += len(adapter.feed(data[at : at + PIECE]))
    said += len(adapter.finish(End(0)))
    taken = time.process_time() - begin
    if not said:
        raise RuntimeError(f"{name} has read nothing")
    return taken


def _in_turn(name: str) -> TurnAdapter:
    """The adapter of a coding agent that was given a prompt."""
    adapter = turn_adapter(name)(Setup((name,)))
    adapter.begin()
    adapter.command("go")
    adapter.turn("go")
    return adapter
