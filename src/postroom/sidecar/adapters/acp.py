"""Adapter `acp`: the client's side of the Agent Client Protocol, version 1, over standard input and output. Pure.

JSON-RPC 2.0, one message a line (https://agentclientprotocol.com/protocol). Both sides number their own requests, so an
id says nothing without its direction. The order of a run:

    initialize ──► session/new or session/load ──► session/prompt, its updates, its answer; one turn after the other
                          └─► authenticate, where the agent refuses a session without it and takes a key

An agent is told that this client serves neither files nor terminals: it has its own, in the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from postroom import __version__
from postroom.protocol.events import EventKind
from postroom.sidecar.adapters import acp_wire
from postroom.sidecar.adapters.acp_updates import Updates
from postroom.sidecar.adapters.adapter import End
from postroom.sidecar.adapters.homes import home_of
from postroom.sidecar.adapters.loose import Record, object_in, objects_in, text_in
from postroom.sidecar.adapters.turn_lines import usage
from postroom.sidecar.adapters.turn_rpc import TurnRpc
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, TurnSaid, Withdrawn, Write
from postroom_a2a import strict_json

VERSION = 1
"""The protocol's version that is spoken."""

AUTH_REQUIRED = -32000
REQUEST_CANCELLED = -32800
"""Codes of errors (https://agentclientprotocol.com/protocol)."""

CANCELLED = {"outcome": {"outcome": "cancelled"}}
"""The answer to a permission request that nobody decides."""

CAPABILITIES = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    # Only with this does Codex's adapter say what a command printed.
    "_meta": {"terminal_output": True},
}

NEW_SESSION = "(Your earlier session could not be resumed. This is a new one: what was said before is not in it.)"
"""What begins the first prompt of a session that replaces another."""

ASKING = ("workspace-write",)
"""Modes to choose, where an agent has one, so that it asks: Codex's adapter asks nobody in its default mode."""

UNASKED = ("yolo", "bypassPermissions", "agent-full-access", "full-access")
"""Modes to choose for an agent that is to ask for nothing."""


