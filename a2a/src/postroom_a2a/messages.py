"""A2A 1.0 Messages as JSON (specification, section 4.1.4): the one place that knows their shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from postroom_a2a.bounds import MAX_CONTEXT
from postroom_a2a.errors import InvalidInput

ROLE_USER = "ROLE_USER"
ROLE_AGENT = "ROLE_AGENT"

CONTENTS = ("text", "data", "url", "raw")
"""Members of which a part has exactly one (section 4.1.6)."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*")


def text_message(
    message_id: str, text: str, *, role: str = ROLE_AGENT, context_id: str = ""
) -> dict[str, Any]:
    """A Message with one text part.

    Args:
        context_id: groups the messages of one conversation, "" for none.

    Raises:
        InvalidInput: the context id is too long.
    """
    if fault := context_fault(context_id):
        raise InvalidInput(fault)
    message: dict[str, Any] = {"messageId": message_id, "role": role, "parts": [{"text": text}]}
    if context_id:
        message["contextId"] = context_id
    return message


def text_of(message: dict[str, Any]) -> str:
    """The text parts of a Message, one per line, without parts of other kinds."""
    return "\n".join(texts_of(message))


def texts_of(holder: dict[str, Any]) -> list[str]:
    """The texts in a Message or an Artifact, which may be malformed."""
    parts = holder.get("parts")
    if not isinstance(parts, list):
        return []
    return [
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]


def files_of(holder: dict[str, Any]) -> list[dict[str, str]]:
    """The URL parts of a Message or an Artifact, as `{"url", "mediaType", "filename"}`."""
    parts = holder.get("parts")
    if not isinstance(parts, list):
        return []
    return [
        {
            "url": part["url"],
            "mediaType": _word(part, "mediaType"),
            "filename": _word(part, "filename"),
        }
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("url"), str)
    ]


def _word(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def part_fault(part: object) -> str:
    """The fault of a part, as text that follows its number, "" for none. Unknown members are no fault."""
    if not isinstance(part, Mapping):
        return "is not an object"
    # In ProtoJSON null stands for a member that is not there, except where null is the data.
    given = [name for name in CONTENTS if part.get(name) is not None]
    given = given or [name for name in ("data",) if name in part]
    if len(given) != 1:
        return f"needs exactly one of {', '.join(CONTENTS)}"
    for name in ("text", "url", "raw", "mediaType", "filename"):
        if not isinstance(part.get(name), str | None):
            return f"has a {name} that is not a text"
    if not isinstance(part.get("metadata"), Mapping | None):
        return "has metadata that are not an object"
    if given == ["url"] and not part["url"]:
        return "has a url that is empty"
    if given == ["raw"] and not _is_base64(part["raw"]):
        return "has a raw that is not base64"
    return ""


def _is_base64(text: str) -> bool:
    # ProtoJSON takes both alphabets, with or without the padding.
    bare = text.rstrip("=")
    return len(text) - len(bare) <= 2 and len(bare) % 4 != 1 and _BASE64.fullmatch(bare) is not None


def context_fault(context: object) -> str:
    """The fault of a context id as text, "" for none."""
    if not isinstance(context, str):
        return "a context id has to be a text"
    if len(context) > MAX_CONTEXT:
        return f"a context id has at most {MAX_CONTEXT} characters, and this one has {len(context)}"
    return ""


def context_of(message: dict[str, Any]) -> str:
    """The context id of a Message, "" if it has none or a faulty one (`context_fault`)."""
    context = message.get("contextId", "")
    return "" if context_fault(context) else context
