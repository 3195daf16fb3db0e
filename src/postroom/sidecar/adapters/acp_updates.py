"""What an ACP agent does in a turn, told by `session/update` and by permission requests, as events. Pure.

Agents differ (each case has a recording in the tests):

- Gemini tells of a call first by the permission request, and of one that was rejected nothing more.
- OpenCode and Claude announce a call before its input is known; the event waits for the input.
- Codex says what a command printed only in `_meta`.
- A call ends with `completed` or `failed`; the exit code, where there is one, stands in three places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.loose import (
    Record,
    count_in,
    number_in,
    object_in,
    objects_in,
    text_in,
)
from postroom.sidecar.adapters.turn_lines import MAX_OPEN
from postroom.sidecar.adapters.turns import Asked, Event, TurnSaid
from postroom_a2a import strict_json

KEPT_OUTPUT = 1024 * 1024
"""Characters that are kept of what a call prints while it runs."""

_CHUNKS = {"agent_message_chunk": EventKind.TEXT, "agent_thought_chunk": EventKind.THINKING}

_OF_NO_TURN = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "user_message_chunk",
    }
)
"""Updates that tell a client with a screen what to offer, and the echo of a prompt."""

_MARKS = {"completed": "x", "in_progress": ">"}

_ONLY_A_FOLDER = frozenset({"cwd"})
"""OpenCode's announcement of a call has an input with this name alone."""


@dataclass(slots=True)
class _Call:
    """A tool call that has not ended.

    Attributes:
        told: its event TOOL_CALL is out.
        printed: what the agent sent of its output before the end.
    """

    call: str
    tool: str = ""
    title: str = ""
    kind: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    told: bool = False
    denied: bool = False
    printed: str = ""

    def learn(self, said: Record) -> None:
        """Take over what an update says of the call; what it leaves out stays."""
        self.title = text_in(said, "title") or self.title
        self.kind = text_in(said, "kind") or self.kind
        if not self.tool or self.tool == "other":
            self.tool = _tool(said, self.kind)
        self.reason = _texts(said) or self.reason
        raw = said.get("rawInput")
        if isinstance(raw, dict):
            self.input = raw or self.input
        elif raw is not None:
            self.input = {"input": raw}
        if not self.input:
            self.input = _shown_input(said, self.kind, self.title)
        more = text_in(object_in(object_in(said, "_meta"), "terminal_output"), "data")
        self.printed = (self.printed + more)[:KEPT_OUTPUT]

    def event(self, raw: str) -> Event:
        """Its event TOOL_CALL."""
        self.told = True
        fields = {
            "call": self.call,
            "tool": self.tool,
            "title": self.title,
            "input": self.input,
        }
        return Event(EventKind.TOOL_CALL, fields, raw)

    def result(self, status: str, output: str, raw: str, exit_code: int | None = None) -> Event:
        """Its event TOOL_RESULT."""
        fields: dict[str, Any] = {"call": self.call, "status": status, "output": output}
        if exit_code is not None:
            fields["exit_code"] = exit_code
        return Event(EventKind.TOOL_RESULT, fields, raw)


