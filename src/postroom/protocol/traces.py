"""To which trace a message belongs: W3C Trace Context (level 1), kept in the Message's metadata. Pure.

It is the sender's word, and decides nothing: who watches finds together what was done for one request. What is
malformed counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TRACEPARENT = "traceparent"
"""Header of HTTP, and key in the metadata of a Message."""

VARIABLE = "TRACEPARENT"
"""The variable that tells it to a program."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]{0,256})?")


def checked(text: object) -> str:
    """The `traceparent` in a text, in the form of version 00; "" where there is none."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return ""
    version, trace, span, flags, more = found.groups()
    if version == "ff" or not trace.strip("0") or not span.strip("0"):
        return ""
    if version == "00" and more:
        return ""
    # A later version begins with these four fields, of whose flags 00 knows one.
    return f"00-{trace}-{span}-{flags if version == '00' else f'{int(flags, 16) & 1:02x}'}"


def trace_of(message: Mapping[str, Any]) -> str:
    """The `traceparent` of an A2A Message that anyone may have made, "" for none."""
    metadata = message.get("metadata")
    return checked(metadata.get(TRACEPARENT)) if isinstance(metadata, Mapping) else ""


def traced(message: dict[str, Any], trace: str) -> dict[str, Any]:
    """The message as one of that trace; "" leaves it as it is."""
    if not trace:
        return message
    return {**message, "metadata": {**(message.get("metadata") or {}), TRACEPARENT: trace}}
