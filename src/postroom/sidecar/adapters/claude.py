"""Adapter `claude`: Claude Code, resident, with JSON lines in both directions and its control protocol. Pure.

    claude -p --output-format stream-json --input-format stream-json --verbose --permission-prompt-tool stdio

What it prints, and what of it becomes events: `system` (init, api_retry), `assistant` and `user` (one block of content
a line), `result` (the end of a turn, which decides), `control_request` (it asks), `control_cancel_request` (it no
longer asks), `control_response` (to an interrupt). Other subtypes of `system` say nothing that counts.

"Always allow" is never answered: Claude would write that into settings files, in the workspace above all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from postroom.protocol.events import EventKind
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.loose import (
    Record,
    count_in,
    number_in,
    object_in,
    objects_in,
    said_in_blocks,
    text_in,
)
from postroom.sidecar.adapters.questions import answers_to, options_of, title_of_questions
from postroom.sidecar.adapters.tool_titles import title_of
from postroom.sidecar.adapters.turn_lines import Meter, TurnLines, usage
from postroom.sidecar.adapters.turns import (
    Answer,
    Asked,
    Event,
    Setup,
    TurnSaid,
    Withdrawn,
    Write,
)
from postroom_a2a import strict_json

INSTRUCTIONS = ".claude/CLAUDE.md"
SERVERS = ".claude/postroom-mcp.json"
QUESTION = "AskUserQuestion"
SESSION_LOST = "session-lost"
"""Code of the error that says that there is no session to go on with."""

_SPEAK = (
    *("-p", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json"),
    *("--permission-prompt-tool", "stdio"),
)
_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    # The wall is outside; without this it refuses to ask for nothing where the sandbox's user is root.
    "IS_SANDBOX": "1",
}
_QUIET = frozenset({"stream_event", "rate_limit_event", "tool_progress", "keep_alive"})
"""Types that repeat what comes elsewhere, or say nothing of the work."""

_ABORTED = ("aborted_streaming", "aborted_tools")
_NO_SESSION = "No conversation found"
_EXIT_CODE = re.compile(r"Exit code (\d{1,3})\b")


class Claude(TurnLines):
    """One run of Claude Code."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._said_started = False
        self._interrupts = 0
        self._interrupted = False
        self._costs = Meter()

    def files(self) -> Mapping[str, str]:
        """See `TurnAdapter`."""
        files = {INSTRUCTIONS: self.setup.instructions} if self.setup.instructions else {}
        return files | {SERVERS: servers_file(self.setup.mcps)} if self.setup.mcps else files

    def environment(self) -> Mapping[str, str]:
        """See `TurnAdapter`."""
        return _ENVIRONMENT

    def command(self, prompt: str = "") -> tuple[str, ...]:  # noqa: ARG002
        """See `TurnAdapter`."""
        command = (*self.setup.command, *_SPEAK)
        if self.session:
            command += ("--resume", self.session)
        if self.setup.mcps:
            command += ("--mcp-config", f"{self.setup.home}/{SERVERS}")
        if self.setup.autonomous:
            command += ("--permission-mode", "bypassPermissions")
        return command

    def turn(self, prompt: str) -> bytes:
        """See `TurnAdapter`."""
        self.start_turn()
        self._interrupted = False
        return _line(
            type="user",
            message={"role": "user", "content": prompt},
            parent_tool_use_id=None,
            session_id=self.session or "default",
        )

    def interrupt(self) -> bytes:
        """See `TurnAdapter`."""
        self._interrupts += 1
        self._interrupted = True
        request = f"interrupt-{self._interrupts}"
        return _line(type="control_request", request_id=request, request={"subtype": "interrupt"})

    def answered(self, asked: Asked, answer: Answer) -> bytes:
        """See `TurnLines`."""
        if not answer.allow:
            said = {"behavior": "deny", "message": answer.text or "denied"}
        else:
            given = dict(asked.input if answer.input is None else answer.input)
            if asked.question and answer.input is None:
                given["answers"] = _answers(asked.input, answer.text)
            said = {"behavior": "allow", "updatedInput": given}
        return _response(asked.request, said)

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """See `TurnLines`."""
        match record.get("type"):
            case "assistant":
                return self._assistant(record, raw)
            case "user":
                return _results(record, raw)
            case "system":
                return self._system(record, raw)
            case "result":
                return self._result(record, raw)
            case "control_request":
                return self._request(record, raw)
            case "control_cancel_request":
                return [Withdrawn(text_in(record, "request_id"))]
            case "control_response":
                return _control_response(object_in(record, "response"), raw)
            case str(kind) if kind in _QUIET:
                return []
        return [self.unknown(raw)]

    # ── What it does ──

    def _system(self, record: Record, raw: str) -> list[TurnSaid]:
        subtype = text_in(record, "subtype")
        if subtype == "init":
            return self._started(record, raw)
        if subtype == "api_retry":
            return [_retry(record, raw)]
        return []

    def _started(self, record: Record, raw: str) -> list[TurnSaid]:
        """It says this at the begin of each turn; the first of a run counts."""
        session = text_in(record, "session_id")
        if self._said_started and session == self.session:
            return []
        resumed = bool(session) and session == self.setup.session
        self.session, self._said_started = session, True
        fields = {
            "session": session,
            "model": text_in(record, "model"),
            "version": text_in(record, "claude_code_version"),
            "resumed": resumed,
        }
        return [Event(EventKind.STARTED, fields, raw)]

    def _assistant(self, record: Record, raw: str) -> Iterator[TurnSaid]:
        if record.get("is_api_error_message") is True:
            yield _api_error(record, raw)
            return
        parent = _parent(record)
        for block in objects_in(object_in(record, "message"), "content"):
            match block.get("type"):
                case "text":
                    yield Event(EventKind.TEXT, {"text": text_in(block, "text"), **parent}, raw)
                case "thinking":
                    text = text_in(block, "thinking")
                    yield Event(EventKind.THINKING, {"text": text, **parent}, raw)
                case "tool_use" | "server_tool_use" | "mcp_tool_use":
                    yield Event(EventKind.TOOL_CALL, {**_call(block), **parent}, raw)
                case "redacted_thinking":
                    pass
                case _:
                    yield self.unknown(raw)

    # ── The end of a turn ──

    def _result(self, record: Record, raw: str) -> list[TurnSaid]:
        reason = _reason(record)
        if self.session and not self._said_started and reason.startswith(_NO_SESSION):
            # A session without a finished answer was never stored. The program ends by itself.
            self.session = ""
            fields = {"text": reason, "code": SESSION_LOST, "fatal": True}
            return [Event(EventKind.ERROR, fields, raw)]
        fields: dict[str, Any] = {"status": self._status(record)}
        if text := text_in(record, "result"):
            fields["text"] = text
        if fields["status"] != "completed":
            fields["reason"] = reason
        return [*usage(self._used(record), raw), Event(EventKind.RESULT, fields, raw)]

    def _status(self, record: Record) -> str:
        if text_in(record, "terminal_reason") in _ABORTED:
            return "interrupted"
        subtype = text_in(record, "subtype")
        if record.get("is_error") is not True and not subtype.startswith("error"):
            return "completed"
        interrupted = self._interrupted and subtype == "error_during_execution"
        return "interrupted" if interrupted else "failed"

    def _used(self, record: Record) -> dict[str, float]:
        """What was used since the result before.

        `usage` leaves out sub-agents, and `total_cost_usd` has what the session cost before it was resumed.
        """
        models = object_in(record, "model_usage_since_last_result")
        if models:
            return _sum_of([model for model in models.values() if isinstance(model, dict)])
        used = _usage_of(object_in(record, "usage"))
        total = {"cost": number_in(record, "total_cost_usd")}
        first = not self._costs.begun
        cost = self._costs.since(total)
        return used | ({} if first and self.setup.session else cost)

    # ── What it asks ──

    def _request(self, record: Record, raw: str) -> list[TurnSaid]:
        ident, request = text_in(record, "request_id"), object_in(record, "request")
        if text_in(request, "subtype") != "can_use_tool" or not ident:
            refusal = {"subtype": "error", "request_id": ident, "error": "not supported"}
            return [self.unknown(raw), Write(_line(type="control_response", response=refusal))]
        given, tool = object_in(request, "input"), text_in(request, "tool_name")
        questions = objects_in(given, "questions") if tool == QUESTION else []
        asked = Asked(
            ident,
            tool,
            title_of_questions(questions) or title_of(tool, given, text_in(request, "description")),
            given,
            reason=text_in(request, "decision_reason", "description"),
            call=text_in(request, "tool_use_id"),
            question=bool(questions),
            options=options_of(questions),
            raw=raw,
        )
        return [asked]


