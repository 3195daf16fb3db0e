"""Gemini CLI and OpenCode as somebody installed them: found in PATH, or in a folder of npm that `AGENTS` names.

npm install --prefix FOLDER @google/gemini-cli@0.61.0 opencode-ai@1.18.33
AGENTS=FOLDER python -m pytest -m slow tests/agents
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.fakes.model.server import FakeModel


def installed(name: str) -> str:
    """The program's path; skips the test where there is none."""
    bins = str(Path(os.environ.get("AGENTS", "/nowhere"), "node_modules", ".bin"))
    found = shutil.which(name, path=os.pathsep.join((bins, os.environ["PATH"])))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def variables(name: str, home: Path, model: FakeModel) -> dict[str, str]:
    """The environment by which an agent finds the fake model."""
    own = {"HOME": str(home)}
    if name == "gemini":
        return own | {
            "GOOGLE_GEMINI_BASE_URL": model.url,
            "GEMINI_API_KEY": "none",
            "GEMINI_MODEL": "gemini-2.5-flash",
        }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Fake",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "none"},
        "models": {"fake-model": {"name": "Fake"}},
    }
    names = {"model": "fake/fake-model", "small_model": "fake/fake-model"}
    return own | {"OPENCODE_CONFIG_CONTENT": json.dumps({**names, "provider": {"fake": provider}})}
