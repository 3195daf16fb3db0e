"""How a client says the operations of the API: a method for each, by method and path (`protocol.operations`).

What an operation takes and gives is in the table. Here is what only a caller needs: the method's name, which fields may
be given by place, which one of the answer is meant, and whether a lost call may be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})
MINUTE = 60.0
SLOW = 300.0
"""Seconds that git may take for a large repository."""


class Words(NamedTuple):
    """How one operation is said.

    Attributes:
        name: of the method.
        takes: names of the arguments that may be given by place, after those of the path.
        gives: field of the answer that the method returns, "" for the whole answer.
        called: names of arguments that are not those of their fields.
        empty: what arguments have that are not given, where that is no empty value.
        fixed: fields that make this method of an operation that has several.
        checked: arguments that are checked as those of a path are.
        always: fields that are sent also when they are empty, beside those that are required.
        again: a second call with the same content has no second effect; each look is so.
        unless: field with which it has one: a wrong PIN would count twice.
        keyed: the body has an idempotency key, which is made where none is given.
        extra: seconds that the answer may take beyond the usual.
        waits: field with further such seconds.
        ends: of a stream: the event whose data has this set is the last one.
        made: False for a method that is written by hand (`client.http`).
    """

    name: str
    takes: str = ""
    gives: str = ""
    called: Mapping[str, str] = NOTHING
    empty: Mapping[str, Any] = NOTHING
    fixed: Mapping[str, Any] = NOTHING
    checked: str = ""
    always: str = ""
    again: bool = False
    unless: str = ""
    keyed: bool = False
    extra: float = 0.0
    waits: str = ""
    ends: str = ""
    made: bool = True


def _by_hand(name: str) -> Words:
    return Words(name, made=False)


PAGE = {"limit": 50}
BY_API = {"channel": "api"}
FOR_EVER = {"for_ever": True}

WORDS: dict[str, Words | tuple[Words, ...]] = {
    # ── the post room ──
    "GET /livez": Words("alive"),
    "GET /readyz": _by_hand("ready"),
    "GET /metrics": Words("metrics"),
    "GET /v1/openapi.json": Words("document"),
    "GET /v1/status": Words("status"),
    "POST /v1/shutdown": Words("shutdown"),
    "POST /v1/backup": Words("back_up", "file passphrase", extra=6 * 60 * MINUTE),
    "GET /v1/retention": Words("excess", gives="retention", extra=10 * MINUTE),
    "DELETE /v1/retention": Words("give_up", gives="retention", extra=10 * MINUTE),
    "GET /v1/leftovers": (
        Words("left", "repository", extra=MINUTE),
        Words("leftovers", gives="leftovers", extra=MINUTE),
    ),
    "DELETE /v1/leftovers": (
        _by_hand("tidy"),
        Words("prune", gives="leftovers", extra=MINUTE),
    ),
    "GET /v1/trust/keys": Words("trusted_keys", gives="keys"),
    "POST /v1/trust/rotate": Words("rotate", "kind", extra=90.0),
    "GET /.well-known/jwks.json": Words("card_keys", gives="keys"),
    "GET /v1/webhooks/keys": Words("webhook_keys"),
    "GET /v1/audit": _by_hand("audit"),
    "GET /v1/events": Words("follow_everything", empty=FOR_EVER),
    "GET /v1/stream": (
        Words("follow_project", "project", checked="project", fixed={"chat": ""}),
        Words("follow_chat", "ref", called={"ref": "chat"}, checked="ref", fixed={"project": ""}),
    ),
    # ── organisations, people, keys ──
    "GET /v1/orgs": Words("orgs", gives="orgs"),
    "POST /v1/orgs": Words("create_org", "name", extra=90.0),
    "DELETE /v1/orgs/{name}": Words("remove_org", gives="folder", extra=90.0),
    "GET /v1/orgs/{name}/openings": Words("openings", gives="openings"),
    "POST /v1/orgs/{name}/openings": Words(
        "open_to", "folder mode wall", gives="openings", empty={"mode": "copy"}
    ),
    "DELETE /v1/orgs/{name}/openings": Words(
        "close_to", "folder wall", gives="openings", extra=MINUTE
    ),
    "GET /v1/me": Words("me"),
    "GET /v1/pin": Words("pin"),
    "PUT /v1/pin": Words("set_pin", "pin old"),
    "GET /v1/keys": Words("api_keys", gives="keys"),
    "POST /v1/keys": Words("create_key"),
    "POST /v1/keys/{key}/rotate": Words("rotate_key"),
    "DELETE /v1/keys/{key}": Words("revoke_key", again=True),
    "GET /v1/people": Words("people", gives="people"),
    "POST /v1/people": Words("add_person", "nick", checked="nick"),
    "DELETE /v1/people/{ref}": Words("remove_person"),
    "GET /v1/credentials": Words("credentials", gives="credentials"),
    "POST /v1/credentials": Words("add_credential", "name host secret"),
    "DELETE /v1/credentials/{name}": Words("remove_credential"),
    # ── agents ──
    "GET /v1/agents": Words("agents", gives="agents"),
    "POST /v1/agents": Words("add_agent", "nick", always="public"),
    "POST /v1/agents/remote": Words("add_remote", "url", again=True, unless="nick"),
    "GET /v1/agents/{ref}": Words("agent"),
    "DELETE /v1/agents/{ref}": Words("remove_agent"),
    "GET /v1/agents/{ref}/remote": Words("remote"),
    "GET /v1/agents/{ref}/card": Words("card"),
    "PUT /v1/agents/{ref}/card": Words("set_card", "content", again=True),
    "POST /v1/announcements": Words("announce", "text", keyed=True),
    "GET /v1/agents/{ref}/outbox": Words("outbox", gives="announcements", empty=PAGE),
    "GET /v1/agents/{ref}/outbox/stream": Words("follow_outbox", empty=FOR_EVER),
    # ── workers ──
    "GET /v1/workers": Words("workers", gives="workers"),
    "POST /v1/workers": Words("spawn", "template", called={"overrides": "set"}, extra=MINUTE),
    "POST /v1/workers/revoke": Words("revoke_all", gives="workers", again=True),
    "GET /v1/workers/{ref}": Words("worker"),
    "DELETE /v1/workers/{ref}": Words("remove"),
    "POST /v1/workers/{ref}/stop": Words("stop", again=True),
    "POST /v1/workers/{ref}/restart": Words("restart", "template", extra=MINUTE),
    "POST /v1/workers/{ref}/revoke": Words("revoke", again=True),
    "GET /v1/workers/{ref}/agent-card.json": Words("served_card"),
    "POST /v1/workers/{ref}/diff": Words("diff", "paths", always="stat", again=True, extra=SLOW),
    "POST /v1/workers/{ref}/sync": Words(
        "sync",
        empty={"rebase": False, "resolve": False, "timeout": SLOW},
        always="rebase resolve timeout",
        extra=SLOW,
        waits="timeout",
    ),
    "POST /v1/workers/{ref}/apply": _by_hand("apply"),
    "POST /v1/tasks/{ref}/apply": _by_hand("apply"),
    "GET /v1/workers/{ref}/sdk-events": (
        Words("newest_events", gives="events", empty={"limit": 100}, fixed={"newest": True}),
        Words("past_events", gives="events", empty={"limit": 100}),
    ),
    "POST /v1/workers/{uid}/sdk-events": Words("sdk_events", "events"),
    "WEBSOCKET /v1/workers/{ref}/sdk-events/stream": _by_hand("events"),
    "WEBSOCKET /v1/workers/{ref}/terminal": _by_hand("terminal"),
    "GET /v1/workers/{uid}/terminals/{terminal}/input": _by_hand("terminal_input"),
    "POST /v1/workers/{uid}/terminals/{terminal}/output": _by_hand("terminal_output"),
    "GET /v1/workers/{uid}/control/pending": Words("pending_control", waits="wait"),
    # ── approvals ──
    "GET /v1/approvals": Words(
        "approvals", gives="approvals", empty={"state": "pending", "limit": 50}
    ),
    "GET /v1/approvals/{approval}": Words("approval"),
    "POST /v1/workers/{ref}/control": (
        Words(
            "control",
            "approval decision",
            gives="approval",
            called={"approval": "id"},
            checked="approval",
            empty=BY_API,
            fixed={"type": "control_response"},
        ),
        Words("interrupt", gives="interrupt", empty=BY_API, fixed={"type": "interrupt"}),
    ),
    "GET /v1/workers/{ref}/policy": Words("policy"),
    "POST /v1/workers/{ref}/policy": (
        Words("allow_always", "pattern pin", empty=BY_API, again=True, unless="pin"),
        Words("set_autonomy", "autonomy", empty=BY_API, again=True, unless="pin"),
    ),
    "DELETE /v1/workers/{ref}/policy": Words(
        "forget_rule", "pattern pin", again=True, unless="pin"
    ),
    # ── messages ──
    "POST /v1/messages": Words(
        "send", "to text", empty={"expects_reply": True}, always="expects_reply", keyed=True
    ),
    "GET /v1/messages": Words(
        "search", "text", gives="messages", called={"other": "with"}, empty=PAGE
    ),
    "GET /v1/messages/{message_id}": Words("message", waits="timeout"),
    "POST /v1/messages/{message_id}/seen": Words("mark_seen", again=True),
    "GET /v1/chats/{ref}/messages": Words("chat", gives="messages", empty=PAGE),
    "GET /v1/inbox": Words(
        "inbox", gives="messages", empty={"unread": True, "limit": 100}, waits="wait"
    ),
    "GET /v1/inbox/stream": Words("follow_inbox", empty=FOR_EVER),
    "POST /v1/inbox/ack": Words("acknowledge", "ids state", again=True),
    "GET /v1/projects": Words("projects", gives="projects"),
    "GET /v1/projects/{project}/posts": Words("posts", gives="posts", empty=PAGE),
    "POST /v1/projects/{project}/posts": Words("post", "text", keyed=True),
    "GET /v1/projects/{project}/events": Words("project_events", empty=PAGE),
    "GET /v1/projects/{project}/events/stream": Words("follow_project_events"),
    "GET /v1/deadletters": Words("deadletters", gives="deadletters"),
    "GET /v1/deadletters/{letter}": Words("deadletter"),
    "DELETE /v1/deadletters/{letter}": Words("drop"),
    "POST /v1/deadletters/{letter}/requeue": Words("requeue", gives="id"),
    "GET /v1/alerts": Words("alerts", gives="alerts", called={"ended": "all"}),
    "DELETE /v1/alerts": _by_hand("clear_alerts"),
    "DELETE /v1/alerts/{alert}": _by_hand("clear_alerts"),
    "GET /v1/blobs": Words("blobs", "limit", gives="blobs", empty={"limit": 100}),
    "POST /v1/blobs": _by_hand("put_blob"),
    "PUT /v1/blobs/{sha256}": _by_hand("put_blob"),
    "GET /v1/blobs/{sha256}": _by_hand("get_blob"),
    "HEAD /v1/blobs/{sha256}": _by_hand("has_blob"),
    "DELETE /v1/blobs/{sha256}": Words("remove_blob"),
    # ── tasks ──
    "POST /v1/tasks": Words("delegate", "text", keyed=True),
    "GET /v1/tasks": Words(
        "tasks", gives="tasks", called={"open_only": "open"}, empty={"limit": 100}
    ),
    "GET /v1/tasks/{task}": Words("task", waits="timeout"),
    "GET /v1/tasks/{task}/events": Words(
        "task_events", gives="events", empty={"limit": 200}, always="after"
    ),
    "GET /v1/tasks/{task}/stream": Words("follow_task", ends="final"),
    "GET /v1/tasks/{task}/messages": Words("task_messages", gives="messages"),
    "GET /v1/tasks/{task}/pushes": _by_hand("pushes"),
    "POST /v1/tasks/{task}/pushes/{push}/again": Words("push_again", again=True),
    "POST /v1/tasks/{task}/retry": Words("retry_task", again=True),
    "POST /v1/tasks/{task}/cancel": Words(
        "cancel_task", empty={"timeout": 15.0}, always="timeout", again=True, waits="timeout"
    ),
    "POST /v1/tasks/{task}/answer": Words("answer_task", "text"),
    "POST /v1/tasks/{task}/status": Words("report_status", "state", always="seq", again=True),
    "POST /v1/tasks/{task}/artifacts": Words("report_artifact", always="seq", again=True),
}


def every() -> Iterator[tuple[str, Words]]:
    """Each method with its operation."""
    for operation, words in WORDS.items():
        for each in (words,) if isinstance(words, Words) else words:
            yield operation, each
