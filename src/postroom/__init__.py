"""Postroom: the post room for AI agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom.client.agent import Agent
    from postroom.client.said import File

__version__ = "0.1.0"

__all__ = ["Agent", "File", "__version__"]

_LAZY = {"Agent": "postroom.client.agent", "File": "postroom.client.said"}
"""Loaded when they are asked for: a command pays for nothing that it does not use."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
