"""A post room as Prometheus sees it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from postroom.control import measuring
from postroom.control.org import Organisation, open_orgs
from postroom.control.statefile import Announcement
from postroom.identity.tokens import OperatorKey
from tests.control.taskroom import KEY, TaskRoom, task_room

_LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Labels = frozenset[tuple[str, str]]


@dataclass
class Scrape:
    """The metrics of one answer: kind by name, and value by name and labels."""

    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[Labels, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Scrape:
        """Read the text format strictly: what Prometheus would refuse fails."""
        made, open_family = cls(), ""
        assert text.endswith("\n")
        for line in text.splitlines():
            if line.startswith("# "):
                _, word, open_family, rest = line.split(" ", 3)
                if word == "TYPE":
                    assert open_family not in made.kinds, f"{open_family} comes twice"
                    made.kinds[open_family] = rest
                continue
            found = _LINE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            suffixes = ("_sum", "_count") if made.kinds[open_family] == "summary" else ("",)
            assert name in {open_family + suffix for suffix in suffixes}, line
            key = frozenset(_LABEL.findall(labels or ""))
            assert key not in made.values.setdefault(name, {}), f"{line} comes twice"
            made.values[name][key] = float(value)
        return made

    def of_labels(self, name: str, **labels: str) -> float:
        """The sum of the values of a metric with these labels; 0 without any."""
        wanted = set(labels.items())
        return sum(v for key, v in self.values.get(name, {}).items() if wanted <= key)


@dataclass
class Measured:
    """A room whose API shows metrics."""

    room: TaskRoom

    async def scrape(self) -> Scrape:
        """What it shows now."""
        answer = await self.room.api.get("/metrics")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scrape.of(answer.text)


@asynccontextmanager
async def measured_room(folder: Path, **chosen: Any) -> AsyncGenerator[Measured]:
    """A room with the routes of the default organisation of a post room."""
    async with task_room(folder, **chosen) as room:
        patch = pytest.MonkeyPatch()
        patch.setattr(measuring, "FRESH", 0.0)  # nothing that was read before is shown again
        org = Organisation(room.parts, OperatorKey(Path(), KEY))
        announcement = Announcement(
            url="", pid=1, token="", nats_url="", nats_pid=1, started_at="", version="", state=""
        )
        orgs = open_orgs(room.parts.installation, org, room.rig.trust, lambda: announcement)
        await org.go(lambda: announcement, orgs)
        yield Measured(room)
        patch.undo()
