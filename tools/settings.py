"""Write the tables of settings in docs/operating.md from `postroom.settings.options`: `python -m tools.settings`.

A test fails when the document is stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from postroom.settings.options import BESIDE, INSIDE
from postroom.settings.sources import defaults

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "operating.md"
BEGIN = "<!-- `python -m tools.settings` writes from here on -->\n"
END = "<!-- to here -->\n"
ALONE = "Read from the environment alone, since they say where the files are or who is asked:"
SET = "Set by Postroom in each sandbox, for [agents](agents.md):"


def written(document: str) -> str:
    """`document` with the tables as they are now between its two marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(_lines()) + "\n" + END + after


def _lines() -> Iterator[str]:
    yield from (
        "",
        "| setting | variable, option | meaning | default |",
        "| --- | --- | --- | --- |",
    )
    for found in defaults():
        one = found.option
        names = f"`{one.variable}`" + (f", `{one.flag}`" if one.flag else "")
        meaning = one.meaning + (f" ({', '.join(one.choices)})" if one.choices else "")
        yield f"| `{one.key}` | {names} | {meaning} | {found.text or '-'} |"
    yield from ("", ALONE, "", *_table(BESIDE), "", SET, "", *_table(INSIDE), "")


def _table(variables: Mapping[str, str]) -> Iterator[str]:
    yield from ("| variable | meaning |", "| --- | --- |")
    for name, meaning in variables.items():
        yield f"| `{name}` | {meaning} |"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
