"""Agents' Markdown as a terminal shows it: a line for each line, so that a text may grow. Pure.

Headings, lists, quotes, rules, code, tables, bold text, code in a line, links as their text with the address beside it.
Everything else stays as it was written, HTML, too: nothing is hidden, nothing is loaded, and `Span` makes it harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from postroom.lines.rows import Span, Style
from postroom.lines.text import columns
from postroom_a2a.text import printable

Spans = tuple[Span, ...]

WIDEST = 40
"""Columns to which a cell of a table is padded."""

RULE = 24
"""Columns of a rule between paragraphs."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_ITEM = re.compile(r"([ \t]*)[-*+][ \t]+(?=\S)")
_QUOTE = re.compile(r" {0,3}>[ ]?")
_DASHES = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_CELL = re.compile(r"(?<!\\)\|")
_PIECE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)"
    r"|\*\*(?=\S)(?P<bold>.+?)(?<=\S)\*\*"
    r"|(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?P<url>[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)"
)
_TOO_LONG = 4000
"""Characters of a line beyond which it is shown as it is."""


def drawn(lines: Sequence[str], fence: str = "") -> tuple[list[Spans], str]:
    """Each line as pieces, and the fence of the code that is open behind the last one, "" for none.

    Args:
        fence: of the code that is open before the first.
    """
    made: list[Spans] = []
    # First: what is no text must not part the marks of one.
    lines = [printable(line) for line in lines]
    while len(made) < len(lines):
        line = lines[len(made)]
        found = _FENCE.match(line)
        if fence:
            closes = found and found[1].startswith(fence) and not found[2]
            made.append((_fence("") if closes else Span(f"  {line}", Style.TOOL),))
            fence = "" if closes else fence
        elif found:
            fence = found[1]
            made.append((_fence(found[2].strip()),))
        elif rows := _table_length(lines, len(made)):
            made += _table(lines[len(made) : len(made) + rows])
        else:
            made.append(_line(line))
    return made, fence


def _fence(language: str) -> Span:
    return Span(f"┄┄ {language}".rstrip(), Style.DIM)


def _line(line: str) -> Spans:
    if heading := _HEADING.match(line):
        return tuple(_inline(heading[1], Style.STRONG))
    if _RULE.match(line):
        return (Span("─" * RULE, Style.DIM),)
    if quote := _QUOTE.match(line):
        return (Span("│ ", Style.DIM), *_inline(line[quote.end() :], Style.DIM))
    if item := _ITEM.match(line):
        return (Span(f"{item[1]}• "), *_inline(line[item.end() :]))
    return tuple(_inline(line))


def _inline(text: str, style: Style = Style.PLAIN) -> Iterator[Span]:
    """The pieces of a line; of what does not nest as written the marks stay."""
    place = 0
    for found in _PIECE.finditer(text) if len(text) <= _TOO_LONG else ():
        if found.start() > place:
            yield Span(text[place : found.start()], style)
        place = found.end()
        if found["bold"] is not None:
            yield from _inline(found["bold"], Style.STRONG)
        elif found["code"] is not None:
            yield Span(found["code"], Style.TOOL)
        elif found["url"] is not None:
            yield Span(_link(found["image"], found["text"], found["url"]), style)
        else:
            yield Span(found["escaped"], style)
    if place < len(text) or not text:
        yield Span(text[place:], style)


def _link(image: str, text: str, url: str) -> str:
    """Its text and its address, which never stands for another one."""
    said = f"image: {text}" if image else text
    return url if said in ("", url) else f"{said} ({url})"


# ── tables ──


def _table_length(lines: Sequence[str], start: int) -> int:
    """Lines of the table that begins there, 0 for none."""
    if len(lines) <= start + 1 or "|" not in lines[start] or not _DASHES.match(lines[start + 1]):
        return 0
    if len(_cells(lines[start])) != len(_cells(lines[start + 1])):
        return 0
    end = start + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end - start


def _table(lines: Sequence[str]) -> Iterator[Spans]:
    """Cells below each other; a cell that is too wide goes on as far as it needs."""
    rows = [[tuple(_inline(cell)) for cell in _cells(line)] for line in lines]
    count = len(rows[0])
    widths = [
        min(WIDEST, max(_width(row[n]) for row in (rows[0], *rows[2:]) if n < len(row)))
        for n in range(count)
    ]
    for number, row in enumerate(rows):
        if number == 1:
            yield (Span("─┼─".join("─" * width for width in widths), Style.DIM),)
            continue
        made: list[Span] = []
        for n, cell in enumerate(row):
            made += [Span(" │ ", Style.DIM)] if n else []
            made += [span.part(span.text) for span in cell]
            if n < len(row) - 1 and n < count:
                made.append(Span(" " * max(0, widths[n] - _width(cell))))
        yield tuple(made)


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(inner)]


def _width(cell: Spans) -> int:
    return sum(columns(span.text) for span in cell)
