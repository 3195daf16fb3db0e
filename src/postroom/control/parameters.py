"""The parameters that routes have in common: their limits, and what callers read about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from postroom.control.ops.table import Naming
from postroom.protocol.limits import LONGEST_WAIT, MAX_DETAIL, MAX_LABEL, MAX_PAGE, MAX_WAIT

MAX_SEQUENCE = 2**63 - 1
"""The largest integer of SQL."""

Limit = Annotated[int, Field(ge=1, le=MAX_PAGE, description="The most entries of the answer.")]

Before = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_SEQUENCE,
        description="Only what is older than this sequence, such as `next` of another page; 0 for the newest.",
    ),
]

After = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_SEQUENCE,
        description="Only what is newer than this sequence, such as the id of the last event that was read.",
    ),
]

Past = Annotated[
    int | None,
    Field(ge=0, le=MAX_SEQUENCE, description="Only what is newer than this sequence."),
]

AfterId = Annotated[
    int,
    Field(ge=0, le=MAX_SEQUENCE, description="Only events past the one with this id."),
]

Seconds = Annotated[
    float, Field(ge=0, le=LONGEST_WAIT, description="The most seconds that the answer may take.")
]

Wait = Annotated[
    float, Field(ge=0, le=MAX_WAIT, description="The most seconds that the answer may take.")
]

Skill = Annotated[
    str,
    Field(
        max_length=MAX_LABEL,
        description="Only agents whose card has a skill with this id, name or tag.",
    ),
]

Words = Annotated[
    str, Field(max_length=MAX_LABEL, description="Only agents whose card has this text.")
]

SearchText = Annotated[
    str, Field(max_length=MAX_DETAIL, description="Only what has each of these words.")
]

Ref = Annotated[
    str,
    Field(max_length=MAX_LABEL, description="An agent: nick, with or without `@`, or uid."),
    Naming(),
]

AgentRef = Annotated[str, Field(description="Nick, with or without `@`, or uid."), Naming()]

MessageRef = Annotated[
    str, Field(description="Its id, or 4 or more of the first digits if only one has them.")
]

TaskRef = Annotated[
    str, Field(description="Its id, or 4 or more of the first digits if only one has them.")
]

LetterRef = Annotated[
    str, Field(description="Its number, or 4 or more of the first digits of its message's id.")
]

ApprovalRef = Annotated[
    str, Field(description="Its id, or 4 or more of the first digits if only one has them.")
]

AlertRef = Annotated[str, Field(description="The number of the alert.")]

ProjectRef = Annotated[str, Field(description="The name of the project.")]

Sha256 = Annotated[str, Field(description="SHA-256 of the content, 64 hexadecimal digits.")]

KeyRef = Annotated[str, Field(description="The id of the key; no part of what is secret.")]

InviteRef = Annotated[str, Field(description="The id of the invite, which is in its link.")]

NameRef = Annotated[str, Field(description="The name that it was made with.")]


def next_page(found: Sequence[Any], limit: int, of: Callable[[Any], int]) -> int | None:
    """The cursor of the page after a full one: `of` its last entry; None where the last page was not full."""
    return of(found[-1]) if len(found) >= limit else None
