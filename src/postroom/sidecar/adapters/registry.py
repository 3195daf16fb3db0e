"""Adapters for coding agents by name: ours, and those of other packages.

Another package brings one by an entry point of the group `postroom.adapters`: its name is the adapter's, its object is
called with a `Setup` and returns a `TurnAdapter`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from postroom.errors import InvalidInput
from postroom.protocol.template import ADAPTER_GROUP, TURN_ADAPTERS
from postroom.sidecar.adapters.turns import Setup, TurnAdapter

_OURS = {
    "acp": ("acp", "Acp"),
    "claude": ("claude", "Claude"),
    "codex": ("codex", "Codex"),
    "codex-exec": ("codex_exec", "CodexExec"),
    "gemini": ("gemini", "Gemini"),
    "goose": ("goose", "Goose"),
    "opencode": ("opencode", "OpenCode"),
}
"""Adapter to its module below `postroom.sidecar.adapters` and its class; each is imported only when it is used."""


def turn_adapter(name: str) -> Callable[[Setup], TurnAdapter]:
    """What makes the adapter called `name`; raises InvalidInput where no package has one."""
    if name in _OURS:
        module, attribute = _OURS[name]
        return getattr(import_module(f"postroom.sidecar.adapters.{module}"), attribute)
    found = next(iter(entry_points(group=ADAPTER_GROUP, name=name)), None)
    if found is None:
        raise InvalidInput(
            f"there is no adapter {name!r}",
            remedy=f"one of {', '.join(TURN_ADAPTERS)}, or install the package that has it",
        )
    return found.load()
