"""Adapter `codex`: Codex as `codex app-server`, resident, which speaks JSON-RPC without the member `jsonrpc`. Pure.

It asks before it runs a command that it does not know to be harmless, and before it changes a file (its policy
`untrusted`), and has no sandbox of its own (`danger-full-access`): the wall is around it. Only the whole of what it
asks for can be allowed. What a person says beside a denial, or would have it do instead, is told it in its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.codex_home import environment_of, files_of
from postroom.sidecar.adapters.codex_items import (
    EDIT,
    QUIET,
    SHELL,
    call_of,
    command_input,
    result_of,
    warning_of,
    words_of,
)
from postroom.sidecar.adapters.loose import Record, count_in, object_in, objects_in, text_in
from postroom.sidecar.adapters.questions import answers_to, options_of, title_of_questions
from postroom.sidecar.adapters.tool_titles import title_of
from postroom.sidecar.adapters.turn_lines import MAX_ANSWER, MAX_OPEN, Meter, usage
from postroom.sidecar.adapters.turn_rpc import TurnRpc
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

CLIENT = {"name": "postroom", "title": "Postroom", "version": "1"}

PERMISSIONS = "permissions"
ELICITATION = "mcp_elicitation"

_QUESTION = "item/tool/requestUserInput"
_QUIET_BEGINS = ("account/", "app/", "fs/", "hook/", "model/", "remoteControl/", "skills/")
_QUIET = frozenset(
    {
        *("mcpServer/startupStatus/updated", "thread/started", "thread/status/changed"),
        *("thread/readState/changed", "thread/name/updated", "thread/settings/updated"),
        *("thread/compacted", "thread/goal/updated", "thread/goal/cleared", "thread/closed"),
        *("turn/diff/updated", "turn/plan/updated", "turn/moderationMetadata"),
        *("item/fileChange/patchUpdated", "item/mcpToolCall/progress"),
        *("item/reasoning/summaryPartAdded", "item/commandExecution/terminalInteraction"),
    }
)
"""Notifications that say nothing of the work, or repeat what an item says at its end."""


class Codex(TurnRpc):
    """One run of `codex app-server`."""

    version = ""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._ready = False
        self._prompt: str | None = None
        self._turn = ""
        self._stop = False
        self._changes: dict[str, Record] = {}
        self._begun: dict[str, str] = {}
        self._meters: dict[str, Meter] = {}

    def files(self) -> Mapping[str, str]:
        """See `TurnAdapter`."""
        return files_of(self.setup)

    def environment(self) -> Mapping[str, str]:
        """See `TurnAdapter`."""
        return environment_of(self.setup)

    def command(self, prompt: str = "") -> tuple[str, ...]:  # noqa: ARG002
        """See `TurnAdapter`."""
        return (*self.setup.command, "app-server")

    def begin(self) -> bytes:
        """The first step of the handshake; `result_of` has the others."""
        capabilities = {"experimentalApi": True}  # questions are
        return self.request("initialize", {"clientInfo": CLIENT, "capabilities": capabilities})

    def turn(self, prompt: str) -> bytes:
        """See `TurnAdapter`."""
        self.start_turn()
        self._turn, self._stop = "", False
        if self._ready:
            return self._start(prompt)
        self._prompt = prompt
        return b""

    def interrupt(self) -> bytes:
        """See `TurnAdapter`; a turn that has no id yet is interrupted once it has one."""
        if not self._turn:
            self._stop = self.working
            return b""
        return self.request("turn/interrupt", {"threadId": self.session, "turnId": self._turn})

    def rest(self) -> Iterable[TurnSaid]:
        """The texts that were only begun."""
        begun, self._begun = self._begun, {}
        self._changes.clear()
        return [Event(EventKind.TEXT, {"text": text}) for text in begun.values() if text.strip()]

    # ── Handshake and turns ──

    def result_of(self, method: str, result: Record, raw: str) -> Iterable[TurnSaid]:
        """See `TurnRpc`."""
        match method:
            case "initialize":
                return [Write(self.notification("initialized") + self._open_thread(self.session))]
            case "thread/start" | "thread/resume":
                return self._opened(method, result, raw)
            case "turn/start":
                return self._started(text_in(object_in(result, "turn"), "id"))
        return []

    def error_of(self, method: str, error: Record, raw: str) -> Iterable[TurnSaid]:
        """See `TurnRpc`."""
        text = text_in(error, "message") or "a request failed"
        if method == "thread/resume":
            self.session = ""
            lost = Event(EventKind.ERROR, {"text": text, "code": "session-lost"}, raw)
            return [lost, Write(self._open_thread(""))]
        fatal = method in ("initialize", "thread/start", "turn/start")
        said: list[TurnSaid] = [
            Event(EventKind.ERROR, {"text": text, "code": method, "fatal": fatal}, raw)
        ]
        if fatal and self.working:
            said.append(Event(EventKind.RESULT, {"status": "failed", "reason": text}, raw))
        return said

    def _open_thread(self, session: str) -> bytes:
        how: dict[str, Any] = {
            "approvalPolicy": "never" if self.setup.autonomous else "untrusted",
            "sandbox": "danger-full-access",
        }
        if self.setup.cwd:
            how["cwd"] = self.setup.cwd
        if session:
            return self.request("thread/resume", {"threadId": session, "excludeTurns": True, **how})
        return self.request("thread/start", how)

    def _opened(self, method: str, result: Record, raw: str) -> list[TurnSaid]:
        thread = object_in(result, "thread")
        self.session = text_in(thread, "id")
        self._ready = True
        fields = {
            "session": self.session,
            "model": text_in(result, "model"),
            "version": text_in(thread, "cliVersion"),
            "resumed": method == "thread/resume",
        }
        said: list[TurnSaid] = [Event(EventKind.STARTED, fields, raw)]
        if self._prompt is not None:
            said.append(Write(self._start(self._prompt)))
            self._prompt = None
        return said

    def _start(self, prompt: str) -> bytes:
        asked = {"threadId": self.session, "input": [{"type": "text", "text": prompt}]}
        return self.request("turn/start", asked)

    def _started(self, turn: str) -> list[TurnSaid]:
        if not self.working or self._turn:
            return []
        self._turn = turn
        if not (self._stop and turn):
            return []
        self._stop = False
        return [Write(self.interrupt())]

    # ── What it does ──

    def notified(self, method: str, params: Record, raw: str) -> Iterable[TurnSaid]:
        """See `TurnRpc`."""
        match method:
            case "item/agentMessage/delta":
                return self._delta(params)
            case "item/started":
                return self._item_started(object_in(params, "item"), self._parent(params), raw)
            case "item/completed":
                return self._item_completed(object_in(params, "item"), self._parent(params), raw)
            case "turn/started":
                if self._parent(params):
                    return []
                return self._started(text_in(object_in(params, "turn"), "id"))
            case "turn/completed":
                return self._completed(params, raw)
            case "thread/tokenUsage/updated":
                return self._usage(params, raw)
            case "serverRequest/resolved":
                return [Withdrawn(strict_json.dumps(params.get("requestId")).decode())]
            case "error":
                return [_error(params, raw)]
            case "warning" | "configWarning" | "deprecationNotice" | "guardianWarning":
                text = text_in(params, "message", "summary")
                return [Event(EventKind.ERROR, {"text": text, "code": "warning"}, raw)]
        if method in _QUIET or method.startswith(_QUIET_BEGINS) or method.lower().endswith("delta"):
            return []
        return [self.unknown(raw)]

    def _parent(self, params: Record) -> dict[str, str]:
        """Of what a sub-agent does: its thread."""
        thread = text_in(params, "threadId")
        return {} if thread in ("", self.session) else {"parent": thread}

    def _delta(self, params: Record) -> list[TurnSaid]:
        """Kept until the item is complete: only a turn that ends before that has use for it."""
        item, before = text_in(params, "itemId"), self._begun.get(text_in(params, "itemId"), "")
        if not self._parent(params) and (item in self._begun or len(self._begun) < MAX_OPEN):
            self._begun[item] = (before + text_in(params, "delta"))[:MAX_ANSWER]
        return []

    def _item_started(self, item: Record, parent: dict[str, str], raw: str) -> list[TurnSaid]:
        call = call_of(item)
        if call is None:
            return []
        if call["tool"] == EDIT and len(self._changes) < MAX_OPEN:
            self._changes[call["call"]] = call["input"]
        return [Event(EventKind.TOOL_CALL, call | parent, raw)]

    def _item_completed(self, item: Record, parent: dict[str, str], raw: str) -> list[TurnSaid]:
        ident = text_in(item, "id")
        self._begun.pop(ident, None)
        self._changes.pop(ident, None)
        if words := words_of(item):
            kind, text = words
            return [Event(kind, {"text": text, **parent}, raw)] if text.strip() else []
        if call := call_of(item):
            said: list[TurnSaid] = []
            if not self.calling(ident):
                said.append(Event(EventKind.TOOL_CALL, call | parent, raw))
            return [*said, Event(EventKind.TOOL_RESULT, result_of(item) | parent, raw)]
        if text_in(item, "type") == "error":
            return [warning_of(item, raw)]
        return [] if text_in(item, "type") in QUIET else [self.unknown(raw)]

    def _completed(self, params: Record, raw: str) -> list[TurnSaid]:
        turn = object_in(params, "turn")
        if self._parent(params) or (self._turn and text_in(turn, "id") != self._turn):
            return []
        status = text_in(turn, "status")
        status = status if status in ("completed", "interrupted") else "failed"
        fields: dict[str, Any] = {"status": status}
        if status == "interrupted":
            fields["reason"] = "the turn was interrupted"
        elif status == "failed":
            fields["reason"] = text_in(object_in(turn, "error"), "message") or "the turn failed"
        self._turn = ""
        return [Event(EventKind.RESULT, fields, raw)]

    def _usage(self, params: Record, raw: str) -> list[Event]:
        """The totals are a thread's, also from before it was resumed."""
        thread, told = text_in(params, "threadId"), object_in(params, "tokenUsage")
        total, last = _counts(object_in(told, "total")), _counts(object_in(told, "last"))
        if thread not in self._meters:
            if len(self._meters) >= MAX_OPEN:
                del self._meters[next(iter(self._meters))]
            self._meters[thread] = Meter()
            if thread == self.setup.session:
                during = last if self._turn else {}
                before = {name: count - during.get(name, 0) for name, count in total.items()}
                self._meters[thread].since(before)
        return usage(self._meters[thread].since(total), raw)

    # ── What it asks ──

    def requested(
        self, request: str, method: str, params: Record, raw: str
    ) -> Iterable[TurnSaid] | None:
        """See `TurnRpc`."""
        if method == _QUESTION:
            return [_question(request, params, raw)]
        match method:
            case "item/commandExecution/requestApproval":
                tool, given = SHELL, _command(params)
            case "item/fileChange/requestApproval":
                tool, given = EDIT, self._changes.get(text_in(params, "itemId"), {})
            case "item/permissions/requestApproval":
                tool, given = PERMISSIONS, object_in(params, "permissions")
            case "mcpServer/elicitation/request":
                tool, given = ELICITATION, params
            case _:
                return None
        reason = text_in(params, "reason", "message")
        title, call = title_of(tool, given, reason), text_in(params, "itemId")
        return [Asked(request, tool, title, given, reason, call, fixed=True, raw=raw)]

    def answered(self, asked: Asked, answer: Answer) -> bytes:
        """See `TurnLines`."""
        edited = answer.input is not None and dict(answer.input) != dict(asked.input)
        allow = answer.allow and not edited
        if asked.question:
            said = _answers(asked.input, answer)
        elif asked.tool == PERMISSIONS:
            said = {"permissions": asked.input if allow else {}, "scope": "turn"}
        elif asked.tool == ELICITATION:
            said = {"action": "accept" if allow else "decline", "content": {} if allow else None}
        else:
            said = {"decision": "accept" if allow else "decline"}
        words = _words(asked, answer, edited=edited)
        return self.response(asked.request, said) + (self._steer(words) if words else b"")

    def _steer(self, text: str) -> bytes:
        """A text of the user in the turn that goes on."""
        if not self._turn:
            return b""
        said = {"threadId": self.session, "expectedTurnId": self._turn}
        return self.request("turn/steer", said | {"input": [{"type": "text", "text": text}]})


