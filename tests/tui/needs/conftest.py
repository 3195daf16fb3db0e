"""Dialogs over a real control plane, as if no agent were above these tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.client import belonging
from postroom.tui.needs import dialog


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if nobody above these tests were an agent; keys count soon after a dialog opens."""
    monkeypatch.setattr(dialog, "GUARD", 0.05)
    for name in belonging.MARKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(belonging.refuse_agents, "__defaults__", (os.environ, tmp_path / "proc"))
