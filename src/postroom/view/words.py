"""What people call things: addresses, times, sizes, parts of messages. Text of agents is made harmless here."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from postroom.protocol.blobs import is_blob
from postroom.protocol.ids import MAX_ADDRESS
from postroom.protocol.parts import (
    FILE,
    TEXT,
    kind_of,
    media_type_of,
    name_in,
    size_in,
)
from postroom.protocol.receipts import State
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

Part = Mapping[str, Any]
Holder = Mapping[str, Any]
"""What has `parts` and perhaps `files` in the API's JSON: a message, a post, a dead letter, an artifact, a task."""


def part_lines(holder: Holder) -> list[str]:
    """A line for each part that is no text, such as `file report.pdf, 12.3 kB, application/pdf`."""
    return [part_line(part, size) for part, size in sized(holder) if kind_of(part) != TEXT]


def part_line(part: Part, size: int | None) -> str:
    """One part in a line; `size` in bytes, None for an unknown one."""
    kind, name = kind_of(part), name_in(part)
    what = f"{kind} {name}" if name else kind
    if not kind:
        keys = one_line(", ".join(str(key) for key in part), 60)
        what = f"a part of a kind that this version does not know ({keys})"
    words = [what] if size is None else [what, size_of(size)]
    line = ", ".join([*words, one_line(media_type_of(part), 60)])
    url = part.get("url")
    if kind != FILE or not isinstance(url, str) or is_blob(url):
        return line
    return f"{line}, at {one_line(url, 200)}"


def gist(holder: Holder) -> str:
    """What is said, in a line: the subject, the text, and what else there is."""
    subject = holder.get("subject") or ""
    said = [one_line(holder["text"]), *(f"[{line}]" for line in part_lines(holder))]
    return ": ".join(each for each in (one_line(subject), " ".join(filter(None, said))) if each)


def sized(holder: Holder) -> Iterator[tuple[Part, int | None]]:
    """The parts, each with its size in bytes where that is known; none from a post room that is older than parts."""
    sizes = {file["url"]: file["size"] for file in holder.get("files", ())}
    for part in holder.get("parts", ()):
        size = size_in(part)
        yield part, sizes.get(part.get("url")) if size is None else size


def ago(then: str | None, now: float) -> str:
    """`3 s ago` for an RFC 3339 time; `unknown` for None."""
    return "unknown" if then is None else f"{span(now - parse_time(then))} ago"


def span(seconds: float) -> str:
    """A length of time in its largest unit, such as `3 s` or `12 min`."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def expiry(mail: Any, now: float) -> str:
    """When a message is dead that waits to be seen, such as `expires in 3 min`; "" where it stays."""
    at = mail.get("expires_at")
    waits = mail.get("state") in (State.ACCEPTED, State.DELIVERED)
    return f"expires in {span(parse_time(at) - now)}" if at and waits else ""


def size_of(size: int | None) -> str:
    """`4.8 MB` for a number of bytes; `unknown size` for None."""
    if size is None:
        return "unknown size"
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def clock(at: str, now: float) -> str:
    """Local time of day of an RFC 3339 time, with the date unless it is today's."""
    then = time.localtime(parse_time(at))
    same_day = then[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", then)


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Sorts names as people count, in every list: `c2` before `c10`."""
    return tuple((text, int(digits or -1)) for text, digits in _COUNTED.findall(name))


_COUNTED = re.compile(r"([^0-9]*)([0-9]{0,18})")


def address(party: Any) -> str:
    """`@nick` of a party, or its uid where it has no nick; a text stays as it is."""
    if not isinstance(party, dict):
        return one_line(str(party), 80)
    name = f"@{party['nick']}" if party.get("nick") else str(party.get("uid", "?"))
    return one_line(name, MAX_ADDRESS)


def lines_of(text: str) -> list[str]:
    """The lines of an agent's text, without empty ones at its end; all three ends of line count."""
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
