"""Adapter `jsonl`: one JSON object per line in both directions, UTF-8.

    to the agent    {"type":"hello"|"message"|"post"|"receipt"|"agents"|"error"|"stop", ...}
    from the agent  {"type":"send"|"reply"|"post"|"seen"|"find"|"status", ...}

Anything else that the agent prints is output for the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from postroom.errors import InvalidInput
from postroom.sidecar.adapters.actions import (
    Action,
    Find,
    Incoming,
    IncomingTask,
    Malformed,
    Output,
    Post,
    Reply,
    Seen,
    Send,
    SetStatus,
)

MAX_KEY = 256
"""Characters of an idempotency key."""

MAX_REF = 1024
"""Characters of a reference as JSON: it is kept until the agent reads its receipt."""

MAX_SKILL = 200
"""Characters of a skill that is looked for."""

_STATES = ("working", "idle")


class JsonLines:
    """Adapter for programs that speak Postroom's own lines."""

    def feed(self, line: str) -> list[Action]:
        """The action in one line."""
        record = _decode(line)
        if record is None:
            return [Output(line)] if line.strip() else []
        make = _MAKERS.get(str(record.get("type")))
        if make is None:
            return [Output(line)]
        try:
            return [make(record)]
        except InvalidInput as error:
            return [Malformed(error.message, record.get("ref") if _short(record) else None)]

    def finish(self, exit_code: int, signal: int) -> list[Action]:  # noqa: ARG002
        """Nothing: each line stands for itself."""
        return []

    def render(self, message: Incoming) -> bytes:
        """A `message` line, or a `post` line for what came from a feed."""
        record: dict[str, Any] = {"type": "message", **asdict(message)}
        record["from"] = record.pop("sender")
        record["reply_to"] = message.reply_to or None
        if message.to.startswith("#"):
            record = {key: record[key] for key in ("id", "from", "text", "sent_at")}
            record |= {"type": "post", "project": message.to[1:]}
        return self.render_control(record)

    def render_task(self, task: IncomingTask) -> bytes:
        """A `task` line; `history` is in it where more than the request was said."""
        record: dict[str, Any] = {"type": "task", **asdict(task)}
        record["from"] = record.pop("sender")
        record["history"] = [{"role": role, "text": text} for role, text in task.history]
        if not task.history:
            del record["history"]
        return self.render_control(record)

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """The record as one line of ASCII, so that no reader can trip over an encoding or a line separator."""
        return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def text_field(record: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A text in a record of the agent's.

    Raises:
        InvalidInput: it is missing (with no default) or no text.
    """
    value = record.get(key, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise InvalidInput(f"{key!r} has to be a text")
    return value


def _short(record: Mapping[str, Any]) -> bool:
    return len(json.dumps(record.get("ref"))) <= MAX_REF


def _ref(record: Mapping[str, Any]) -> Any:
    if not _short(record):
        raise InvalidInput(f"a ref has at most {MAX_REF} characters")
    return record.get("ref")


def _key(record: Mapping[str, Any]) -> str:
    key = text_field(record, "key", "")
    if len(key) > MAX_KEY:
        raise InvalidInput(f"a key has at most {MAX_KEY} characters")
    return key


def _flag(record: Mapping[str, Any], key: str) -> bool:
    value = record.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput(f"{key!r} has to be true or false")
    return value


def _seconds(record: Mapping[str, Any], key: str) -> float:
    value = record.get(key) or 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 10**9:
        raise InvalidInput(f"{key!r} has to be a number of seconds")
    return float(value)


def make_send(record: Mapping[str, Any]) -> Send:
    """The `send` in a record.

    Raises:
        InvalidInput: a field is missing or of the wrong kind; also by the other makers.
    """
    return Send(
        to=text_field(record, "to"),
        text=text_field(record, "text"),
        expects_reply=_flag(record, "expects_reply"),
        key=_key(record),
        expires_in=_seconds(record, "expires_in"),
        ref=_ref(record),
    )


def make_reply(record: Mapping[str, Any]) -> Reply:
    """The `reply` in a record."""
    send = make_send(record)
    return Reply(send.to, send.text, send.expects_reply, send.key, send.expires_in, send.ref)


def make_post(record: Mapping[str, Any]) -> Post:
    """The `post` in a record."""
    project = text_field(record, "project", "").removeprefix("#")
    return Post(text_field(record, "text"), project, _key(record), _ref(record))


def make_seen(record: Mapping[str, Any]) -> Seen:
    """The `seen` in a record."""
    return Seen(text_field(record, "id"), _ref(record))


def make_find(record: Mapping[str, Any]) -> Find:
    """The `find` in a record."""
    skill = text_field(record, "skill", "")
    if len(skill) > MAX_SKILL:
        raise InvalidInput(f"a skill has at most {MAX_SKILL} characters")
    return Find(skill, _ref(record))


def _make_status(record: Mapping[str, Any]) -> SetStatus:
    state = text_field(record, "state")
    if state not in _STATES:
        raise InvalidInput(f"'state' has to be one of {', '.join(_STATES)}")
    return SetStatus(state, text_field(record, "detail", ""))


_MAKERS: dict[str, Callable[[Mapping[str, Any]], Action]] = {
    "send": make_send,
    "reply": make_reply,
    "post": make_post,
    "seen": make_seen,
    "find": make_find,
    "status": _make_status,
}
