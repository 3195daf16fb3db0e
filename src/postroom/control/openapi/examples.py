"""Examples of answers and bodies, composed of one value for each field."""

from __future__ import annotations

from typing import Any

from postroom.control.openapi.schema import REF, Schema

UID = "9f1c2b3a4d5e6f708192a3b4c5d6e7f8"
OTHER = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
TASK = "5c6d7e8f90a1b2c3d4e5f60718293a4b"
APPROVAL = "7b1c5e2f90a4d3b86c0e1f2a3b4c5d6e"
MESSAGE = "d4e5f60718293a4b5c6d7e8f90a1b2c3"
SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
TIME = "2026-01-31T12:00:00.000Z"
BLOB = f"blob:sha256:{SHA256}"
TEXT = "are you there?"

CARD = {"name": "echo", "version": "1", "skills": [{"id": "echo", "name": "echo"}]}

VALUES: dict[str, Any] = {
    "Remote.address": "https://agents.example/translator/rpc",
    "Remote.binding": "JSONRPC",
    "Remote.credential": "translator",
    "Remote.deadline": 86400.0,
    "Remote.streams": True,
    "Remote.url": "https://agents.example/translator",
    "Remote.version": "1.0",
    "RemoteListed.added": True,
    # Those of one shape come before those of any shape.
    "Activity.by": None,
    "Activity.state": "completed",
    "Activity.text": "All is well.",
    "Activity.what": "ended",
    "Activity.worker": {"uid": UID, "nick": "echo", "kind": "worker"},
    "Alert.id": 7,
    "Alert.kind": "worker-ended",
    "Alert.text": "it ended with exit code 3",
    "Applied.merged": "",
    "approval": None,
    "Approval.default": "deny",
    "Approval.id": APPROVAL,
    "Approval.input": {"command": "make deploy"},
    "Approval.kind": "tool",
    "Approval.message": None,
    "Approval.reason": "",
    "Approval.state": "allowed",
    "Approval.worker": {"uid": UID, "nick": "echo", "kind": "worker"},
    "ApprovalAnswer.id": 44032,
    "ApprovalAnswer.input": None,
    "Approvals.next": None,
    "Controlled.interrupt": None,
    "Control.next": 44032,
    "Control.records": [
        {
            "id": 44032,
            "at": TIME,
            "type": "control_response",
            "request": APPROVAL,
            "decision": "allowed",
            "by": {"uid": OTHER, "nick": "maria"},
            "channel": "cli",
        }
    ],
    "Interrupt.id": 45056,
    "Interrupt.reason": "that is the wrong branch",
    "Interrupt.worker": {"uid": UID, "nick": "echo", "kind": "worker"},
    "Artifact.id": "report",
    "Artifact.name": "report",
    "Artifact.text": "All is well.",
    "AddedPattern.pattern": "Bash(npm test *)",
    "Policy.auto_approve": ["Read", "Bash(git status)"],
    "Policy.auto_deny": ["Bash(*git push*)"],
    "Policy.template": "/home/maria/coder.toml",
    "Policy.worker": {"uid": UID, "nick": "echo", "kind": "worker"},
    "Certificate.names": ["192.0.2.7"],
    "Certificate.not_after": TIME,
    "Current.id": TASK,
    "Current.state": "working",
    "Current.text": "summarise the minutes of Monday",
    "Dead.id": 7,
    "Dead.task": None,
    "Dead.reason": "undeliverable: 3 attempts",
    "Dead.bus_subject": f"worker.{UID}.inbox.{OTHER}",
    "Deadletters.next": None,
    "Difference.cut": False,
    "Difference.text": "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-one\n+two\n",
    "Excess.kind": "messages",
    "Mail.answer": None,
    "Mail.reply_to": None,
    "Mail.state": "delivered",
    "Mail.task": None,
    "Org.name": "acme",
    "Org.state": "open",
    "Piece.id": "report",
    "Piece.name": "report",
    "Post.id": MESSAGE,
    "ProjectEvent.post": None,
    "ProjectEvents.after": "12-7-44032-3-1769860800000000",
    "Problem.detail": "no agent has the address '@nobody'",
    "Problem.type": "urn:postroom:error:unknown-recipient",
    "Problem.title": "No agent has that address.",
    "Problem.status": 404,
    "Problem.code": "unknown-recipient",
    "Problem.remedy": "postroom agents lists them",
    "RemovedOrg.name": "acme",
    "Requeued.id": MESSAGE,
    "Status.org": "default",
    "Push.config": "c1",
    "Push.id": "push_4f1c2b3a5d6e7f809192a3b4c5d6e7f8",
    "Push.next_at": None,
    "Push.reason": "",
    "Push.state": "delivered",
    "Push.status": 204,
    "Push.url": "https://hooks.example.org/tasks",
    "Push.what": "completed",
    "WebhookKeys.public": "whpk_MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=",
    "WebhookKeys.secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
    "RoomChange.bus": True,
    "Saved.orgs": ["acme", "default"],
    "Task.artifacts": [],
    "Task.door": "cli",
    "Task.retry_of": "",
    "Task.retried_as": [],
    "TaskMessage.kind": "request",
    "TaskMessage.text": "summarise the minutes of Monday",
    "Task.id": TASK,
    "Task.state": "working",
    "Task.text": "summarise the minutes of Monday",
    "Task.timed_out": False,
    "TaskEvent.kind": "status",
    "TaskEvent.state": "working",
    "TaskNews.kind": "status",
    "TaskNews.state": "working",
    "Trouble.text": "@echo has ended: it waits",
    "TrustKey.key": "OABQ4MUQJ2EFBTJCYRI3V6SQWDPAF3VNOFHQ3NCDNFDOXEMSLQYYSVIH",
    "TrustKey.role": "operator",
    "TrustKey.state": "active",
    "Reported.next": 18,
    "Worker.state": "idle",
    "Worker.text": "",
    "WorkerChange.state": "idle",
    "WorkerEvents.events": [{"id": 1024, "at": TIME, "worker": UID, "type": "text", "text": TEXT}],
    "Wall.level": "enforced",
    "answer": "",
    "attempt": 1,
    "attempts": 1,
    "audit": "",
    "bus": "",
    "by": {"uid": OTHER, "nick": "maria", "kind": "human"},
    "ca": "",
    "channel": "cli",
    "card": CARD,
    "code": "unknown-recipient",
    "context": "minutes",
    "created_at": TIME,
    "database": "",
    "decision": "allowed",
    "desired": "running",
    "detail": "",
    "ended": "",
    "ended_at": None,
    "expects_reply": True,
    "file": "/backup/postroom.backup",
    "filename": "report.pdf",
    "fingerprint": "3D:0A:" + "5F:" * 29 + "77",
    "folder": "/home/maria/.local/state/postroom/removed/echo",
    "header": "Authorization: Bearer {secret}",
    "id": MESSAGE,
    "kind": "worker",
    "mediaType": "application/pdf",
    "media_type": "application/pdf",
    "message_id": MESSAGE,
    "name": "github",
    "nats_url": "nats://127.0.0.1:4222",
    "next": None,
    "nick": "echo",
    "notes": [],
    "online": True,
    "org": "default",
    "paused_until": None,
    "parts": [{"text": TEXT}],
    "pid": 4711,
    "project": "main",
    "projects": ["main"],
    "provider": "bubblewrap",
    "reason": "",
    "ready": True,
    "redelivered": False,
    "reply_to": MESSAGE,
    "request": MESSAGE,
    "request_text": "summarise the minutes of Monday",
    "requeue_of": None,
    "requeued_as": None,
    "roles": ["agents", "workers"],
    "runner": OTHER,
    "seq": 41,
    "requested": 41,
    "set": True,
    "sha256": SHA256,
    "size": 5,
    "skill": "summarise",
    "state": "working",
    "status_text": "page 2 of 7",
    "subject": "",
    "task": TASK,
    "template": "/home/maria/echo.toml",
    "text": TEXT,
    "thread": "minutes",
    "timed_out": False,
    "title": "make deploy",
    "tls": None,
    "tool": "Bash",
    "tries_left": 5,
    "uid": UID,
    "url": BLOB,
    "Server.url": "http://127.0.0.1:4280",
    "Server.state": "/home/maria/.local/state/postroom",
    "Credential.url": "https://api.github.com/",
    "version": "0.1.0",
    "Cleared.cleared": 2,
    "cut": [],
    "steps": [],
    "skipped": [],
    "unknown": [],
    "listen": [],
    "branch": "postroom/echo",
    "command": "git merge postroom/echo",
    "commits": 2,
    "files": 1,
    "left": [],
    "mode": "worktree",
    "path": "/home/maria/src/app",
    "stderr": [],
    "unenforced": [],
    "changed": [],
    "last_seen": TIME,
    "late": [],
    "who": {"uid": UID, "nick": "echo", "kind": "worker"},
    "CardKeys.keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "postroom-1", "x": "11qYAYKx…"}],
    "Inbox.next": 41,
    "worker": "echo",
    "stored": [7],
    "made_by": "maria",
    "expires_at": None,
    "revoked_at": None,
    "used_at": TIME,
    "scopes": ["read", "send", "task"],
    "method": "key",
    "authority": "",
    "Key.id": "k3f9a1",
    "Key.name": "laptop",
    "Key.state": "valid",
    "NewKey.id": "k3f9a1",
    "NewKey.name": "laptop",
    "NewKey.state": "valid",
    "NewKey.key": "a2a_k3f9a1_…",
    "Principal.key": "k3f9a1",
    "Principal.kind": "human",
    "Principal.nick": "maria",
    "Person.nick": "maria",
    "NewPerson.nick": "maria",
}
"""An example of each field, by its name, or by its shape's name and its own."""

