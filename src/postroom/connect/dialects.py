"""What the hooks of each client say, as one kind of event, and how text is given back to it. Pure.

A client is known by its names for events, the fields of their JSON, and what it takes as an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.connect.mailbox import Event, Kind

MOST = 4 << 20
"""Bytes of what one hook says: results of tools may be larger, and are cut."""

_IN_CUT = re.compile(
    rb'"(session_id|prompt_id|turn_id|agent_id|cwd|hook_event_name)"\s*:\s*"([^"\\]*)"'
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a client speaks.

    Attributes:
        kinds: of its events, by their names.
        hands: events whose answer the model reads.
        batches: it tells the end of a batch of tools.
        blocks: its end of a turn takes text as a reason to go on; else as context.
        wrapped: its answers are JSON; else the text alone.
        by_process: a session is an id in a process; else the id alone.
        wakes: it can be woken.
        asks: name of the event at which it asks its person for a permission, and takes an answer; "" for none.
        shows: its answers may have a line that the person sees, and the model does not.
    """

    kinds: Mapping[str, Kind]
    hands: frozenset[str]
    batches: bool = False
    blocks: bool = True
    wrapped: bool = True
    by_process: bool = True
    wakes: bool = True
    asks: str = ""
    shows: bool = False


DIALECTS: Mapping[str, Dialect] = {
    "claude": Dialect(
        {
            "SessionStart": Kind.START,
            "UserPromptSubmit": Kind.PROMPT,
            "PreToolUse": Kind.BEFORE_TOOL,
            "PostToolUse": Kind.AFTER_TOOL,
            "PostToolBatch": Kind.BATCH,
            "Stop": Kind.STOP,
            "SessionEnd": Kind.END,
        },
        frozenset({"SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop"}),
        batches=True,
        blocks=False,
        asks="PermissionRequest",
        shows=True,
    ),
    "codex": Dialect(
        {
            "SessionStart": Kind.START,
            "UserPromptSubmit": Kind.PROMPT,
            "PreModelRequest": Kind.REQUEST,
            "PostModelRequest": Kind.RESPONSE,
            "PreToolUse": Kind.BEFORE_TOOL,
            "PostToolUse": Kind.AFTER_TOOL,
            "Stop": Kind.STOP,
            "Interrupt": Kind.INTERRUPT,
            "SessionEnd": Kind.END,
        },
        frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"}),
        by_process=False,
        asks="PermissionRequest",
        shows=True,
    ),
    "gemini": Dialect(
        {
            "SessionStart": Kind.START,
            "BeforeAgent": Kind.PROMPT,
            "BeforeTool": Kind.BEFORE_TOOL,
            "AfterTool": Kind.AFTER_TOOL,
            "AfterAgent": Kind.STOP,
            "SessionEnd": Kind.END,
        },
        frozenset({"SessionStart", "BeforeAgent", "AfterTool", "AfterAgent"}),
        wakes=False,
    ),
    "opencode": Dialect(
        {
            "start": Kind.START,
            "prompt": Kind.PROMPT,
            "before_tool": Kind.BEFORE_TOOL,
            "after_tool": Kind.AFTER_TOOL,
            "stop": Kind.STOP,
            "end": Kind.END,
        },
        frozenset({"prompt", "after_tool"}),
        wrapped=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Use:
    """A tool, and what it is to do, or has done."""

    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a hook says.

    Attributes:
        session: the client's id of the session.
        name: of the event, as the client calls it.
        source: why a session starts or ends.
        agent: id of the subagent that it is about, "" for the session itself.
        transcript: path of the client's record of the session.
        own_tools: ids of calls of tools, by which a call of Postroom's tools is known as a subagent's.
        use: the tool that it is about.
    """

    client: str
    session: str
    name: str
    event: Event | None
    cwd: str = ""
    source: str = ""
    agent: str = ""
    transcript: str = ""
    own_tools: frozenset[str] = field(default_factory=frozenset)
    use: Use | None = None


def said(client: str, name: str, body: bytes) -> Said | None:
    """What a hook of a client says; None for what nobody understands."""
    dialect = DIALECTS.get(client)
    found = _fields(body)
    if dialect is None or found is None or not (session := _text(found, "session_id", "sessionId")):
        return None
    tools = _tools(found)
    kind = dialect.kinds.get(name)
    source = _text(found, "source", "reason")
    event = None
    if kind is not None and not _is_nothing(kind, source, found):
        event = Event(
            kind,
            _text(found, "prompt_id", "turn_id", "turn"),
            tools if kind in (Kind.BATCH, Kind.BEFORE_TOOL) else frozenset(),
            _words(kind, found),
            hands=name in dialect.hands,
            how=f"hook {name}",
        )
    return Said(
        client,
        session[:200],
        name,
        event,
        cwd=_text(found, "cwd"),
        source=source,
        agent=_text(found, "agent_id"),
        transcript=_text(found, "transcript_path"),
        own_tools=tools,
        use=_use(found),
    )


def _is_nothing(kind: Kind, source: str, found: Mapping[str, Any]) -> bool:
    """The end before `/clear`, which goes on with a start; a request that was not answered."""
    if kind is Kind.RESPONSE:
        return found.get("status") != "completed"
    return kind is Kind.END and source == "clear"


def answer(client: str, name: str, text: str, shown: str = "") -> str:
    """What the hook prints, so that the model reads `text` and the person `shown`; "" for nothing.

    At the end of a turn the clients show the text itself.
    """
    dialect = DIALECTS[client]
    if not dialect.wrapped:
        return text
    stops = dialect.kinds.get(name) is Kind.STOP
    if dialect.blocks and stops:
        return json.dumps({"decision": "block", "reason": text})
    said: dict[str, Any] = {}
    if text:
        said["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": text}
    if shown and dialect.shows and not stops:
        said["systemMessage"] = f"Postroom: {shown}"
    return json.dumps(said) if said else ""


def permission(name: str, *, allows: bool, reason: str) -> str:
    """What the hook prints at `Dialect.asks`, so that the client does as a person has said."""
    decision = {"behavior": "allow"} if allows else {"behavior": "deny", "message": reason}
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "decision": decision}})


def _fields(body: bytes) -> dict[str, Any] | None:
    if len(body) >= MOST:
        # The ids stand before the results of tools.
        return {
            key.decode(): value.decode(errors="replace")
            for key, value in _IN_CUT.findall(body[:65536])
        }
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(found: Mapping[str, Any], *names: str) -> str:
    return next(
        (value for name in names if isinstance(value := found.get(name), str) and value), ""
    )


def _tools(found: Mapping[str, Any]) -> frozenset[str]:
    calls = found.get("tool_calls")
    several = calls if isinstance(calls, list) else [found]
    ids = (call.get("tool_use_id") for call in several if isinstance(call, dict))
    return frozenset(each for each in ids if isinstance(each, str))


def _use(found: Mapping[str, Any]) -> Use | None:
    tool, given = _text(found, "tool_name"), found.get("tool_input")
    return Use(tool, given) if tool and isinstance(given, dict) else None


def _words(kind: Kind, found: Mapping[str, Any]) -> str:
    """Of a prompt its text; of the end of a turn what tells it from another one."""
    if kind is Kind.PROMPT:
        return _text(found, "prompt")
    if kind is Kind.STOP:
        return f"{found.get('stop_hook_active')} {_text(found, 'last_assistant_message', 'prompt_response')}"
    return ""
