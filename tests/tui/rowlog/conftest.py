"""A log by itself, without a post room."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.pilot import Pilot

from postroom.lines.rows import Row
from postroom.tui.news import Said
from postroom.tui.rowlog.log import Block, RowLog


class LogApp(App[None]):
    """A log, and what it tells."""

    CSS = "Screen { layout: vertical; }"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.told: list[Any] = []
        self.urls: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield RowLog()

    def on_mount(self) -> None:
        self.log_widget.focus()

    @property
    def log_widget(self) -> RowLog:
        return self.query_one(RowLog)

    def on_row_log_at_top(self, event: RowLog.AtTop) -> None:
        self.told.append(event)

    def on_row_log_opened(self, event: RowLog.Opened) -> None:
        self.told.append(event)

    def on_said(self, event: Said) -> None:
        self.told.append(event)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        self.urls.append(url)


@asynccontextmanager
async def a_log(
    *blocks: Block, size: tuple[int, int] = (40, 10)
) -> AsyncGenerator[tuple[Pilot[None], RowLog]]:
    app = LogApp()
    async with app.run_test(size=size) as pilot:
        app.log_widget.put(blocks)
        await pilot.pause()
        yield pilot, app.log_widget


def of_app(log: RowLog) -> LogApp:
    assert isinstance(log.app, LogApp)
    return log.app


def block(*texts: str, key: str = "", **more: Any) -> Block:
    """A block of rows that wrap; all but the first are indented."""
    rows = [Row.of(text, indent=2 * bool(n), wraps=True) for n, text in enumerate(texts)]
    return Block(rows, key, **more)


def many(count: int, first: int = 0) -> list[Block]:
    return [block(f"row {n}", key=f"k{n}") for n in range(first, first + count)]


def shown(log: RowLog) -> list[str]:
    """The lines of the log on the screen, without the gutter and the scrollbar."""
    return [
        log.render_line(y).text[1:].rstrip() for y in range(log.scrollable_content_region.height)
    ]
