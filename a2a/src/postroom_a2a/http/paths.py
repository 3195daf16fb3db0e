"""The paths of A2A's REST binding (A2A 1.0, section 11.3; 0.3 has most of them below `/v1`). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from postroom_a2a.rpc import Code, RpcError

LEGACY_PREFIX = "/v1"
"""Before the paths of 0.3."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of REST.

    Attributes:
        method: its name in A2A 1.0.
        verb: of HTTP.
        path: a template; a name in braces is a parameter.
        also: further verbs, and further paths of 0.3, that servers take.
    """

    method: str
    verb: str
    path: str
    also: tuple[str, ...] = ()

    def url(self, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path for `params`, and the parameters that are not in it: for the query, or for the body."""
        left = dict(params)

        def place(found: re.Match[str]) -> str:
            return quote(str(left.pop(found[1], "")), safe="")

        return _PLACE.sub(place, self.path), left


_CONFIGS = "/tasks/{taskId}/pushNotificationConfigs"

ROUTES: tuple[Route, ...] = (
    Route("SendMessage", "POST", "/message:send"),
    Route("SendStreamingMessage", "POST", "/message:stream"),
    Route("ListTasks", "GET", "/tasks"),
    Route("GetTask", "GET", "/tasks/{id}"),
    Route("CancelTask", "POST", "/tasks/{id}:cancel"),
    Route("SubscribeToTask", "POST", "/tasks/{id}:subscribe", also=("GET",)),
    Route("CreateTaskPushNotificationConfig", "POST", _CONFIGS),
    Route("ListTaskPushNotificationConfigs", "GET", _CONFIGS),
    Route("GetTaskPushNotificationConfig", "GET", f"{_CONFIGS}/{{id}}"),
    Route("DeleteTaskPushNotificationConfig", "DELETE", f"{_CONFIGS}/{{id}}"),
    Route("GetExtendedAgentCard", "GET", "/extendedAgentCard"),
    Route("GetExtendedAgentCard", "GET", "/card"),  # of 0.3
)

BY_METHOD: Mapping[str, Route] = {route.method: route for route in reversed(ROUTES)}

_PLACE = re.compile(r"{(\w+)}")


def _pattern(path: str) -> re.Pattern[str]:
    plain = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(_PLACE.sub(r"(?P<\1>[^/]+?)", plain))


_PATTERNS = [(_pattern(route.path), route) for route in ROUTES]


@dataclass(frozen=True, slots=True)
class Found:
    """What a path stands for.

    Attributes:
        route: None for a path without the verb that was asked.
        named: its parameters in the path.
        verbs: that the path takes, where it has no such route.
    """

    route: Route | None
    named: dict[str, str]
    verbs: tuple[str, ...] = ()


def find(verb: str, path: str) -> Found:
    """The route of a request."""
    verbs: set[str] = set()
    best = Found(None, {})
    for pattern, route in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        verbs |= {route.verb, *route.also}
        # No id of a task has a colon: the longer template is meant.
        longer = best.route is None or len(route.path) > len(best.route.path)
        if longer and (verb == route.verb or verb in route.also):
            best = Found(route, match.groupdict())
    return best if best.route else Found(None, {}, tuple(sorted(verbs)))


_NUMBERS = frozenset({"historyLength", "pageSize"})
_FLAGS = frozenset({"includeArtifacts"})


def typed(query: Mapping[str, str]) -> dict[str, Any]:
    """The parameters in a query, with their types (section 11.5).

    Raises:
        RpcError: INVALID_PARAMS, for a value that has not the form of its type.
    """
    found: dict[str, Any] = {}
    for name, text in query.items():
        if name in _NUMBERS:
            found[name] = _number(name, text)
        elif name in _FLAGS:
            if text not in ("true", "false"):
                raise RpcError(Code.INVALID_PARAMS, f"{name!r} has to be true or false")
            found[name] = text == "true"
        elif name == "status" and text and not text.isupper():
            found[name] = f"TASK_STATE_{text.replace('-', '_').upper()}"
        else:
            found[name] = text
    return found


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise RpcError(Code.INVALID_PARAMS, f"{name!r} has to be a whole number")
    return int(text)
