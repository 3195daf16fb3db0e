"""How a client says the operations of the API: a method for each, by its name (`protocol.operations`).

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
    "room.livez": Words("alive"),
    "room.readyz": _by_hand("ready"),
    "metrics.read": Words("metrics"),
    "room.openapi": Words("document"),
    "room.status": Words("status"),
    "room.shutdown": Words("shutdown"),
    "backup.create": Words("back_up", "file passphrase", extra=6 * 60 * MINUTE),
    "retention.due": Words("excess", gives="retention", extra=10 * MINUTE),
    "retention.prune": Words("give_up", gives="retention", extra=10 * MINUTE),
    "integrity.check": Words("integrity", extra=10 * MINUTE),
    "workers.leftovers": (
        Words("left", "repository", extra=MINUTE),
        Words("leftovers", gives="leftovers", extra=MINUTE),
    ),
    "workers.prune_leftovers": (
        _by_hand("tidy"),
        Words("prune", gives="leftovers", extra=MINUTE),
    ),
    "trust.list": Words("trusted_keys", gives="keys"),
    "trust.rotate": Words("rotate", "kind", extra=90.0),
    "agents.keys": Words("card_keys", gives="keys"),
    "pushes.keys": Words("webhook_keys"),
    "webhooks.add": Words("add_webhook", "url"),
    "webhooks.list": Words("webhooks", gives="webhooks"),
    "webhooks.test": Words("test_webhook", extra=MINUTE),
    "webhooks.deliveries": Words("deliveries", gives="deliveries", empty=PAGE),
    "webhooks.again": Words("deliver_again", again=True),
    "webhooks.rotate": Words("rotate_webhook"),
    "webhooks.remove": Words("remove_webhook"),
    "audit.read": _by_hand("audit"),
    "feeds.events": Words("follow_everything", empty=FOR_EVER),
    "feeds.stream": (
        Words("follow_project", "project", checked="project", fixed={"chat": ""}),
        Words("follow_chat", "ref", called={"ref": "chat"}, checked="ref", fixed={"project": ""}),
    ),
    # ── organisations, people, keys ──
    "orgs.list": Words("orgs", gives="orgs"),
    "orgs.create": Words("create_org", "name", extra=90.0),
    "orgs.remove": Words("remove_org", gives="folder", extra=90.0),
    "openings.list": Words("openings", gives="openings"),
    "openings.open": Words("open_to", "folder mode wall", gives="openings", empty={"mode": "copy"}),
    "openings.close": Words("close_to", "folder wall", gives="openings", extra=MINUTE),
    "people.me": Words("me"),
    "approvals.pin": Words("pin"),
    "approvals.set_pin": Words("set_pin", "pin old"),
    "keys.list": Words("api_keys", gives="keys"),
    "keys.create": Words("create_key"),
    "keys.rotate": Words("rotate_key"),
    "invites.list": Words("invites", gives="invites"),
    "invites.create": Words("invite"),
    "invites.revoke": Words("revoke_invite", again=True),
    "invites.join": Words("join", "display_name", keyed=True),
    "claims.offer": Words("offer_key"),
    "claims.claim": Words("claim_key", "code"),
    "keys.revoke": Words("revoke_key", again=True),
    "people.list": Words("people", gives="people"),
    "people.add": Words("add_person", "nick", checked="nick"),
    "people.remove": Words("remove_person"),
    "credentials.list": Words("credentials", gives="credentials"),
    "credentials.add": Words("add_credential", "name host secret"),
    "credentials.remove": Words("remove_credential"),
    # ── agents ──
    "agents.list": Words("agents", gives="agents"),
    "agents.add": Words("add_agent", "nick", always="public"),
    "agents.add_remote": Words("add_remote", "url", again=True, unless="nick"),
    "agents.show": Words("agent"),
    "agents.remove": Words("remove_agent"),
    "agents.show_remote": Words("remote"),
    "agents.card": Words("card"),
    "agents.set_card": Words("set_card", "content", again=True),
    "agents.rename": Words("rename_agent", "nick"),
    "agents.give": Words("give_agent", "owner", always="owner", again=True),
    "sessions.list": Words("sessions", gives="sessions"),
    "sessions.register": Words("register_session", "client key nick", again=True),
    "sessions.show": Words("session"),
    "sessions.note": Words("note_session", "state", again=True),
    "sessions.end": Words("end_session"),
    "sessions.ask": Words("ask_approval", "id tool input", empty={"seconds": MINUTE}, again=True),
    "sessions.asked": Words("asked_approval", waits="wait"),
    "sessions.withdraw": Words("withdraw_approval", "reason", again=True),
    "sessions.stream": Words("follow_sessions", empty=FOR_EVER),
    "grants.list": Words("grants", gives="grants"),
    "grants.allow": Words("allow", "grantee scopes"),
    "grants.revoke": Words("revoke_grant", again=True),
    "grants.requests": Words("grant_requests", gives="requests"),
    "grants.ask": Words("ask_grant", "granter scopes reason", again=True),
    "grants.answer": Words("answer_grant", "decision scopes"),
    "grants.only": Words("grants_only"),
    "grants.set_only": Words(
        "set_grants_only", "grants_only agent", always="grants_only", again=True
    ),
    "grants.admission": Words("admission"),
    "grants.admit": Words("admit", always="grants_only", again=True),
    "announcements.announce": Words("announce", "text", keyed=True),
    "announcements.list": Words("outbox", gives="announcements", empty=PAGE),
    "announcements.stream": Words("follow_outbox", empty=FOR_EVER),
    # ── workers ──
    "workers.list": Words("workers", gives="workers"),
    "workers.spawn": Words("spawn", "template", called={"overrides": "set"}, extra=MINUTE),
    "workers.revoke_all": Words("revoke_all", gives="workers", again=True),
    "workers.show": Words("worker"),
    "workers.remove": Words("remove"),
    "workers.stop": Words("stop", again=True),
    "workers.restart": Words("restart", "template", extra=MINUTE),
    "workers.revoke": Words("revoke", again=True),
    "workers.card": Words("served_card"),
    "workspaces.diff": Words("diff", "paths", always="stat", again=True, extra=SLOW),
    "workspaces.sync": Words(
        "sync",
        empty={"rebase": False, "resolve": False, "timeout": SLOW},
        always="rebase resolve timeout",
        extra=SLOW,
        waits="timeout",
    ),
    "workspaces.apply": _by_hand("apply"),
    "workspaces.apply_task": _by_hand("apply"),
    "events.past": (
        Words("newest_events", gives="events", empty={"limit": 100}, fixed={"newest": True}),
        Words("past_events", gives="events", empty={"limit": 100}),
    ),
    "events.report": Words("sdk_events", "events"),
    "events.stream": _by_hand("events"),
    "terminals.terminal": _by_hand("terminal"),
    "terminals.typed": _by_hand("terminal_input"),
    "terminals.printed": _by_hand("terminal_output"),
    "approvals.pending": Words("pending_control", waits="wait"),
    # ── approvals ──
    "approvals.list": Words(
        "approvals", gives="approvals", empty={"state": "pending", "limit": 50}
    ),
    "approvals.show": Words("approval"),
    "approvals.control": (
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
    "approvals.policy": Words("policy"),
    "approvals.allow": (
        Words("allow_always", "pattern pin", empty=BY_API, again=True, unless="pin"),
        Words("set_autonomy", "autonomy", empty=BY_API, again=True, unless="pin"),
    ),
    "approvals.forget": Words("forget_rule", "pattern pin", again=True, unless="pin"),
    # ── messages ──
    "messages.send": Words(
        "send", "to text", empty={"expects_reply": True}, always="expects_reply", keyed=True
    ),
    "messages.search": Words(
        "search", "text", gives="messages", called={"other": "with"}, empty=PAGE
    ),
    "messages.show": Words("message", waits="timeout"),
    "inbox.seen": Words("mark_seen", again=True),
    "messages.threads": Words("threads", gives="threads", empty=PAGE),
    "messages.chat": Words("chat", gives="messages", empty=PAGE),
    "inbox.list": Words(
        "inbox", gives="messages", empty={"unread": True, "limit": 100}, waits="wait"
    ),
    "inbox.stream": Words("follow_inbox", empty=FOR_EVER),
    "inbox.acknowledge": Words("acknowledge", "ids state", again=True),
    "inbox.archive": Words(
        "archive", "ids", empty={"archived": True}, always="archived", again=True
    ),
    "feeds.unread": Words("feeds", gives="feeds"),
    "feeds.read": Words("read_feed", again=True),
    "feeds.projects": Words("projects", gives="projects"),
    "feeds.posts": Words("posts", gives="posts", empty=PAGE),
    "feeds.post": Words("post", "text", keyed=True),
    "feeds.happened": Words("project_events", empty=PAGE),
    "feeds.happens": Words("follow_project_events"),
    "deadletters.list": Words("deadletters", gives="deadletters"),
    "deadletters.show": Words("deadletter"),
    "deadletters.drop": Words("drop"),
    "deadletters.requeue": Words("requeue", gives="id"),
    "alerts.list": Words("alerts", gives="alerts", called={"ended": "all"}),
    "alerts.clear_all": _by_hand("clear_alerts"),
    "alerts.clear": _by_hand("clear_alerts"),
    "blobs.list": Words("blobs", "limit", gives="blobs", empty={"limit": 100}),
    "blobs.post": _by_hand("put_blob"),
    "blobs.put": _by_hand("put_blob"),
    "blobs.get": _by_hand("get_blob"),
    "blobs.head": _by_hand("has_blob"),
    "blobs.remove": Words("remove_blob"),
    # ── tasks ──
    "tasks.delegate": Words("delegate", "text", keyed=True),
    "tasks.list": Words("tasks", gives="tasks", called={"open_only": "open"}, empty={"limit": 100}),
    "tasks.show": Words("task", waits="timeout"),
    "tasks.events": Words("task_events", gives="events", empty={"limit": 200}, always="after"),
    "tasks.stream": Words("follow_task", ends="final"),
    "tasks.messages": Words("task_messages", gives="messages"),
    "pushes.list": _by_hand("pushes"),
    "pushes.again": Words("push_again", again=True),
    "tasks.retry": Words("retry_task", again=True),
    "tasks.cancel": Words(
        "cancel_task", empty={"timeout": 15.0}, always="timeout", again=True, waits="timeout"
    ),
    "tasks.answer": Words("answer_task", "text"),
    "reports.status": Words("report_status", "state", always="seq", again=True),
    "reports.artifact": Words("report_artifact", always="seq", again=True),
}


def every() -> Iterator[tuple[str, Words]]:
    """Each method with its operation."""
    for operation, words in WORDS.items():
        for each in (words,) if isinstance(words, Words) else words:
            yield operation, each
