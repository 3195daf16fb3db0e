"""Agents' Markdown, drawn for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.lines.markdown import drawn
from postroom.lines.rows import Style
from postroom.tui.worker.blocks import PIECE, EventBlocks
from postroom_a2a.text import printable

WRITTEN = r"""# What I **found**
Two `a*b` and snake_case, *.py, __init__, \*kept\* and [docs](https://x.example/a_(b)) ![logo](https://x.example/l.png)
  * nested **one**
3. third
> quoted
***
| name | n |
|:-----|--:|
| `a\|b` | **12** |
| long name | 3 |
```python
def f(): return "**x**"
```
<b>html</b> <!-- hidden? -->"""

SHOWN = r"""What I found
Two a*b and snake_case, *.py, __init__, *kept* and docs (https://x.example/a_(b)) image: logo (https://x.example/l.png)
  • nested one
3. third
│ quoted
────────────────────────
name      │ n
──────────┼───
a|b       │ 12
long name │ 3
┄┄ python
  def f(): return "**x**"
┄┄
<b>html</b> <!-- hidden? -->"""


def text_of(lines: list[str], fence: str = "") -> list[str]:
    return ["".join(span.text for span in spans) for spans in drawn(lines, fence)[0]]


@pytest.mark.requirement("screen-scrollback")
def test_markdown_is_drawn_line_by_line_and_nothing_of_it_is_hidden():
    made, fence = drawn(WRITTEN.split("\n"))
    assert ["".join(span.text for span in spans).rstrip() for spans in made] == SHOWN.split("\n")
    assert fence == ""
    styles = {span.text: span.style for spans in made for span in spans}
    assert styles["found"] is Style.STRONG
    assert styles["a*b"] is Style.TOOL
    assert styles['  def f(): return "**x**"'] is Style.TOOL


@pytest.mark.requirement("screen-scrollback")
@given(st.lists(st.text(st.sampled_from("ab *_`~[]()|\\-#>!:\x1b\u202e\n\t1."), max_size=40)))
def test_any_text_is_as_many_harmless_lines_and_keeps_its_letters(texts: list[str]):
    lines = [line for text in texts for line in text.split("\n")]
    made, _ = drawn(lines)
    assert len(made) == len(lines)
    for line, spans in zip(lines, made, strict=True):
        shown = "".join(span.text for span in spans)
        assert not set(shown) & set("\x1b\u202e\n\t")
        for letter in "ab":
            assert (letter in shown) == (letter in printable(line))


def test_a_long_text_that_comes_in_pieces_keeps_its_code_open_from_block_to_block():
    blocks = EventBlocks("coder")
    code = "\n".join(f"**{n}**" for n in range(2 * PIECE))
    found = blocks.of([{"type": "text", "text": f"look:\n```\n{code}\n```\n**done**"}])
    rows = [row.text.strip() for block in found for row in block.rows]
    assert rows[2] == "**0**"
    assert f"**{2 * PIECE - 1}**" in rows
    assert rows[-1] == "done"
