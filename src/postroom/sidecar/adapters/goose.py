"""Adapter `goose`: Goose started for each turn, with `run --output-format stream-json`. Pure.

Written from the description of its format and never run: no package registry has the program. The names of a line are
in snake_case, those inside a message in camelCase. A text comes in pieces under one message id; `error` is followed by
`complete`. With approvals, Goose runs with the adapter `acp`.
"""

from __future__ import annotations

from collections.abc import Iterable

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.homes import GooseHome
from postroom.sidecar.adapters.loose import (
    Record,
    count_in,
    object_in,
    objects_in,
    said_in_blocks,
    text_in,
)
from postroom.sidecar.adapters.one_turn import OneTurn
from postroom.sidecar.adapters.turn_lines import usage
from postroom.sidecar.adapters.turns import Event, Setup, TurnSaid

SESSION = "postroom"
"""The name of the one session in a worker's home: Goose does not say its id."""


class Goose(OneTurn):
    """One turn of Goose."""

    usual = GooseHome

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._begun = False
        self._failed = ""

    def arguments(self) -> tuple[str, ...]:
        """The command `run`, lines of JSON, the session, and the prompt from standard input."""
        resume = ("--resume",) if self.setup.session else ()
        return (
            "run",
            "--output-format",
            "stream-json",
            "--name",
            SESSION,
            *resume,
            "--instructions",
            "-",
        )

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """The meaning of one line."""
        match text_in(record, "type"):
            case "message":
                said = self._message(object_in(record, "message"), raw)
            case "error":
                self._failed = text_in(record, "error") or "the agent said no reason"
                said = [Event(EventKind.ERROR, {"text": self._failed, "fatal": True}, raw)]
            case "complete":
                said = self._complete(record, raw)
            case _:
                return [self.unknown(raw)]
        if self._begun:
            return said
        self._begun = True
        return [self.started(self.setup.session or SESSION, "", raw), *said]

    def _message(self, message: Record, raw: str) -> list[Event]:
        said: list[Event] = []
        ours = text_in(message, "role") == "assistant"
        for content in objects_in(message, "content"):
            match text_in(content, "type"):
                case "text" if ours:
                    said += self._words(EventKind.TEXT, content, message, raw)
                case "thinking":
                    said += self._words(EventKind.THINKING, content, message, raw)
                case "toolRequest":
                    self.silent()
                    said.append(_call(content, raw))
                case "toolResponse":
                    self.silent()
                    said.append(_result(content, raw))
                case "text":
                    pass  # the prompt, as an echo
                case _:
                    said.append(self.unknown(raw))
        return said

    def _words(self, kind: EventKind, content: Record, message: Record, raw: str) -> list[Event]:
        text = text_in(content, "text", "thinking")
        return self.words(kind, text, raw, text_in(message, "id"))

    def _complete(self, record: Record, raw: str) -> list[Event]:
        names = ("input_tokens", "output_tokens")
        used = {name: count_in(record, name) for name in names}
        if not any(used.values()):
            used["input_tokens"] = count_in(record, "total_tokens")
        counted = usage({name: n for name, n in used.items() if n}, raw)
        fields = {"status": "completed"}
        if self._failed:
            fields = {"status": "failed", "reason": self._failed}
        return [*counted, Event(EventKind.RESULT, fields, raw)]


def _call(content: Record, raw: str) -> Event:
    called = object_in(object_in(content, "toolCall"), "value")
    tool, given = text_in(called, "name"), object_in(called, "arguments")
    fields = {
        "call": text_in(content, "id"),
        "tool": tool,
        "title": text_in(given, "command", "path") or tool,
        "input": given,
    }
    return Event(EventKind.TOOL_CALL, fields, raw)


def _result(content: Record, raw: str) -> Event:
    result = object_in(content, "toolResult")
    value = object_in(result, "value")
    failed = text_in(result, "status") != "success" or value.get("isError") is True
    output = said_in_blocks(value.get("content")) or text_in(result, "error")
    fields = {
        "call": text_in(content, "id"),
        "status": "error" if failed else "ok",
        "output": output,
    }
    return Event(EventKind.TOOL_RESULT, fields, raw)
