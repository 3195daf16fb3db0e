"""The operations on push notification configs of A2A 1.0, in JSON over any `PushConfigs`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from postroom_a2a.operations import Call
from postroom_a2a.params import name_param, whole_param
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import PushConfig, PushConfigs

PUSH = frozenset(
    f"{verb}TaskPushNotificationConfig{plural}"
    for verb, plural in (("Create", ""), ("Get", ""), ("List", "s"), ("Delete", ""))
)

MAX_URL = 2048
"""Characters of the URL of a config."""

MAX_SECRET = 4096
"""Characters of a token, or of credentials."""

MAX_CONFIGS = 100
"""Configs on a page of a list, at most and by default."""

_VISIBLE = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")

Params = dict[str, Any]


class PushOperations:
    """The four methods, for `JsonOperations`."""

    def __init__(self, configs: PushConfigs) -> None:
        self._configs = configs
        self.methods: dict[str, Callable[[Params, Call], Awaitable[Any]]] = {
            "CreateTaskPushNotificationConfig": self._create,
            "GetTaskPushNotificationConfig": self._get,
            "ListTaskPushNotificationConfigs": self._list,
            "DeleteTaskPushNotificationConfig": self._delete,
        }

    async def _create(self, params: Params, call: Call) -> dict[str, Any]:
        task = name_param(params, "taskId")
        config = config_in(params, task, call.version)
        return shown(await self._configs.create(config, call.caller))

    async def _get(self, params: Params, call: Call) -> dict[str, Any]:
        task, config = name_param(params, "taskId"), name_param(params, "id")
        found = await self._configs.get(task, config, call.caller)
        if found is None:
            # A2A has no error of its own for it.
            text = "the task has no such push notification config"
            raise RpcError(Code.TASK_NOT_FOUND, text, taskId=task)
        return shown(found)

    async def _list(self, params: Params, call: Call) -> dict[str, Any]:
        task = name_param(params, "taskId")
        limit = whole_param(params, "pageSize", 0, 2**31) or MAX_CONFIGS
        page = await self._configs.list(
            task,
            call.caller,
            limit=min(limit, MAX_CONFIGS),
            page=str(params.get("pageToken") or ""),
        )
        return {"configs": [shown(each) for each in page.configs], "nextPageToken": page.next_page}

    async def _delete(self, params: Params, call: Call) -> dict[str, Any]:
        task, config = name_param(params, "taskId"), name_param(params, "id")
        await self._configs.delete(task, config, call.caller)
        return {}


def config_in(given: object, task: str, version: str) -> PushConfig:
    """The config in parameters, about `task` ("" for one that does not exist yet).

    Raises:
        RpcError: a field has the wrong form, or names another task.
    """
    if not isinstance(given, dict):
        raise _wrong("the push notification config has to be an object")
    if given.get("taskId") not in (None, "", task):
        raise _wrong("the push notification config names another task")
    scheme, credentials = _authentication(given.get("authentication"))
    return PushConfig(
        task=task,
        url=_url(given.get("url")),
        id=name_param(given, "id", ""),
        token=_secret(given, "token"),
        scheme=scheme,
        credentials=credentials,
        version=version,
    )


def shown(config: PushConfig) -> dict[str, Any]:
    """The config as an answer has it: without its secrets."""
    found: dict[str, Any] = {"id": config.id, "taskId": config.task, "url": config.url}
    if config.scheme:
        found["authentication"] = {"scheme": config.scheme}
    return found


def _url(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_URL:
        raise _wrong(f"'url' has to be a text of 1 to {MAX_URL} characters")
    try:
        parts = urlsplit(value)
        fits = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or not _VISIBLE.fullmatch(value) or " " in value:
        raise _wrong("'url' has to be an absolute URL of http or https")
    if parts.username is not None or parts.password is not None:
        raise _wrong("'url' has no place for a name and a password: use 'authentication'")
    return value


def _authentication(given: object) -> tuple[str, str]:
    if not given:
        return "", ""
    if not isinstance(given, dict):
        raise _wrong("'authentication' has to be an object")
    scheme = given.get("scheme")
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme):
        raise _wrong("'scheme' has to be the name of an HTTP authentication scheme")
    return scheme, _secret(given, "credentials")


def _secret(given: Mapping[str, Any], name: str) -> str:
    """A text that goes into a header."""
    value = given.get(name) or ""
    if not value:
        return ""
    if not isinstance(value, str) or len(value) > MAX_SECRET or not _VISIBLE.fullmatch(value):
        raise _wrong(f"{name!r} has to be a text of at most {MAX_SECRET} visible ASCII characters")
    return value


def _wrong(text: str) -> RpcError:
    return RpcError(Code.INVALID_PARAMS, text)
