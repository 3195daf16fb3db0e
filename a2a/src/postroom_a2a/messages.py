"""A2A 1.0 Messages as JSON: the one place that knows their shape (A2A specification 1.0, section 4.1.4)."""

from __future__ import annotations

from typing import Any

from postroom_a2a.bounds import MAX_CONTEXT
from postroom_a2a.errors import InvalidInput

ROLE_USER = "ROLE_USER"
ROLE_AGENT = "ROLE_AGENT"


def text_message(
    message_id: str, text: str, *, role: str = ROLE_AGENT, context_id: str = ""
) -> dict[str, Any]:
    """A Message with one text part.

    Args:
        role: `ROLE_USER` for a person, `ROLE_AGENT` for an agent.
        context_id: groups messages of one conversation, "" for none.

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
    """The text parts of a Message, one per line; parts of other kinds are left out."""
    return "\n".join(texts_of(message))


def texts_of(holder: dict[str, Any]) -> list[str]:
    """The texts of the text parts of a Message or an Artifact, which may be anything."""
    parts = holder.get("parts")
    if not isinstance(parts, list):
        return []
    return [
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]


def files_of(holder: dict[str, Any]) -> list[dict[str, str]]:
    """The parts of a Message or an Artifact that are named by a URL, as `{"url", "mediaType", "filename"}`."""
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


def context_fault(context: object) -> str:
    """What is wrong with the context id of a Message, "" if nothing is."""
    if not isinstance(context, str):
        return "a context id has to be a text"
    if len(context) > MAX_CONTEXT:
        return f"a context id has at most {MAX_CONTEXT} characters, and this one has {len(context)}"
    return ""


def context_of(message: dict[str, Any]) -> str:
    """The context id of a Message, "" if it has none that can be one (`context_fault`)."""
    context = message.get("contextId", "")
    return "" if context_fault(context) else context
