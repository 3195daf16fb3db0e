"""The versions of A2A that HTTP clients speak, and the names of their methods."""

from __future__ import annotations

from collections.abc import Mapping

from postroom_a2a.http.exchange import VERSION
from postroom_a2a.rpc import Code, RpcError

V10, V03 = "1.0", "0.3"

STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})

BLOCKING = frozenset({"SendMessage"})
"""Methods whose answer may take as long as their task."""

_PUSH = "tasks/pushNotificationConfig"

LEGACY: Mapping[str, str] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    f"{_PUSH}/set": "CreateTaskPushNotificationConfig",
    f"{_PUSH}/get": "GetTaskPushNotificationConfig",
    f"{_PUSH}/list": "ListTaskPushNotificationConfigs",
    f"{_PUSH}/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""Each method of A2A 0.3 by its name there: its name in 1.0."""

METHODS = frozenset(LEGACY.values()) | {"ListTasks"}
"""The methods of A2A 1.0."""


def version_of(parameters: Mapping[str, str]) -> str:
    """The version that a request states; none is 0.3 (A2A 1.0, section 3.6.2).

    Raises:
        RpcError: it is another one.
    """
    stated = parameters.get(VERSION, "").strip()
    if not stated:
        return V03
    version = ".".join(stated.split(".")[:2])  # a patch does not count
    if version in (V10, V03):
        return version
    text = f"A2A {stated[:20]} is not spoken here: send the header {VERSION}: {V10}, or {V03}"
    raise RpcError(Code.VERSION_NOT_SUPPORTED, text)