def servers_file(servers: Sequence[McpServer]) -> str:
    """The MCP servers as Claude Code reads them (`--mcp-config`)."""
    return strict_json.dumps({"mcpServers": {s.name: _server(s) for s in servers}}).decode() + "\n"


def _server(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"type": "http", "url": server.url}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}


def _line(**record: Any) -> bytes:
    return strict_json.dumps(record) + b"\n"


def _response(request: str, said: Mapping[str, Any]) -> bytes:
    response = {"subtype": "success", "request_id": request, "response": said}
    return _line(type="control_response", response=response)


def _control_response(response: Record, raw: str) -> list[TurnSaid]:
    """The answer to one of our requests; only a refusal says something new."""
    if text_in(response, "subtype") != "error":
        return []
    text = text_in(response, "error") or "a request was refused"
    return [Event(EventKind.ERROR, {"text": text, "code": "control"}, raw)]


def _parent(record: Record) -> dict[str, str]:
    """Of what a sub-agent does: the call that started it."""
    parent = text_in(record, "parent_tool_use_id")
    return {"parent": parent} if parent else {}


def _call(block: Record) -> dict[str, Any]:
    tool, given = text_in(block, "name"), object_in(block, "input")
    title = title_of(tool, given)
    return {"call": text_in(block, "id"), "tool": tool, "title": title, "input": given}


