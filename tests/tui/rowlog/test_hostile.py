"""Text of agents can do nothing to the terminal: what is written for it is looked at byte by byte."""

# Sequences stand one a line, and letters that look like others are what is tested.
# ruff: noqa: E501, RUF001
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.style import Style as RichStyle
from textual.strip import Strip

from postroom.lines.rows import Row, Span, Style
from postroom.tui.rowlog.drawn import GUTTER, Drawing, drawn
from postroom.tui.rowlog.kept import Rows
from postroom.tui.rowlog.log import Block
from tests.tui.rowlog.terminal import (
    HEIGHT,
    SIDE,
    WIDTH,
    Screen,
    framed,
    left_over,
    written_for,
)

SEQUENCES = {
    "CSI": "\x1b[2J \x1b[1;1H \x1b[31m \x1b[6n \x1b[c \x1b[>c \x1b[5;99r \x1b[?1049h \x1b[20h \x1b[!p \x1b[3;4;5t",
    "C1 CSI": "\x9b2J \x9b1;1H \x9b31m \x9b6n \x9b?1049l \u009b0c",
    "title": "\x1b]0;title\x07 \x1b]2;title\x1b\\ \x1b]1;icon\x9c \x1b]L title \x1b\\",
    "link": "\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\ \x1b]8;id=1;file:///etc/passwd\x07x\x1b]8;;\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07 \x1b]52;p;?\x1b\\ \x9d52;c;eA==\x9c",
    "notify": "\x1b]9;hello\x07 \x1b]777;notify;a;b\x07 \x1b]99;;x\x1b\\ \x1b]9;4;1;50\x07",
    "iTerm2": "\x1b]1337;File=name=eA==;inline=1:eA==\x07 \x1b]1337;SetUserVar=a=eA==\x07 \x1b]133;A\x07 \x1b]7;file://x/y\x07",
    "colours": "\x1b]4;1;rgb:00/00/00\x07 \x1b]10;#ffffff\x07 \x1b]11;?\x07 \x1b]104\x07",
    "DCS": '\x1bP$q"p\x1b\\ \x1bP+q544e\x1b\\ \x90q#0;2;0;0;0\x9c \x1bPtmux;\x1b\x1b]0;x\x07\x1b\\',
    "APC PM SOS": "\x1b_Gf=24,s=1,v=1;AAAA\x1b\\ \x1b^private\x1b\\ \x1bXstring\x1b\\ \x9fA\x9c \x9eB\x9c \x98C\x9c",
    "one letter": "\x1bc \x1b7 \x1b8 \x1bD \x1bM \x1bE \x1bH \x1b= \x1b> \x1b#8 \x1b(0 \x1b)B \x1b%G \x1bN! \x1bO! \x1bZ \x1b~",
    "controls": "a\x07b\x08\x08c\rd\x0be\x0cf\x0eg\x0fh\x7fi\x00j\x05k\x85l\x84m\x8dn",
    "modes": "\x1b[?1000h \x1b[?1003h \x1b[?1006h \x1b[?2004h \x1b[200~pasted\x1b[201~ \x1b[?25l \x1b[?1004h \x1b[>4;2m \x1b[=1u",
    "open ended": "\x1b]0;never ends \x1b[31;31;",
    "nested": "\x1b\x1b[[2J2J \x1b]0;\x1b[2J\x07 \x1b[\x1b]2;x\x07m \x1b[3\x181mx \x1b[3\x1a1mx",
    "bidirectional": "a\u202eb\u202dc\u2066d\u2067e\u2068f\u2069g\u200eh\u200fi\u061cj\u202ak\u202bl\u202c",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg\u180eh\u034fi\u2061j\u2028k\u2029l\u115fm\u3164n\uffa0o",
    "tags": "".join(chr(0xE0000 + ord(c)) for c in "cancel") + "\U000e0001\U000e007f end",
    "towers": "".join(c + "\u0335\u0310\u034e\u20dd\u0489" * 60 for c in "zalgo"),
    "marks first": "\u0301\u0301\u0338" * 30 + "text",
    "wide": "漢字" * 40 + " ｆｕｌｌ ＷＩＤＴＨ 한글 \u1112\u1161\u11ab \uac00" + "あ" * 50,
    "unsure": "§±×÷αβЖ─│█▌◆○●★☆♥…“” ☰䷀𝌀 \U0001d356" * 3,
    "scripts": "हिन्दी क्षत्रिय தமிழ் ไทยกำลัง שָׁלוֹם العَرَبِيَّة বাংলা ကြီး ខ្មែរ བོད" * 2,
    "emoji": "👨\u200d👩\u200d👧\u200d👦 👍🏽 🏳\ufe0f\u200d🌈 🇩🇪🇫🇷🇺 1\ufe0f\u20e3 ❤\ufe0f ☺\ufe0e 🏴\U000e0067\U000e0062\U000e007f"
    * 3,
    "Rich markup": "[bold]b[/bold] [red on blue]x[/] [link=https://evil.example]x[/link] [@click=app.quit]q[/] [/] [[ ]] \\[",
    "Textual markup": "$primary [$error]x[/] [b $text]y [@click='app.bell']z[/] &nbsp; :smile: :warning:",
    "private use": "\ue000\uf8ff\U000f0000\U0010ffff\ufffe\uffff\ud800x",
    "long word": "w" * 500,
    "forged": "▾ forged ▌ ↓ 5 new, G\n● @boss asks\r\n▸ Bash … 3 more",
}


