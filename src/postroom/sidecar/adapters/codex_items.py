"""The items of Codex, of which a turn is made up: what they are as events. Pure.

`codex app-server` writes them in camelCase, `codex exec` in snake_case; otherwise they are the same.
"""

from __future__ import annotations

import shlex
from typing import Any

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.loose import Record, object_in, objects_in, said_in_blocks, text_in
from postroom.sidecar.adapters.tool_titles import title_of
from postroom.sidecar.adapters.turns import Event

SHELL = "shell"
EDIT = "edit"
QUIET = frozenset(
    {"userMessage", "user_message", "hookPrompt", "contextCompaction", "todo_list", "sleep"}
)
"""Items that say nothing of the work, or repeat what was asked."""

MAX_COMMAND = 256 * 1024
"""Characters of a command line that is taken apart."""

_STATUS = {"completed": "ok", "declined": "denied", "interrupted": "interrupted"}
_TOOLS = {
    "webSearch": "web_search",
    "web_search": "web_search",
    "imageView": "view_image",
    "imageGeneration": "generate_image",
}


def call_of(item: Record) -> dict[str, Any] | None:
    """The fields of its TOOL_CALL; None for an item that is no use of a tool."""
    given = _input_of(item)
    if given is None:
        return None
    tool, arguments = given
    return {
        "call": text_in(item, "id"),
        "tool": tool,
        "title": title_of(tool, arguments),
        "input": arguments,
    }


def result_of(item: Record) -> dict[str, Any]:
    """The fields of the TOOL_RESULT of an item that is the use of a tool."""
    status = _STATUS.get(text_in(item, "status"), "error")
    if not text_in(item, "status"):
        status = "ok"
    code = item.get("exitCode", item.get("exit_code"))
    fields: dict[str, Any] = {"call": text_in(item, "id"), "status": status}
    fields["output"] = _output_of(item)
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31:
        fields["exit_code"] = code
    return fields


def words_of(item: Record) -> tuple[EventKind, str] | None:
    """The kind and text of an item of words; None for another."""
    match text_in(item, "type"):
        case "agentMessage" | "agent_message":
            return EventKind.TEXT, text_in(item, "text")
        case "reasoning":
            said = text_in(item, "text") or _joined(item, "summary") or _joined(item, "content")
            return EventKind.THINKING, said
        case "plan":
            return EventKind.THINKING, text_in(item, "text")
    return None


def warning_of(item: Record, raw: str) -> Event:
    """The event for an item of type `error`, which is a warning."""
    return Event(EventKind.ERROR, {"text": text_in(item, "message"), "code": "warning"}, raw)


def unwrapped(command: str) -> str:
    """The script of `bash -lc 'script'`, in which Codex runs what the model says; else the command as it is."""
    if len(command) > MAX_COMMAND:
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) == 3 and words[1] in ("-c", "-lc") and words[0].endswith("sh"):
        return words[2]
    return command


def command_input(item: Record) -> dict[str, Any]:
    """The input of a use of the shell: the script, and where it runs."""
    given = {"command": unwrapped(text_in(item, "command"))}
    return given | ({"cwd": cwd} if (cwd := text_in(item, "cwd")) else {})


def _input_of(item: Record) -> tuple[str, dict[str, Any]] | None:
    match text_in(item, "type"):
        case "commandExecution" | "command_execution":
            return SHELL, command_input(item)
        case "fileChange" | "file_change":
            changes = objects_in(item, "changes")
            return EDIT, {"path": ", ".join(_paths(changes)), "changes": changes}
        case "mcpToolCall" | "mcp_tool_call":
            tool = f"mcp__{text_in(item, 'server')}__{text_in(item, 'tool')}"
            return tool, object_in(item, "arguments")
        case "dynamicToolCall" | "collabAgentToolCall" | "collab_tool_call":
            given = object_in(item, "arguments") or {"prompt": text_in(item, "prompt")}
            return text_in(item, "tool") or "tool", given
        case kind if kind in _TOOLS:
            texts = ("query", "path", "revisedPrompt")
            return _TOOLS[kind], {key: item[key] for key in texts if text_in(item, key)}
    return None


def _output_of(item: Record) -> str:
    error = object_in(item, "error")
    return (
        text_in(item, "aggregatedOutput", "aggregated_output")
        or said_in_blocks(object_in(item, "result").get("content"))
        or said_in_blocks(item.get("contentItems"))
        or text_in(error, "message")
        or "\n".join(text_in(change, "diff") for change in objects_in(item, "changes")).strip()
    )


def _paths(changes: list[Record]) -> list[str]:
    return [path for change in changes if (path := text_in(change, "path"))]


def _joined(item: Record, key: str) -> str:
    said = item.get(key)
    return (
        "\n".join(part for part in said if isinstance(part, str)) if isinstance(said, list) else ""
    )
