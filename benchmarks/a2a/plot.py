"""The comparison as a picture: bars of calls per second and of processor time per call, as SVG.

Its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.a2a.contenders import FLOOR, OWN, SDK, TRIVIAL
from benchmarks.a2a.findings import BUS, CLIENT, RATE, SERVER
from benchmarks.a2a.layout import Grid

WORK = "Message, 200 B"
PARTS = (CLIENT, SERVER, BUS)

_WIDTH, _LABELS, _BARS, _GAP, _NUMBER = 1000, 210, 270, 60, 56
_ROW, _BAR, _HEAD = 22, 14, 34
_OURS = ("NATS,", "NATS+JS,", "NATS JSON,")

_STYLE = """\
.page { fill: #ffffff } text { fill: #1f2328; font: 12px system-ui, sans-serif }
.title { font-size: 15px; font-weight: 600 } .group { font-weight: 600 }
.quiet { fill: #656d76 } .end { text-anchor: end }
.other { fill: #8c959f } .ours { fill: #0969da }
.client { fill: #0969da } .server { fill: #bf8700 } .bus { fill: #8c959f }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .quiet { fill: #9198a1 }
.other { fill: #6e7681 } .ours { fill: #4493f8 }
.client { fill: #4493f8 } .server { fill: #d29922 } .bus { fill: #6e7681 }
}"""


def plot(result: dict[str, Any]) -> str:
    """The picture of a result."""
    grid = Grid(result)
    counts = grid.concurrencies(WORK)
    return _Drawing(grid, counts[-1] if counts else 0).svg(result)


class _Drawing:
    def __init__(self, grid: Grid, concurrency: int) -> None:
        self._grid = grid
        self._concurrency = concurrency
        self._y = 0.0
        self._shapes: list[str] = []

    def svg(self, result: dict[str, Any]) -> str:
        title = f"A2A calls, {WORK}, {self._concurrency} at a time"
        subtitle = f"medians; {result['cores']} cores, Python {result['versions']['python']}, {result['date'][:10]}"
        self._text(16, 26, title, "title")
        self._text(16, 46, subtitle, "quiet")
        self._y = 66
        self._legend()
        for group in (FLOOR, OWN, SDK, TRIVIAL):
            titles = [each for each in self._grid.group(group) if self._value(each, RATE)]
            if titles:
                self._group(group, sorted(titles, key=lambda each: -self._value(each, RATE)))
        height = self._y + 12
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" '
            f'width="{_WIDTH}" height="{height:g}" role="img" aria-label="{escape(title)}">\n'
            f"<style>{_STYLE}</style>\n"
            f'<rect class="page" width="{_WIDTH}" height="{height:g}"/>\n'
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )

    def _legend(self) -> None:
        left, right = _columns()
        self._text(left, self._y, "calls/s", "group")
        self._text(right, self._y, "CPU per call, µs:", "group")
        x = right + 122.0
        for part in PARTS:
            name = part.removeprefix("CPU ")
            self._bar(x, self._y - 10, 11, 11, name)
            self._text(x + 16, self._y, {"bus": "server between"}.get(name, name))
            x += 66

    def _group(self, group: str, titles: Sequence[str]) -> None:
        left, right = _columns()
        self._y += _HEAD
        self._text(16, self._y, group, "group")
        self._y += 8
        # Each group has a scale of its own: a floor would make the others' bars invisible.
        most = max(self._value(each, RATE) for each in titles)
        dearest = max(self._cost(each) for each in titles)
        for title in titles:
            middle = self._y + _ROW / 2
            self._text(_LABELS, middle + 4, title, "end")
            rate = self._value(title, RATE)
            colour = "ours" if title.startswith(_OURS) else "other"
            self._bar(left, middle - _BAR / 2, _BARS * rate / most, _BAR, colour)
            self._text(left + _BARS * rate / most + 6, middle + 4, f"{rate:,.0f}")
            x = float(right)
            for part in PARTS:
                width = _BARS * self._value(title, part) / dearest
                self._bar(x, middle - _BAR / 2, width, _BAR, part.removeprefix("CPU "))
                x += width
            self._text(x + 6, middle + 4, f"{self._cost(title):,.0f}")
            self._y += _ROW

    def _value(self, title: str, measure: str) -> float:
        return self._grid.value(WORK, self._concurrency, title, measure) or 0.0

    def _cost(self, title: str) -> float:
        return sum(self._value(title, part) for part in PARTS)

    def _bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        if width > 0:
            self._shapes.append(
                f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
            )

    def _text(self, x: float, y: float, words: str, style: str = "") -> None:
        named = f' class="{style}"' if style else ""
        self._shapes.append(f'<text{named} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>')


def _columns() -> tuple[int, int]:
    left = _LABELS + 12
    return left, left + _BARS + _NUMBER + _GAP