class Updates:
    """The state of one session that its updates change.

    Attributes:
        interrupted: the turn is to end; calls that end now were interrupted, whatever the agent says of them.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._calls: dict[str, _Call] = {}
        self._ended: dict[str, None] = {}
        self._speaking: tuple[EventKind, str] | None = None
        self._cost = self._cost_before = 0.0

    def start_turn(self) -> None:
        """Forget what was open before."""
        self._calls.clear()
        self._ended.clear()
        self._speaking = None
        self.interrupted = False

    def replayed(self, update: Record) -> None:
        """An update that tells of an earlier run: of it, only the cost so far counts."""
        self._pay(update)
        self._cost_before = self._cost

    def read(self, update: Record, raw: str) -> Iterable[TurnSaid] | None:
        """The events of an update; None for one of a kind that is not known."""
        kind = text_in(update, "sessionUpdate")
        if kind in _CHUNKS:
            return self._chunk(_CHUNKS[kind], update, raw)
        match kind:
            case "tool_call" | "tool_call_update":
                return self._tool(update, raw)
            case "usage_update":
                self._pay(update)
                return ()
            case "plan":
                return self._plan(update, raw)
        return () if kind in _OF_NO_TURN else None

    def permission(self, request: str, said: Record, raw: str) -> tuple[list[Event], Asked]:
        """A permission request: the call's event where there was none, and what is asked."""
        self._speaking = None
        ident = text_in(said, "toolCallId") or f"request-{request}"
        call = self._calls.get(ident) or self._new(ident)
        call.learn(said)
        about = (call.tool, call.title, call.input, call.reason, call.call)
        asked = Asked(request, *about, fixed=True, raw=raw)
        return ([] if call.told else [call.event(raw)]), asked

    def denied(self, call: str) -> None:
        """Note that a call may not be made."""
        if call in self._calls:
            self._calls[call].denied = True

    def rest(self) -> list[Event]:
        """What is still to be said of calls when a turn ends: that they were announced, or denied."""
        said = [call.event("") for call in self._calls.values() if not call.told]
        said += self._given_up()
        self._calls.clear()
        return said

    def used(self, answer: Record) -> dict[str, float]:
        """What the turn used, of the answer to its prompt and of the session's cost.

        Gemini has its counts in `_meta`.
        """
        counted = object_in(answer, "usage")
        used = _counted(counted)
        if not counted:
            quota = object_in(object_in(answer, "_meta"), "quota")
            tokens = object_in(quota, "token_count")
            used = {name: count_in(tokens, name) for name in ("input_tokens", "output_tokens")}
        cost, self._cost_before = self._cost - self._cost_before, self._cost
        return {name: n for name, n in (used | {"cost": max(cost, 0.0)}).items() if n}

    # ── Kinds of updates ──

    def _chunk(self, kind: EventKind, update: Record, raw: str) -> list[Event]:
        content = object_in(update, "content")
        text = text_in(content, "text", "uri")
        if not text:
            return []
        given_up = self._given_up()
        speaking = (kind, text_in(update, "messageId"))
        more = {"delta": True} if speaking == self._speaking else {}
        self._speaking = speaking
        return [*given_up, Event(kind, {"text": text, **more}, raw)]

    def _given_up(self) -> list[Event]:
        """The results of denied calls: an agent that goes on to speak has given them up."""
        denied = [call for call in self._calls.values() if call.denied]
        return [self._ended_as(call, "denied", call.printed, "") for call in denied]

    def _plan(self, update: Record, raw: str) -> list[Event]:
        """A plan is the agent's thought, told anew with each change."""
        self._speaking = None
        lines = [
            f"[{_MARKS.get(text_in(entry, 'status'), ' ')}] {text_in(entry, 'content')}"
            for entry in objects_in(update, "entries")
        ]
        return [Event(EventKind.THINKING, {"text": "\n".join(lines)}, raw)] if lines else []

    def _tool(self, update: Record, raw: str) -> list[Event] | None:
        ident = text_in(update, "toolCallId")
        if not ident or ident in self._ended:
            return None
        self._speaking = None
        call = self._calls.get(ident)
        announced = call is None and update.get("sessionUpdate") == "tool_call"
        call = call or self._new(ident)
        call.learn(update)
        status = text_in(update, "status")
        said = []
        if not call.told and not (announced and _only_begun(update, status)):
            said.append(call.event(raw))
        if status in ("completed", "failed"):
            said.append(self._end(call, update, status, raw))
        return said

    def _end(self, call: _Call, update: Record, status: str, raw: str) -> Event:
        code = _exit_code(update)
        ended = "error" if status == "failed" or code else "ok"
        if call.denied or self.interrupted:
            ended = "denied" if call.denied else "interrupted"
        return self._ended_as(call, ended, _output(update) or call.printed, raw, code)

    def _ended_as(
        self, call: _Call, status: str, output: str, raw: str, code: int | None = None
    ) -> Event:
        del self._calls[call.call]
        self._ended[call.call] = None
        if len(self._ended) > MAX_OPEN:
            del self._ended[next(iter(self._ended))]
        return call.result(status, output, raw, code)

    def _new(self, ident: str) -> _Call:
        if len(self._calls) >= MAX_OPEN:
            del self._calls[next(iter(self._calls))]
        self._calls[ident] = call = _Call(ident)
        return call

    def _pay(self, update: Record) -> None:
        cost = object_in(update, "cost")
        if cost.get("currency") == "USD":
            self._cost = number_in(cost, "amount")


