"""Dialogs over a real control plane."""

from __future__ import annotations

import pytest

from postroom.tui.needs import dialog


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys count soon after a dialog opens."""
    monkeypatch.setattr(dialog, "GUARD", 0.05)
    monkeypatch.setattr(dialog, "WORD", 0.0)  # tests press keys faster than people
