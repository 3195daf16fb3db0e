"""Operations of `/v1` under the paths and fields of small servers for agents.

They are `/api/messages`, `/api/inbox` and `/api/authorizations`, so that a client that was written for one of those
works without a change. Each is its operation, with the same limits, errors and lines of the audit log;
docs/post-office.md has the fields.
"""

from __future__ import annotations

import time
from inspect import Parameter

from postroom.control.bodies import AuthorizationBody, GrantBody, MessageBody, PlainMessageBody
from postroom.control.ops import grants, inbox, messages
from postroom.control.ops.table import STORING, Field, Operations
from postroom.control.parameters import Limit, MessageRef
from postroom.control.parts import Parts
from postroom.errors import Conflict, ContentNotTaken, NotFound, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.parts import whole_text
from postroom.protocol.principal import Principal, Scope

READ = ("seen", "answered")
"""States of a message that its recipient has read."""

operations = Operations()


@operations.post(
    "/api/messages",
    Scope.SEND,
    status=201,
    hidden=True,
    fails=(NotFound, Conflict, ContentNotTaken, *STORING),
    strangers=True,
)
async def send(parts: Parts, body: PlainMessageBody, me: Principal) -> answers.PlainMessage:
    """Send a message to an agent."""
    said = MessageBody(
        to=body.recipient_id,
        text=body.body,
        subject=body.subject,
        thread=body.thread_id,
        key=body.idempotency_key,
    )
    return _plain(await messages.send(parts, said, me))


@operations.get(
    "/api/messages/{message_id}",
    Scope.READ,
    hidden=True,
    fails=(NotFound, Conflict),
    strangers=True,
)
async def show(parts: Parts, message_id: MessageRef, me: Principal) -> answers.PlainMessage:
    """Show a message."""
    return _plain(await messages.show(parts, message_id, me))


@operations.post(
    "/api/messages/{message_id}/read",
    Scope.SEND,
    hidden=True,
    fails=(NotFound, Conflict, *STORING),
    strangers=True,
)
async def read(parts: Parts, message_id: MessageRef, me: Principal) -> answers.PlainMessage:
    """Say that a message to the caller was read."""
    return _plain(await inbox.seen(parts, message_id, me))


@operations.get("/api/inbox", Scope.READ, hidden=True, strangers=True)
async def list_(
    parts: Parts, me: Principal, limit: Limit = 50, *, unread: inbox.Unread = False
) -> answers.PlainInbox:
    """Read the newest messages to the caller, the oldest of them first."""
    found = await inbox.list_(parts, me, limit, unread=unread)
    return {"messages": [_plain(mail) for mail in found["messages"]]}


@operations.post(
    "/api/authorizations",
    Scope.SEND,
    status=201,
    door=True,
    by_owner=True,
    hidden=True,
    fails=(NotFound, Refused, *STORING),
    strangers=True,
)
async def authorize(parts: Parts, body: AuthorizationBody, me: Principal) -> answers.Authorization:
    """Let an agent in."""
    until = body.expires_at
    wanted = {
        "grantee": body.grantee_id,
        "scopes": body.scopes or [],
        "expires_in": None if until is None else until.timestamp() - time.time(),
    }
    checked = Field("body", "body", GrantBody, Parameter.empty).checked(wanted)
    return _authorization(await grants.allow(parts, checked, me))


@operations.get("/api/authorizations", Scope.READ, door=True, hidden=True, strangers=True)
async def authorizations(parts: Parts, me: Principal) -> answers.Authorizations:
    """List who is let in."""
    found = await grants.list_(parts, me)
    return {"authorizations": [_authorization(grant) for grant in found["grants"]]}


@operations.delete(
    "/api/authorizations/{grant}",
    Scope.SEND,
    door=True,
    hidden=True,
    fails=(NotFound, Conflict),
    strangers=True,
)
async def unauthorize(parts: Parts, grant: grants.GrantRef, me: Principal) -> answers.Authorization:
    """Take a grant back: by whom it lets in."""
    return _authorization(await grants.revoke(parts, grant, me))


def _authorization(grant: shapes.Grant) -> answers.Authorization:
    revoked = grant["state"] == "revoked"
    return {
        "id": grant["id"],
        "granter_id": _id(grant["granter"]),
        "grantee_id": _id(grant["grantee"]),
        "scopes": grant["scopes"],
        "expires_at": grant["expires_at"],
        "revoked_at": grant["ended_at"] if revoked else None,
    }


def _id(party: shapes.Party) -> str:
    """The uid, or the address of whom nobody is told about."""
    return party["uid"] or f"@{party['nick']}"


def _plain(mail: shapes.Mail) -> answers.PlainMessage:
    return {
        "id": mail["id"],
        "sender_id": mail["from"]["uid"],
        "sender_name": mail["from"]["nick"],
        "recipient_id": mail["to"]["uid"],
        "subject": mail["subject"],
        "body": whole_text(mail["text"], mail["parts"]),
        "thread_id": mail["thread"] or None,
        "created_at": mail["sent_at"],
        "read_at": mail["updated_at"] if mail["state"] in READ else None,
    }
