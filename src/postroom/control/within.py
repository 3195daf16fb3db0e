"""Requests to the API from within a request, as its caller: the same way in, so the same checks, limits and records."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import urlencode

from postroom.control.http_protocol import PRINCIPAL
from postroom.control.org_router import OWNER, WORKER, App, Scope
from postroom.errors import from_problem
from postroom_a2a import strict_json

_PASSED = frozenset({b"host", b"origin", b"user-agent", b"traceparent"})
_KEPT = ("asgi", "http_version", "scheme", "client", "server", PRINCIPAL, WORKER, OWNER)
_JSON = (b"content-type", b"application/json")


class Within:
    """What `client.methods` call, in the place of a connection.

    Args:
        router: the way in.
        outer: the request, whose caller is known.
    """

    def __init__(self, router: App, outer: Scope) -> None:
        self._router = router
        self._outer = outer

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, Any] | None = None,
        **_how: Any,
    ) -> Any:
        """The JSON of the answer, None for an empty one. Raises PostroomError: as the operation does."""
        body = b"" if json is None else strict_json.dumps(json)
        status, parts = 0, list[bytes]()

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        await self._router(self._scope(method, path, params), receive, send)
        text = b"".join(parts)
        answer = strict_json.loads(text) if text else None
        if status >= 400:
            raise from_problem(answer if isinstance(answer, dict) else {}, status)
        return answer

    def _scope(self, method: str, path: str, params: Mapping[str, Any] | None) -> Scope:
        outer = self._outer
        whole = outer.get("root_path", "") + path
        headers = [each for each in outer["headers"] if each[0] in _PASSED]
        return {name: outer[name] for name in _KEPT if name in outer} | {
            "type": "http",
            "method": method,
            "path": whole,
            "raw_path": whole.encode(),
            "root_path": "",
            "query_string": urlencode(params or {}).encode(),
            "headers": [*headers, _JSON],
        }
