"""One line of the audit log: what passed a wall or was refused, and the message or task behind it.

The gateway writes it for sandboxed workers, and a tap on the server for agents without a sandbox, in one format. It
holds subjects, URLs without their queries, sizes and ids; never a payload or a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from postroom.errors import InvalidInput

OUT, IN = "out", "in"
"""Directions, seen from the agent."""

PLUMBING = "plumbing"
"""Verb of a line that counts the plumbing of a while."""

ALLOWED, DENIED = "allowed", "denied"
"""Verdicts: forwarded, or refused for `reason`."""

GATEWAY, SERVER, API = "gateway", "server", "api"
"""The observer: the gateway, before it let the act pass; a tap on the server, afterwards; or the control plane, which
records what people and external agents have changed over its API.
"""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audited act; fields that do not apply are empty, and left out of the JSON.

    Attributes:
        at: RFC 3339, UTC, milliseconds.
        by: `gateway`, `server` or `api`.
        org, worker: the organisation and the uid that the door, or the server, has authenticated.
        connection: name that the lines of one connection share.
        protocol: `nats`, `http` (the control plane's API), `egress` (HTTP to elsewhere) or `tunnel` (CONNECT);
            `api` for an act of `principal`.
        direction: `out` from the agent or `in` to it.
        verb: `plumbing` (see `PLUMBING`); `PUB`, `HPUB`, `SUB`, `UNSUB`, `MSG`, `HMSG`, `CONNECT`, `-ERR`; an
            HTTP method; `open`, `close`.
        url: of an HTTP request, without user, query and fragment; `host:port` of a tunnel.
        size: bytes of headers and payload; on `close` the bytes that passed.
        count: frames of `size` bytes since the last line of plumbing, in such a line; else 0.
        verdict: `allowed` or `denied`.
        reason: why it was denied, or how the connection ended.
        status: of an HTTP answer, else 0.
        message: id of the message (`Nats-Msg-Id`), where there is one.
        task: id of the task that the subject names.
        principal, nick, key: who acted over the API: uid, name at that time, and the id of the key.
        client: address that the act came from; behind a proxy that the settings name, the one that it tells.
        about: id of what an act has made or changed, if it is no message, task or worker.
        cause_message, cause_task: the worker's message or task at that time, as its own records claim.
        cause_exact: the worker had no other message or task.
    """

    at: str
    by: str = GATEWAY
    org: str = ""
    worker: str = ""
    connection: str = ""
    protocol: str = ""
    direction: str = ""
    verb: str = ""
    subject: str = ""
    url: str = ""
    size: int = 0
    count: int = 0
    verdict: str = ALLOWED
    reason: str = ""
    status: int = 0
    message: str = ""
    task: str = ""
    cause_message: str = ""
    cause_task: str = ""
    cause_exact: bool = False
    principal: str = ""
    nick: str = ""
    key: str = ""
    about: str = ""
    client: str = ""

    def encode(self) -> bytes:
        """One JSON line, its end included."""
        record = {
            name: getattr(self, name) for name in _NAMES if getattr(self, name) or name in _ALWAYS
        }
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"

    @property
    def plumbing(self) -> bool:
        """Whether the line counts plumbing: beats, pulls, acknowledgements, answers."""
        if self.verdict != ALLOWED or self.protocol != "nats":
            return False
        tokens = self.subject.split(".")
        return (
            self.verb in {PLUMBING, "CONNECT", "SUB", "UNSUB"}
            or tokens[0] in {"_I", "$JS"}
            or tokens[:2] == ["system", "discovery"]
            or (tokens[0], tokens[2:]) == ("worker", ["status"])
        )

    @classmethod
    def decode(cls, line: bytes | str | Mapping[str, Any]) -> AuditRecord:
        """The record in a line; it ignores fields of later versions."""
        try:
            record = line if isinstance(line, Mapping) else json.loads(line)
            return cls(**{name: record[name] for name in _NAMES if name in record})
        except (ValueError, TypeError) as error:
            raise InvalidInput("not a record of the audit log") from error


_NAMES = tuple(field.name for field in fields(AuditRecord))
_ALWAYS = frozenset({"at", "by", "verdict"})
