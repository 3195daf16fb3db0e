"""Adapter `opencode`: OpenCode started for each turn, with `run --format json`. Pure.

It prints no result: a turn is completed when the last step ended with the reason `stop` and the program exited well. It
tells of a tool only when the tool is done, and rejects by itself what its settings say to ask for; with approvals,
OpenCode runs with the adapter `acp`. A model that fails may keep it silent for ever: that is the runner's business.
"""

from __future__ import annotations

from collections.abc import Iterable

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.adapter import End
from postroom.sidecar.adapters.homes import OpenCodeHome
from postroom.sidecar.adapters.loose import Record, count_in, number_in, object_in, text_in
from postroom.sidecar.adapters.one_turn import OneTurn
from postroom.sidecar.adapters.turn_lines import usage
from postroom.sidecar.adapters.turns import Event, Setup, TurnSaid

_REJECTED = ("rejected permission", "a rule which prevents")
"""Stands in the error of a tool that was not allowed."""


class OpenCode(OneTurn):
    """One turn of OpenCode."""

    usual = OpenCodeHome

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._reason = ""
        self._begun = False

    def arguments(self) -> tuple[str, ...]:
        """The command `run`, lines of JSON, the folder (it would go by the variable PWD), and the session."""
        folder = ("--dir", self.setup.cwd) if self.setup.cwd else ()
        session = ("--session", self.setup.session) if self.setup.session else ()
        return ("run", "--format", "json", "--thinking", *folder, *session)

    def ended_well(self, end: End) -> bool:
        """Whether its last step was the last of the turn."""
        return self._reason == "stop" and not end.exit_code

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """The meaning of one line."""
        part = object_in(record, "part")
        match text_in(record, "type"):
            case "step_start":
                return self._begin(record, raw)
            case "text":
                return self._words(EventKind.TEXT, part, raw)
            case "reasoning":
                return self._words(EventKind.THINKING, part, raw)
            case "tool_use":
                return _tool(part, raw)
            case "step_finish":
                return self._step(part, raw)
            case "error":
                return [_error(object_in(record, "error"), raw)]
        return [self.unknown(raw)]

    def _begin(self, record: Record, raw: str) -> list[Event]:
        self._reason = ""
        if self._begun:
            return []
        self._begun = True
        return [self.started(text_in(record, "sessionID"), "", raw)]

    def _words(self, kind: EventKind, part: Record, raw: str) -> list[Event]:
        self.silent()
        return self.words(kind, text_in(part, "text"), raw, "")

    def _step(self, part: Record, raw: str) -> list[Event]:
        self._reason = text_in(part, "reason")
        used = usage(_used(part), raw)
        if self._reason in ("stop", "tool-calls"):
            return used
        text = f"the model stopped: {self._reason or 'no reason'}"
        return [*used, Event(EventKind.ERROR, {"text": text, "fatal": True}, raw)]


def _used(part: Record) -> dict[str, float]:
    """The tokens of one step; OpenCode counts cached ones and those of reasoning beside the others."""
    tokens = object_in(part, "tokens")
    cache = object_in(tokens, "cache")
    cached, reasoning = count_in(cache, "read"), count_in(tokens, "reasoning")
    used = {
        "input_tokens": count_in(tokens, "input") + cached + count_in(cache, "write"),
        "output_tokens": count_in(tokens, "output") + reasoning,
        "cached_tokens": cached,
        "reasoning_tokens": reasoning,
        "cost": number_in(part, "cost"),
    }
    return {name: n for name, n in used.items() if n}


def _tool(part: Record, raw: str) -> list[Event]:
    state = object_in(part, "state")
    call, tool = text_in(part, "callID"), text_in(part, "tool")
    given, error = object_in(state, "input"), text_in(state, "error")
    title = text_in(state, "title") or text_in(given, "command") or tool
    called = {"call": call, "tool": tool, "title": title, "input": given}
    exit_code = object_in(state, "metadata").get("exit")
    failed = text_in(state, "status") != "completed" or bool(exit_code)
    rejected = any(words in error for words in _REJECTED)
    result = {
        "call": call,
        "status": "denied" if rejected else "error" if failed else "ok",
        "output": text_in(state, "output") or error,
    }
    if type(exit_code) is int:
        result["exit_code"] = exit_code
    return [Event(EventKind.TOOL_CALL, called, raw), Event(EventKind.TOOL_RESULT, result, raw)]


def _error(error: Record, raw: str) -> Event:
    text = text_in(object_in(error, "data"), "message") or text_in(error, "message", "name")
    return Event(EventKind.ERROR, {"text": text or "an error", "fatal": True}, raw)
