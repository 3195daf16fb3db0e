"""The ways in which a worker works on a folder of the machine."""

from __future__ import annotations

WORKTREE = "worktree"
"""In a repository of its own, on a branch that comes back; uncommitted changes are left out."""
COPY = "copy"
"""On a copy of the folder with all that is in it."""
DIRECT = "direct"
"""In the folder itself, `.git` read-only."""

MODES = (WORKTREE, COPY, DIRECT)
