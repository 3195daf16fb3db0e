"""A question to the audit log, and whether a line answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from postroom.errors import InvalidInput, PostroomError
from postroom.protocol.audit import DENIED, AuditRecord
from postroom_a2a.times import format_time, parse_time

_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Only the field itself matches: a quote within a JSON text is written with a backslash.
_AT = re.compile(rb'"at":\s*"([0-9TZ:.-]*)"')
_ORG = re.compile(rb'"org":\s*"([^"\\]*)"')


class Match(Enum):
    """How a line stands to a query: wanted, left out as plumbing, or about something else."""

    WANTED = "wanted"
    OMITTED = "omitted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Query:
    """Which records a reader wants; an empty field does not narrow.

    Attributes:
        org: the records are this organisation's, or about the log itself.
        task: id; the records are about it, or caused by it.
        since: a time as records have it (`parse_since`); so written, times compare as texts.
        plumbing: include frames that only keep a connection alive.
    """

    org: str
    worker: str = ""
    task: str = ""
    since: str = ""
    denied: bool = False
    plumbing: bool = True

    def match(self, line: bytes) -> Match:
        """How `line` stands to this query."""
        record = self._record(line)
        if record is None:
            return Match.OTHER
        return Match.OMITTED if record.plumbing and not self.plumbing else Match.WANTED

    def _record(self, line: bytes) -> AuditRecord | None:
        for word in (self.worker, self.task, DENIED if self.denied else ""):
            if word and word.encode() not in line:  # cheaper than to decode it
                return None
        if self.since and _at(line) < self.since:
            return None
        try:
            record = AuditRecord.decode(line)
        except InvalidInput:
            return None
        wanted = (
            record.org in ("", self.org)
            and self.worker in ("", record.worker, record.principal)
            and (not self.task or self.task in (record.task, record.cause_task))
            and (not self.denied or record.verdict == DENIED)
        )
        return record if wanted else None


def _at(line: bytes) -> str:
    found = _AT.search(line)
    return found[1].decode() if found else ""


def org_of(line: bytes) -> str:
    """The organisation in `line`, "" for none."""
    found = _ORG.search(line)
    return found[1].decode("utf-8", "replace") if found else ""


def parse_since(text: str, now: float) -> str:
    """The time, as records have it, for `10m`, `2h` or `3d` before `now`, or for an RFC 3339 time."""
    span = _SPAN.fullmatch(text)
    if span:
        return format_time(max(0.0, now - int(span[1]) * _SECONDS[span[2]]))
    try:
        return format_time(parse_time(text))
    except PostroomError as error:
        raise InvalidInput(
            f"{text[:40]!r} is not a time", remedy=f"10m, 2h, 3d, or like {format_time(now)}"
        ) from error