def _retry(record: Record, raw: str) -> Event:
    status, error = count_in(record, "error_status"), text_in(record, "error")
    why = ", ".join(filter(None, (error, str(status or ""))))
    tries, most = count_in(record, "attempt"), count_in(record, "max_retries")
    which = f" ({tries} of {most})" if tries and most else ""
    fields = {
        "text": f"the model failed ({why}); it tries again{which}",
        "code": str(status) if status else error,
        "retry_in": number_in(record, "retry_delay_ms") / 1000,
    }
    return Event(EventKind.ERROR, fields, raw)


def _api_error(record: Record, raw: str) -> Event:
    text = said_in_blocks(object_in(record, "message").get("content"))
    code = str(count_in(record, "api_error_status") or text_in(record, "error"))
    return Event(EventKind.ERROR, {"text": text, "code": code, "fatal": True}, raw)


def _results(record: Record, raw: str) -> Iterator[TurnSaid]:
    """The results of tools; other things that `user` lines have are the prompt, or words for the model."""
    decisions = {
        text_in(meta, "id"): text_in(object_in(meta, "permission_decision"), "decision")
        or text_in(meta, "non_execution_kind")
        for meta in objects_in(record, "tool_result_meta")
    }
    for block in objects_in(object_in(record, "message"), "content"):
        if block.get("type") == "tool_result":
            call = text_in(block, "tool_use_id")
            output = said_in_blocks(block.get("content"))
            status = _status_of(block, decisions.get(call, ""))
            fields: dict[str, Any] = {"call": call, "status": status, "output": output}
            if status == "error" and (code := _EXIT_CODE.match(output)):
                fields["exit_code"] = int(code[1])
            yield Event(EventKind.TOOL_RESULT, fields | _parent(record), raw)


def _status_of(block: Record, decision: str) -> str:
    if block.get("is_error") is not True:
        return "ok"
    return {"reject": "denied", "user-rejected": "interrupted"}.get(decision, "error")


def _reason(record: Record) -> str:
    errors = record.get("errors")
    said = [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
    if text_in(record, "terminal_reason") in _ABORTED:
        return "the turn was interrupted"
    return text_in(record, "result") or "; ".join(said) or text_in(record, "subtype")


def _usage_of(used: Record) -> dict[str, float]:
    fresh, read = count_in(used, "input_tokens"), count_in(used, "cache_read_input_tokens")
    written = count_in(used, "cache_creation_input_tokens")
    thought = count_in(object_in(used, "output_tokens_details"), "thinking_tokens")
    return _without_zeros(
        input_tokens=fresh + read + written,
        output_tokens=count_in(used, "output_tokens"),
        cached_tokens=read,
        reasoning_tokens=thought,
    )


def _sum_of(models: Sequence[Record]) -> dict[str, float]:
    def total(*keys: str) -> int:
        return sum(count_in(model, key) for model in models for key in keys)

    return _without_zeros(
        input_tokens=total("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"),
        output_tokens=total("outputTokens"),
        cached_tokens=total("cacheReadInputTokens"),
        reasoning_tokens=total("thinkingTokens"),
        cost=sum(number_in(model, "costUSD") for model in models),
    )


def _without_zeros(**used: float) -> dict[str, float]:
    return {name: amount for name, amount in used.items() if amount}


def _answers(given: Mapping[str, Any], text: str) -> dict[str, str]:
    questions = objects_in(given, "questions")
    names = (text_in(question, "question") for question in questions)
    return dict(zip(names, answers_to(questions, text), strict=True))
