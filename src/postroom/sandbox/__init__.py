"""Wall 2: it isolates a worker from its machine, and from everything but its gateway."""

from __future__ import annotations