BODIES: dict[str, Any] = {
    "AckBody": {"ids": [MESSAGE], "state": "seen"},
    "AgentBody": {"nick": "ci", "card": {"name": "ci", "description": "Runs the tests."}},
    "AnnouncementBody": {"text": "the build is green"},
    "AnswerBody": {"text": "Monday's, please"},
    "ApplyBody": {"merge": True},
    "ArtifactBody": {"name": "report", "text": "All is well."},
    "BackupBody": {"file": "/backup/postroom.backup", "passphrase": "a long sentence that I know"},
    "CancelBody": {"reason": "no longer needed"},
    "RetryBody": {"key": "once-more-1"},
    "ControlBody": {"type": "control_response", "id": APPROVAL, "decision": "allowed"},
    "CredentialBody": {"name": "github", "host": "api.github.com", "secret": "ghp_…"},
    "DiffBody": {"paths": ["src"]},
    "EventsBody": {"run": "9f1c2b3a", "first": 17, "events": [{"type": "text", "text": "I begin"}]},
    "MessageBody": {"to": "@echo", "text": TEXT},
    "KeyBody": {"name": "laptop", "scopes": ["read", "send"], "expires_in": 2592000},
    "OpeningBody": {"folder": "/srv/projects", "mode": "direct"},
    "OrgBody": {"name": "acme"},
    "PersonBody": {"nick": "maria"},
    "PinBody": {"pin": "2846"},
    "PolicyBody": {"pattern": "Bash(npm test *)"},
    "PostBody": {"text": "the build is green"},
    "RemoteBody": {"url": "https://agents.example/translator", "credential": "translator"},
    "RestartBody": {"wait": 10},
    "RotateBody": {"kind": "agents"},
    "SpawnBody": {"template": '[worker]\nname = "echo"\ncommand = ["python3", "echo.py"]\n'},
    "StatusBody": {"state": "working", "text": "page 2 of 7"},
    "TaskBody": {"skill": "summarise", "text": "the minutes of Monday"},
}
"""An example of each body, by the name of its model."""


def example(schema: Schema, components: dict[str, Schema], shape: str = "", key: str = "") -> Any:
    """An example that has the form of `schema`.

    Args:
        shape, key: where it stands: in the field `key` of `shape`.
    """
    given = VALUES.get(f"{shape}.{key}", VALUES)
    if given is not VALUES:
        return given
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        fields = components[name]["properties"].items()
        required = components[name]["required"]
        return {
            inner: example(field, components, name, inner)
            for inner, field in fields
            if inner in required or f"{name}.{inner}" in VALUES
        }
    if schema.get("type") == "array" and "$ref" in schema["items"]:
        return [example(schema["items"], components)]
    if "anyOf" in schema and "$ref" in schema["anyOf"][0]:
        return example(schema["anyOf"][0], components)
    if key in VALUES:
        return VALUES[key]
    if schema.get("format") == "date-time":
        return TIME
    plain = {"boolean": False, "integer": 1, "object": {}}
    if schema.get("type") in plain:
        return plain[schema["type"]]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], components, shape, key)
    raise KeyError(f"{shape}.{key} has no example: add one to VALUES")
