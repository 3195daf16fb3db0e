"""What reaches the terminal, byte by byte, and what a terminal shows of it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pyte
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot
from textual.widgets import Static

from postroom.tui.looks import native
from postroom.tui.rowlog.log import Block, RowLog

WIDTH, HEIGHT, SIDE = 60, 16, 10

_ACTS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_OURS = re.compile(
    r"\x1b\[[0-9;]*m"  # a style
    r"|\x1b\[\d+;\d+H"  # a place
    r"|\x1b\[\?2026[hl]"  # a picture begins or ends
    r"|\x1b\]8;id=[0-9-]+;https?://[!-~]+\x1b\\|\x1b\]8;;\x1b\\"  # a link begins or ends
)


class Recorded(HeadlessDriver):
    """Keeps what the terminal would get."""

    written = ""

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written += data


class Framed(App[None]):
    """A log between two other widgets."""

    ENABLE_COMMAND_PALETTE = False
    CSS = f"Static {{ width: {SIDE}; height: 100%; }} RowLog {{ width: 1fr; }}"

    def __init__(self) -> None:
        super().__init__(driver_class=Recorded, ansi_color=native())

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static("\n".join(["L" * SIDE] * HEIGHT))
            yield RowLog()
            yield Static("\n".join(["R" * SIDE] * HEIGHT))

    def written(self) -> str:
        """What was written since the last call."""
        driver = self._driver
        assert isinstance(driver, Recorded)
        written, driver.written = driver.written, ""
        return written


def _known(letter: str) -> bool:
    return bool(
        cell_len(letter) or unicodedata.combining(letter) or unicodedata.category(letter) == "Cc"
    )


class Screen:
    """A terminal."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(WIDTH, HEIGHT)
        self._stream = pyte.Stream(self.screen)

    def feed(self, text: str) -> None:
        # pyte does not know the marks around a picture, and would show the end of a link. What stands behind a
        # vowel sign over a letter it drops.
        known = re.sub(r"\x1b\[\?2026[hl]|\x1b\]8;[^\x1b]*\x1b\\", "", text)
        self._stream.feed("".join(filter(_known, known)))

    def columns(self, first: int, last: int) -> list[str]:
        return [
            "".join(self.screen.buffer[y][x].data for x in range(first, last))
            for y in range(HEIGHT)
        ]


@asynccontextmanager
async def framed() -> AsyncGenerator[tuple[Pilot[None], Screen, RowLog]]:
    app = Framed()
    async with app.run_test(headless=False, size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        yield pilot, Screen(), app.query_one(RowLog)


async def written_for(pilot: Pilot[None], screen: Screen, *blocks: Block) -> str:
    """Show blocks and nothing else; returns what was written for the whole screen."""
    app = pilot.app
    assert isinstance(app, Framed)
    log = app.query_one(RowLog)
    app.written()
    log.clear()
    log.put(blocks)
    log.refresh()
    for widget in app.query(Static):
        widget.refresh()
    await pilot.pause()
    written = app.written()
    screen.feed(written)
    return written


def left_over(written: str) -> str:
    """What is neither ours nor plain text: a terminal could act on it, or hide it."""
    rest = _OURS.sub("", written)
    return "".join(c for c in rest if c != "\n" and unicodedata.category(c) in _ACTS)
