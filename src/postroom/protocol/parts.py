"""The parts of an A2A 1.0 message (specification, section 4.1.6): kind, media type, name and size of each, and
which of them an agent takes, by the media types that its Agent Card names. Pure.

Agents write parts, and a newer A2A may bring kinds that this version does not know. So every function here takes any
JSON value, and a kind that is unknown is an answer, not an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from postroom.errors import ContentNotTaken, InvalidInput
from postroom.protocol.blobs import DEFAULT_MEDIA_TYPE
from postroom.protocol.limits import MAX_LINK
from postroom_a2a.text import one_line

TEXT, DATA, FILE, UNKNOWN = "text", "data", "file", ""
"""Kinds of a part."""

TEXT_TYPE = "text/plain"
DATA_TYPE = "application/json"
"""Media types of a text and of data that name no other."""

MAX_FILE_NAME = 120
"""Bytes of the name that a part's content gets on disk: a file system takes 255, and a copy's number must fit too."""


def kind_of(part: object) -> str:
    """`TEXT`, `DATA` or `FILE` (by URL or with its bytes), `UNKNOWN` for anything else."""
    if not isinstance(part, Mapping):
        return UNKNOWN
    if isinstance(part.get("text"), str):
        return TEXT
    if isinstance(part.get("url"), str) or isinstance(part.get("raw"), str):
        return FILE
    # Last, since null stands for a member that is not there, except where null is the data (ProtoJSON).
    return DATA if "data" in part else UNKNOWN


def media_type_of(part: object) -> str:
    """The media type that a part states, in small letters and without parameters, else that of its kind."""
    stated = part.get("mediaType") if isinstance(part, Mapping) else None
    if isinstance(stated, str) and (word := stated.partition(";")[0].strip().lower()):
        return word
    return {TEXT: TEXT_TYPE, DATA: DATA_TYPE}.get(kind_of(part), DEFAULT_MEDIA_TYPE)


def name_in(part: object) -> str:
    """The file name that a part states, made harmless (`file_name`); "" for none."""
    stated = part.get("filename") if isinstance(part, Mapping) else None
    return file_name(stated) if isinstance(stated, str) else ""


def size_in(part: object) -> int | None:
    """Bytes of the content that a part holds itself; None where only its URL is there, or the kind is unknown."""
    match kind_of(part), part:
        case "text", {"text": str(text)}:
            return len(text.encode(errors="replace"))
        case "data", {"data": data}:
            return len(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
        case "file", {"raw": str(encoded)}:
            return len(encoded.rstrip("=")) * 3 // 4
    return None


def bytes_of(raw: str) -> bytes:
    """The bytes of a `raw`, in either alphabet of base64, with or without its padding (ProtoJSON).

    Raises:
        InvalidInput: it is not base64.
    """
    text = raw.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise InvalidInput("a raw part is not base64") from error


def whole_text(text: str, parts: Iterable[Mapping[str, Any]]) -> str:
    """The text, and a line for each part of another kind, such as `[image/png plot.png blob:sha256:…]`."""
    others = [_named(part) for part in parts if kind_of(part) != TEXT]
    return "\n".join(([text] if text or not others else []) + others)


def file_name(stated: str) -> str:
    """A name that stays in its folder, acts on no terminal, and is neither hidden nor an option; "" if nothing is left.

    An agent chose it. The end of the name stays, since it says of what kind the file is.
    """
    name = one_line(stated.replace("/", "_").replace("\\", "_")).lstrip("-. ").rstrip(". ")
    if len(name.encode()) <= MAX_FILE_NAME:
        return name
    stem, dot, end = name.rpartition(".")
    if not stem or len(end.encode()) > MAX_FILE_NAME // 4:
        return _cut(name, MAX_FILE_NAME)
    return _cut(stem, MAX_FILE_NAME - len(end.encode()) - 1) + dot + end


def _cut(text: str, most: int) -> str:
    """The beginning of `text` that has at most so many bytes."""
    return text.encode()[:most].decode(errors="ignore")


def _named(part: Mapping[str, Any]) -> str:
    words = (media_type_of(part), name_in(part), str(part.get("url", "")))
    return f"[{' '.join(one_line(word, MAX_LINK) for word in words if word)}]"


# ── what an agent takes ──

EVERYTHING = "*/*"

SHOWN_MODES = 8
"""Media types that an error lists."""


def check_takes(
    card: Mapping[str, Any] | None, parts: Iterable[object], nick: str, skill: str = ""
) -> None:
    """Check that the agent takes every part of a message to it; one whose card is not known may say so itself, later.

    Args:
        card: its Agent Card, None for an unknown one.
        skill: id of the skill that is asked for; its own `inputModes` count where it has some.

    Raises:
        ContentNotTaken: it does not; the error names the part, its media type, and what the agent takes.
    """
    if card is None:
        return
    modes = input_modes(card, skill)
    for number, part in enumerate(parts, 1):
        if not takes(modes, part):
            shown = ", ".join(one_line(mode, 80) for mode in modes[:SHOWN_MODES])
            more = " …" if len(modes) > SHOWN_MODES else ""
            raise ContentNotTaken(
                f"@{nick} does not take {_called(number, part)}",
                remedy=f"it takes {shown}{more}; send the content as that, or to another agent",
            )


def input_modes(card: Mapping[str, Any], skill: str = "") -> Sequence[str]:
    """The media types that the agent of a card takes, for one of its skills or ("") for a message."""
    for entry in card.get("skills", ()) if skill else ():
        if entry.get("id") == skill and entry.get("inputModes"):
            return entry["inputModes"]
    return card.get("defaultInputModes") or (EVERYTHING,)


def takes(modes: Iterable[str], part: object) -> bool:
    """Whether one of `modes` (media types, ranges such as `image/*`, or kinds of parts) covers the part."""
    kind, stated = kind_of(part), media_type_of(part)
    # Who reads plain text reads every text as it is, such as Markdown.
    names = {stated, f"{stated.partition('/')[0]}/*", EVERYTHING}
    names |= {TEXT_TYPE} if kind == TEXT else set()
    # Cards of A2A 0.2 name kinds: `text`, `data`, `file`.
    names |= {kind} if kind != UNKNOWN else set()
    return any(mode.partition(";")[0].strip().lower() in names for mode in modes)


def _called(number: int, part: object) -> str:
    name = name_in(part)
    named = f" ({name})" if name else ""
    kind = kind_of(part) or "an unknown kind of part"
    return f"part {number}{named}: {kind}, {one_line(media_type_of(part), 80)}"
