"""The audit log as lines of JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import StreamingResponse

from postroom.audit.reading import Query as Wanted
from postroom.audit.reading import parse_since
from postroom.control.ops.table import Answer, Operations
from postroom.control.parameters import Ref
from postroom.control.parts import Parts
from postroom.errors import NotFound
from postroom.protocol.ids import UID
from postroom.protocol.limits import MAX_LABEL, MAX_LINES
from postroom.protocol.principal import Scope

Limit = Annotated[
    int, Field(ge=0, le=MAX_LINES, description="The last so many of what is there; 0 for all.")
]


LINES = Answer(
    200,
    str,
    "application/x-ndjson",
    "Records of the audit log, a line each.",
    '{"at":"2026-01-31T12:00:00.000Z","by":"gateway","verdict":"denied","verb":"PUB"}\n',
)


Denied = Annotated[bool, Field(description="Only what was refused.")]
Plumbing = Annotated[bool, Field(description="Also what carries the messages.")]


Follow = Annotated[bool, Field(description="Go on with what comes.")]
About = Annotated[
    str,
    Field(max_length=MAX_LABEL, description="A task: its id, or 6 or more of the first digits."),
]


Since = Annotated[
    str, Field(max_length=MAX_LABEL, description="An RFC 3339 time, or `10m`, `2h`, `3d`.")
]


operations = Operations()


@operations.get("/v1/audit", Scope.OPERATE, fails=(NotFound,), answers=(LINES,))
async def read(
    parts: Parts,
    worker: Ref = "",
    task: About = "",
    since: Since = "",
    limit: Limit = 0,
    *,
    denied: Denied = False,
    plumbing: Plumbing = True,
    follow: Follow = False,
) -> StreamingResponse:
    """Read the audit log, the oldest record first.

    Lines of JSON; an organisation sees its own records. Without `plumbing` a line `{"omitted": N}` follows what is
    there; with `follow` it goes on with what comes, and an empty line stands for 15 s of silence.
    """
    wanted = Wanted(
        org=parts.audit.org,
        worker=await parts.uid_of(worker),
        task=await _task(parts, task),
        since=parse_since(since, parts.audit.clock()) if since else "",
        denied=denied,
        plumbing=plumbing,
    )
    lines = parts.audit.stream(wanted, limit=limit, follow=follow)
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


async def _task(parts: Parts, ref: str) -> str:
    """The id of task `ref`; a whole id counts even if only the log remembers its task."""
    if not ref:
        return ""
    try:
        return (await parts.tasks.find(ref)).id
    except NotFound:
        if not UID.fullmatch(ref):
            raise
        return ref
