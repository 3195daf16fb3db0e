"""The audit log's route as a method (docs/api.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from postroom.client.calls import Calls, given
from postroom.errors import ProtocolViolation

SILENCE = 300.0
"""Seconds to wait for the next record of what is there: a long log takes time to search."""

FOLLOW_SILENCE = 45.0
"""Seconds without a byte after which a followed log counts as lost; empty lines come every 15 s."""


class AuditCalls(Calls):
    """The audit log, as its operator."""

    def audit(
        self,
        *,
        worker: str = "",
        task: str = "",
        since: str = "",
        denied: bool = False,
        plumbing: bool = True,
        limit: int = 0,
        follow: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Records of the audit log as they come, oldest first (fields: `postroom.protocol.audit.AuditRecord`).

        Args:
            worker: nick or uid.
            task: id, or 6 or more digits of it.
            since: RFC 3339, or `10m`, `2h`, `3d`.
            denied: refused ones alone.
            plumbing: also what carries the messages and tells of none; else one of the records is
                `{"omitted": N}`, where there was some.
            limit: the last so many of what is there, 0 for all.
            follow: go on with what comes, until the post room ends.

        Raises:
            PostroomError: the post room refused, or could not be reached.
        """
        query = given(worker=worker.removeprefix("@"), task=task, since=since, limit=limit)
        query |= {name: "true" for name, on in (("denied", denied), ("follow", follow)) if on}
        if not plumbing:
            query["plumbing"] = "false"
        silence = FOLLOW_SILENCE if follow else SILENCE
        with self.transport.exchange("GET", "/v1/audit", silence=silence, params=query) as answer:
            for line in answer.iter_lines():
                if line.strip():
                    yield _record(line)


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ProtocolViolation("a line of the audit log is not JSON") from error
    if not isinstance(record, dict):
        raise ProtocolViolation("a line of the audit log is no JSON object")
    return record
