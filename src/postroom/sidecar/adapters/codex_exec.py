"""Adapter `codex-exec`: Codex as `codex exec --json`, started anew for each turn, in its session. Pure.

It cannot ask anybody, so it may do what the wall lets it do: for approvals there is the adapter `codex`. It reads the
prompt from its standard input.

It counts what was used since the session began, also before it was resumed. So the session that is to go on has, after
its id, what was counted so far: `<id> <input>,<output>,<cached>,<reasoning>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.codex_home import environment_of, files_of
from postroom.sidecar.adapters.codex_items import (
    QUIET,
    call_of,
    result_of,
    warning_of,
    words_of,
)
from postroom.sidecar.adapters.loose import Record, count_in, object_in, text_in
from postroom.sidecar.adapters.turn_lines import Meter, TurnLines, usage
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, TurnSaid

_COUNTED = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cached_input_tokens",
    "reasoning_tokens": "reasoning_output_tokens",
}
_RETRY = "Reconnecting"


class CodexExec(TurnLines):
    """One run of `codex exec`."""

    resident = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._thread, counted = _taken_apart(setup.session)
        self._meter = Meter()
        self._meter.since(counted)

    def files(self) -> Mapping[str, str]:
        """See `TurnAdapter`."""
        return files_of(self.setup)

    def environment(self) -> Mapping[str, str]:
        """See `TurnAdapter`."""
        return environment_of(self.setup)

    def command(self, prompt: str = "") -> tuple[str, ...]:
        """See `TurnAdapter`; the prompt itself is for `turn`."""
        if prompt and not self.working:
            self.start_turn()
        alone = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        resume = ("resume", self._thread) if self._thread else ()
        return (*self.setup.command, "exec", "--json", *alone, *resume, "-")

    def turn(self, prompt: str) -> bytes:
        """See `TurnAdapter`; the input is closed after it."""
        if not self.working:
            self.start_turn()
        return prompt.encode("utf-8", "replace")

    def interrupt(self) -> bytes:
        """Nothing: it reads no more."""
        return b""

    def answered(self, asked: Asked, answer: Answer) -> bytes:  # noqa: ARG002
        """Nothing: it asks nothing."""
        return b""

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """See `TurnLines`."""
        item = object_in(record, "item")
        match record.get("type"):
            case "thread.started":
                return self._started(text_in(record, "thread_id"), raw)
            case "turn.started" | "item.updated":
                return []
            case "item.started":
                call = call_of(item)
                return [Event(EventKind.TOOL_CALL, call, raw)] if call else []
            case "item.completed":
                return self._item(item, raw)
            case "turn.completed":
                return self._completed(object_in(record, "usage"), raw)
            case "turn.failed":
                reason = text_in(object_in(record, "error"), "message") or "the turn failed"
                return [Event(EventKind.RESULT, {"status": "failed", "reason": reason}, raw)]
            case "error":
                text = text_in(record, "message")
                fields = {"text": text, "fatal": not text.startswith(_RETRY)}
                return [Event(EventKind.ERROR, fields, raw)]
        return [self.unknown(raw)]

    def _started(self, thread: str, raw: str) -> list[TurnSaid]:
        resumed = bool(thread) and thread == self._thread
        if not resumed:
            self._thread, self.session, self._meter = thread, thread, Meter()
        fields = {"session": thread, "model": "", "version": "", "resumed": resumed}
        return [Event(EventKind.STARTED, fields, raw)]

    def _item(self, item: Record, raw: str) -> list[TurnSaid]:
        if words := words_of(item):
            kind, text = words
            return [Event(kind, {"text": text}, raw)] if text.strip() else []
        if call := call_of(item):
            said: list[TurnSaid] = []
            if not self.calling(call["call"]):
                said.append(Event(EventKind.TOOL_CALL, call, raw))
            return [*said, Event(EventKind.TOOL_RESULT, result_of(item), raw)]
        if text_in(item, "type") == "error":
            return [warning_of(item, raw)]
        return [] if text_in(item, "type") in QUIET else [self.unknown(raw)]

    def _completed(self, counted: Record, raw: str) -> list[TurnSaid]:
        totals = {name: count_in(counted, key) for name, key in _COUNTED.items()}
        self.session = f"{self._thread} {','.join(str(total) for total in totals.values())}"
        used = usage(self._meter.since(totals), raw)
        return [*used, Event(EventKind.RESULT, {"status": "completed"}, raw)]


def _taken_apart(session: str) -> tuple[str, dict[str, float]]:
    thread, _, counted = session.partition(" ")
    counts = [int(count) for count in counted.split(",") if count.isdecimal() and len(count) < 17]
    return thread, dict(zip(_COUNTED, counts, strict=False))
