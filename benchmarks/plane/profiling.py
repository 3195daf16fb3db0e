"""Where the processor time of a control plane goes, by part, by module and by function."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from benchmarks.plane.costs import TEMPLATE, WORKERS, WORKS
from benchmarks.plane.inside import watched_room
from benchmarks.plane.load import PLANE, Loaded
from benchmarks.plane.sides import Side

PARTS = (
    ("gateway", ("postroom/gateway/", "postroom/audit/")),
    ("NATS client", ("postroom_a2a/nats/", "postroom/bus/")),
    (
        "HTTP",
        ("postroom/http/", "uvicorn", "h11/", "httptools", "starlette", "fastapi", "pydantic"),
    ),
    ("HTTP", ("postroom/control/",)),
    ("SQL", ("sqlalchemy", "postroom/store/", "sqlite3", "psycopg")),
    (
        "fold",
        ("postroom/projection/", "mail/projection.py", "tasks/rules.py", "clerk.py", "due.py"),
    ),
    ("services", ("postroom/mail/", "postroom/tasks/", "postroom/directory/")),
    ("rest of Postroom", ("postroom/", "postroom_a2a/")),
    ("loop", ("asyncio/", "uvloop", "selectors.py")),
)
"""The first of these whose path is in the innermost frame that has one of them; "other" if none has."""

_SHOWN = 40


async def profile(side: Side, name: str, concurrent: int, count: int) -> str:
    """The profile of `count` requests of the work `name`, as text."""
    with watched_room(side, profile=True) as watched:
        room = watched.room
        uids = [room.idle_worker(f"w{number}", TEMPLATE)["uid"] for number in range(WORKERS)]
        async with AsyncExitStack() as stack:
            loaded = Loaded(side, room, uids, stack)
            whom = uids[:1] if concurrent == 1 else uids
            await loaded.batch(WORKS[name], whom, 60, concurrent)
            watched.look()
            before = watched.look()["counters"]
            done = await loaded.batch(WORKS[name], whom, count, concurrent)
            seen = watched.look()
    counts = {key: (value - before.get(key, 0)) / count for key, value in seen["counters"].items()}
    head = (
        f"{side.name} {side.commit}, {name}, {concurrent} at a time: "
        f"{done.each(PLANE):.1f} ms of processor time each, with the sampler"
    )
    calls = ", ".join(f"{value:.2f} {key}" for key, value in counts.items() if key != "waiting")
    return "\n".join([head, f"database: {calls} each", "", *shares(seen["stacks"])])


def shares(stacks: Iterable[tuple[str, list[str], int]]) -> list[str]:
    """Lines that say which share of the time each part, module and function took."""
    stacks = list(stacks)
    total = sum(spent for _, _, spent in stacks) or 1

    def by(key: Callable[[str, list[str]], Iterable[str]]) -> collections.Counter[str]:
        found: collections.Counter[str] = collections.Counter()
        for thread, stack, spent in stacks:
            for each in set(key(thread, stack)):
                found[each] += spent
        return found

    lines = []
    tables: tuple[tuple[str, Callable[[str, list[str]], Iterable[str]]], ...] = (
        ("thread", lambda thread, _: [_thread(thread)]),
        ("part (innermost frame that belongs to one)", lambda t, s: [_part(t, s)]),
        ("on the stack", lambda _, s: [package for package in _ANYWHERE if _has(s, package)]),
        ("who runs in the main thread (outermost frame of ours)", _outermost),
        ("function alone", lambda _, s: [_where(s[0])] if s else []),
        ("function of ours with what it calls", lambda _, s: [_where(f) for f in s if _ours(f)]),
        ("line of ours with what it calls", lambda _, s: [_line(f) for f in s if _ours(f)]),
    )
    for title, key in tables:
        lines.append(f"{title}:")
        found = by(key).most_common(_SHOWN)
        lines += [f"  {100 * spent / total:5.1f} %  {each}" for each, spent in found]
        lines.append("")
    return lines


_ANYWHERE = (
    "sqlalchemy",
    "json/",
    "ssl",
    "logging/",
    "contextlib",
    "pydantic",
    "asyncio/",
    "dataclasses",
)


def _has(stack: list[str], package: str) -> bool:
    return any(package in frame for frame in stack)


def _thread(name: str) -> str:
    return name.rstrip("0123456789").rstrip("_-")


def _part(thread: str, stack: list[str]) -> str:
    if thread.startswith("store"):
        return "SQL threads"
    if thread != "main":
        return f"thread {_thread(thread)}"
    for frame in stack:
        for part, paths in PARTS:
            if any(path in frame for path in paths):
                return part
    return "other"


def _outermost(thread: str, stack: list[str]) -> list[str]:
    if thread != "main":
        return []
    for frame in reversed(stack):
        if _ours(frame):
            return [_where(frame)]
    return ["the loop itself"]


_FRAME = ("cli/", "control/up.py", "__main__", "watched.py", "click", "control/__init__")


def _ours(frame: str) -> bool:
    if "site-packages" in frame or any(part in frame for part in _FRAME):
        return False
    return "/postroom/" in frame or "/postroom_a2a/" in frame


def _where(frame: str) -> str:
    path, _, rest = frame.partition(":")
    return f"{_short(path)} {rest.partition(':')[2]}"


def _line(frame: str) -> str:
    path, line, name = frame.split(":", 2)
    return f"{_short(path)}:{line} {name}"


def _short(path: str) -> str:
    for mark in ("site-packages/", "/src/", "/python3.11/"):
        path = path.rpartition(mark)[2]
    return path
