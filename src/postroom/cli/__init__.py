"""The command line. Importing it, or asking for help, loads click and nothing heavier."""

from __future__ import annotations

from postroom.cli.root import main

__all__ = ["main"]
