"""Whether a command runs inside a worker, or below a coding agent.

A courtesy: it keeps an agent from deciding by mistake what it was to ask a person. A program that wants to gets around
it (docs/security.md, Approvals and PINs).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from postroom.errors import Forbidden

MARKS = {
    "POSTROOM_API": "a worker",
    "CLAUDECODE": "Claude Code",
    "CODEX_SANDBOX": "Codex",
    "CODEX_SANDBOX_NETWORK_DISABLED": "Codex",
    "GEMINI_CLI": "Gemini CLI",
    "OPENCODE": "OpenCode",
    "GOOSE_TERMINAL": "goose",
}
"""Variables that these programs set for what they run."""

NAMES = frozenset({"claude", "codex", "gemini", "goose", "opencode"})
"""Names of their programs."""

RUNTIMES = frozenset({"node", "nodejs", "bun", "deno"})
"""Programs that run another one, which their first argument names."""

MOST = 64
"""Ancestors that are looked at."""


def refuse_agents(
    command: str, environment: Mapping[str, str] = os.environ, proc: Path = Path("/proc")
) -> None:
    """Raise Forbidden where a coding agent seems to run `postroom <command>`.

    Args:
        proc: where Linux shows processes; elsewhere only the environment is looked at.
    """
    found = next((who for name, who in MARKS.items() if environment.get(name)), "")
    found = found or next((name for name in _ancestors(proc) if name in NAMES), "")
    if found:
        raise Forbidden(
            f"`postroom {command}` is for people, and this runs inside {found}",
            remedy="a person decides in a terminal of their own",
        )


def _ancestors(proc: Path) -> Iterator[str]:
    """The names of the processes above this one, as far as they can be seen."""
    pid = os.getppid()
    for _ in range(MOST):
        try:
            # The name stands in parentheses and may have any character, so what follows counts from the last one.
            stat = (proc / str(pid) / "stat").read_text(errors="replace")
            words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return
        name, _, rest = stat.partition("(")[2].rpartition(")")
        yield name
        yield from _named(words)
        pid = int(rest.split()[1])
        if pid <= 1:
            return


def _named(words: list[str]) -> Iterator[str]:
    program = Path(words[0]).name
    yield program
    if program in RUNTIMES and len(words) > 1:
        yield Path(words[1]).stem
