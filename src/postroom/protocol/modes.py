"""The ways in which a worker works on a folder of the machine."""

from __future__ import annotations

WORKTREE = "worktree"
"""In a repository of its own, on a branch that comes back; uncommitted changes are left out."""
COPY = "copy"
"""On a copy of the folder with all that is in it."""
DIRECT = "direct"
"""In the folder itself, `.git` read-only."""

BRINGS = "its branch brings what git takes for a git directory: "
"""Begins the note about a folder on a branch in which git would run what the worker named."""

BRINGS_LARGE = "its branch brings large files: "
BRINGS_BINARY = "its branch brings new binary files: "
LOOK = (BRINGS, BRINGS_LARGE, BRINGS_BINARY)
"""Begin what a person should look at before they merge."""

MODES = (WORKTREE, COPY, DIRECT)
