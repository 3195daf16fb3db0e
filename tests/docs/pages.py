"""What our pages show, read as a reader would: named blocks, commands, and what the commands print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: (?P<name>[\w./-]+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Command:
    """A line after `$`, without its comment, and the lines below it: what it prints, where the page shows that."""

    words: str
    prints: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is (the second word of the fence), its text, the heading above."""

    language: str
    name: str
    text: str
    section: str

    @property
    def commands(self) -> list[Command]:
        """The commands of a `console` block in their order; a `\\` at the end of a line joins the next one to it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.replace("\\\n", "").splitlines():
            if line.startswith("$ "):
                found.append((_without_comment(line[2:]), []))
            elif found:
                found[-1][1].append(line)
        return [Command(words, tuple(prints)) for words, prints in found]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(m["language"], m["name"] or "", m["text"], _heading(text[: m.start()]))
        for m in _FENCE.finditer(text)
    ]


def _heading(above: str) -> str:
    found = re.findall(r"^## (.+)$", above, re.MULTILINE)
    return found[-1] if found else ""


def matches(pattern: str, line: str) -> bool:
    """Whether a line is what the page shows; `…` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), line) is not None


def _without_comment(line: str) -> str:
    """A comment begins with two spaces or more and `#`; `'#demo'` is none."""
    return re.split(r"\s{2,}# ", line)[0].rstrip()