def _question(request: str, params: Record, raw: str) -> Asked:
    questions = objects_in(params, "questions")
    return Asked(
        request,
        "request_user_input",
        title_of_questions(questions),
        {"questions": questions},
        call=text_in(params, "itemId"),
        question=True,
        options=options_of(questions),
        raw=raw,
    )


def _answers(given: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    if not answer.allow:
        return {"answers": {}}
    questions = objects_in(given, "questions")
    names = (text_in(question, "id") for question in questions)
    said = zip(names, answers_to(questions, answer.text), strict=True)
    return {"answers": {name: {"answers": [text]} for name, text in said}}


def _words(asked: Asked, answer: Answer, *, edited: bool) -> str:
    """What the agent is to be told beside the decision, for which its protocol has no place."""
    if asked.question:
        return ""
    if edited and answer.allow:
        wanted = strict_json.dumps(dict(answer.input or {})).decode()
        return f"Not allowed: {asked.title}. Allowed in its place: {wanted} {answer.text}".rstrip()
    return f"Not allowed: {asked.title}. {answer.text}" if answer.text and not answer.allow else ""


def _command(params: Record) -> dict[str, Any]:
    """A command, or a connection or a right that one needs."""
    if text_in(params, "command"):
        return command_input(params)
    others = ("networkApprovalContext", "additionalPermissions", "cwd")
    return {name: params[name] for name in others if params.get(name)}


def _error(params: Record, raw: str) -> Event:
    error = object_in(params, "error")
    text = ": ".join(filter(None, (text_in(error, "message"), text_in(error, "additionalDetails"))))
    fatal = params.get("willRetry") is not True
    return Event(EventKind.ERROR, {"text": text, "code": _code(error), "fatal": fatal}, raw)


def _code(error: Record) -> str:
    """The HTTP status where there was one, else the name of the kind of error."""
    told = error.get("codexErrorInfo")
    if not isinstance(told, dict):
        return text_in(error, "codexErrorInfo") or "other"
    name, about = next(iter(told.items()), ("other", {}))
    status = count_in(about, "httpStatusCode") if isinstance(about, dict) else 0
    return str(status or name)


def _counts(told: Record) -> dict[str, float]:
    return {
        "input_tokens": count_in(told, "inputTokens"),
        "output_tokens": count_in(told, "outputTokens"),
        "cached_tokens": count_in(told, "cachedInputTokens"),
        "reasoning_tokens": count_in(told, "reasoningOutputTokens"),
    }