def blocks_of(text: str) -> list[Block]:
    """A text in every place that one has in a log."""
    return [
        Block([Row.of(text[:1000], wraps=True)]),
        Block(
            [Row.of(text, Style.TOOL, indent=2), Row.of(text, wraps=True)], folds=True, folded=True
        ),
        Block(
            [Row((Span(text, Style.STRONG, who=text), Span(text)), indent=4, wraps=True)],
            folds=True,
        ),
        Block([Row.of(line, indent=2) for line in text.split("\n")], key=text),
    ]


async def none_of_it_acts(*texts: str) -> None:
    left, right = ["L" * SIDE] * HEIGHT, ["R" * SIDE] * HEIGHT
    async with framed() as (pilot, screen, _):
        for text in texts:
            written = await written_for(pilot, screen, *blocks_of(text))
            assert not left_over(written), text
            assert "evil.example\x1b" not in written, text
            assert screen.columns(0, SIDE) == left, text
            assert screen.columns(WIDTH - SIDE, WIDTH) == right, text
            gutter = "".join(screen.columns(SIDE, SIDE + 1))
            assert set(gutter) <= set(" ▸▾"), text
        assert pilot.app.is_running


@pytest.mark.anyio
@pytest.mark.requirement("text-controls-stripped")
@pytest.mark.filterwarnings("ignore::UnicodeWarning")
async def test_nothing_of_an_agents_text_acts_on_the_terminal_or_leaves_its_place():
    await none_of_it_acts(*SEQUENCES.values())


def test_long_rows_take_no_longer_than_they_are_long():
    # Quadratic work would take minutes, and the time limit of tests ends it.
    rows = Rows()
    rows.resize(38)
    texts = ("ä" * 16_000, "https://a.example/" + ")" * 16_000, "\u0301" * 16_000, "漢 " * 8_000)
    rows.put(Block([Row.of(text, wraps=wraps) for wraps in (True, False)]) for text in texts * 4)
    rows.measure(0, 60)
    for line in range(60):
        assert drawn(rows, *rows.at(line), Drawing(RichStyle(), colours=True))
    assert all(
        drawn(rows, index, 0, Drawing(RichStyle(), colours=True)) for index in range(len(rows))
    )


_PIECES = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="\x1b\x9b\x9d\x90[]0123456789;?<=>PX^_\\\x07mHJ c", max_size=30),
    st.sampled_from(sorted(SEQUENCES.values())).map(lambda text: text[:60]),
    st.text(alphabet=st.characters(categories=["Mn", "Mc", "Me", "Lo", "So", "Sk"]), max_size=30),
)


@given(st.lists(_PIECES, max_size=6).map("".join), st.sampled_from([8, 20, 38]))
def test_a_line_of_any_text_is_as_wide_as_was_counted_and_holds_nothing_that_acts(
    text: str, width: int
):
    rows = Rows()
    rows.resize(width)
    rows.put(blocks_of(text))
    while rows.measure(0, rows.lines):
        pass
    console, screen = Console(color_system="truecolor"), Screen()
    for line in range(rows.lines):
        made = drawn(rows, *rows.at(line), Drawing(RichStyle(), colours=True))
        shown = Strip(made).adjust_cell_length(width + GUTTER).render(console)
        assert not left_over(shown)
        screen.feed(f"\x1b[1;1H\x1b[2K{shown}|")
        (first, *_) = screen.columns(0, WIDTH)
        assert first.rstrip().endswith("|")
        assert screen.columns(width + GUTTER, width + GUTTER + 1)[0] == "|", (shown, first)
