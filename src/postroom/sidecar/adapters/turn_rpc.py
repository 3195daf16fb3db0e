"""JSON-RPC over lines, in both directions, for the adapters whose agents speak it. Pure.

Ids of the two sides overlap, so each side's are kept apart. A request of the agent that the adapter does not know is
refused at once: it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from postroom.sidecar.adapters.loose import Record, object_in
from postroom.sidecar.adapters.turn_lines import MAX_OPEN, TurnLines
from postroom.sidecar.adapters.turns import Setup, TurnSaid, Write
from postroom_a2a import strict_json

UNKNOWN_METHOD = -32601
"""JSON-RPC 2.0, section 5.1."""


class TurnRpc(TurnLines):
    """One run of a program that speaks JSON-RPC.

    Attributes:
        version: value of the member `jsonrpc`, "" to leave it out.
    """

    version = "2.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._next = 0
        self._pending: dict[int, str] = {}

    # ── What a subclass says ──

    def result_of(self, method: str, result: Record, raw: str) -> Iterable[TurnSaid]:
        """What the agent's result for our request of that method means; {} for a result that is no object."""
        raise NotImplementedError

    def error_of(self, method: str, error: Record, raw: str) -> Iterable[TurnSaid]:
        """What the agent's error for our request of that method means."""
        raise NotImplementedError

    def notified(self, method: str, params: Record, raw: str) -> Iterable[TurnSaid]:
        """What a notification of the agent means."""
        raise NotImplementedError

    def requested(
        self, request: str, method: str, params: Record, raw: str
    ) -> Iterable[TurnSaid] | None:
        """What a request of the agent means, `request` is for `response`; None for a method that is not known."""
        raise NotImplementedError

    # ── Writing ──

    def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        """A request of ours; its answer goes to `result_of` or `error_of`."""
        self._next += 1
        if len(self._pending) >= MAX_OPEN:
            del self._pending[next(iter(self._pending))]
        self._pending[self._next] = method
        return self._line({"id": self._next, "method": method, "params": params})

    def notification(self, method: str, params: Mapping[str, Any] | None = None) -> bytes:
        """A notification of ours."""
        return self._line({"method": method} | ({} if params is None else {"params": params}))

    def response(self, request: str, result: Mapping[str, Any]) -> bytes:
        """The result for a request of the agent."""
        return self._line({"id": strict_json.loads(request.encode()), "result": result})

    def refusal(self, request: str, code: int, message: str) -> bytes:
        """The error for a request of the agent."""
        error = {"code": code, "message": message}
        return self._line({"id": strict_json.loads(request.encode()), "error": error})

    def awaits(self, method: str) -> bool:
        """Whether a request of ours of that method has no answer yet."""
        return method in self._pending.values()

    # ── Reading ──

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """See `TurnLines`."""
        method, ident = record.get("method"), record.get("id")
        if isinstance(method, str):
            if isinstance(ident, str | int | float) and not isinstance(ident, bool):
                return self._request(ident, method, object_in(record, "params"), raw)
            return self.notified(method, object_in(record, "params"), raw)
        ours = self._pending.pop(ident, None) if type(ident) is int else None
        if ours is None:
            return [self.unknown(raw)]
        if record.get("error") is not None:
            return self.error_of(ours, object_in(record, "error"), raw)
        return self.result_of(ours, object_in(record, "result"), raw)

    def _request(self, ident: str | float, method: str, params: Record, raw: str) -> list[TurnSaid]:
        request = strict_json.dumps(ident).decode()
        said = self.requested(request, method, params, raw)
        if said is not None:
            return list(said)
        refusal = self.refusal(request, UNKNOWN_METHOD, "this client has no such method")
        return [self.unknown(raw), Write(refusal)]

    def _line(self, message: Mapping[str, Any]) -> bytes:
        head = {"jsonrpc": self.version} if self.version else {}
        return strict_json.dumps({**head, **message}) + b"\n"
