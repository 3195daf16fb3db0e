"""Actions from records: what an agent says in a line or over HTTP about messages, feeds and itself.

Each maker raises InvalidInput if a field is missing or not what it has to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.errors import InvalidInput
from postroom.sidecar.adapters.actions import Find, Post, Reply, Seen, Send, SetStatus
from postroom.sidecar.adapters.fields import (
    flag_field,
    key_field,
    name_field,
    ref_field,
    seconds_field,
    text_field,
)

_STATES = ("working", "idle")


def make_send(record: Mapping[str, Any]) -> Send:
    """The `send` in a record."""
    return Send(
        to=text_field(record, "to"),
        text=text_field(record, "text"),
        expects_reply=flag_field(record, "expects_reply"),
        key=key_field(record),
        expires_in=seconds_field(record, "expires_in"),
        ref=ref_field(record),
    )


def make_reply(record: Mapping[str, Any]) -> Reply:
    """The `reply` in a record."""
    send = make_send(record)
    return Reply(send.to, send.text, send.expects_reply, send.key, send.expires_in, send.ref)


def make_post(record: Mapping[str, Any]) -> Post:
    """The `post` in a record."""
    project = text_field(record, "project", "").removeprefix("#")
    return Post(text_field(record, "text"), project, key_field(record), ref_field(record))


def make_seen(record: Mapping[str, Any]) -> Seen:
    """The `seen` in a record."""
    return Seen(text_field(record, "id"), ref_field(record))


def make_find(record: Mapping[str, Any]) -> Find:
    """The `find` in a record."""
    return Find(name_field(record, "skill"), ref_field(record))


def make_status(record: Mapping[str, Any]) -> SetStatus:
    """The `status` in a record."""
    state = text_field(record, "state")
    if state not in _STATES:
        raise InvalidInput(f"'state' has to be one of {', '.join(_STATES)}")
    return SetStatus(state, text_field(record, "detail", ""))