def _counted(usage: Record) -> dict[str, float]:
    """Tokens of ACP's `usage`, where cached ones stand beside the input's, and those of reasoning, which are among the
    output's for some agents, beside it for others: the total tells.
    """
    cached, thought = count_in(usage, "cachedReadTokens"), count_in(usage, "thoughtTokens")
    given = count_in(usage, "inputTokens") + cached + count_in(usage, "cachedWriteTokens")
    made = count_in(usage, "outputTokens")
    beside = count_in(usage, "totalTokens") == given + made + thought
    return {
        "input_tokens": given,
        "output_tokens": made + thought if beside else made,
        "cached_tokens": cached,
        "reasoning_tokens": thought,
    }


def _only_begun(update: Record, status: str) -> bool:
    """Whether an agent announces a call whose input comes with its next update."""
    given = update.get("rawInput")
    return status == "pending" and isinstance(given, dict) and given.keys() <= _ONLY_A_FOLDER


def _tool(said: Record, kind: str) -> str:
    """The name of a call's tool: its own where the agent says it, else ACP's kind of tool."""
    meta = object_in(object_in(said, "_meta"), "claudeCode")
    if name := text_in(said, "name") or text_in(meta, "toolName"):
        return name
    title = text_in(said, "title")
    if kind in ("", "other") and title.replace("_", "").replace("-", "").isalnum():
        return title
    return kind or "other"


def _shown_input(said: Record, kind: str, title: str) -> dict[str, Any]:
    """The input of a call whose agent shows it only to people: a command as the title, an edit as a diff."""
    diffs = [diff for diff in objects_in(said, "content") if diff.get("type") == "diff"]
    if diffs:
        return {
            "path": text_in(diffs[0], "path"),
            "diff": "\n".join(_diff(diff) for diff in diffs),
        }
    if kind == "execute" and title:
        return {"command": title}
    paths = [text_in(place, "path") for place in objects_in(said, "locations")]
    return {"path": paths[0]} if paths else {}


def _diff(said: Record) -> str:
    """A change as lines with - and +, without the lines that it has in common at both ends."""
    path = text_in(said, "path")
    old, new = text_in(said, "oldText").splitlines(), text_in(said, "newText").splitlines()
    start = _common(old, new)
    old, new = old[start:], new[start:]
    if end := _common(old[::-1], new[::-1]):
        old, new = old[:-end], new[:-end]
    head = [f"--- {path}", f"+++ {path}", f"@@ line {start + 1} @@"]
    return "\n".join([*head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)])


def _common(some: list[str], others: list[str]) -> int:
    """How many lines two texts have in common at their beginning."""
    pairs = zip(some, others, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(some), len(others)))


def _texts(said: Record) -> str:
    """The text among a call's contents."""
    contents = (object_in(item, "content") for item in objects_in(said, "content"))
    return "\n".join(filter(None, (text_in(content, "text") for content in contents)))


def _output(update: Record) -> str:
    """What a call gave: as the tool gave it, else as it is shown to people."""
    raw = update.get("rawOutput")
    if isinstance(raw, str):
        return raw
    given = text_in(raw, "output", "error", "stdout") if isinstance(raw, dict) else ""
    diffs = [diff for diff in objects_in(update, "content") if diff.get("type") == "diff"]
    shown = _texts(update) or "\n".join(_diff(diff) for diff in diffs)
    if given or shown:
        return given or shown
    return strict_json.dumps(raw).decode() if raw else ""


def _exit_code(update: Record) -> int | None:
    raw = object_in(update, "rawOutput")
    ended = object_in(object_in(update, "_meta"), "terminal_exit")
    places = (
        object_in(raw, "metadata").get("exit"),
        raw.get("exitCode"),
        raw.get("exit_code"),
        ended.get("exit_code"),
    )
    return next((code for code in places if type(code) is int), None)
