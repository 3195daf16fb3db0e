"""A real sidecar with the scripted coding agent behind the adapter `claude`."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.prefork import Forked
from tests.sidecar.worker_rig import WorkerRig

CODER = Path(__file__).resolve().parents[2] / "fakes" / "coder.py"

TURNS: dict[str, Any] = {"instructions": False, "autonomous": True, "stall_after": 0}
"""Rules with which the agent asks nobody."""


def coder(*, command: tuple[str, ...] = (), **turns: Any) -> dict[str, Any]:
    """The agent's configuration; `turns` are rules of `sidecar.turns.config`."""
    words = list(command) or [sys.executable, str(CODER)]
    return {"adapter": "claude", "command": words, "turns": TURNS | turns}


@asynccontextmanager
async def coding(home: WorkerRig, /, **turns: Any) -> AsyncGenerator[Forked]:
    """A running sidecar with the scripted agent."""
    changes = turns.pop("changes", {})
    async with home.sidecar("", agent=coder(**turns), **changes) as process:
        yield process


def sessions(home: WorkerRig) -> dict[str, list[dict[str, str]]]:
    """What the agent's session files hold: session to its prompts and answers."""
    folder = home.folder / "state" / "home" / ".coder"
    return {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.jsonl"))
    }


def prompts(home: WorkerRig) -> list[str]:
    """All prompts that the agent was given, in all sessions."""
    kept = [each for session in sessions(home).values() for each in session]
    return [each["text"] for each in kept if each["role"] == "user"]
