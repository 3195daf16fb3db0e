"""Adapter `gemini`: Gemini CLI started for each turn, with `--output-format stream-json`. Pure.

It asks nobody: a tool that needs permission is not offered to the model unless the worker is autonomous. With
approvals, Gemini CLI runs with the adapter `acp`.
"""

from __future__ import annotations

from collections.abc import Iterable

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.homes import GeminiHome
from postroom.sidecar.adapters.loose import Record, count_in, object_in, text_in
from postroom.sidecar.adapters.one_turn import OneTurn
from postroom.sidecar.adapters.turn_lines import usage
from postroom.sidecar.adapters.turns import Event, TurnSaid


class Gemini(OneTurn):
    """One turn of Gemini CLI."""

    usual = GeminiHome

    def arguments(self) -> tuple[str, ...]:
        """Lines of JSON, the session, and what is done unasked."""
        mode = ("--approval-mode", "yolo") if self.setup.autonomous else ()
        session = ("--resume", self.setup.session) if self.setup.session else ()
        return ("--output-format", "stream-json", *mode, *session)

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """The meaning of one line."""
        kind = text_in(record, "type")
        if kind == "message":
            return self._message(record, raw)
        self.silent()
        match kind:
            case "init":
                return [self.started(text_in(record, "session_id"), text_in(record, "model"), raw)]
            case "tool_use":
                return [_call(record, raw)]
            case "tool_result":
                return [_result_of_call(record, raw)]
            case "error":
                fatal = {} if text_in(record, "severity") == "warning" else {"fatal": True}
                return [Event(EventKind.ERROR, {"text": text_in(record, "message"), **fatal}, raw)]
            case "result":
                return self._result(record, raw)
        return [self.unknown(raw)]

    def _message(self, record: Record, raw: str) -> list[Event]:
        if text_in(record, "role") != "assistant":
            return []  # the prompt, as an echo
        return self.words(EventKind.TEXT, text_in(record, "content"), raw, "")

    def _result(self, record: Record, raw: str) -> list[Event]:
        stats = object_in(record, "stats")
        used = {
            "input_tokens": count_in(stats, "input_tokens"),
            "output_tokens": count_in(stats, "output_tokens"),
            "cached_tokens": count_in(stats, "cached"),
        }
        fields = {"status": "completed"}
        if text_in(record, "status") != "success":
            reason = text_in(object_in(record, "error"), "message") or "the agent said no reason"
            fields = {"status": "failed", "reason": reason}
        counted = usage({name: n for name, n in used.items() if n}, raw)
        return [*counted, Event(EventKind.RESULT, fields, raw)]


def _call(record: Record, raw: str) -> Event:
    given = object_in(record, "parameters")
    tool = text_in(record, "tool_name")
    fields = {
        "call": text_in(record, "tool_id"),
        "tool": tool,
        "title": text_in(given, "command", "file_path", "path", "description") or tool,
        "input": given,
    }
    return Event(EventKind.TOOL_CALL, fields, raw)


def _result_of_call(record: Record, raw: str) -> Event:
    fields = {
        "call": text_in(record, "tool_id"),
        "status": "ok" if text_in(record, "status") == "success" else "error",
        "output": text_in(record, "output") or text_in(object_in(record, "error"), "message"),
    }
    return Event(EventKind.TOOL_RESULT, fields, raw)