class Acp(TurnRpc):
    """The driver of one run of an agent that speaks ACP."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # Its MCP servers come with the session.
        self._home = home_of(replace(setup, mcps=()))
        self._updates = Updates()
        self._options: dict[str, list[Record]] = {}
        self._late: list[TurnSaid] = []
        self._agent: Record = {}
        self._loads = bool(setup.session)
        self._logged_in = self._ready = self._broken = self._interrupted = False
        self._waiting: str | None = None
        self._preface = ""

    # ── What the program is started with ──

    def files(self) -> Mapping[str, str]:
        """The agent's settings, and its instructions where it reads a file of them."""
        return self._home.files()

    def environment(self) -> Mapping[str, str]:
        """What the agent takes from no file."""
        return self._home.environment()

    def command(self, prompt: str = "") -> tuple[str, ...]:  # noqa: ARG002
        """The template's, with what makes this agent speak ACP."""
        return self._home.acp_command()

    def begin(self) -> bytes:
        """`initialize`."""
        info = {"name": "postroom", "title": "Postroom", "version": __version__}
        return self.request(
            "initialize",
            {"protocolVersion": VERSION, "clientCapabilities": CAPABILITIES, "clientInfo": info},
        )

    # ── Turns ──

    def turn(self, prompt: str) -> bytes:
        """`session/prompt`, at once or when a session is open. A handshake that failed is tried again."""
        self.start_turn()
        self._updates.start_turn()
        self._interrupted = False
        if self._ready:
            return self._prompt(prompt)
        self._waiting = prompt
        if not self._broken:
            return b""
        self._broken = False
        return self._session() if self._agent else self.begin()

    def interrupt(self) -> bytes:
        """`session/cancel`; every open permission request is answered `cancelled`, as the protocol demands."""
        if not self.working or self._interrupted:
            return b""
        self._interrupted = self._updates.interrupted = True
        if self._waiting is not None:
            self._waiting = None
            self._late.append(_result("interrupted"))
            return b""
        data = self.notification("session/cancel", {"sessionId": self.session})
        for request in self._asked:
            data += self.response(request, CANCELLED)
            self._late.append(Withdrawn(request))
        self._asked.clear()
        return data

    def answered(self, asked: Asked, answer: Answer) -> bytes:
        """The option whose kind is the answer's; ACP has no place for an edited input, so that is a denial."""
        allow = answer.allow
        if allow and answer.input is not None and dict(answer.input) != dict(asked.input):
            allow = False
            self._late.append(_error("this agent takes no edited input: its request was rejected"))
        if not allow:
            self._updates.denied(asked.call)
        kinds = acp_wire.ALLOWING if allow else acp_wire.REJECTING
        return self.response(
            asked.request, acp_wire.outcome(self._options.pop(asked.request, []), kinds)
        )

    def feed(self, data: bytes) -> list[TurnSaid]:
        """See `TurnAdapter`; first what an interrupt or an answer concluded."""
        return [*self._concluded(), *super().feed(data)]

    def finish(self, end: End) -> list[TurnSaid]:
        """See `TurnAdapter`."""
        return [*self._concluded(), *super().finish(end)]

    def rest(self) -> Iterable[TurnSaid]:
        """Tool calls that were announced only, and those that were denied and never heard of again."""
        self._options.clear()
        return self._updates.rest()

    def _concluded(self) -> list[TurnSaid]:
        said: list[TurnSaid] = []
        late, self._late = self._late, []
        for item in late:
            said.append(item) if isinstance(item, Withdrawn) else self._keep(item, said)
        return said

    # ── What the agent says ──

    def notified(self, method: str, params: Record, raw: str) -> Iterable[TurnSaid]:
        """An update of a turn, or the withdrawal of a request."""
        if method == "session/update":
            return self._updated(object_in(params, "update"), raw)
        if method == "$/cancel_request":
            request = strict_json.dumps(params.get("requestId")).decode()
            if self.open_request(request) is not None:
                refusal = self.refusal(request, REQUEST_CANCELLED, "cancelled")
                return [Withdrawn(request), Write(refusal)]
        return [self.unknown(raw)]

    def _updated(self, update: Record, raw: str) -> Iterable[TurnSaid]:
        if not self._ready and self._loads:
            # What an agent tells of a session while it loads it was said in an earlier run.
            self._updates.replayed(update)
            return ()
        said = self._updates.read(update, raw)
        return [self.unknown(raw)] if said is None else said

    def requested(
        self, request: str, method: str, params: Record, raw: str
    ) -> Iterable[TurnSaid] | None:
        """A permission request; the others are for clients with files and terminals."""
        if method != "session/request_permission":
            return None
        said, asked = self._updates.permission(request, object_in(params, "toolCall"), raw)
        if self._interrupted or not self.working:
            return [*said, Write(self.response(request, CANCELLED))]
        self._options[request] = objects_in(params, "options")
        return [*said, asked]

    # ── What the agent answers ──

    def result_of(self, method: str, result: Record, raw: str) -> Iterable[TurnSaid]:
        """What a result means that answers a request of ours."""
        match method:
            case "initialize":
                return self._initialized(result, raw)
            case "authenticate":
                self._logged_in = True
                return [Write(self._session())]
            case "session/new":
                return self._created(result, raw)
            case "session/load":
                return self._opened(self.setup.session, result, raw)
            case "session/prompt":
                return self._prompted(result, raw)
        return self._settled()  # session/set_mode

    def _initialized(self, result: Record, raw: str) -> Iterable[TurnSaid]:
        version = result.get("protocolVersion")
        if version != VERSION:
            return self._lost(f"the agent speaks version {version!r} of ACP, not {VERSION}", raw)
        self._agent = result
        if object_in(result, "agentCapabilities").get("loadSession") is not True:
            self._loads = False
        return [Write(self._session())]

    def _created(self, result: Record, raw: str) -> Iterable[TurnSaid]:
        session = text_in(result, "sessionId")
        if not session:
            return self._lost("the agent's session has no id", raw)
        return self._opened(session, result, raw)

    def _prompted(self, result: Record, raw: str) -> Iterable[TurnSaid]:
        used = usage(self._updates.used(result), raw)
        match text_in(result, "stopReason"):
            case "end_turn":
                return [*used, _result("completed", raw=raw)]
            case "cancelled":
                reason = "" if self._interrupted else "the agent ended the turn itself"
                return [*used, _result("interrupted", reason, raw)]
            case reason:
                return [*used, _result("failed", f"the agent stopped: {reason}", raw)]

    def error_of(self, method: str, error: Record, raw: str) -> Iterable[TurnSaid]:
        """What an error means that answers a request of ours."""
        text, code = acp_wire.said_by(error), error.get("code")
        match method:
            case "session/prompt" if self._interrupted:
                return [_result("interrupted", text, raw)]
            case "session/prompt":
                return [_error(text, code, raw), _result("failed", text, raw)]
            case "session/set_mode":
                return [_error(text, code, raw), *self._settled()]
            case "session/new" | "session/load" if self._key_is_wanted(code):
                way = acp_wire.method_by_key(self._agent)
                return [Write(self.request("authenticate", {"methodId": way}))]
            case "session/load":
                self._loads = False
                said = _error(f"session {self.setup.session} was not loaded: {text}", code, raw)
                return [said, Write(self._session())]
        return self._lost(f"{method}: {text}", raw, code)

    def _key_is_wanted(self, code: object) -> bool:
        wanted = code == AUTH_REQUIRED and not self._logged_in
        return wanted and bool(acp_wire.method_by_key(self._agent))

    def _lost(self, reason: str, raw: str, code: object = None) -> Iterable[TurnSaid]:
        """The end of a handshake that failed."""
        self._broken, self._waiting = True, None
        result = [_result("failed", reason, raw)] if self.working else []
        return [_error(reason, code, raw), *result]

    # ── What is asked of the agent ──

    def _session(self) -> bytes:
        """`session/load` where there is one to go on with and the agent can, else `session/new`."""
        servers, refused = acp_wire.servers_for(
            self.setup.mcps, object_in(self._agent, "agentCapabilities")
        )
        self._late += [_error(f"this agent takes no MCP server by URL: {name}") for name in refused]
        params = {"cwd": self.setup.cwd or "/", "mcpServers": servers}
        if self._loads:
            return self.request("session/load", {"sessionId": self.setup.session, **params})
        return self.request("session/new", params)

    def _opened(self, session: str, result: Record, raw: str) -> Iterable[TurnSaid]:
        self.session = session
        if not self._loads:
            lost = NEW_SESSION if self.setup.session else ""
            self._preface = "\n\n".join(filter(None, (lost, self._home.spoken())))
        fields = {
            "session": session,
            "model": acp_wire.model_in(result),
            "version": text_in(object_in(self._agent, "agentInfo"), "version"),
            "resumed": self._loads,
        }
        said: list[TurnSaid] = [Event(EventKind.STARTED, fields, raw)]
        mode = acp_wire.mode_in(result, UNASKED if self.setup.autonomous else ASKING)
        if self._loads and not mode:
            # Gemini CLI tells of a session's past after it has answered; it answers this when it is done.
            mode = text_in(object_in(result, "modes"), "currentModeId")
        if mode:
            params = {"sessionId": session, "modeId": mode}
            said.append(Write(self.request("session/set_mode", params)))
        return said if self._loads and mode else [*said, *self._settled()]

    def _settled(self) -> Iterable[TurnSaid]:
        """From now on what the agent tells is of this run; the prompt that waits for that is sent."""
        if self._ready:
            return ()
        self._ready = True
        if self._waiting is None:
            return ()
        prompt, self._waiting = self._waiting, None
        return [Write(self._prompt(prompt))]

    def _prompt(self, prompt: str) -> bytes:
        text = "\n\n".join(filter(None, (self._preface, prompt)))
        self._preface = ""
        blocks = [{"type": "text", "text": text}]
        return self.request("session/prompt", {"sessionId": self.session, "prompt": blocks})


def _result(status: str, reason: str = "", raw: str = "") -> Event:
    return Event(EventKind.RESULT, {"status": status} | ({"reason": reason} if reason else {}), raw)


def _error(text: str, code: object = None, raw: str = "") -> Event:
    fields = {"text": text} | ({} if code is None else {"code": str(code)})
    return Event(EventKind.ERROR, fields, raw)
