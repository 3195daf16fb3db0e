"""Record a session in the screen: `python -m tools.recording` writes docs/screen.svg, for docs/terminal.md.

It is the demonstration of `make demo`, on a real post room with real workers, answered by a script. Each moment is the
screen as Textual exports it; the picture shows one after the other. Ids, times, the port and the folder are replaced by
fixed ones of the same width, so that a new recording differs where the screen does.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "screen.svg"
SIZE = (120, 34)
SHOWN = 4.0
"""Seconds for each moment."""

PATIENCE = 60.0
"""Seconds until a moment must have come."""

_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_CLIPS = re.compile(
    r'\s*<clipPath id="[^"]*-line-\d+">.*?</clipPath>| clip-path="url\(#[^"]*-line-\d+\)"',
    re.DOTALL,
)
"""A clip for each line, which are a third of the picture; no line is longer than the screen."""

_SAME = (
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "09:41:20"),
    (re.compile(r"(?<!:)\b\d\d:\d\d\b(?!:)"), "09:41"),
    (re.compile(r"127\.0\.0\.1:\d{5}"), "127.0.0.1:42800"),
    (re.compile(r"postroom-demo-\w{8}"), "postroom-demo-3f0c9a1e"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8}\b"), "3f0c9a1e"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{12}\b"), "3f0c9a1e52b7"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "3f0c9a1e" * 4),
)
"""What differs from run to run, and what stands for it."""


async def record() -> list[str]:
    """The moments, as SVG."""
    sys.path.insert(0, str(ROOT / "examples"))
    prepared = import_module("scene").prepared
    moments: list[str] = []
    with prepared(pause=0.4) as (scene, _):
        async with scene.run_test(size=SIZE) as pilot, asyncio.timeout(2 * PATIENCE):

            async def moment() -> None:
                await pilot.pause(0.6)  # what comes with it has come, too
                moments.append(scene.export_screenshot(title="postroom"))

            await told(pilot, "works on a task")
            await look_at_fixer(pilot)
            await pilot.pause(2.0)
            await moment()
            for wanted, key in (
                ("question", "1 enter"),
                ("asks before", "y"),
                ("asks before", "y"),
            ):
                await told(pilot, wanted)
                await opened(pilot)
                await moment()
                await closed(pilot, key)
            await told(pilot, "Done.")
            await look_at_fixer(pilot)
            await moment()
            await pilot.press("3")
            await opened(pilot, "d")
            await moment()
    return moments


async def told(pilot: Pilot[Any], wanted: str) -> None:
    """Wait until the guide says something with these words."""
    guide = pilot.app.screen_stack[0].query_one("#guide", Static)
    async with asyncio.timeout(PATIENCE):
        while wanted not in str(guide.content):
            await pilot.pause(0.05)


async def look_at_fixer(pilot: Pilot[Any]) -> None:
    """Choose @fixer, as its row does, then #demo: the right goes on with @fixer."""
    from postroom.tui.news import Chosen, Target

    app: Any = pilot.app
    app.post_message(Chosen(Target("fixer", app.room.worker("fixer")["uid"])))
    await pilot.pause(0.3)
    app.post_message(Chosen(Target("demo")))
    await pilot.pause(0.3)


async def opened(pilot: Pilot[Any], key: str = "ctrl+n") -> None:
    """Open a dialog by its key, unless it has opened by itself."""
    async with asyncio.timeout(PATIENCE / 4):
        while len(pilot.app.screen_stack) < 2:
            await pilot.press(key)
            await pilot.pause(0.5)


async def closed(pilot: Pilot[Any], keys: str) -> None:
    """Answer it; a key right after it has opened does not count."""
    async with asyncio.timeout(PATIENCE / 4):
        while len(pilot.app.screen_stack) > 1:
            await pilot.press(*keys.split())
            await pilot.pause(0.3)


def normalised(svg: str) -> str:
    """The same with fixed ids and times, and without a font from elsewhere."""
    plain = _CLIPS.sub("", _FONT.sub("", svg))
    plain = re.sub(r"\s*<!-- Generated .*? -->", "", plain)
    # Only text that is shown: names of styles and places are no ids of ours.
    return re.sub(r">([^<>]+)</text>", lambda found: f">{_shown(found[1])}</text>", plain)


def _shown(text: str) -> str:
    for pattern, same in _SAME:
        text = pattern.sub(same, text)
    return text


def film(moments: list[str], title: str, *, still: int) -> str:
    """One picture that shows the moments in turn; where nothing moves, that with the number `still`."""
    (size,) = re.findall(r'viewBox="([^"]+)"', moments[0])
    part = 100 / len(moments)
    styles = [
        f"@keyframes turn {{ 0%, {part:.2f}% {{ opacity: 1 }} {part + 0.01:.2f}%, 100% {{ opacity: 0 }} }}",
        f".moment {{ opacity: 0; animation: turn {SHOWN * len(moments):.0f}s step-end infinite }}",
        "@media (prefers-reduced-motion: reduce) { .moment { animation: none } .still { opacity: 1 } }",
    ]
    pieces = []
    for place, svg in enumerate(moments):
        body = re.sub(r"^.*?<svg[^>]*>|</svg>\s*$", "", normalised(svg), flags=re.DOTALL).strip()
        shown = " still" if place == still else ""
        delay = f"animation-delay: {SHOWN * place - SHOWN * len(moments) * (place > 0):.0f}s"
        pieces.append(f'<g class="moment{shown}" style="{delay}">\n{body}\n</g>')
    return "\n".join(
        [
            f'<svg viewBox="{size}" xmlns="http://www.w3.org/2000/svg" role="img">',
            f"<title>{title}</title>",
            "<style>",
            *styles,
            "</style>",
            *pieces,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Record, and write the picture."""
    os.environ |= {"LOGNAME": "maria", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    os.environ.pop("NO_COLOR", None)
    title = "A session in the screen of Postroom"
    # Where nothing moves an approval is shown.
    PICTURE.write_text(film(asyncio.run(record()), title, still=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
